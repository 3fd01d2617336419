/* Whether the gradients of a step are finite numbers, before any update reads them: a flag for each gradient, then one number
 * for all. The planner adds them where 16-bit floats overflow or steps may be skipped (partition/overflow.c). Where the update adds
 * the last micro-batch's gradient to a sum by itself (update_mixed), what is looked at is their sum, as gradient_squares does. */
#include <math.h>
#include <string.h>

#include "base/exact.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

enum { SUM_WORDS = sizeof(td_exact) / sizeof(int64_t) };

static td_type one_number(void)
{
    td_type type = {.kind = TD_DENSE, .dtype = TD_I64, .shape = TD_SHAPE(1)};
    type.entries = td_dim_constant(0);
    return type;
}

/* ---- gradient_nonfinite ------------------------------------------------------------------------------------------------- */

static td_status *flag_infer(td_infer *infer)
{
    if (infer->inputs[0].kind == TD_ROW_SPARSE)
        TD_TRY(td_infer_require(infer, 0, TD_ROW_SPARSE, TD_F32));
    else
        TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_summed_gradient(infer, 0));
    infer->outputs[0] = one_number();
    return NULL;
}

/* Of a row-sparse gradient those of its rows in use. */
static int64_t elements_in_use(const td_tensor *t)
{
    int64_t n = 1;
    if (t->kind != TD_ROW_SPARSE)
        return td_tensor_elements(t);
    for (int32_t axis = 1; axis < t->rank; axis++)
        n *= t->dims[axis];
    return n * *(const int64_t *)t->count;
}

static td_status *flag_reference(const td_kernel_call *call)
{
    const int64_t n = elements_in_use(&call->inputs[0]);
    int64_t found = 0;
    for (int64_t i = 0; i < n && !found; i++)
        found = !isfinite(td_get_summed(call->inputs, call->n_inputs, i));
    *(int64_t *)call->outputs[0].data = found;
    return NULL;
}

const td_op td_op_gradient_nonfinite = {
    .name = "gradient_nonfinite",
    .summary = "1 where a gradient holds an infinity or NaN, else 0",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT},
               {"sum", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"micro", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL}},
    .outputs = {{"flag", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = flag_infer,
    .no_gradient = "it is part of an update",
    .reference = flag_reference,
};

/* ---- first_overflow ----------------------------------------------------------------------------------------------------- */

static td_status *first_infer(td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_DENSE, TD_F32));
    for (int32_t i = 1; i < infer->n_inputs; i++) {
        const td_shape *shape = &infer->inputs[i].shape;
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_I64));
        if (shape->rank != 1 || !(td_dim_is(shape->dims[0], 1) || td_dim_is(shape->dims[0], SUM_WORDS)))
            return TD_SHAPE_ERROR(infer, "input %d must be a flag, or the %d words of a sum of squares", i,
                                  (int)SUM_WORDS);
    }
    infer->outputs[0] = one_number();
    return NULL;
}

static bool is_raised(const td_tensor *flag)
{
    td_exact sum;
    if (td_tensor_elements(flag) == 1)
        return *(const int64_t *)flag->data != 0;
    memcpy(&sum, flag->data, sizeof sum);
    return !isfinite(td_exact_round(&sum));
}

static td_status *first_reference(const td_kernel_call *call)
{
    int64_t first = isfinite(*(const float *)call->inputs[0].data) ? 0 : -1;
    for (int32_t i = 1; i < call->n_inputs && !first; i++)
        first = is_raised(&call->inputs[i]) ? i : 0;
    *(int64_t *)call->outputs[0].data = first;
    return NULL;
}

const td_op td_op_first_overflow = {
    .name = "first_overflow",
    .summary = "the number, from 1, of the first gradient that is not finite; 0: all are; -1: the loss is not",
    .inputs = {{"loss", TD_PORT_NO_GRADIENT}, {"flags", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .outputs = {{"first", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = first_infer,
    .no_gradient = "it is part of an update",
    .reference = first_reference,
};
