/* Clipping by the norm of all gradients together: the sum of squares of one gradient, the factor that all sums make, a gradient
 * times the factor (Pascanu et al. 2013). The planner adds them (partition/clip.c).
 *
 * Squares are summed in double per block of 1,024 elements, or per row of a row-sparse gradient, and then without rounding
 * (base/exact.h): a sum travels between devices as the words of its accumulator, and no order or cut changes a bit of the norm.
 * Backward is seeded with a number other than one (a short batch, a loss scale); the norm is of the gradients over it.
 *
 * Where the update takes a gradient in 16 bit, or adds the last micro-batch's to a sum itself (update_mixed), so do the squares: they are
 * of what the update will see, which is nowhere in memory. */
#include <math.h>
#include <string.h>

#include "base/exact.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

enum { SUM_WORDS = sizeof(td_exact) / sizeof(int64_t) };
_Static_assert(sizeof(td_exact) % sizeof(int64_t) == 0, "a sum is whole words");

/* A dense or row-sparse f32 gradient. */
static td_status *require_gradient(const td_infer *infer)
{
    return td_infer_require(infer, 0, infer->inputs[0].kind == TD_ROW_SPARSE ? TD_ROW_SPARSE : TD_DENSE, TD_F32);
}

static int64_t row_elements(const td_tensor *t)
{
    int64_t n = 1;
    for (int32_t axis = 1; axis < t->rank; axis++)
        n *= t->dims[axis];
    return n;
}

/* Elements that hold numbers: of a row-sparse gradient those of its rows in use. */
static int64_t elements_in_use(const td_tensor *t)
{
    return t->kind == TD_ROW_SPARSE ? *(const int64_t *)t->count * row_elements(t) : td_tensor_elements(t);
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    td_cost_bytes(call, out_cost);
    out_cost->flops = out_cost->bytes_read / 2;
}

/* ---- gradient_squares -------------------------------------------------------------------------------------------------- */

static td_status *squares_infer(td_infer *infer)
{
    if (infer->inputs[0].kind == TD_ROW_SPARSE)
        TD_TRY(require_gradient(infer));
    else
        TD_TRY(td_infer_dense(infer, 0, TD_FLOATS));
    TD_TRY(td_infer_summed_gradient(infer, 0));
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_I64, .shape = TD_SHAPE(SUM_WORDS)};
    infer->outputs[0].entries = td_dim_constant(0);
    return NULL;
}

/* A dense gradient block by block, each in f32. */
static void sum_dense(const td_kernel_call *call, td_exact *sum)
{
    const td_tensor *gradient = &call->inputs[0];
    const int64_t n = td_tensor_elements(gradient);
    float block[TD_EXACT_BLOCK];
    for (int64_t at = 0; at < n; at += TD_EXACT_BLOCK) {
        const int64_t count = n - at < TD_EXACT_BLOCK ? n - at : TD_EXACT_BLOCK;
        for (int64_t i = 0; i < count; i++)
            block[i] = td_get_summed(call->inputs, call->n_inputs, at + i);
        td_exact_add(sum, td_sum_squares(block, count));
    }
}

static td_status *squares_reference(const td_kernel_call *call)
{
    const td_tensor *gradient = &call->inputs[0];
    td_exact sum;
    td_exact_clear(&sum);
    if (gradient->kind == TD_ROW_SPARSE)
        td_sum_squares_rows(gradient->data, *(const int64_t *)gradient->count, row_elements(gradient), &sum);
    else
        sum_dense(call, &sum);
    (void)td_exact_round(&sum); /* moves the carries up: then equal sums are equal words */
    memcpy(call->outputs[0].data, &sum, sizeof sum);
    return NULL;
}

const td_op td_op_gradient_squares = {
    .name = "gradient_squares",
    .summary = "the sum of squares of a gradient, without rounding",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT},
               {"sum", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL},
               {"micro", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL}},
    .outputs = {{"squares", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = squares_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = squares_reference,
};

/* ---- clip_factor ------------------------------------------------------------------------------------------------------- */

static const td_attr_spec factor_attrs[] = {{.name = "clip_norm",
                                             .type = TD_ATTR_FLOAT,
                                             .required = true,
                                             .help = "the norm that gradients are scaled down to"},
                                            {0}};

static td_status *factor_infer(td_infer *infer)
{
    TD_TRY(td_infer_require(infer, 0, TD_SCALAR, TD_F64));
    for (int32_t i = 1; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_require(infer, i, TD_DENSE, TD_I64));
        if (infer->inputs[i].shape.rank != 1 || !td_dim_is(infer->inputs[i].shape.dims[0], SUM_WORDS))
            return TD_SHAPE_ERROR(infer, "input %d must be the %d words of a sum of squares", i, (int)SUM_WORDS);
    }
    const double norm = td_attr_float(infer->attrs, infer->n_attrs, "clip_norm", 0);
    if (!(norm > 0))
        return TD_SHAPE_ERROR(infer, "clip_norm %g must be above 0", norm);
    infer->outputs[0] = (td_type){.kind = TD_DENSE, .dtype = TD_F32, .shape = TD_SHAPE(1)};
    infer->outputs[0].entries = td_dim_constant(0);
    infer->outputs[1] = infer->outputs[0];
    return NULL;
}

static td_status *factor_reference(const td_kernel_call *call)
{
    const double most = td_attr_float(call->attrs, call->n_attrs, "clip_norm", 1),
                 seed = *(const double *)call->inputs[0].data;
    td_exact sum, one;
    td_exact_clear(&sum);
    for (int32_t i = 1; i < call->n_inputs; i++) {
        memcpy(&one, call->inputs[i].data, sizeof one);
        td_exact_add_sum(&sum, &one);
    }
    const double root = sqrt(td_exact_round(&sum)), norm = seed != 0 ? root / fabs(seed) : root;
    const double factor = most / (norm + 1e-6);
    *(float *)call->outputs[0].data = factor < 1 || isnan(norm) ? (float)factor : 1;
    *(float *)call->outputs[1].data = (float)norm;
    return NULL;
}

const td_op td_op_clip_factor = {
    .name = "clip_factor",
    .summary = "min(1, clip_norm / (norm + 1e-6)) of all gradients, and their norm",
    .inputs = {{"seed", TD_PORT_NO_GRADIENT}, {"squares", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC}},
    .outputs = {{"factor", 0}, {"norm", 0}},
    .attrs = factor_attrs,
    .flags = TD_OP_INTERNAL,
    .infer = factor_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .reference = factor_reference,
};

/* ---- clip_gradient ----------------------------------------------------------------------------------------------------- */

static td_status *gradient_infer(td_infer *infer)
{
    TD_TRY(require_gradient(infer));
    TD_TRY(td_infer_require(infer, 1, TD_DENSE, TD_F32));
    if (infer->inputs[1].shape.rank != 1 || !td_dim_is(infer->inputs[1].shape.dims[0], 1))
        return TD_SHAPE_ERROR(infer, "the factor must be one number");
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static td_status *gradient_reference(const td_kernel_call *call)
{
    const td_tensor *in = &call->inputs[0], *out = &call->outputs[0];
    const float factor = *(const float *)call->inputs[1].data;
    const int64_t n = elements_in_use(in);
    for (int64_t i = 0; i < n; i++)
        ((float *)out->data)[i] = factor * ((const float *)in->data)[i];
    if (in->kind != TD_ROW_SPARSE || out->index == in->index)
        return NULL;
    const int64_t rows = *(const int64_t *)in->count;
    if (rows)
        memcpy(out->index, in->index, (size_t)rows * sizeof(int64_t));
    *(int64_t *)out->count = rows;
    return NULL;
}

const td_op td_op_clip_gradient = {
    .name = "clip_gradient",
    .summary = "a gradient times the factor of clip_factor",
    .inputs = {{"gradient", TD_PORT_NO_GRADIENT}, {"factor", TD_PORT_NO_GRADIENT}},
    .outputs = {{"clipped", 0}},
    .flags = TD_OP_INTERNAL,
    .infer = gradient_infer,
    .no_gradient = "it is part of an update",
    .cost = cost,
    .in_place = {{1, 1}},
    .reference = gradient_reference,
};
