/* accumulate and its kin: the sum of a gradient over the micro-batches of a window. Made by the planner (partition/accumulate.c).
 *
 * The outputs are not made anew each time: they keep what they held (TD_OP_KEEPS), and the numbers of the input `micro` say how
 * far the window is: [0] is not 0 where a replica begins, [1] for the first replica, [2] where a replica ends. Micro-batches are
 * folded left to right per replica, replicas left to right; where something begins, the first summand is taken as it is.
 *   accumulated = micro[0] ? gradient : accumulated + gradient
 *   total = micro[1] ? accumulated : total + accumulated, where micro[2]   (the ops of several replicas alone)
 * Sums are f32 whatever the gradient is.
 *
 * A row-sparse sum is a list of rows in the order in which they came first, with `order`, the places of the list by ascending
 * row: adding costs what the new gradient has, not what the list has. Rows of an addend are taken in ascending order. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

enum { BEGINS, FIRST_REPLICA, ENDS, N_NUMBERS };

static td_status *require_micro(const td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 1, TD_SCALAR, TD_F64));
    const td_shape *shape = &infer->inputs[1].shape;
    if (shape->rank != 1 || !td_dim_is(shape->dims[0], N_NUMBERS))
        return TD_SHAPE_ERROR(infer, "micro must be %d numbers", (int)N_NUMBERS);
    return NULL;
}

static bool says(const td_kernel_call *call, int32_t number)
{
    return ((const double *)call->inputs[1].data)[number] != 0;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    const double bytes = (double)td_tensor_bytes(&call->inputs[0]);
    *out_cost = (td_cost){bytes / 4, 2 * bytes, bytes};
}

/* ---- dense -------------------------------------------------------------------------------------------------------------- */

static td_status *dense_infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(require_micro(infer));
    for (int32_t i = 0; i < infer->n_outputs; i++) {
        infer->outputs[i] = infer->inputs[0];
        infer->outputs[i].dtype = TD_F32;
    }
    return NULL;
}

static void fold(bool first, const td_tensor *from, const td_tensor *to)
{
    const int64_t n = td_tensor_elements(to);
    float *sum = to->data;
    for (int64_t i = 0; i < n; i++)
        sum[i] = first ? td_get_f32(from, i) : sum[i] + td_get_f32(from, i);
}

static td_status *dense_reference(const td_kernel_call *call)
{
    fold(says(call, BEGINS), &call->inputs[0], &call->outputs[0]);
    return NULL;
}

static td_status *dense_replicas_reference(const td_kernel_call *call)
{
    const td_tensor *total = &call->outputs[0], *accumulated = &call->outputs[1];
    fold(says(call, BEGINS), &call->inputs[0], accumulated);
    if (says(call, ENDS))
        fold(says(call, FIRST_REPLICA), accumulated, total);
    return NULL;
}

const td_op td_op_accumulate = {
    .name = "accumulate",
    .summary = "the sum of a gradient over the micro-batches of a window",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT}, {"micro", TD_PORT_NO_GRADIENT}},
    .outputs = {{"accumulated", 0}},
    .flags = TD_OP_INTERNAL | TD_OP_NAMED | TD_OP_KEEPS,
    .infer = dense_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = dense_reference,
};

const td_op td_op_accumulate_replicas = {
    .name = "accumulate_replicas",
    .summary = "the sum of a gradient over the micro-batches of each replica, then over the replicas",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT}, {"micro", TD_PORT_NO_GRADIENT}},
    .outputs = {{"total", 0}, {"accumulated", 0}},
    .flags = TD_OP_INTERNAL | TD_OP_NAMED | TD_OP_KEEPS,
    .infer = dense_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = dense_replicas_reference,
};

/* ---- row-sparse ---------------------------------------------------------------------------------------------------------- */

static const td_attr_spec rows_attrs[] = {{.name = "micro_batches",
                                           .type = TD_ATTR_INT,
                                           .required = true,
                                           .help = "of a replica, at most: room for their rows"},
                                          {0}};
static const td_attr_spec replica_rows_attrs[] = {
    {.name = "micro_batches",
     .type = TD_ATTR_INT,
     .required = true,
     .help = "of a replica, at most: room for their rows"},
    {.name = "replicas", .type = TD_ATTR_INT, .required = true, .help = "of a window: room for their rows"},
    {0}};

/* A list with room for `batches` times the rows of the gradient, or all of the table's, and its order. */
static td_status *infer_list(const td_infer *infer, int64_t batches, td_type out[2])
{
    const td_type *gradient = &infer->inputs[0];
    const int64_t rows = td_dim_capacity(infer->graph, gradient->shape.dims[0]);
    int64_t most = 0;
    if (batches < 1)
        return TD_SHAPE_ERROR(infer, "there must be at least one micro-batch and one replica");
    if (!td_multiply_checked(td_dim_capacity(infer->graph, gradient->entries), batches, &most) || most > rows)
        most = rows;
    out[0] = *gradient;
    out[0].entries = td_dim_constant(most);
    out[1] = (td_type){.kind = TD_DENSE, .dtype = TD_I64, .shape = TD_SHAPE(most)};
    out[1].entries = td_dim_constant(0);
    return NULL;
}

static td_status *rows_infer(td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_ROW_SPARSE, TD_F32));
    TD_TRY(require_micro(infer));
    return infer_list(infer, td_attr_int(infer->attrs, infer->n_attrs, "micro_batches", 1), &infer->outputs[0]);
}

static td_status *replica_rows_infer(td_infer *infer)
{
    const int64_t batches = td_attr_int(infer->attrs, infer->n_attrs, "micro_batches", 1),
                  replicas = td_attr_int(infer->attrs, infer->n_attrs, "replicas", 1);
    int64_t all = 0;
    TD_TRY(td_infer_require(infer, 0, TD_ROW_SPARSE, TD_F32));
    TD_TRY(require_micro(infer));
    if (batches < 1 || replicas < 1 || !td_multiply_checked(batches, replicas, &all))
        return TD_SHAPE_ERROR(infer, "there must be at least one micro-batch and one replica");
    TD_TRY(infer_list(infer, all, &infer->outputs[0]));
    return infer_list(infer, batches, &infer->outputs[2]);
}

static int64_t row_elements(const td_tensor *t)
{
    int64_t n = 1;
    for (int32_t axis = 1; axis < t->rank; axis++)
        n *= t->dims[axis];
    return n;
}

/* The place in the list of a row, which is appended where it is not there; then its place in `order` is found. */
static int64_t place_of(const td_tensor *list, int64_t *order, int64_t row, bool *out_fresh)
{
    int64_t *rows = list->index, *count = list->count, at = 0;
    while (at < *count && rows[order[at]] < row)
        at++;
    *out_fresh = at == *count || rows[order[at]] != row;
    if (!*out_fresh)
        return order[at];
    memmove(order + at + 1, order + at, (size_t)(*count - at) * sizeof *order);
    order[at] = *count;
    rows[*count] = row;
    return (*count)++;
}

/* `from_order` NULL: the rows of `from` ascend. */
static void fold_rows(bool first, const td_tensor *from, const int64_t *from_order, const td_tensor *to,
                      const td_tensor *order)
{
    const int64_t elements = row_elements(to), n = *(const int64_t *)from->count;
    if (first)
        *(int64_t *)to->count = 0;
    for (int64_t i = 0; i < n; i++) {
        bool fresh = false;
        const int64_t k = from_order ? from_order[i] : i;
        const int64_t place = place_of(to, order->data, ((const int64_t *)from->index)[k], &fresh);
        const float *row = (const float *)from->data + k * elements;
        float *sum = (float *)to->data + place * elements;
        for (int64_t e = 0; e < elements; e++)
            sum[e] = fresh ? row[e] : sum[e] + row[e];
    }
}

static td_status *rows_reference(const td_kernel_call *call)
{
    fold_rows(says(call, BEGINS), &call->inputs[0], NULL, &call->outputs[0], &call->outputs[1]);
    return NULL;
}

static td_status *replica_rows_reference(const td_kernel_call *call)
{
    const td_tensor *accumulated = &call->outputs[2], *order = &call->outputs[3];
    fold_rows(says(call, BEGINS), &call->inputs[0], NULL, accumulated, order);
    if (says(call, ENDS))
        fold_rows(says(call, FIRST_REPLICA), accumulated, order->data, &call->outputs[0], &call->outputs[1]);
    return NULL;
}

const td_op td_op_accumulate_rows = {
    .name = "accumulate_rows",
    .summary = "the sum of a row-sparse gradient over the micro-batches of a window",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT}, {"micro", TD_PORT_NO_GRADIENT}},
    .outputs = {{"accumulated", 0}, {"order", 0}},
    .attrs = rows_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_NAMED | TD_OP_KEEPS,
    .infer = rows_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = rows_reference,
};

const td_op td_op_accumulate_replica_rows = {
    .name = "accumulate_replica_rows",
    .summary = "the sum of a row-sparse gradient over the micro-batches of each replica, then over the replicas",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT}, {"micro", TD_PORT_NO_GRADIENT}},
    .outputs = {{"total", 0}, {"total_order", 0}, {"accumulated", 0}, {"order", 0}},
    .attrs = replica_rows_attrs,
    .flags = TD_OP_INTERNAL | TD_OP_NAMED | TD_OP_KEEPS,
    .infer = replica_rows_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = replica_rows_reference,
};
