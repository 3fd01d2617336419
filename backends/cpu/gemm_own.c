/* Cutting a product for the own kernel and running the pieces: see gemm_own.h. */
#include "backends/cpu/gemm_own.h"

#include <string.h>

#include "backends/cpu/gemm_cut.h"

enum {
    SLOTS = 16,     /* pieces in flight at once, at most: each packs operands in scratch of its own */
    PARTS = 16,     /* of sums, times units of C */
    UNIT_ROWS = 48, /* what a thread gets at least, when a sum may be cut into parts instead */
    UNIT_COLUMNS = 64,
    PART_K = 512,      /* no part of a sum is shorter */
    PIECES_EACH = 4,   /* for a thread, at most */
    PACKING = 32,      /* products in the time that it takes to pack an element */
    TILE_COLUMNS = 32, /* tiles are multiples of this: every instruction set's registers */
    ALIGNMENT_FLOATS = 16
};
/* A piece should take longer than waking a thread does. */
#define PIECE_FLOPS 2e5
/* A part of a sum should do more than it costs to add it. */
#define PART_FLOPS 2e6

static int64_t round_up(int64_t size, int64_t unit)
{
    return td_divide_up(size, unit) * unit;
}

int64_t td_gemm_packed_floats(const td_gemm_shape *shape)
{
    const int64_t rows = td_clamp(shape->m, 0, TD_GEMM_PACKED_ROWS), k = td_clamp(shape->k, 0, TD_GEMM_SPAN);
    const int64_t columns = round_up(td_clamp(shape->n, 0, TD_GEMM_PACKED_COLUMNS), TILE_COLUMNS);
    const int64_t floats = (round_up(rows, TD_GEMM_OWN_ROWS) + columns) * k;
    /* Tiles have 32 terms of 16 bits, at least. */
    const int64_t in_tiles = shape->narrow ? (round_up(rows, TD_GEMM_AMX_ROWS) + columns) * (k > 16 ? k : 16) : 0;
    return round_up(floats > in_tiles ? floats : in_tiles, ALIGNMENT_FLOATS);
}

/* A matrix of one column is computed on its side, as one row: vectors hold numbers of one row of C. */
static bool is_turned(const td_gemm_shape *capacity)
{
    return capacity->n == 1 && !capacity->shared_b;
}

static td_gemm_shape turned_if(bool turn, const td_gemm_shape *shape)
{
    td_gemm_shape turned = *shape;
    if (!turn)
        return turned;
    turned.n = shape->m;
    turned.m = 1;
    turned.transpose_a = false;
    turned.transpose_b = !shape->transpose_a;
    return turned;
}

/* ---- cutting ---------------------------------------------------------------------------------------------------------------- */

static double flops_of(const td_gemm_shape *shape)
{
    return 2.0 * (double)shape->batch * (double)shape->m * (double)shape->n * (double)shape->k;
}

static int64_t units_of(const td_gemm_shape *shape)
{
    return shape->batch * td_divide_up(shape->m, UNIT_ROWS) * td_divide_up(shape->n, UNIT_COLUMNS);
}

/* Long sums of a small C are cut: by shape alone, so that their bits are everywhere the same. */
static int64_t part_k_of(const td_gemm_shape *shape)
{
    double worth = flops_of(shape) / PART_FLOPS;
    int64_t wanted = worth < PARTS ? (int64_t)worth : PARTS;
    int64_t parts = td_clamp(wanted / units_of(shape), 1, td_clamp(shape->k / PART_K, 1, PARTS));
    return parts == 1 ? shape->k : round_up(td_divide_up(shape->k, parts), UNIT_COLUMNS);
}

/* How long the pieces of a cut take, in products of one k, if each thread takes the next when it is free. */
static double time_of(const td_gemm_own_cut *cut, int64_t products, int32_t threads, int64_t cost_of_a)
{
    const double rounds = (double)td_divide_up(cut->tiles_m * cut->tiles_n * products, threads);
    const double packing = PACKING * ((double)cut->tile_m * (double)cost_of_a / 2 + (double)cut->tile_n);
    return rounds * ((double)cut->tile_m * (double)cut->tile_n + packing);
}

/* Tiles of so many rows and columns of them. */
static td_gemm_own_cut tiles_of(const td_gemm_shape *shape, int64_t rows, int64_t columns, int64_t unit)
{
    td_gemm_own_cut cut = {.tile_m = round_up(td_divide_up(shape->m, rows), unit),
                           .tile_n = round_up(td_divide_up(shape->n, columns), TILE_COLUMNS)};
    cut.tiles_m = td_divide_up(shape->m, cut.tile_m);
    cut.tiles_n = td_divide_up(shape->n, cut.tile_n);
    return cut;
}

/* What takes the least time of all tiles of so many columns, up to `most` for each of `products` (parts of sums are as many again):
 * for every number of rounds, as many rows as they have room for. A tile packs its part of B, and of A, or reads it, which costs
 * half of that at most; so few tiles are best, if threads get equal shares. */
static td_gemm_own_cut cut_into_tiles(const td_gemm_own_kernels *kernels, const td_gemm_shape *shape, int64_t products,
                                      int64_t most, int32_t threads)
{
    const int64_t cost_of_a = td_gemm_reads_rows(kernels, shape->transpose_a, shape->narrow) ? 1 : 2;
    const int64_t most_rows = td_divide_up(shape->m, kernels->rows * 2),
                  most_columns = td_divide_up(shape->n, TILE_COLUMNS),
                  least_columns = td_divide_up(shape->n, TD_GEMM_PACKED_COLUMNS);
    td_gemm_own_cut best = tiles_of(shape, 1, least_columns, kernels->rows);
    double least = time_of(&best, products, threads, cost_of_a);
    for (int64_t columns = least_columns; columns <= most_columns && columns <= most; columns++)
        for (int64_t rounds = 1; rounds <= PIECES_EACH; rounds++) {
            const int64_t room = td_clamp(rounds * threads / (products * columns), 1, most_rows);
            const td_gemm_own_cut cut = tiles_of(shape, td_clamp(most / columns, 1, room), columns, kernels->rows);
            const double time = time_of(&cut, products, threads, cost_of_a);
            if (time < least) {
                least = time;
                best = cut;
            }
        }
    return best;
}

td_gemm_own_cut td_gemm_own_cut_of(const td_gemm_own_kernels *kernels, const td_gemm_shape *capacity,
                                   const td_gemm_shape *shape, int32_t threads)
{
    const td_gemm_shape turned = turned_if(is_turned(capacity), shape);
    const int64_t part_k = part_k_of(shape), parts = td_divide_up(shape->k, part_k), products = shape->batch * parts;
    const double worth = flops_of(shape) / PIECE_FLOPS, most = (double)threads * PIECES_EACH;
    const int64_t pieces = threads == 1 || worth < 1 ? 1 : (int64_t)(worth < most ? worth : most);
    td_gemm_own_cut cut = cut_into_tiles(kernels, &turned, products, td_divide_up(pieces, products), threads);
    cut.tile_k = part_k;
    cut.parts = parts;
    return cut;
}

/* ---- scratch ---------------------------------------------------------------------------------------------------------------- */

/* Floats for the parts of sums beyond the first, each as large as C, at any shape up to this. With p parts of u units of C,
 * p u is at most PARTS. */
static int64_t partial_floats(const td_gemm_shape *capacity)
{
    if (capacity->k < 2 * PART_K)
        return 0;
    int64_t most = td_clamp(capacity->k / PART_K, 1, PARTS) - 1;
    int64_t units = (PARTS - 1) * UNIT_ROWS * UNIT_COLUMNS;
    int64_t rows = td_clamp(capacity->batch, 0, PARTS) * td_clamp(capacity->m, 0, PARTS * UNIT_ROWS);
    int64_t columns = td_clamp(capacity->n, 0, PARTS * UNIT_COLUMNS);
    return round_up(td_clamp(rows * columns * most, 0, units), ALIGNMENT_FLOATS);
}

static int64_t slots_of(const td_gemm_shape *capacity)
{
    int64_t tiles = td_divide_up(capacity->m, TD_GEMM_OWN_ROWS * 2) * td_divide_up(capacity->n, TILE_COLUMNS);
    int64_t worth = flops_of(capacity) / PIECE_FLOPS < SLOTS ? (int64_t)(flops_of(capacity) / PIECE_FLOPS) : SLOTS;
    int64_t pieces =
        td_clamp(capacity->batch, 0, SLOTS) * td_clamp(tiles, 0, SLOTS) * td_clamp(capacity->k / PART_K, 1, PARTS);
    return td_clamp(pieces < worth ? pieces : worth, 1, SLOTS);
}

/* Sums of a 16-bit product, before they are rounded. */
static int64_t sum_floats(const td_gemm_shape *capacity)
{
    return capacity->narrow ? round_up(capacity->batch * capacity->m * capacity->n, ALIGNMENT_FLOATS) : 0;
}

size_t td_gemm_own_scratch_bytes(const td_gemm_shape *capacity)
{
    if (capacity->batch == 0 || capacity->m == 0 || capacity->n == 0)
        return 0;
    td_gemm_shape shape = turned_if(is_turned(capacity), capacity);
    int64_t floats = sum_floats(capacity) + partial_floats(capacity) + slots_of(&shape) * td_gemm_packed_floats(&shape);
    return (size_t)floats * sizeof(float);
}

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

/* A run under way. */
typedef struct run {
    const td_gemm_own_kernels *kernels;
    const td_gemm_shape *shape;
    const td_gemm_operands *operands;
    td_gemm_own_cut cut;
    bool is_turned;
    float *sums;              /* the operands' C, or of the scratch */
    float *partials, *packed; /* of the scratch */
    int64_t first_piece, packed_floats;
    bool slot_is_piece; /* the slot is the piece's place in the round rather than the thread */
} run;

static void run_piece(void *context, int64_t index, int32_t thread)
{
    const run *r = context;
    const td_gemm_own_cut *cut = &r->cut;
    const td_gemm_shape *shape = r->shape;
    const td_gemm_operands *whole = r->operands;
    int64_t at = r->first_piece + index, part = at % cut->parts, tile = at / cut->parts;
    int64_t row = tile / cut->tiles_n % cut->tiles_m * cut->tile_m, column = tile % cut->tiles_n * cut->tile_n;
    int64_t product = tile / cut->tiles_n / cut->tiles_m, first_k = part * cut->tile_k;
    int64_t c = product * shape->m * shape->n + row * shape->n + column;
    td_gemm_piece piece = {
        .m = td_clamp(shape->m - row, 0, cut->tile_m),
        .n = td_clamp(shape->n - column, 0, cut->tile_n),
        .k = td_clamp(shape->k - first_k, 0, cut->tile_k),
        .lda = shape->transpose_a ? shape->m : shape->k,
        .ldb = shape->transpose_b ? shape->k : shape->n,
        .ldc = shape->n,
        .transpose_a = shape->transpose_a,
        .transpose_b = shape->transpose_b,
        .c = part ? r->partials + (part - 1) * shape->batch * shape->m * shape->n + c : r->sums + c,
        .packed = r->packed + (r->slot_is_piece ? index : thread) * r->packed_floats,
    };
    int64_t a =
        product * shape->m * shape->k + (piece.transpose_a ? first_k * piece.lda + row : row * piece.lda + first_k);
    int64_t b = (shape->shared_b ? 0 : product * shape->k * shape->n) +
                (piece.transpose_b ? column * piece.ldb + first_k : first_k * piece.ldb + column);
    int64_t element_bytes = shape->narrow ? 2 : 4;
    piece.narrow = shape->narrow;
    piece.a = (const char *)whole->a + a * element_bytes;
    piece.b = (const char *)whole->b + b * element_bytes;
    if (cut->parts == 1) {
        int64_t bias = r->is_turned ? 0 : column;
        piece.bias = shape->has_bias ? (const char *)whole->bias + bias * element_bytes : NULL;
        piece.bias_is_one = r->is_turned;
        piece.relu = shape->relu;
        piece.mask = shape->has_mask ? (const char *)whole->mask + c * element_bytes : NULL;
        piece.rounded = shape->narrow ? (uint16_t *)whole->c + c : NULL;
    }
    r->kernels->piece(&piece);
}

/* What follows the sums of a 16-bit product, on one row. */
static void round_row(const run *r, int64_t row, float *sums)
{
    const td_gemm_shape *shape = r->shape;
    const td_gemm_operands *operands = r->operands;
    const td_gemm_rounding rounding = {.narrow = shape->narrow,
                                       .bias = shape->has_bias ? operands->bias : NULL,
                                       .mask =
                                           shape->has_mask ? (const uint16_t *)operands->mask + row * shape->n : NULL,
                                       .bias_is_one = r->is_turned,
                                       .relu = shape->relu,
                                       .sums = sums,
                                       .c = (uint16_t *)operands->c + row * shape->n,
                                       .n = shape->n};
    r->kernels->round(&rounding);
}

/* The parts of sums, in order, then what follows the sums: on some rows of all products. */
static void finish_rows(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const run *r = context;
    const td_gemm_shape *shape = r->shape;
    int64_t rows = shape->batch * shape->m, begin = index * UNIT_ROWS;
    int64_t end = begin + UNIT_ROWS < rows ? begin + UNIT_ROWS : rows;
    for (int64_t row = begin; row < end; row++) {
        float *sums = r->sums + row * shape->n;
        for (int64_t part = 1; part < r->cut.parts; part++) {
            const float *partial = r->partials + ((part - 1) * rows + row) * shape->n;
            for (int64_t j = 0; j < shape->n; j++)
                sums[j] += partial[j];
        }
        if (shape->narrow)
            round_row(r, row, sums);
        else
            td_gemm_finish_row(shape, r->operands, r->is_turned, row, sums);
    }
}

void td_gemm_own_run(const td_gemm_own_kernels *kernels, const td_gemm_shape *capacity, const td_gemm_shape *asked,
                     const td_gemm_operands *asked_operands, td_team *team)
{
    bool turn = is_turned(capacity);
    td_gemm_shape shape = turned_if(turn, asked), largest = turned_if(turn, capacity);
    td_gemm_operands operands = *asked_operands;
    run r = {.kernels = kernels, .shape = &shape, .operands = &operands, .is_turned = turn};
    if (r.is_turned) {
        operands.a = asked_operands->b;
        operands.b = asked_operands->a;
    }
    int32_t threads = td_team_threads(team), slots = (int32_t)slots_of(&largest);
    r.cut.parts = 1;
    if (shape.k)
        r.cut = td_gemm_own_cut_of(kernels, capacity, asked, threads);
    r.sums = shape.narrow ? operands.scratch : operands.c;
    r.partials = (float *)operands.scratch + sum_floats(capacity);
    r.packed = r.partials + partial_floats(capacity);
    r.packed_floats = td_gemm_packed_floats(&largest);
    r.slot_is_piece = threads > slots;
    int64_t pieces = shape.batch * r.cut.tiles_m * r.cut.tiles_n * r.cut.parts;
    int64_t round = r.slot_is_piece ? slots : pieces;
    for (; r.first_piece < pieces; r.first_piece += round)
        td_team_run_dynamic(team, td_clamp(pieces - r.first_piece, 0, round), run_piece, &r);
    if (shape.k == 0)
        memset(r.sums, 0, (size_t)(shape.batch * shape.m * shape.n) * sizeof *r.sums);
    if (r.cut.parts > 1 || (shape.narrow && shape.k == 0))
        td_team_run(team, td_divide_up(shape.batch * shape.m, UNIT_ROWS), finish_rows, &r);
}
