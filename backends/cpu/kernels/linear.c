/* linear and the gradients of its parameters, f32, as matrix products (backends/cpu/gemm.h).
 *
 *   linear                  y [.., out] = x [.., in] W^T + b
 *   linear_weight_gradient  dW [out, in] = dy^T x, over all rows
 *   bias_gradient           db [out] = sums of dy's columns: rows in order within blocks, blocks in order */
#include <string.h>

#include "backends/cpu/kernels/gemm_kernel.h"

/* ---- linear ----------------------------------------------------------------------------------------------------------------- */

static bool has_bias(const td_kernel_call *call)
{
    return call->n_inputs > 2 && call->inputs[2].kind != TD_NONE;
}

static bool linear_supports(const td_kernel_call *call)
{
    return is_dense_f32(&call->inputs[0]) && is_dense_f32(&call->inputs[1]) &&
           (!has_bias(call) || is_dense_f32(&call->inputs[2]));
}

static td_gemm_shape linear_shape(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *weight = &call->inputs[1];
    return (td_gemm_shape){.batch = 1, .m = rows_of(x), .n = weight->dims[0], .k = weight->dims[1], .transpose_b = true,
                           .has_bias = has_bias(call)};
}

static td_status *linear_prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    td_gemm_shape shape = linear_shape(call);
    return td_gemm_create(engine, &shape, (td_gemm **)out_state);
}

static td_status *linear_run(const td_kernel_call *call, td_team *team, void *state)
{
    td_gemm_shape shape = linear_shape(call);
    td_gemm_operands operands = {.a = call->inputs[0].data, .b = call->inputs[1].data,
                                 .bias = shape.has_bias ? call->inputs[2].data : NULL, .c = call->outputs[0].data,
                                 .scratch = call->scratch};
    return td_gemm_run(state, &shape, &operands, team);
}

const td_cpu_kernel TD_KERNEL(linear) = {
    .op = "linear",
    .supports = linear_supports,
    .prepare = linear_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = linear_run,
};

/* ---- linear_weight_gradient -------------------------------------------------------------------------------------------------- */

static bool weight_gradient_supports(const td_kernel_call *call)
{
    return is_dense_f32(&call->inputs[0]) && is_dense_f32(&call->inputs[1]);
}

static td_gemm_shape weight_gradient_shape(const td_kernel_call *call)
{
    const td_tensor *dy = &call->inputs[0], *x = &call->inputs[1];
    return (td_gemm_shape){.batch = 1, .m = last_of(dy), .n = last_of(x), .k = rows_of(x), .transpose_a = true};
}

static td_status *weight_gradient_prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    td_gemm_shape shape = weight_gradient_shape(call);
    return td_gemm_create(engine, &shape, (td_gemm **)out_state);
}

static td_status *weight_gradient_run(const td_kernel_call *call, td_team *team, void *state)
{
    td_gemm_shape shape = weight_gradient_shape(call);
    td_gemm_operands operands = {.a = call->inputs[0].data, .b = call->inputs[1].data, .c = call->outputs[0].data,
                                 .scratch = call->scratch};
    return td_gemm_run(state, &shape, &operands, team);
}

const td_cpu_kernel TD_KERNEL(linear_weight_gradient) = {
    .op = "linear_weight_gradient",
    .supports = weight_gradient_supports,
    .prepare = weight_gradient_prepare,
    .destroy = destroy_gemm,
    .scratch_bytes = gemm_scratch_bytes,
    .run = weight_gradient_run,
};

/* ---- bias_gradient -------------------------------------------------------------------------------------------------------------- */

enum { BLOCK_ROWS = 128, MOST_BLOCKS = 64 };

typedef struct bias_arguments {
    const float *dy;
    float *sums; /* [blocks, out] */
    int64_t rows, out, block_rows;
} bias_arguments;

static int64_t block_rows_of(int64_t rows)
{
    int64_t block = rows / MOST_BLOCKS + (rows % MOST_BLOCKS != 0);
    return block < BLOCK_ROWS ? BLOCK_ROWS : block;
}

static int64_t blocks_of(int64_t rows)
{
    int64_t block = block_rows_of(rows);
    return rows / block + (rows % block != 0);
}

static void sum_block(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const bias_arguments *arguments = context;
    int64_t out = arguments->out, begin = index * arguments->block_rows, end = begin + arguments->block_rows;
    float *sums = arguments->sums + index * out;
    memset(sums, 0, (size_t)out * sizeof *sums);
    if (end > arguments->rows)
        end = arguments->rows;
    for (int64_t row = begin; row < end; row++) {
        const float *dy = arguments->dy + row * out;
        for (int64_t i = 0; i < out; i++)
            sums[i] += dy[i];
    }
}

static bool bias_gradient_supports(const td_kernel_call *call)
{
    return is_dense_f32(&call->inputs[0]);
}

static size_t bias_gradient_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    int64_t rows = rows_of(&call->inputs[0]), most = rows / BLOCK_ROWS + 1;
    return (size_t)((most < MOST_BLOCKS ? most : MOST_BLOCKS) * last_of(&call->inputs[0])) * sizeof(float);
}

static td_status *bias_gradient_run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *dy = &call->inputs[0];
    bias_arguments arguments = {.dy = dy->data, .sums = call->scratch, .rows = rows_of(dy), .out = last_of(dy)};
    arguments.block_rows = block_rows_of(arguments.rows);
    int64_t blocks = blocks_of(arguments.rows);
    float *db = call->outputs[0].data;
    if (arguments.out == 0)
        return NULL;
    td_team_run(team, blocks, sum_block, &arguments);
    memset(db, 0, (size_t)arguments.out * sizeof *db);
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t i = 0; i < arguments.out; i++)
            db[i] += arguments.sums[block * arguments.out + i];
    return NULL;
}

const td_cpu_kernel TD_KERNEL(bias_gradient) = {
    .op = "bias_gradient",
    .supports = bias_gradient_supports,
    .scratch_bytes = bias_gradient_scratch_bytes,
    .run = bias_gradient_run,
};
