/* oneDNN behind one thin file: see gemm_onednn.h. Versions 2 and 3 differ in how descriptors are made, nothing else.
 *
 * Distributions build oneDNN on OpenMP. Its number of threads is set per calling thread, at creation as at execution; the
 * functions are looked up at run time, so that whichever OpenMP runtime oneDNN brought along is the one that is asked. */
#include "backends/cpu/gemm_onednn.h"

#ifdef TANDEM_HAVE_ONEDNN

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"

enum { ARGUMENTS = 5 };
static const int argument_names[ARGUMENTS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                                              DNNL_ARG_SCRATCHPAD};

/* ---- descriptors, where the versions differ ------------------------------------------------------------------------------------ */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;
typedef const_dnnl_memory_desc_t description_view;

static dnnl_status_t describe(description *out, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, rank, dims, type, strides);
}

static void forget(description *d)
{
    (void)dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t make_matmul(dnnl_engine_t engine, const description d[4], bool has_bias,
                                 const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], has_bias ? d[2] : NULL, d[3], attr);
}

static dnnl_status_t describe_bytes(description *out, dnnl_dim_t bytes)
{
    return dnnl_memory_desc_create_with_tag(out, 1, (dnnl_dims_t){bytes}, dnnl_u8, dnnl_a);
}

static description_view view(const description *d)
{
    return *d;
}
#else
typedef dnnl_memory_desc_t description;
typedef const dnnl_memory_desc_t *description_view;

static dnnl_status_t describe(description *out, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, rank, dims, type, strides);
}

static void forget(description *d)
{
    (void)d;
}

static dnnl_status_t make_matmul(dnnl_engine_t engine, const description d[4], bool has_bias,
                                 const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &d[0], &d[1], has_bias ? &d[2] : NULL, &d[3]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : status;
}

static dnnl_status_t describe_bytes(description *out, dnnl_dim_t bytes)
{
    return dnnl_memory_desc_init_by_tag(out, 1, (dnnl_dims_t){bytes}, dnnl_u8, dnnl_a);
}

static description_view view(const description *d)
{
    return d;
}
#endif

/* ---- what is kept ------------------------------------------------------------------------------------------------------------ */

/* What one thread needs to run: oneDNN's memory objects carry the addresses. */
typedef struct slot {
    dnnl_stream_t stream;
    dnnl_memory_t memories[ARGUMENTS];
} slot;

struct td_onednn_primitive {
    td_gemm_tile tile;
    int32_t team;  /* 0: one thread and the caller's scratch; else threads of oneDNN's own */
    uint64_t used; /* by the cache's clock; 0: the entry is free */
    td_onednn *owner;
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
    description descriptions[ARGUMENTS]; /* of the arguments, scratch last */
    int32_t n_descriptions;
    slot *slots;
    int32_t n_slots;
};

struct td_onednn {
    dnnl_engine_t engine;
    uint64_t clock; /* counts uses; the entry used longest ago is replaced */
    td_onednn_primitive cache[TD_ONEDNN_CACHE];
};

/* ---- OpenMP ---------------------------------------------------------------------------------------------------------------- */

static pthread_once_t openmp_once = PTHREAD_ONCE_INIT;
static void (*openmp_set_threads)(int threads);
static int (*openmp_get_threads)(void);

static void find_openmp(void)
{
    void *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads"), *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    if (!set || !get)
        return;
    memcpy(&openmp_set_threads, &set, sizeof set); /* ISO C has no cast from an object to a function pointer */
    memcpy(&openmp_get_threads, &get, sizeof get);
}

int32_t td_onednn_threads(void)
{
    (void)pthread_once(&openmp_once, find_openmp);
    return openmp_get_threads ? openmp_get_threads() : 0;
}

void td_onednn_set_threads(int32_t threads)
{
    (void)pthread_once(&openmp_once, find_openmp);
    if (openmp_set_threads && threads > 0)
        openmp_set_threads(threads);
}

/* ---- primitives ------------------------------------------------------------------------------------------------------------------ */

/* A stored matrix whose rows are `leading` elements apart; transposed: it is read as its transpose. */
static dnnl_status_t describe_matrix(description *out, int64_t rows, int64_t columns, int64_t leading, bool transposed,
                                     dnnl_data_type_t type)
{
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {transposed ? 1 : leading, transposed ? leading : 1};
    return describe(out, 2, dims, type, strides);
}

static void clear(td_onednn_primitive *entry)
{
    for (int32_t s = 0; s < entry->n_slots; s++) {
        for (int32_t i = 0; i < ARGUMENTS; i++)
            (void)dnnl_memory_destroy(entry->slots[s].memories[i]);
        if (entry->slots[s].stream)
            (void)dnnl_stream_destroy(entry->slots[s].stream);
    }
    td_free(entry->slots);
    for (int32_t i = 0; i < entry->n_descriptions; i++)
        forget(&entry->descriptions[i]);
    (void)dnnl_primitive_destroy(entry->primitive);
    *entry = (td_onednn_primitive){0};
}

static dnnl_status_t describe_tile(td_onednn_primitive *entry)
{
    const td_gemm_tile *tile = &entry->tile;
    description *d = entry->descriptions;
    const dnnl_data_type_t type = tile->is_bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_status_t status = describe_matrix(&d[0], tile->m, tile->k, tile->lda, tile->transpose_a, type);
    entry->n_descriptions += status == dnnl_success;
    if (status == dnnl_success)
        status = describe_matrix(&d[1], tile->k, tile->n, tile->ldb, tile->transpose_b, type);
    entry->n_descriptions += status == dnnl_success;
    if (status == dnnl_success)
        status = describe_matrix(&d[2], 1, tile->n, tile->n, false, type);
    entry->n_descriptions += status == dnnl_success;
    if (status == dnnl_success)
        status = describe_matrix(&d[3], tile->m, tile->n, tile->ldc, false, type);
    entry->n_descriptions += status == dnnl_success;
    return status;
}

/* Bytes of scratch that a primitive without a team wants from its caller, and their description. */
static dnnl_status_t describe_scratch(td_onednn_primitive *entry, const_dnnl_primitive_desc_t pd)
{
    const dnnl_dim_t bytes = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    if (entry->team || bytes == 0)
        return dnnl_success;
    dnnl_status_t status = describe_bytes(&entry->descriptions[ARGUMENTS - 1], bytes);
    entry->n_descriptions += status == dnnl_success;
    entry->scratch_bytes = (size_t)bytes;
    return status;
}

/* C += A B, as oneDNN says it. */
static dnnl_status_t ask_to_accumulate(dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t post_ops = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&post_ops);
    if (status != dnnl_success)
        return status;
#if DNNL_VERSION_MAJOR >= 3
    status = dnnl_post_ops_append_sum(post_ops, 1.0f, 0, dnnl_data_type_undef);
#else
    status = dnnl_post_ops_append_sum(post_ops, 1.0f);
#endif
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attr, post_ops);
    (void)dnnl_post_ops_destroy(post_ops);
    return status;
}

static dnnl_status_t make_primitive(td_onednn_primitive *entry)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = describe_tile(entry);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success && !entry->team)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && entry->tile.accumulate)
        status = ask_to_accumulate(attr);
    if (status == dnnl_success)
        status = make_matmul(entry->owner->engine, entry->descriptions, entry->tile.has_bias, attr, &pd);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&entry->primitive, pd);
    if (status == dnnl_success)
        status = describe_scratch(entry, pd);
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t make_slot(td_onednn_primitive *entry, slot *new_slot)
{
    dnnl_engine_t engine = entry->owner->engine;
    dnnl_status_t status = dnnl_stream_create(&new_slot->stream, engine, dnnl_stream_default_flags);
    for (int32_t i = 0; i < entry->n_descriptions && status == dnnl_success; i++) {
        if (argument_names[i] == DNNL_ARG_BIAS && !entry->tile.has_bias)
            continue;
        status = dnnl_memory_create(&new_slot->memories[i], view(&entry->descriptions[i]), engine, DNNL_MEMORY_NONE);
    }
    return status;
}

static td_status *refused(const td_gemm_tile *tile, dnnl_status_t status)
{
    const td_code code = status == dnnl_out_of_memory   ? TD_OUT_OF_MEMORY
                         : status == dnnl_unimplemented ? TD_UNSUPPORTED
                                                        : TD_INTERNAL;
    return TD_ERROR(code, "oneDNN refuses a product of %lld x %lld x %lld (its status is %d)", (long long)tile->m,
                    (long long)tile->n, (long long)tile->k, (int)status);
}

/* Makes room for `slots` threads at once. */
static td_status *make_slots(td_onednn_primitive *entry, int32_t slots)
{
    if (slots <= entry->n_slots)
        return NULL;
    slot *more = td_realloc(entry->slots, (size_t)slots, sizeof *more);
    if (!more)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a matrix product");
    entry->slots = more;
    while (entry->n_slots < slots) {
        more[entry->n_slots] = (slot){0};
        dnnl_status_t status = make_slot(entry, &more[entry->n_slots++]);
        if (status != dnnl_success)
            return refused(&entry->tile, status);
    }
    return NULL;
}

static bool is_same_tile(const td_gemm_tile *a, const td_gemm_tile *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc &&
           a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b && a->has_bias == b->has_bias &&
           a->accumulate == b->accumulate && a->is_bf16 == b->is_bf16;
}

/* The entry of this tile, or the one to make it in. */
static td_onednn_primitive *find_entry(td_onednn *onednn, const td_gemm_tile *tile, int32_t team)
{
    td_onednn_primitive *oldest = &onednn->cache[0];
    for (int32_t i = 0; i < TD_ONEDNN_CACHE; i++) {
        td_onednn_primitive *entry = &onednn->cache[i];
        if (entry->used && entry->team == team && is_same_tile(&entry->tile, tile))
            return entry;
        if (entry->used < oldest->used)
            oldest = entry;
    }
    if (oldest->used)
        clear(oldest);
    return oldest;
}

static td_status *make_entry(td_onednn *onednn, const td_gemm_tile *tile, int32_t team, td_onednn_primitive *entry)
{
    *entry = (td_onednn_primitive){.tile = *tile, .team = team, .owner = onednn};
    int32_t before = td_onednn_threads();
    const uint64_t from = td_record_begin();
    td_onednn_set_threads(team ? team : 1);
    dnnl_status_t status = make_primitive(entry);
    td_onednn_set_threads(before);
    td_record_end(TD_RECORD_PREPARE, td_record_current.id, td_record_current.step, from, 0);
    if (status == dnnl_success)
        return NULL;
    clear(entry);
    return refused(tile, status);
}

td_status *td_onednn_prepare(td_onednn *onednn, const td_gemm_tile *tile, int32_t team, int32_t slots,
                             td_onednn_primitive **out_primitive)
{
    *out_primitive = NULL;
    td_onednn_primitive *entry = find_entry(onednn, tile, team);
    if (!entry->used)
        TD_TRY(make_entry(onednn, tile, team, entry));
    entry->used = ++onednn->clock;
    TD_TRY(make_slots(entry, slots));
    *out_primitive = entry;
    return NULL;
}

size_t td_onednn_scratch_bytes(const td_onednn_primitive *primitive)
{
    return primitive->scratch_bytes;
}

bool td_onednn_run(td_onednn_primitive *primitive, int32_t slot_index, const void *a, const void *b, const void *bias,
                   void *c, void *scratch)
{
    /* oneDNN takes inputs without const, and writes to none. */
    void *addresses[ARGUMENTS] = {(void *)a, (void *)b, (void *)bias, c, scratch};
    slot *own = &primitive->slots[slot_index];
    dnnl_exec_arg_t arguments[ARGUMENTS];
    int n_arguments = 0;
    for (int32_t i = 0; i < ARGUMENTS; i++) {
        if (!own->memories[i])
            continue;
        if (dnnl_memory_set_data_handle(own->memories[i], addresses[i]) != dnnl_success)
            return false;
        arguments[n_arguments++] = (dnnl_exec_arg_t){argument_names[i], own->memories[i]};
    }
    td_onednn_set_threads(primitive->team ? primitive->team : 1);
    return dnnl_primitive_execute(primitive->primitive, own->stream, n_arguments, arguments) == dnnl_success &&
           dnnl_stream_wait(own->stream) == dnnl_success;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------------- */

td_status *td_onednn_create(td_onednn **out_onednn)
{
    *out_onednn = NULL;
    td_onednn *onednn = NULL;
    TD_TRY(TD_NEW(onednn, 1));
    dnnl_status_t status = dnnl_engine_create(&onednn->engine, dnnl_cpu, 0);
    if (status != dnnl_success) {
        td_free(onednn);
        return TD_ERROR(TD_INTERNAL, "oneDNN gives no CPU engine (its status is %d)", (int)status);
    }
    *out_onednn = onednn;
    return NULL;
}

void td_onednn_destroy(td_onednn *onednn)
{
    if (!onednn)
        return;
    for (int32_t i = 0; i < TD_ONEDNN_CACHE; i++)
        if (onednn->cache[i].used)
            clear(&onednn->cache[i]);
    (void)dnnl_engine_destroy(onednn->engine);
    td_free(onednn);
}

void td_onednn_version(char *out, size_t bytes)
{
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(out, bytes, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

#endif
