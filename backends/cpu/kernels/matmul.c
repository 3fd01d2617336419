/* matmul: products of the last two axes, f32, bf16 or f16, over equal leading axes or with one b for all (backends/cpu/gemm.h). */
#include "backends/cpu/kernels/gemm_kernel.h"

static bool supports(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1];
    return are_alike_floats(call) && a->rank >= 2 && b->rank >= 2;
}

/* With one b for all and a as it is, the leading axes are just more rows. */
static td_gemm_shape shape_of(const td_kernel_call *call)
{
    const td_tensor *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    bool ta = td_cpu_attr_bool(call, "transpose_a", false), tb = td_cpu_attr_bool(call, "transpose_b", false);
    td_gemm_shape shape = {.batch = td_cpu_product(c, 0, c->rank - 2),
                           .m = c->dims[c->rank - 2],
                           .n = last_of(c),
                           .k = a->dims[a->rank - (ta ? 2 : 1)],
                           .transpose_a = ta,
                           .transpose_b = tb,
                           .shared_b = b->rank < a->rank,
                           .narrow = narrow_of(call)};
    if (shape.shared_b && !ta) {
        shape.m *= shape.batch;
        shape.batch = 1;
    }
    return shape;
}

static td_status *prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    td_gemm_shape shape = shape_of(call);
    return td_gemm_create(engine, &shape, (td_gemm **)out_state);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    td_gemm_shape shape = shape_of(call);
    td_gemm_operands operands = {
        .a = call->inputs[0].data, .b = call->inputs[1].data, .c = call->outputs[0].data, .scratch = call->scratch};
    return td_gemm_run(state, &shape, &operands, team);
}

const td_cpu_kernel TD_KERNEL(matmul) = {
    .op = "matmul",
    .supports = supports,
    .prepare = prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = run,
};
