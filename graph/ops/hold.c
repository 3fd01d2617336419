/* hold and commit: what a forward op writes while its window is not yet known to be good (partition/running.c). A commit also keeps
 * a gradient whose update is made a window late (partition/update.c).
 *   held = micro absent, or micro[0] not 0 and micro[1] not 0 ? state : what it held    (a window begins: its first micro-batch)
 *   state = held
 * The op that used to write the state writes `held`, in every micro-batch; commit, an update, runs once a window, and not where
 * the window is left out. */
#include <string.h>

#include "graph/op.h"

static td_status *require_alike(td_infer *infer)
{
    const td_type *a = &infer->inputs[0];
    if (a->kind != TD_DENSE)
        return TD_SHAPE_ERROR(infer, "a state must be dense");
    return NULL;
}

/* ---- hold ---------------------------------------------------------------------------------------------------------------- */

enum { BEGINS, FIRST_REPLICA };

static td_status *hold_infer(td_infer *infer)
{
    TD_TRY(require_alike(infer));
    if (infer->n_inputs > 1 && infer->inputs[1].kind != TD_NONE)
        TD_TRY(td_infer_require(infer, 1, TD_SCALAR, TD_F64));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static td_status *hold_reference(const td_kernel_call *call)
{
    const double *micro = call->n_inputs > 1 && call->inputs[1].kind != TD_NONE ? call->inputs[1].data : NULL;
    const int64_t bytes = td_tensor_bytes(&call->inputs[0]);
    if (bytes && (!micro || (micro[BEGINS] != 0 && micro[FIRST_REPLICA] != 0)))
        memcpy(call->outputs[0].data, call->inputs[0].data, (size_t)bytes);
    return NULL;
}

const td_op td_op_hold = {
    .name = "hold",
    .summary = "a state as the window found it, for the window to write",
    .inputs = {{"state", TD_PORT_NO_GRADIENT}, {"micro", TD_PORT_OPTIONAL | TD_PORT_NO_GRADIENT}},
    .outputs = {{"held", 0}},
    .flags = TD_OP_INTERNAL | TD_OP_NAMED | TD_OP_HOLDS,
    .infer = hold_infer,
    .no_gradient = "it only keeps what a window has written",
    .reference = hold_reference,
};

/* ---- commit ---------------------------------------------------------------------------------------------------------------- */

static td_status *commit_infer(td_infer *infer)
{
    TD_TRY(require_alike(infer));
    if (infer->inputs[1].kind != TD_DENSE || infer->inputs[0].dtype != infer->inputs[1].dtype ||
        !td_shape_equal(&infer->inputs[0].shape, &infer->inputs[1].shape))
        return TD_SHAPE_ERROR(infer, "what is held must have the dtype and shape of its state");
    return NULL;
}

static td_status *commit_reference(const td_kernel_call *call)
{
    const int64_t bytes = td_tensor_bytes(&call->inputs[0]);
    if (bytes)
        memcpy(call->inputs[0].data, call->inputs[1].data, (size_t)bytes);
    return NULL;
}

const td_op td_op_commit = {
    .name = "commit",
    .summary = "makes a state what its window has written",
    .inputs = {{"state", TD_PORT_WRITES}, {"held", TD_PORT_AFTER}},
    .flags = TD_OP_INTERNAL,
    .infer = commit_infer,
    .no_gradient = "it is an update",
    .reference = commit_reference,
};
