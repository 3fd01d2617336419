/* fused_elementwise: several elementwise ops as one, by a small program (base/fused.h). What the optimizer makes of chains at
 * compile.jit_level O2, after placement; the ops' own names stay known to explanations.
 *
 * An input has the output's shape, or its last axes (a row repeated), or is a scalar. */
#include <string.h>

#include "base/fused.h"
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "program",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "five integers per instruction: kind, operands, number, dtype (base/fused.h)"},
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of the result"},
    {0},
};

/* The input repeats along the first axes of the output: its own axes are the last ones, ones before them aside. */
static bool is_repeated(const td_shape *in, const td_shape *out)
{
    int32_t skip = 0;
    while (skip < in->rank && in->rank - skip > 0 && td_dim_is(in->dims[skip], 1))
        skip++;
    int32_t axes = in->rank - skip;
    for (int32_t i = 0; i < axes; i++)
        if (axes > out->rank || !td_dim_equal(in->dims[skip + i], out->dims[out->rank - axes + i]))
            return false;
    return true;
}

static td_status *check_input(const td_infer *infer, int32_t index, const td_shape *out)
{
    const td_type *in = &infer->inputs[index];
    char from[160], to[160];
    if (in->kind == TD_SCALAR)
        return in->dtype == TD_F32 && in->shape.rank == 1 && td_dim_is(in->shape.dims[0], 1)
                   ? NULL
                   : TD_SHAPE_ERROR(infer, "input %d must be one f32 number where it is a scalar", (int)index);
    TD_TRY(td_infer_dense(infer, index, TD_FLOATS));
    if (is_repeated(&in->shape, out))
        return NULL;
    return TD_SHAPE_ERROR(infer, "input %d is %s; it must be %s, or the last axes of that", (int)index,
                          td_shape_text(infer->graph, &in->shape, from, sizeof from),
                          td_shape_text(infer->graph, out, to, sizeof to));
}

static td_status *check_instruction(const td_infer *infer, const int64_t *ints, int32_t index)
{
    int64_t most = infer->n_inputs + index;
    if (ints[0] < 0 || ints[0] >= TD_FUSED_KIND_COUNT)
        return TD_SHAPE_ERROR(infer, "instruction %d: there is no kind %lld", (int)index, (long long)ints[0]);
    if (ints[1] < 0 || ints[1] >= most || ints[2] < 0 || ints[2] >= most)
        return TD_SHAPE_ERROR(infer, "instruction %d: operands %lld and %lld must be inputs or earlier results",
                              (int)index, (long long)ints[1], (long long)ints[2]);
    if (ints[3] < 0 || ints[3] > UINT32_MAX || ints[4] < 0 || ints[4] >= TD_DTYPE_COUNT || !(TD_FLOATS >> ints[4] & 1))
        return TD_SHAPE_ERROR(infer, "instruction %d: its dtype must be f32, f16 or bf16, its number 32 bits",
                              (int)index);
    return NULL;
}

static td_status *infer(td_infer *infer)
{
    const td_attr *program = td_attr_find(infer->attrs, infer->n_attrs, "program");
    int32_t n = program->n_ints / TD_FUSED_INTS;
    if (n < 1 || n > TD_FUSED_MOST_INSTRUCTIONS || program->n_ints % TD_FUSED_INTS)
        return TD_SHAPE_ERROR(infer, "a program has 1 to %d instructions of %d integers, not %d integers",
                              TD_FUSED_MOST_INSTRUCTIONS, TD_FUSED_INTS, (int)program->n_ints);
    if (infer->n_inputs > TD_FUSED_MOST_INPUTS)
        return TD_SHAPE_ERROR(infer, "at most %d inputs, not %d", TD_FUSED_MOST_INPUTS, (int)infer->n_inputs);
    for (int32_t i = 0; i < n; i++)
        TD_TRY(check_instruction(infer, program->ints + i * TD_FUSED_INTS, i));
    td_type *y = &infer->outputs[0];
    *y = (td_type){
        .kind = TD_DENSE, .dtype = (td_dtype)program->ints[program->n_ints - 1], .entries = td_dim_constant(0)};
    TD_TRY(td_infer_shape_attr(infer, &y->shape));
    for (int32_t i = 0; i < infer->n_inputs; i++)
        TD_TRY(check_input(infer, i, &y->shape));
    return NULL;
}

static void cost(const td_kernel_call *call, td_cost *out_cost)
{
    static const double flops[] = {
#define TD_FUSED_FLOPS(kind, flops, expression) flops,
        TD_FUSED_KINDS(TD_FUSED_FLOPS)
#undef TD_FUSED_FLOPS
    };
    const td_attr *program = td_attr_find(call->attrs, call->n_attrs, "program");
    td_cost_bytes(call, out_cost);
    out_cost->flops = 0;
    for (int32_t i = 0; i < program->n_ints; i += TD_FUSED_INTS)
        out_cost->flops += flops[program->ints[i]] * (double)td_tensor_elements(&call->outputs[0]);
}

static td_status *reference(const td_kernel_call *call)
{
    const td_attr *program = td_attr_find(call->attrs, call->n_attrs, "program");
    int32_t count = program->n_ints / TD_FUSED_INTS;
    int64_t n = td_tensor_elements(&call->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        float values[TD_FUSED_MOST_INPUTS + TD_FUSED_MOST_INSTRUCTIONS];
        for (int32_t k = 0; k < call->n_inputs; k++) {
            const td_tensor *x = &call->inputs[k];
            values[k] = td_get_f32(x, x->kind == TD_SCALAR ? 0 : i % td_tensor_elements(x));
        }
        for (int32_t k = 0; k < count; k++) {
            td_fused_instruction in = td_fused_read(program->ints + (ptrdiff_t)k * TD_FUSED_INTS);
            float result = td_fused_apply((td_fused_kind)in.kind, values[in.a], values[in.b], in.number);
            values[call->n_inputs + k] = td_fused_round(in.dtype, result);
        }
        td_set_f32(&call->outputs[0], i, values[call->n_inputs + count - 1]);
    }
    return NULL;
}

const td_op td_op_fused_elementwise = {
    .name = "fused_elementwise",
    .summary = "several elementwise ops in one pass over memory",
    .inputs = {{"x", TD_PORT_VARIADIC}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer,
    .no_gradient = "it is made after differentiation",
    .cost = cost,
    .in_place = {{1, 1}, {1, 2}, {1, 3}},
    .reference = reference,
};
