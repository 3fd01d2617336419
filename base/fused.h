/* Programs of fused elementwise ops: what an instruction is, and what it computes for one element.
 *
 * One definition for the reference kernel and the vectorised one, so that both give the bits of the ops that were fused: each
 * instruction computes in f32 with the expression of its op's own kernel and rounds to its dtype, exactly where that op would
 * have rounded. A program travels in an integer-list attribute, TD_FUSED_INTS numbers per instruction. Operands below the
 * number of inputs are inputs; operand n_inputs + k is the result of instruction k, an earlier one. The last result is the
 * output. Not for ops that look at more than one element of each input. */
#ifndef TANDEM_BASE_FUSED_H
#define TANDEM_BASE_FUSED_H

#include "base/gelu.h"
#include "base/half.h"
#include "base/math.h"
#include "tandem/backend.h"

/* kind, flops per element, expression of x and z (the operands) and number */
#define TD_FUSED_KINDS(X)                                                                                              \
    X(ADD, 1, x + z)                                                                                                   \
    X(SUB, 1, x - z)                                                                                                   \
    X(MUL, 1, x *z)                                                                                                    \
    X(DIV, 1, x / z)                                                                                                   \
    X(SCALE, 1, x *number)                                                                                             \
    X(CAST, 0, x)                                                                                                      \
    X(RELU, 1, x < 0.0f ? 0.0f : x)                                                                                    \
    X(RELU_GRADIENT, 1, x <= 0.0f ? 0.0f : z)                                                                          \
    X(SIGMOID, 12, td_sigmoidf(x))                                                                                     \
    X(SIGMOID_GRADIENT, 3, z *(x * (1.0f - x)))                                                                        \
    X(TANH, 12, td_tanhf(x))                                                                                           \
    X(TANH_GRADIENT, 3, z *(1.0f - x * x))                                                                             \
    X(GELU_ERF, 20, td_gelu_erf(x))                                                                                    \
    X(GELU_TANH, 20, td_gelu_tanh(x))                                                                                  \
    X(GELU_ERF_GRADIENT, 20, z *td_gelu_erf_slope(x))                                                                  \
    X(GELU_TANH_GRADIENT, 20, z *td_gelu_tanh_slope(x))

typedef enum td_fused_kind {
#define TD_FUSED_KIND(kind, flops, expression) TD_FUSED_##kind,
    TD_FUSED_KINDS(TD_FUSED_KIND)
#undef TD_FUSED_KIND
        TD_FUSED_KIND_COUNT
} td_fused_kind;

enum { TD_FUSED_INTS = 5, TD_FUSED_MOST_INSTRUCTIONS = 16, TD_FUSED_MOST_INPUTS = 12 };

typedef struct td_fused_instruction {
    int32_t kind, a, b; /* b: of kinds without a second operand, a again */
    float number;       /* of SCALE */
    td_dtype dtype;     /* f32, f16 or bf16: what the result is rounded to */
} td_fused_instruction;

static inline td_fused_instruction td_fused_read(const int64_t *ints)
{
    return (td_fused_instruction){(int32_t)ints[0], (int32_t)ints[1], (int32_t)ints[2],
                                  td_bits_float((uint32_t)ints[3]), (td_dtype)ints[4]};
}

static inline void td_fused_write(const td_fused_instruction *in, int64_t *ints)
{
    ints[0] = in->kind;
    ints[1] = in->a;
    ints[2] = in->b;
    ints[3] = (int64_t)td_float_bits(in->number);
    ints[4] = in->dtype;
}

/* Before rounding. With a constant `kind` one expression remains. */
static inline float td_fused_apply(td_fused_kind kind, float x, float z, float number)
{
    switch (kind) {
#define TD_FUSED_CASE(name, flops, expression)                                                                         \
    case TD_FUSED_##name:                                                                                              \
        return expression;
        TD_FUSED_KINDS(TD_FUSED_CASE)
#undef TD_FUSED_CASE
    case TD_FUSED_KIND_COUNT:
        break;
    }
    (void)z;
    (void)number;
    return x;
}

static inline float td_fused_round(td_dtype dtype, float value)
{
    if (dtype == TD_BF16)
        return td_bf16_to_f32(td_f32_to_bf16(value));
    if (dtype == TD_F16)
        return td_f16_to_f32(td_f32_to_f16(value));
    return value;
}

#endif
