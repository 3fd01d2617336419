/* cast: elements in another dtype.
 *
 * Floats round to nearest, ties to even (f64 to 16 bit through f32). A float becomes an integer by dropping its fraction;
 * beyond the range it becomes the nearest integer there is, a NaN becomes 0. Integers keep their low bits. Anything but 0
 * is true. */
#include <math.h>

#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "dtype",
     .type = TD_ATTR_STRING,
     .required = true,
     .help = "of the result: f32, f16, bf16, i32, i64, u8, bool, f64"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    TD_TRY(td_infer_dense(infer, 0, TD_ANY_DTYPE));
    infer->outputs[0] = infer->inputs[0];
    return td_infer_dtype_attr(infer, &infer->outputs[0].dtype);
}

/* Nothing flows through integers. */
static td_status *gradient(td_differentiate *d)
{
    td_dtype from = td_value_dtype(d->inputs[0]), to = td_value_dtype(d->outputs[0]);
    if (d->wanted[0] && td_dtype_is_float(from) && td_dtype_is_float(to))
        d->input_gradients[0] = td_cast(d->output_gradients[0], from);
    return NULL;
}

static double get_double(const td_tensor *x, int64_t i)
{
    return x->dtype == TD_F64 ? ((const double *)x->data)[i] : (double)td_get_f32(x, i);
}

static void set_double(const td_tensor *y, int64_t i, double value)
{
    if (y->dtype == TD_F64)
        ((double *)y->data)[i] = value;
    else
        td_set_f32(y, i, (float)value);
}

static int64_t saturate(double value, td_dtype dtype)
{
    double least = dtype == TD_I64 ? -0x1p63 : dtype == TD_I32 ? -0x1p31 : 0.0;
    double beyond = dtype == TD_I64 ? 0x1p63 : dtype == TD_I32 ? 0x1p31 : 0x1p8;
    if (isnan(value))
        return 0;
    if (value <= least)
        return dtype == TD_I64 ? INT64_MIN : (int64_t)least;
    if (value >= beyond)
        return dtype == TD_I64 ? INT64_MAX : (int64_t)beyond - 1;
    return (int64_t)value;
}

/* An integer as a float: one rounding to f32 or f64. */
static void set_from_integer(const td_tensor *y, int64_t i, int64_t value)
{
    if (y->dtype == TD_F64)
        ((double *)y->data)[i] = (double)value;
    else
        td_set_f32(y, i, (float)value);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    bool from_float = td_dtype_is_float(x->dtype), to_float = td_dtype_is_float(y->dtype);
    int64_t n = td_tensor_elements(y);
    for (int64_t i = 0; i < n; i++) {
        if (y->dtype == TD_BOOL)
            td_set_i64(y, i, from_float ? get_double(x, i) != 0.0 : td_get_i64(x, i) != 0);
        else if (from_float && to_float)
            set_double(y, i, get_double(x, i));
        else if (from_float)
            td_set_i64(y, i, saturate(get_double(x, i), y->dtype));
        else if (to_float)
            set_from_integer(y, i, td_get_i64(x, i));
        else
            td_set_i64(y, i, td_get_i64(x, i));
    }
    return NULL;
}

const td_op td_op_cast = {
    .name = "cast",
    .summary = "elements in another dtype",
    .inputs = {{"x", 0}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .infer = infer,
    .gradient = gradient,
    .reference = reference,
};

td_value td_cast(td_value x, td_dtype dtype)
{
    return td_build1("cast", NULL, x, (td_attr[]){TD_STRING("dtype", td_dtype_name(dtype))}, 1);
}
