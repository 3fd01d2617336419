/* How matrix products are cut into tiles and parts of sums, by their shape alone: see gemm.h. */
#include "backends/cpu/gemm_cut.h"

enum { PARTS_WANTED = 16 /* tiles and parts together, for long sums */ };

/* A size cut into `pieces` equal ones, rounded up to a multiple of `unit`. */
static int64_t piece_of(int64_t size, int64_t pieces, int64_t unit)
{
    int64_t piece = td_divide_up(td_divide_up(size, pieces), unit) * unit;
    return piece < size ? piece : size;
}

/* Columns first: up to TD_GEMM_TILE_COLUMNS, since wide tiles reuse A best. Then rows, so that there are some 32 tiles of at least
 * 4 MFLOP and 64 rows. Where few tiles come of it and the sum is long, the sum is cut too. */
td_gemm_cut td_gemm_cut_of(const td_gemm_shape *shape)
{
    int64_t m = td_clamp(shape->m, 1, INT64_MAX), n = td_clamp(shape->n, 1, INT64_MAX),
            k = td_clamp(shape->k, 1, INT64_MAX);
    int64_t batch = td_clamp(shape->batch, 1, INT64_MAX);
    double flops = 2.0 * (double)m * (double)n * (double)k * (double)batch;
    int64_t wanted = (int64_t)(flops / 4e6 < 32 ? flops / 4e6 : 32) + 1;
    td_gemm_cut cut = {.tile_n = n, .tile_k = k, .parts = 1};
    if (n > TD_GEMM_TILE_COLUMNS)
        cut.tile_n = piece_of(n, td_divide_up(n, 256), 16);
    cut.tiles_n = td_divide_up(n, cut.tile_n);
    int64_t row_tiles =
        td_clamp(td_divide_up(wanted, cut.tiles_n * batch), td_divide_up(m, TD_GEMM_TILE_ROWS), td_divide_up(m, 64));
    cut.tile_m = piece_of(m, row_tiles, 16);
    cut.tiles_m = td_divide_up(m, cut.tile_m);
    int64_t tiles = cut.tiles_m * cut.tiles_n * batch;
    if (tiles < PARTS_WANTED && wanted > tiles) {
        int64_t parts = td_clamp(td_divide_up(wanted < PARTS_WANTED ? wanted : PARTS_WANTED, tiles), 1,
                                 td_clamp(k / 256, 1, INT64_MAX));
        cut.tile_k = piece_of(k, parts, 64);
        cut.parts = td_divide_up(k, cut.tile_k);
    }
    return cut;
}

/* The parts of a sum beyond the first, each beside the others at the tile's size. With p parts of t tiles, (p - 1) t is
 * below PARTS_WANTED by the rule above, at any shape. */
size_t td_gemm_partial_bytes(const td_gemm_shape *capacity)
{
    if (capacity->k < 512)
        return 0;
    int64_t rows = td_clamp(capacity->m, 0, TD_GEMM_TILE_ROWS),
            columns = td_clamp(capacity->n, 0, TD_GEMM_TILE_COLUMNS);
    int64_t most = td_clamp(capacity->k / 256, 1, PARTS_WANTED) - 1;
    if (capacity->m > 64 || capacity->n > TD_GEMM_TILE_COLUMNS || capacity->batch > 1)
        most = PARTS_WANTED - 1;
    return (size_t)(most * rows * columns) * sizeof(float);
}
