/* rank_combine, rank_gather: what a distributed job does where each worker updates a stretch of every parameter alone
 * (ps.shard_optimizer; partition/shard.c). The runtime runs both through the job (runtime/remote.h).
 *
 * rank_combine makes, of what each worker knows about its stretches of the gradients, what is known about all of them: sums of squares
 * are added without rounding, flags are raised where any worker's is. All workers get the same words.
 *
 * rank_gather takes the parameters of one bucket, of which this worker has updated its stretch, and brings the others'. It comes after
 * the update, and whoever reads the parameter next reads what it leaves. It gives a word, which the next bucket's takes, so that
 * all workers gather in one order. */
#include "base/exact.h"
#include "graph/ops/rules.h"

enum { SUM_WORDS = sizeof(td_exact) / sizeof(int64_t) };

static const td_attr_spec combine_attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "as many as inputs"}, {0}};

static const td_attr_spec gather_attrs[] = {
    {.name = "bucket", .type = TD_ATTR_INT, .required = true, .help = "which"},
    {.name = "bounds", .type = TD_ATTR_INTS, .required = true, .help = "where each worker's stretch of it begins"},
    {0}};

static td_status *combine_infer(td_infer *infer)
{
    if (infer->n_inputs != infer->n_outputs)
        return TD_SHAPE_ERROR(infer, "%d inputs, %d outputs", infer->n_inputs, infer->n_outputs);
    for (int32_t i = 0; i < infer->n_inputs; i++) {
        const td_shape *shape = &infer->inputs[i].shape;
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_I64));
        if (shape->rank != 1 || !(td_dim_is(shape->dims[0], 1) || td_dim_is(shape->dims[0], SUM_WORDS)))
            return TD_SHAPE_ERROR(infer, "input %d must be a flag, or the %d words of a sum of squares", i,
                                  (int)SUM_WORDS);
        infer->outputs[i] = infer->inputs[i];
    }
    return NULL;
}

static td_status *gather_infer(td_infer *infer)
{
    const td_dim one = td_dim_constant(1);
    for (int32_t i = 1; i < infer->n_inputs; i++)
        TD_TRY(td_infer_dense(infer, i, TD_FLOATS));
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(1, &one)};
    return NULL;
}

static void gather_cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t i = 1; i < call->n_inputs; i++)
        out->bytes_written += (double)td_tensor_bytes(&call->inputs[i]);
    out->bytes_read = out->bytes_written;
}

const td_op td_op_rank_combine = {
    .name = "rank_combine",
    .summary = "what all workers of a distributed job know about their stretches of the gradients",
    .inputs = {{"x", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .outputs = {{"combined", TD_PORT_VARIADIC}},
    .attrs = combine_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = combine_infer,
    .no_gradient = "it is part of an update",
};

const td_op td_op_rank_gather = {
    .name = "rank_gather",
    .summary = "the stretches of parameters that the other workers of a distributed job have updated",
    .inputs = {{"before", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"parameter", TD_PORT_WRITES | TD_PORT_AFTER | TD_PORT_VARIADIC}},
    .outputs = {{"gathered", 0}},
    .attrs = gather_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = gather_infer,
    .no_gradient = "it is an update",
    .cost = gather_cost,
};
