/* oneDNN's matrix products, version 2 or 3: a bounded cache of primitives by tile shape. Only in builds with oneDNN.
 *
 * One thread calls td_onednn_prepare; then several may run the tile at once, each in a slot of its own. */
#ifndef TANDEM_BACKENDS_CPU_GEMM_ONEDNN_H
#define TANDEM_BACKENDS_CPU_GEMM_ONEDNN_H

#include "backends/cpu/gemm.h"

typedef struct td_onednn td_onednn;
typedef struct td_onednn_primitive td_onednn_primitive;

td_status *td_onednn_create(td_onednn **out_onednn) TD_MUST_USE;
void td_onednn_destroy(td_onednn *onednn);
/* The primitive of a tile, from the cache or made now, with room for as many callers at once as `slots`; valid while fewer
 * than TD_ONEDNN_CACHE others are asked for. `team` 0: it runs on one thread, with the caller's scratch; else on as many
 * threads of oneDNN's own, with its own scratch. */
enum { TD_ONEDNN_CACHE = 64 };
/* TD_UNSUPPORTED: oneDNN has no such product for this processor. */
td_status *td_onednn_prepare(td_onednn *onednn, const td_gemm_tile *tile, int32_t team, int32_t slots,
                             td_onednn_primitive **out_primitive) TD_MUST_USE;
/* The caller's scratch for one run. */
size_t td_onednn_scratch_bytes(const td_onednn_primitive *primitive);
/* False when oneDNN reports an error. Leaves the calling thread's number of OpenMP threads at the primitive's. */
bool td_onednn_run(td_onednn_primitive *primitive, int32_t slot, const void *a, const void *b, const void *bias,
                   void *c, void *scratch);
/* The calling thread's number of OpenMP threads, 0 when there is no OpenMP; and setting it (0: nothing happens). */
int32_t td_onednn_threads(void);
void td_onednn_set_threads(int32_t threads);
/* "oneDNN 2.6.3" */
void td_onednn_version(char *out, size_t bytes);

#endif
