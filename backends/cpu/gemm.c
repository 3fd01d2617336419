/* Cutting matrix products into tiles and running them: see gemm.h. */
#include "backends/cpu/gemm.h"

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/gemm_onednn.h"
#include "base/memory.h"

enum {
    SLOTS = 64,        /* tiles in flight at once, at most: each may need scratch */
    SCRATCH_BYTES = 16 << 20, /* of all slots, unless four take more */
    ALIGNMENT = 64,    /* bytes, of pieces of scratch */
    PARTS_WANTED = 16, /* tiles and parts together, for long sums */
    TILE_ROWS = 256,   /* at most */
    TILE_COLUMNS = 384 /* at most */
};

struct td_gemm {
    td_gemm_kind kind;
    td_isa isa;
    td_gemm_shape capacity;
    int32_t slots;
    size_t partial_bytes; /* at the start of the scratch: parts of sums */
    size_t slot_bytes;    /* then one piece for each slot: a library's scratch */
#ifdef TANDEM_HAVE_ONEDNN
    td_onednn *onednn;
    void *overflow; /* slots for a shape that needs more than those of the capacity did */
    size_t overflow_slot_bytes;
#endif
};

/* ---- the cut ----------------------------------------------------------------------------------------------------------------- */

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* A size cut into `pieces` equal ones, rounded up to a multiple of `unit`. */
static int64_t piece_of(int64_t size, int64_t pieces, int64_t unit)
{
    int64_t piece = divide_up(divide_up(size, pieces), unit) * unit;
    return piece < size ? piece : size;
}

/* Columns first: up to TILE_COLUMNS, since wide tiles reuse A best. Then rows, so that there are some 32 tiles of at least
 * 4 MFLOP and 64 rows. Where few tiles come of it and the sum is long, the sum is cut too. */
td_gemm_cut td_gemm_cut_of(const td_gemm_shape *shape)
{
    int64_t m = clamp(shape->m, 1, INT64_MAX), n = clamp(shape->n, 1, INT64_MAX), k = clamp(shape->k, 1, INT64_MAX);
    int64_t batch = clamp(shape->batch, 1, INT64_MAX);
    double flops = 2.0 * (double)m * (double)n * (double)k * (double)batch;
    int64_t wanted = (int64_t)(flops / 4e6 < 32 ? flops / 4e6 : 32) + 1;
    td_gemm_cut cut = {.tile_n = n, .tile_k = k, .parts = 1};
    if (n > TILE_COLUMNS)
        cut.tile_n = piece_of(n, divide_up(n, 256), 16);
    cut.tiles_n = divide_up(n, cut.tile_n);
    int64_t row_tiles = clamp(divide_up(wanted, cut.tiles_n * batch), divide_up(m, TILE_ROWS), divide_up(m, 64));
    cut.tile_m = piece_of(m, row_tiles, 16);
    cut.tiles_m = divide_up(m, cut.tile_m);
    int64_t tiles = cut.tiles_m * cut.tiles_n * batch;
    if (tiles < PARTS_WANTED && wanted > tiles) {
        int64_t parts = clamp(divide_up(wanted < PARTS_WANTED ? wanted : PARTS_WANTED, tiles), 1, clamp(k / 256, 1, INT64_MAX));
        cut.tile_k = piece_of(k, parts, 64);
        cut.parts = divide_up(k, cut.tile_k);
    }
    return cut;
}

/* The parts of a sum beyond the first, each beside the others at the tile's size. With p parts of t tiles, (p - 1) t is
 * below PARTS_WANTED by the rule above, at any shape. */
static size_t partial_bytes(const td_gemm_shape *capacity)
{
    if (capacity->k < 512)
        return 0;
    int64_t rows = clamp(capacity->m, 0, TILE_ROWS), columns = clamp(capacity->n, 0, TILE_COLUMNS);
    int64_t most = clamp(capacity->k / 256, 1, PARTS_WANTED) - 1;
    if (capacity->m > 64 || capacity->n > TILE_COLUMNS || capacity->batch > 1)
        most = PARTS_WANTED - 1;
    return (size_t)(most * rows * columns) * sizeof(float);
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------------------- */

static int64_t extent_of(int64_t size, int64_t piece, int64_t index)
{
    int64_t left = size - index * piece;
    return left < piece ? left : piece;
}

/* The first part of a sum goes to C; the others lie beside it, each as a matrix of the full tile's width. */
static td_gemm_tile tile_at(const td_gemm_shape *shape, const td_gemm_cut *cut, int64_t row, int64_t column, int64_t part)
{
    return (td_gemm_tile){
        .m = extent_of(shape->m, cut->tile_m, row),
        .n = extent_of(shape->n, cut->tile_n, column),
        .k = extent_of(shape->k, cut->tile_k, part),
        .lda = shape->transpose_a ? shape->m : shape->k,
        .ldb = shape->transpose_b ? shape->k : shape->n,
        .ldc = part == 0 ? shape->n : cut->tile_n,
        .transpose_a = shape->transpose_a,
        .transpose_b = shape->transpose_b,
        .has_bias = shape->has_bias && cut->parts == 1,
    };
}

/* A run under way. */
typedef struct gemm_run {
    td_gemm *gemm;
    const td_gemm_shape *shape;
    const td_gemm_operands *operands;
    td_gemm_cut cut;
    int64_t first_task; /* of this round */
    bool slot_is_task;  /* the slot is the task's place in the round rather than the thread */
    char *slots;        /* the library's scratch */
    size_t slot_bytes;
    atomic_bool failed;
#ifdef TANDEM_HAVE_ONEDNN
    /* By whether it is the last row, the last column; the first, a middle or the last part. */
    td_onednn_primitive *primitives[2][2][3];
#endif
} gemm_run;

static float *partial_at(const gemm_run *run, int64_t tile, int64_t part)
{
    const td_gemm_cut *cut = &run->cut;
    return (float *)run->operands->scratch + (tile * (cut->parts - 1) + part - 1) * cut->tile_m * cut->tile_n;
}

static void run_tile(void *context, int64_t index, int32_t thread)
{
    gemm_run *run = context;
    const td_gemm_cut *cut = &run->cut;
    const td_gemm_shape *shape = run->shape;
    int64_t task = run->first_task + index;
    int64_t part = task % cut->parts, tile_index = task / cut->parts;
    int64_t column = tile_index % cut->tiles_n, row = tile_index / cut->tiles_n % cut->tiles_m;
    int64_t product = tile_index / cut->tiles_n / cut->tiles_m;
    td_gemm_tile tile = tile_at(shape, cut, row, column, part);
    int64_t i = row * cut->tile_m, j = column * cut->tile_n, l = part * cut->tile_k;
    const float *a = run->operands->a + product * shape->m * shape->k + (shape->transpose_a ? l * tile.lda + i : i * tile.lda + l);
    const float *b = run->operands->b + (shape->shared_b ? 0 : product * shape->k * shape->n) +
                     (shape->transpose_b ? j * tile.ldb + l : l * tile.ldb + j);
    const float *bias = tile.has_bias ? run->operands->bias + j : NULL;
    float *c = part ? partial_at(run, tile_index, part) : run->operands->c + product * shape->m * shape->n + i * tile.ldc + j;
#ifdef TANDEM_HAVE_ONEDNN
    if (run->gemm->kind != TD_GEMM_REFERENCE) {
        int32_t slot = run->slot_is_task ? (int32_t)index : thread;
        int32_t which = part == 0 ? 0 : part == cut->parts - 1 ? 2 : 1;
        td_onednn_primitive *primitive = run->primitives[row == cut->tiles_m - 1][column == cut->tiles_n - 1][which];
        if (!td_onednn_run(primitive, slot, a, b, bias, c, run->slots + (size_t)slot * run->slot_bytes))
            atomic_store(&run->failed, true);
        return;
    }
#endif
    (void)thread;
    td_gemm_reference(run->gemm->isa)(&tile, a, b, bias, c);
}

/* ---- adding the parts of sums ---------------------------------------------------------------------------------------------------- */

enum { ADD_ROWS = 16 };

/* Some rows of one tile: C + part 1 + part 2 + ..., then the bias. */
static void add_parts(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const gemm_run *run = context;
    const td_gemm_cut *cut = &run->cut;
    const td_gemm_shape *shape = run->shape;
    int64_t chunks = divide_up(cut->tile_m, ADD_ROWS), tile_index = index / chunks, first = index % chunks * ADD_ROWS;
    int64_t column = tile_index % cut->tiles_n, row = tile_index / cut->tiles_n % cut->tiles_m;
    int64_t product = tile_index / cut->tiles_n / cut->tiles_m;
    int64_t rows = extent_of(shape->m, cut->tile_m, row), columns = extent_of(shape->n, cut->tile_n, column);
    int64_t end = first + ADD_ROWS < rows ? first + ADD_ROWS : rows;
    const float *bias = shape->has_bias ? run->operands->bias + column * cut->tile_n : NULL;
    for (int64_t r = first; r < end; r++) {
        float *c = run->operands->c + product * shape->m * shape->n + (row * cut->tile_m + r) * shape->n + column * cut->tile_n;
        for (int64_t part = 1; part < cut->parts; part++) {
            const float *partial = partial_at(run, tile_index, part) + r * cut->tile_n;
            for (int64_t j = 0; j < columns; j++)
                c[j] += partial[j];
        }
        for (int64_t j = 0; bias && j < columns; j++)
            c[j] += bias[j];
    }
}

/* ---- preparing ------------------------------------------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int64_t tasks_of(const td_gemm_shape *shape, const td_gemm_cut *cut)
{
    return shape->batch * cut->tiles_m * cut->tiles_n * cut->parts;
}

static bool is_empty(const td_gemm_shape *shape)
{
    return shape->batch == 0 || shape->m == 0 || shape->n == 0;
}

#ifdef TANDEM_HAVE_ONEDNN
/* The primitives of all kinds of tiles of a shape; *out_scratch: what the largest wants. */
static td_status *prepare_tiles(gemm_run *run, int32_t slots, size_t *out_scratch)
{
    const td_gemm_cut *cut = &run->cut;
    *out_scratch = 0;
    for (int32_t kind = 0; kind < 12; kind++) {
        int32_t last_row = kind & 1, last_column = kind >> 1 & 1, which = kind >> 2;
        int64_t part = which == 0 ? 0 : which == 1 ? 1 : cut->parts - 1;
        bool is_missing = (!last_row && cut->tiles_m == 1) || (!last_column && cut->tiles_n == 1) ||
                          (which == 1 && cut->parts < 3) || (which == 2 && cut->parts < 2);
        if (is_missing)
            continue;
        td_gemm_tile tile = tile_at(run->shape, cut, last_row ? cut->tiles_m - 1 : 0, last_column ? cut->tiles_n - 1 : 0, part);
        td_onednn_primitive **primitive = &run->primitives[last_row][last_column][which];
        TD_TRY(td_onednn_prepare(run->gemm->onednn, &tile, 0, slots, primitive));
        size_t bytes = round_up(td_onednn_scratch_bytes(*primitive));
        *out_scratch = bytes > *out_scratch ? bytes : *out_scratch;
    }
    return NULL;
}

/* The library's scratch for a run: from the caller's, unless this shape wants more than the capacity did. */
static td_status *place_slots(gemm_run *run, size_t slot_bytes)
{
    td_gemm *gemm = run->gemm;
    run->slot_bytes = slot_bytes;
    run->slots = (char *)run->operands->scratch + gemm->partial_bytes;
    if (slot_bytes <= gemm->slot_bytes)
        return NULL;
    if (slot_bytes > gemm->overflow_slot_bytes) {
        td_free(gemm->overflow);
        gemm->overflow_slot_bytes = 0;
        gemm->overflow = td_calloc_aligned((size_t)gemm->slots * slot_bytes);
        if (!gemm->overflow)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %zu bytes of scratch of a matrix product",
                            (size_t)gemm->slots * slot_bytes);
        gemm->overflow_slot_bytes = slot_bytes;
    }
    run->slots = gemm->overflow;
    return NULL;
}

static td_status *prepare_capacity(td_gemm *gemm)
{
    TD_TRY(td_onednn_create(&gemm->onednn));
    if (gemm->kind != TD_GEMM_TILES || is_empty(&gemm->capacity) || gemm->capacity.k == 0)
        return NULL;
    gemm_run run = {.gemm = gemm, .shape = &gemm->capacity, .cut = td_gemm_cut_of(&gemm->capacity)};
    TD_TRY(prepare_tiles(&run, 0, &gemm->slot_bytes));
    gemm->slots = (int32_t)clamp(tasks_of(&gemm->capacity, &run.cut), 1, SLOTS);
    if (gemm->slot_bytes)
        gemm->slots = (int32_t)clamp((int64_t)(SCRATCH_BYTES / gemm->slot_bytes), 4, gemm->slots);
    return NULL;
}
#endif

td_status *td_gemm_create(const td_cpu_engine *engine, const td_gemm_shape *capacity, td_gemm **out_gemm)
{
    *out_gemm = NULL;
    td_gemm *gemm = NULL;
    TD_TRY(TD_NEW(gemm, 1));
    gemm->kind = engine->gemm;
    gemm->isa = engine->isa;
    gemm->capacity = *capacity;
    gemm->slots = 1;
    gemm->partial_bytes = gemm->kind == TD_GEMM_LIBRARY ? 0 : round_up(partial_bytes(capacity));
#ifdef TANDEM_HAVE_ONEDNN
    td_status *status = gemm->kind == TD_GEMM_REFERENCE ? NULL : prepare_capacity(gemm);
    if (status) {
        td_gemm_destroy(gemm);
        return status;
    }
#endif
    *out_gemm = gemm;
    return NULL;
}

void td_gemm_destroy(td_gemm *gemm)
{
    if (!gemm)
        return;
#ifdef TANDEM_HAVE_ONEDNN
    td_onednn_destroy(gemm->onednn);
    td_free(gemm->overflow);
#endif
    td_free(gemm);
}

size_t td_gemm_scratch_bytes(const td_gemm *gemm)
{
    return gemm->partial_bytes + (size_t)gemm->slots * gemm->slot_bytes;
}

/* ---- running --------------------------------------------------------------------------------------------------------------------- */

/* k = 0: an empty sum, and the bias. */
static void run_empty_sum(const td_gemm_shape *shape, const td_gemm_operands *operands)
{
    for (int64_t i = 0; i < shape->batch * shape->m; i++)
        for (int64_t j = 0; j < shape->n; j++)
            operands->c[i * shape->n + j] = shape->has_bias ? operands->bias[j] : 0.0f;
}

/* All tasks over the team, in rounds where there are more threads than slots. */
static void run_rounds(gemm_run *run, td_team *team, int64_t tasks)
{
    int32_t slots = run->gemm->slots;
    run->slot_is_task = run->gemm->kind != TD_GEMM_REFERENCE && td_team_threads(team) > slots;
    int64_t round = run->slot_is_task ? slots : tasks;
    for (run->first_task = 0; run->first_task < tasks; run->first_task += round)
        td_team_run_dynamic(team, tasks - run->first_task < round ? tasks - run->first_task : round, run_tile, run);
}

static td_status *run_tiles(gemm_run *run, td_team *team)
{
    int64_t tasks = tasks_of(run->shape, &run->cut);
#ifdef TANDEM_HAVE_ONEDNN
    if (run->gemm->kind == TD_GEMM_TILES) {
        size_t slot_bytes = 0;
        int32_t threads = td_team_threads(team), slots = threads < run->gemm->slots ? threads : run->gemm->slots;
        TD_TRY(prepare_tiles(run, slots, &slot_bytes));
        TD_TRY(place_slots(run, slot_bytes));
    }
    int32_t before = run->gemm->kind == TD_GEMM_TILES ? td_onednn_threads() : 0;
#endif
    run_rounds(run, team, tasks);
#ifdef TANDEM_HAVE_ONEDNN
    td_onednn_set_threads(before);
#endif
    if (atomic_load(&run->failed))
        return TD_ERROR(TD_INTERNAL, "oneDNN failed to run a product of %lld x %lld x %lld", (long long)run->shape->m,
                        (long long)run->shape->n, (long long)run->shape->k);
    if (run->cut.parts > 1)
        td_team_run(team, tasks / run->cut.parts * divide_up(run->cut.tile_m, ADD_ROWS), add_parts, run);
    return NULL;
}

#ifdef TANDEM_HAVE_ONEDNN
/* One product after the other, each cut by the library over as many threads as the team has. */
static td_status *run_library(td_gemm *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands, td_team *team)
{
    td_gemm_cut whole = {.tile_m = shape->m, .tile_n = shape->n, .tile_k = shape->k, .tiles_m = 1, .tiles_n = 1, .parts = 1};
    td_gemm_tile tile = tile_at(shape, &whole, 0, 0, 0);
    td_onednn_primitive *primitive = NULL;
    TD_TRY(td_onednn_prepare(gemm->onednn, &tile, td_team_threads(team), 1, &primitive));
    int32_t before = td_onednn_threads();
    bool ran = true;
    for (int64_t p = 0; p < shape->batch && ran; p++)
        ran = td_onednn_run(primitive, 0, operands->a + p * shape->m * shape->k,
                            operands->b + (shape->shared_b ? 0 : p * shape->k * shape->n), operands->bias,
                            operands->c + p * shape->m * shape->n, NULL);
    td_onednn_set_threads(before);
    return ran ? NULL : TD_ERROR(TD_INTERNAL, "oneDNN failed to run a product of %lld x %lld x %lld", (long long)shape->m,
                                 (long long)shape->n, (long long)shape->k);
}
#endif

td_status *td_gemm_run(td_gemm *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands, td_team *team)
{
    if (is_empty(shape))
        return NULL;
    if (shape->k == 0) {
        run_empty_sum(shape, operands);
        return NULL;
    }
#ifdef TANDEM_HAVE_ONEDNN
    if (gemm->kind == TD_GEMM_LIBRARY)
        return run_library(gemm, shape, operands, team);
#endif
    gemm_run run = {.gemm = gemm, .shape = shape, .operands = operands, .cut = td_gemm_cut_of(shape)};
    return run_tiles(&run, team);
}
