/* refresh: a replica becomes what its parameter is after this step's update. The planner makes it where a parameter lives on
 * one device and is read on another (partition/offload.c); it always runs on a copy lane. refresh_part: likewise, where a parameter
 * lives with its readers and the host updates the rest of it (partition/split.c): it writes beside what the update there has written. */
#include <string.h>

#include "graph/op.h"

static td_status *infer(td_infer *infer)
{
    const td_type *from = &infer->inputs[0], *to = &infer->inputs[1];
    if (from->kind != TD_DENSE || to->kind != TD_DENSE || from->dtype != to->dtype ||
        !td_shape_equal(&from->shape, &to->shape))
        return TD_SHAPE_ERROR(infer, "a replica must be dense, and have the dtype and shape of its parameter");
    return NULL;
}

static td_status *reference(const td_kernel_call *call)
{
    int64_t bytes = td_tensor_bytes(&call->inputs[0]);
    if (bytes)
        memcpy(call->inputs[1].data, call->inputs[0].data, (size_t)bytes);
    return NULL;
}

const td_op td_op_refresh = {
    .name = "refresh",
    .summary = "makes a replica what its parameter is after the update",
    .inputs = {{"parameter", TD_PORT_AFTER}, {"replica", TD_PORT_WRITES}},
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it only moves what an update has made",
    .reference = reference,
};

/* ---- refresh_part ---------------------------------------------------------------------------------------------------------- */

const td_op td_op_refresh_part = {
    .name = "refresh_part",
    .summary = "brings the part of a parameter that the host has updated to the rest of it",
    .inputs = {{"updated", TD_PORT_AFTER}, {"part", TD_PORT_WRITES | TD_PORT_AFTER}},
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it only moves what an update has made",
    .reference = reference,
};
