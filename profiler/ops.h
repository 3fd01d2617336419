/* Operator statistics of the steps that count: by op, by type, by subgraph, by device.
 *
 * Total time is from begin to end; self time is that less what was recorded within it on the same thread (a pull, a chunk of an
 * update). Flops and bytes are the plan's, at capacity. Copies of one subgraph, which a lane makes one after the other, share its
 * time by their bytes. */
#ifndef TANDEM_PROFILER_OPS_H
#define TANDEM_PROFILER_OPS_H

#include "profiler/view.h"

typedef struct td_op_row {
    const char *name;   /* of the op, the type, the subgraph or the device */
    const char *op;     /* type; of single ops only */
    const char *device; /* of ops and subgraphs */
    int32_t node;       /* of single ops; else -1 */
    int32_t device_index;
    int64_t count, total_ns, self_ns;
    double flops, bytes; /* of all executions */
} td_op_row;

typedef struct td_op_rows {
    td_op_row *rows; /* most self time first */
    int64_t n;
} td_op_rows;

typedef struct td_op_statistics {
    const td_view *view;
    td_op_rows ops, types, subgraphs, devices;
    int64_t self_ns; /* of all ops */
    int64_t steps;
} td_op_statistics;

td_status *td_op_statistics_create(const td_view *view, td_op_statistics **out_statistics) TD_MUST_USE;
void td_op_statistics_destroy(td_op_statistics *statistics);
/* Of what the device states, by flops or bytes, whichever it is closer to: 0 to 1 and beyond; 0: not known. */
double td_op_reached(const td_view *view, const td_op_row *row);
/* "f32 [256, 16], i64 [256]" of a node's inputs or outputs; into buffer. */
const char *td_op_shapes(const td_trace_plan *plan, const int32_t *values, int32_t n, char *buffer, size_t bytes);

#endif
