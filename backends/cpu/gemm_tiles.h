/* Matrix products of f32 by oneDNN, in tiles that are cut by shape alone and run by one thread each. Only in builds with
 * oneDNN. */
#ifndef TANDEM_BACKENDS_CPU_GEMM_TILES_H
#define TANDEM_BACKENDS_CPU_GEMM_TILES_H

#include "backends/cpu/gemm.h"

typedef struct td_gemm_tiles td_gemm_tiles;

/* As the functions of gemm.h; run is not asked for empty sums or empty results. */
td_status *td_gemm_tiles_create(const td_gemm_shape *capacity, td_gemm_tiles **out_gemm) TD_MUST_USE;
void td_gemm_tiles_destroy(td_gemm_tiles *gemm);
size_t td_gemm_tiles_scratch_bytes(const td_gemm_tiles *gemm);
td_status *td_gemm_tiles_run(td_gemm_tiles *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands,
                             td_team *team) TD_MUST_USE;

#endif
