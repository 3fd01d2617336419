/* Matrix products by oneDNN on threads of its own: TD_GEMM_LIBRARY. Bits may depend on the number of threads. Only in builds with
 * oneDNN. */
#ifndef TANDEM_BACKENDS_CPU_GEMM_LIBRARY_H
#define TANDEM_BACKENDS_CPU_GEMM_LIBRARY_H

#include "backends/cpu/gemm.h"

typedef struct td_gemm_library td_gemm_library;

/* Of f32 or bf16. TD_UNSUPPORTED: oneDNN has no product of bf16 for this processor. */
td_status *td_gemm_library_create(const td_gemm_shape *capacity, td_gemm_library **out_gemm) TD_MUST_USE;
void td_gemm_library_destroy(td_gemm_library *gemm);
/* As td_gemm_run, without scratch; not asked for empty sums or empty results. */
td_status *td_gemm_library_run(td_gemm_library *gemm, const td_gemm_shape *shape, const td_gemm_operands *operands,
                               td_team *team) TD_MUST_USE;

#endif
