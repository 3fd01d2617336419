/* What the files of the pass offload share: fold.c and offload.c. */
#ifndef TANDEM_PARTITION_OFFLOAD_H
#define TANDEM_PARTITION_OFFLOAD_H

#include "partition/plan.h"

/* What fold.c found and made. Of each value of the graph as it was: */
typedef struct td_folded {
    td_dtype *dtype;  /* of a parameter on the host: what its readers want, where all are casts to that; else TD_F32 */
    int32_t *cast_of; /* of such a cast's result: the parameter; else -1 */
    int32_t *copy;    /* of a parameter whose update copies it out in 16 bit: that value; else -1 */
    bool *gone;       /* of each node: another has its work */
    int64_t n_values, n_nodes;
} td_folded;

td_status *td_fold_offloaded(td_plan *plan, td_folded *out) TD_MUST_USE;
void td_folded_deinit(td_folded *folded);

#endif
