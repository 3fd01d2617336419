/* Running matrix products by oneDNN, tile by tile: see gemm_tiles.h. How they are cut is in gemm_cut.c. */
#include "backends/cpu/gemm_tiles.h"

#ifdef TANDEM_HAVE_ONEDNN

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/gemm_cut.h"
#include "backends/cpu/gemm_onednn.h"
#include "base/memory.h"

enum {
    SLOTS = 64,              /* tiles in flight at once, at most: each may need scratch */
    SCRATCH_BYTES = 8 << 20, /* of all slots, unless four take more */
    ALIGNMENT = 64,          /* bytes, of pieces of scratch */
    PAGE_FLOATS = 1024, /* rows this far apart, 4 KiB, evict each other from the cache: such operands are packed, */
    PACK_ROWS = 32,     /* if they have as many rows, */
    PACK_K = 512        /* a span of the sum at a time */
};

struct td_gemm_tiles {
    td_gemm_shape capacity;
    int32_t slots;
    size_t partial_bytes; /* at the start of the scratch: parts of sums */
    size_t slot_bytes;    /* then one piece for each slot: packed operands, and the library's own scratch */
    size_t pack_bytes;
    td_onednn *onednn;
    void *overflow; /* slots for a shape that needs more than those of the capacity did */
    size_t overflow_slot_bytes;
};

/* ---- tiles ---------------------------------------------------------------------------------------------------------------------- */

static int64_t extent_of(int64_t size, int64_t piece, int64_t index)
{
    int64_t left = size - index * piece;
    return left < piece ? left : piece;
}

/* The first part of a sum goes to C; the others lie beside it, each as a matrix of the full tile's width. */
static td_gemm_tile tile_at(const td_gemm_shape *shape, const td_gemm_cut *cut, int64_t row, int64_t column,
                            int64_t part)
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
    td_gemm_tiles *gemm;
    const td_gemm_shape *shape;
    const td_gemm_operands *operands;
    td_gemm_cut cut;
    int64_t first_task; /* of this round */
    bool slot_is_task;  /* the slot is the task's place in the round rather than the thread */
    char *slots;        /* the library's scratch */
    size_t slot_bytes;
    atomic_bool failed;
    /* By whether it is the last row, the last column; the first, a middle or the last part; and the first, a middle or the
     * last span where operands are packed. */
    td_onednn_primitive *primitives[2][2][3][3];
} gemm_run;

static float *partial_at(const gemm_run *run, int64_t tile, int64_t part)
{
    const td_gemm_cut *cut = &run->cut;
    return (float *)run->operands->scratch + (tile * (cut->parts - 1) + part - 1) * cut->tile_m * cut->tile_n;
}

/* Which tile a task is. */
typedef struct tile_place {
    int64_t index, product, row, column, part;
} tile_place;

static tile_place place_of(const td_gemm_cut *cut, int64_t task)
{
    int64_t index = task / cut->parts;
    return (tile_place){
        .index = index,
        .product = index / cut->tiles_n / cut->tiles_m,
        .row = index / cut->tiles_n % cut->tiles_m,
        .column = index % cut->tiles_n,
        .part = task % cut->parts,
    };
}

/* Where a tile's operands are. */
typedef struct tile_operands {
    const float *a, *b, *bias;
    float *c;
} tile_operands;

static tile_operands operands_of(const gemm_run *run, const td_gemm_tile *tile, tile_place at)
{
    const td_gemm_cut *cut = &run->cut;
    const td_gemm_shape *shape = run->shape;
    const td_gemm_operands *whole = run->operands;
    int64_t i = at.row * cut->tile_m, j = at.column * cut->tile_n, l = at.part * cut->tile_k;
    int64_t b_product = shape->shared_b ? 0 : at.product;
    return (tile_operands){
        .a = (const float *)whole->a + at.product * shape->m * shape->k +
             (tile->transpose_a ? l * tile->lda + i : i * tile->lda + l),
        .b = (const float *)whole->b + b_product * shape->k * shape->n +
             (tile->transpose_b ? j * tile->ldb + l : l * tile->ldb + j),
        .bias = tile->has_bias ? (const float *)whole->bias + j : NULL,
        .c = at.part ? partial_at(run, at.index, at.part)
                     : (float *)whole->c + at.product * shape->m * shape->n + i * tile->ldc + j,
    };
}

static bool packs_a(const td_gemm_tile *tile)
{
    return tile->lda % PAGE_FLOATS == 0 && (tile->transpose_a ? tile->k : tile->m) >= PACK_ROWS;
}

static bool packs_b(const td_gemm_tile *tile)
{
    return tile->ldb % PAGE_FLOATS == 0 && (tile->transpose_b ? tile->n : tile->k) >= PACK_ROWS;
}

static int64_t spans_of(const td_gemm_tile *tile)
{
    return packs_a(tile) || packs_b(tile) ? td_divide_up(tile->k, PACK_K) : 1;
}

/* A span of a tile's sum, as oneDNN gets it; the later ones add to C. */
static td_gemm_tile span_at(const td_gemm_tile *tile, int64_t span)
{
    td_gemm_tile part = *tile;
    if (!packs_a(tile) && !packs_b(tile))
        return part;
    part.k = extent_of(tile->k, PACK_K, span);
    part.has_bias = tile->has_bias && span == 0;
    part.accumulate = span > 0;
    if (packs_a(tile))
        part.lda = tile->transpose_a ? part.m : part.k;
    if (packs_b(tile))
        part.ldb = tile->transpose_b ? part.k : part.n;
    return part;
}

static const float *pack(const float *from, int64_t rows, int64_t columns, int64_t leading, float *to)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * columns, from + i * leading, (size_t)columns * sizeof *to);
    return to;
}

static void run_span(gemm_run *run, td_onednn_primitive *primitive, const td_gemm_tile *tile,
                     const tile_operands *operands, int64_t span, int32_t slot)
{
    td_gemm_tile part = span_at(tile, span);
    float *packed = (float *)(void *)(run->slots + (size_t)slot * run->slot_bytes);
    int64_t l = span * PACK_K;
    const float *a = operands->a + (tile->transpose_a ? l * tile->lda : l);
    const float *b = operands->b + (tile->transpose_b ? l : l * tile->ldb);
    if (packs_a(tile))
        a = pack(a, part.transpose_a ? part.k : part.m, part.lda, tile->lda, packed);
    if (packs_b(tile))
        b = pack(b, part.transpose_b ? part.n : part.k, part.ldb, tile->ldb, packed + part.m * part.k);
    void *scratch = (char *)packed + run->gemm->pack_bytes;
    if (!td_onednn_run(primitive, slot, a, b, part.has_bias ? operands->bias : NULL, operands->c, scratch))
        atomic_store(&run->failed, true);
}

/* The first, a middle or the last one of several. */
static int32_t kind_of(int64_t index, int64_t count)
{
    return index == 0 ? 0 : index == count - 1 ? 2 : 1;
}

static void run_tile(void *context, int64_t index, int32_t thread)
{
    gemm_run *run = context;
    const td_gemm_cut *cut = &run->cut;
    tile_place at = place_of(cut, run->first_task + index);
    td_gemm_tile tile = tile_at(run->shape, cut, at.row, at.column, at.part);
    tile_operands operands = operands_of(run, &tile, at);
    td_onednn_primitive **primitives =
        run->primitives[at.row == cut->tiles_m - 1][at.column == cut->tiles_n - 1][kind_of(at.part, cut->parts)];
    int32_t slot = run->slot_is_task ? (int32_t)index : thread;
    int64_t spans = spans_of(&tile);
    for (int64_t span = 0; span < spans; span++)
        run_span(run, primitives[kind_of(span, spans)], &tile, &operands, span, slot);
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
    int64_t chunks = td_divide_up(cut->tile_m, ADD_ROWS), first = index % chunks * ADD_ROWS;
    tile_place at = place_of(cut, index / chunks * cut->parts);
    int64_t rows = extent_of(shape->m, cut->tile_m, at.row), columns = extent_of(shape->n, cut->tile_n, at.column);
    int64_t end = first + ADD_ROWS < rows ? first + ADD_ROWS : rows;
    const float *bias = shape->has_bias ? (const float *)run->operands->bias + at.column * cut->tile_n : NULL;
    for (int64_t r = first; r < end; r++) {
        float *c = (float *)run->operands->c + at.product * shape->m * shape->n +
                   (at.row * cut->tile_m + r) * shape->n + at.column * cut->tile_n;
        for (int64_t part = 1; part < cut->parts; part++) {
            const float *partial = partial_at(run, at.index, part) + r * cut->tile_n;
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

/* The primitives of one kind of tiles; *scratch grows to what they want. */
static td_status *prepare_tile(gemm_run *run, const td_gemm_tile *tile, int32_t slots, td_onednn_primitive **primitives,
                               size_t *scratch)
{
    int64_t spans = spans_of(tile);
    for (int64_t span = 0; span < spans; span = span == 1 && spans > 2 ? spans - 1 : span + 1) {
        td_gemm_tile part = span_at(tile, span);
        td_onednn_primitive **primitive = &primitives[kind_of(span, spans)];
        TD_TRY(td_onednn_prepare(run->gemm->onednn, &part, 0, slots, primitive));
        size_t bytes = round_up(td_onednn_scratch_bytes(*primitive));
        *scratch = bytes > *scratch ? bytes : *scratch;
    }
    return NULL;
}

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
        td_gemm_tile tile =
            tile_at(run->shape, cut, last_row ? cut->tiles_m - 1 : 0, last_column ? cut->tiles_n - 1 : 0, part);
        TD_TRY(prepare_tile(run, &tile, slots, run->primitives[last_row][last_column][which], out_scratch));
    }
    return NULL;
}

/* Room for packed operands at any shape up to the capacity. */
static size_t pack_bytes(const td_gemm_shape *capacity)
{
    int64_t lda = capacity->transpose_a ? capacity->m : capacity->k,
            ldb = capacity->transpose_b ? capacity->k : capacity->n;
    if (lda < PAGE_FLOATS && ldb < PAGE_FLOATS)
        return 0;
    int64_t rows = td_clamp(capacity->m, 0, TD_GEMM_TILE_ROWS),
            columns = td_clamp(capacity->n, 0, TD_GEMM_TILE_COLUMNS);
    return round_up((size_t)((rows + columns) * td_clamp(capacity->k, 0, PACK_K)) * sizeof(float));
}

/* The slots of a run: in the caller's scratch, unless the library wants more for this shape than it did at the capacity. */
static td_status *place_slots(gemm_run *run, size_t library_bytes)
{
    td_gemm_tiles *gemm = run->gemm;
    size_t slot_bytes = gemm->pack_bytes + library_bytes;
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

static td_status *prepare_capacity(td_gemm_tiles *gemm)
{
    TD_TRY(td_onednn_create(&gemm->onednn));
    if (is_empty(&gemm->capacity) || gemm->capacity.k == 0)
        return NULL;
    gemm_run run = {.gemm = gemm, .shape = &gemm->capacity, .cut = td_gemm_cut_of(&gemm->capacity)};
    size_t library_bytes = 0;
    TD_TRY(prepare_tiles(&run, 0, &library_bytes));
    gemm->partial_bytes = round_up(td_gemm_partial_bytes(&gemm->capacity));
    gemm->pack_bytes = pack_bytes(&gemm->capacity);
    gemm->slot_bytes = gemm->pack_bytes + library_bytes;
    gemm->slots = (int32_t)td_clamp(tasks_of(&gemm->capacity, &run.cut), 1, SLOTS);
    if (gemm->slot_bytes)
        gemm->slots = (int32_t)td_clamp((int64_t)(SCRATCH_BYTES / gemm->slot_bytes), 4, gemm->slots);
    return NULL;
}

td_status *td_gemm_tiles_create(const td_gemm_shape *capacity, td_gemm_tiles **out_gemm)
{
    *out_gemm = NULL;
    td_gemm_tiles *gemm = NULL;
    TD_TRY(TD_NEW(gemm, 1));
    gemm->capacity = *capacity;
    gemm->slots = 1;
    td_status *status = prepare_capacity(gemm);
    if (status)
        td_gemm_tiles_destroy(gemm);
    else
        *out_gemm = gemm;
    return status;
}

void td_gemm_tiles_destroy(td_gemm_tiles *gemm)
{
    if (!gemm)
        return;
    td_onednn_destroy(gemm->onednn);
    td_free(gemm->overflow);
    td_free(gemm);
}

size_t td_gemm_tiles_scratch_bytes(const td_gemm_tiles *gemm)
{
    return gemm->partial_bytes + (size_t)gemm->slots * gemm->slot_bytes;
}

/* ---- running --------------------------------------------------------------------------------------------------------------------- */

/* All tasks over the team, in rounds where there are more threads than slots. */
static void run_rounds(gemm_run *run, td_team *team, int64_t tasks)
{
    int32_t slots = run->gemm->slots;
    run->slot_is_task = td_team_threads(team) > slots;
    int64_t round = run->slot_is_task ? slots : tasks;
    for (run->first_task = 0; run->first_task < tasks; run->first_task += round)
        td_team_run_dynamic(team, tasks - run->first_task < round ? tasks - run->first_task : round, run_tile, run);
}

static td_status *run_tiles(gemm_run *run, td_team *team)
{
    int64_t tasks = tasks_of(run->shape, &run->cut);
    size_t slot_bytes = 0;
    int32_t threads = td_team_threads(team), slots = threads < run->gemm->slots ? threads : run->gemm->slots;
    TD_TRY(prepare_tiles(run, slots, &slot_bytes));
    TD_TRY(place_slots(run, slot_bytes));
    int32_t before = td_onednn_threads();
    run_rounds(run, team, tasks);
    td_onednn_set_threads(before);
    if (atomic_load(&run->failed))
        return TD_ERROR(TD_INTERNAL, "oneDNN failed to run a product of %lld x %lld x %lld", (long long)run->shape->m,
                        (long long)run->shape->n, (long long)run->shape->k);
    if (run->cut.parts > 1)
        td_team_run(team, tasks / run->cut.parts * td_divide_up(run->cut.tile_m, ADD_ROWS), add_parts, run);
    return NULL;
}

/* What follows the sums and is not oneDNN's: on some rows. */
static void finish_rows(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const gemm_run *run = context;
    td_gemm_shape rest = *run->shape;
    rest.has_bias = false;
    int64_t rows = rest.batch * rest.m, end = (index + 1) * ADD_ROWS < rows ? (index + 1) * ADD_ROWS : rows;
    for (int64_t row = index * ADD_ROWS; row < end; row++)
        td_gemm_finish_row(&rest, run->operands, false, row, (float *)run->operands->c + row * rest.n);
}

td_status *td_gemm_tiles_run(td_gemm_tiles *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands,
                             td_team *team)
{
    gemm_run run = {.gemm = gemm, .shape = shape, .operands = operands, .cut = td_gemm_cut_of(shape)};
    TD_TRY(run_tiles(&run, team));
    if (shape->relu || shape->has_mask)
        td_team_run(team, td_divide_up(shape->batch * shape->m, ADD_ROWS), finish_rows, &run);
    return NULL;
}

#endif
