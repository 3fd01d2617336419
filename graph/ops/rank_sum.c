/* rank_send, rank_sum: values summed over the replicas of a distributed job, in their order. Made by the planner
 * (partition/exchange.c) of all gradients, in buckets; the first bucket is the loss alone, of which the mean over the window is made.
 *
 * rank_send takes a bucket away once its values are there, and waits for nobody's. It gives a word, which the next bucket's takes, so
 * that all ranks send in one order, and which all rank_sum take from the last, so that nobody waits before all have left.
 *
 * Dense values are summed element by element. Of a row-sparse one a row is the sum over the replicas that have it, so the result
 * has room for the rows of all. Where each worker updates its own stretch of the bucket (attribute bounds; partition/shard.h), a dense
 * sum is the elements of it that are in the stretch. The runtime runs both through the job (runtime/remote.h). */
#include "graph/op.h"
#include "graph/ops/stretch.h"

enum { BEFORE_SENT = 1, BEFORE_SUMMED = 2 /* inputs that are not values */ };

static const td_attr_spec send_attrs[] = {
    {.name = "bucket", .type = TD_ATTR_INT, .required = true, .help = "which; the first has the loss"},
    {.name = "rows_bytes",
     .type = TD_ATTR_INT,
     .required = true,
     .help = "room for counts, keys and rows of row-sparse values"},
    {.name = "bounds",
     .type = TD_ATTR_INTS,
     .help = "where each worker's stretch begins, if each sums up its own alone"},
    {0}};

static const td_attr_spec sum_attrs[] = {
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "as many as values"},
    {.name = "replicas", .type = TD_ATTR_INT, .required = true, .help = "how many there are"},
    {.name = "bucket", .type = TD_ATTR_INT, .required = true, .help = "which; the first has the loss"},
    {.name = "bounds", .type = TD_ATTR_INTS, .help = "as of rank_send"},
    {.name = "worker", .type = TD_ATTR_INT, .help = "whose stretch the sums are of"},
    {0}};

static td_status *require_values(const td_infer *infer, int32_t before)
{
    for (int32_t i = before; i < infer->n_inputs; i++) {
        const td_type *in = &infer->inputs[i];
        if (in->dtype != TD_F32 || (in->kind != TD_DENSE && in->kind != TD_ROW_SPARSE))
            return TD_SHAPE_ERROR(infer, "input %d must be f32, dense or row-sparse", i);
    }
    return NULL;
}

static td_status *send_infer(td_infer *infer)
{
    const td_dim one = td_dim_constant(1);
    TD_TRY(require_values(infer, BEFORE_SENT));
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = td_shape_of(1, &one)};
    return NULL;
}

static const td_attr *bounds_of(const td_infer *infer)
{
    const td_attr *bounds = td_attr_find(infer->attrs, infer->n_attrs, "bounds");
    return bounds && bounds->n_ints ? bounds : NULL;
}

static td_status *require_bounds(const td_infer *infer)
{
    const td_attr *bounds = bounds_of(infer);
    const int64_t worker = td_attr_int(infer->attrs, infer->n_attrs, "worker", 0);
    if (bounds && (worker < 0 || worker + 1 >= bounds->n_ints))
        return TD_SHAPE_ERROR(infer, "worker %lld has no stretch", (long long)worker);
    return NULL;
}

/* A dense value that begins at element `at` of the bucket, to what is in the stretch; all of it keeps its shape. Returns its elements. */
static int64_t narrow(const td_infer *infer, int64_t at, td_type *type)
{
    td_dim elements;
    int64_t first = 0;
    const td_attr *bounds = bounds_of(infer);
    const int64_t worker = td_attr_int(infer->attrs, infer->n_attrs, "worker", 0);
    if (!bounds || !td_shape_elements(&type->shape, &elements) || elements.extent >= 0)
        return 0;
    const int64_t n = elements.constant;
    const td_dim mine = td_dim_constant(td_stretch_of(at, n, bounds->ints[worker], bounds->ints[worker + 1], &first));
    if (mine.constant < n)
        type->shape = td_shape_of(1, &mine);
    return n;
}

static td_status *sum_infer(td_infer *infer)
{
    const int64_t replicas = td_attr_int(infer->attrs, infer->n_attrs, "replicas", 1);
    int64_t at = 0;
    if (infer->n_inputs != infer->n_outputs + BEFORE_SUMMED)
        return TD_SHAPE_ERROR(infer, "%d inputs, %d outputs", infer->n_inputs, infer->n_outputs);
    TD_TRY(require_values(infer, BEFORE_SUMMED));
    TD_TRY(require_bounds(infer));
    for (int32_t i = 0; i < infer->n_outputs; i++) {
        const td_type *in = &infer->inputs[BEFORE_SUMMED + i];
        infer->outputs[i] = *in;
        if (in->kind != TD_ROW_SPARSE) {
            at += narrow(infer, at, &infer->outputs[i]);
            continue;
        }
        const int64_t rows = td_dim_capacity(infer->graph, in->shape.dims[0]);
        const int64_t room = replicas * td_dim_capacity(infer->graph, in->entries);
        infer->outputs[i].entries = td_dim_constant(room < rows ? room : rows);
    }
    return NULL;
}

static void send_cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t i = BEFORE_SENT; i < call->n_inputs; i++)
        out->bytes_read += (double)td_tensor_bytes(&call->inputs[i]);
    out->bytes_written = out->bytes_read;
}

static void sum_cost(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t i = 0; i < call->n_outputs; i++) {
        out->bytes_read += (double)td_tensor_bytes(&call->inputs[BEFORE_SUMMED + i]);
        out->bytes_written += (double)td_tensor_bytes(&call->outputs[i]);
    }
}

const td_op td_op_rank_send = {
    .name = "rank_send",
    .summary = "a bucket of gradients on its way to the other ranks of a distributed job",
    .inputs = {{"before", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL}, {"x", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .outputs = {{"sent", 0}},
    .attrs = send_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = send_infer,
    .no_gradient = "it sends gradients",
    .cost = send_cost,
};

const td_op td_op_rank_sum = {
    .name = "rank_sum",
    .summary = "sums over the replicas of a distributed job, in their order",
    .inputs = {{"sent", TD_PORT_NO_GRADIENT},
               {"loss", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"x", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .outputs = {{"sum", TD_PORT_VARIADIC}},
    .attrs = sum_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_HOST_ONLY | TD_OP_REMOTE,
    .infer = sum_infer,
    .no_gradient = "it sums gradients",
    .cost = sum_cost,
};
