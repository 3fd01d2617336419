/* Every dense op's gradient against finite differences, at extents below capacity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/gradient_check.h"

/* A parameter of this shape. */
static td_value parameter(td_graph *g, const char *name, td_shape shape)
{
    return td_parameter(g, name, TD_F32, shape, td_init_constant(0));
}

/* [B, 3], a function of the parameter "p" [3]: so gradients pass through batch extents. */
static td_value batch_of(td_graph *g)
{
    td_dim batch = td_extent(g, "B", 5);
    td_value x = td_mul(td_input(g, "x", TD_F32, TD_SHAPE(batch, 3)), parameter(g, "p", TD_SHAPE(3)));
    return td_name(x, "batch");
}

static td_value linear(td_graph *g)
{
    return td_linear(batch_of(g), 4, "fc");
}

static td_value linear_of_rank_three(td_graph *g)
{
    td_value x = td_reshape(batch_of(g), TD_SHAPE(td_extent(g, "B", 5), 1, 3));
    return td_linear_with(x, parameter(g, "w", TD_SHAPE(2, 3)), TD_NO_VALUE, "fc");
}

static td_value matmul_case(td_graph *g, bool ta, bool tb, bool batched, bool shared)
{
    td_value a = parameter(g, "a",
                           batched ? (ta ? TD_SHAPE(2, 4, 3) : TD_SHAPE(2, 3, 4))
                           : ta    ? TD_SHAPE(4, 3)
                                   : TD_SHAPE(3, 4));
    td_value b = parameter(g, "b",
                           batched && !shared ? (tb ? TD_SHAPE(2, 5, 4) : TD_SHAPE(2, 4, 5))
                           : tb               ? TD_SHAPE(5, 4)
                                              : TD_SHAPE(4, 5));
    return td_matmul(a, b, ta, tb);
}

#define MATMUL(name, ta, tb, batched, shared)                                                                          \
    static td_value name(td_graph *g)                                                                                  \
    {                                                                                                                  \
        return matmul_case(g, ta, tb, batched, shared);                                                                \
    }
MATMUL(matmul, false, false, false, false)
MATMUL(matmul_ta, true, false, false, false)
MATMUL(matmul_tb, false, true, false, false)
MATMUL(matmul_ta_tb, true, true, false, false)
MATMUL(matmul_batched, false, false, true, false)
MATMUL(matmul_batched_ta, true, false, true, false)
MATMUL(matmul_batched_tb, false, true, true, false)
MATMUL(matmul_batched_ta_tb, true, true, true, false)
MATMUL(matmul_shared, false, false, true, true)
MATMUL(matmul_shared_ta, true, false, true, true)
MATMUL(matmul_shared_tb, false, true, true, true)
MATMUL(matmul_shared_ta_tb, true, true, true, true)

static td_value matmul_over_batch(td_graph *g)
{
    td_value x = batch_of(g);
    return td_matmul(x, x, true, false);
}

static td_value add(td_graph *g)
{
    return td_add(batch_of(g), parameter(g, "q", TD_SHAPE(1, 3)));
}

static td_value add_twice_the_same(td_graph *g)
{
    td_value x = batch_of(g);
    return td_add(x, x);
}

static td_value sub(td_graph *g)
{
    return td_sub(parameter(g, "q", TD_SHAPE(1)), batch_of(g));
}

static td_value mul_outer(td_graph *g)
{
    return td_mul(parameter(g, "q", TD_SHAPE(2, 1, 4)), parameter(g, "r", TD_SHAPE(3, 1)));
}

static td_value divide(td_graph *g)
{
    return td_div(batch_of(g), parameter(g, "q", TD_SHAPE(3)));
}

static td_value scale(td_graph *g)
{
    return td_scale(batch_of(g), -0.375);
}

static td_value scale_by(td_graph *g)
{
    return td_scale_by(batch_of(g), td_scalar(g, "s", TD_F32, 1, (double[]){1.5}));
}

static td_value relu(td_graph *g)
{
    return td_relu(parameter(g, "q", TD_SHAPE(4, 5)));
}

static td_value gelu_erf(td_graph *g)
{
    return td_gelu(parameter(g, "q", TD_SHAPE(4, 5)), false);
}

static td_value gelu_tanh(td_graph *g)
{
    return td_gelu(parameter(g, "q", TD_SHAPE(4, 5)), true);
}

static td_value sigmoid(td_graph *g)
{
    return td_sigmoid(batch_of(g));
}

static td_value hyperbolic_tangent(td_graph *g)
{
    return td_tanh(batch_of(g));
}

static td_value softmax(td_graph *g)
{
    return td_softmax(batch_of(g));
}

static td_value concat_last(td_graph *g)
{
    td_value x = batch_of(g);
    return td_concat(3, (td_value[]){x, td_relu(x), td_input(g, "z", TD_F32, TD_SHAPE(td_extent(g, "B", 5), 2))}, -1);
}

static td_value concat_batch(td_graph *g)
{
    td_value x = batch_of(g);
    return td_concat(3, (td_value[]){x, parameter(g, "q", TD_SHAPE(2, 3)), td_tanh(x)}, 0);
}

static td_value slice(td_graph *g)
{
    return td_slice(batch_of(g), 1, 1, 2);
}

static td_value slice_leading(td_graph *g)
{
    return td_slice(parameter(g, "q", TD_SHAPE(4, 2, 3)), 0, 1, 2);
}

static td_value split_with_an_unused_part(td_graph *g)
{
    td_value parts[3];
    td_split(parameter(g, "q", TD_SHAPE(2, 6)), 1, 3, parts);
    return td_mul(parts[0], parts[2]);
}

static td_value split_batch(td_graph *g)
{
    td_value x = batch_of(g), parts[2];
    td_split(td_concat(2, (td_value[]){x, td_tanh(x)}, 0), 0, 2, parts);
    return td_mul(parts[0], parts[1]);
}

static td_value reshape(td_graph *g)
{
    return td_reshape(batch_of(g), TD_SHAPE(-1, 1, 3));
}

static td_value transpose(td_graph *g)
{
    return td_transpose(parameter(g, "q", TD_SHAPE(2, 3, 4)), 3, (int32_t[]){1, 2, 0});
}

static td_value reduce_sum_rows(td_graph *g)
{
    return td_reduce_sum(batch_of(g), 0, false);
}

static td_value reduce_sum_last(td_graph *g)
{
    return td_reduce_sum(batch_of(g), 1, true);
}

static td_value reduce_mean_rows(td_graph *g)
{
    return td_reduce_mean(batch_of(g), 0, true);
}

static td_value reduce_mean_middle(td_graph *g)
{
    return td_reduce_mean(parameter(g, "q", TD_SHAPE(2, 3, 4)), 1, false);
}

static td_value gather(td_graph *g)
{
    return td_gather(parameter(g, "q", TD_SHAPE(3, 2)), td_input(g, "i", TD_I64, TD_SHAPE(td_extent(g, "B", 6), 2)));
}

static td_value cast_there_and_back(td_graph *g)
{
    return td_cast(td_name(td_cast(batch_of(g), TD_F64), "wide"), TD_F32);
}

static td_value copy(td_graph *g)
{
    return td_copy(batch_of(g));
}

/* Three consumers: gradients meet in an add_n. */
static td_value fan_out(td_graph *g)
{
    td_value x = batch_of(g);
    return td_mul(td_add(td_tanh(x), td_sigmoid(x)), x);
}

static const gradient_case cases[] = {
    {.name = "linear", .build = linear},
    {.name = "linear_of_rank_three", .build = linear_of_rank_three},
    {.name = "matmul", .build = matmul},
    {.name = "matmul_ta", .build = matmul_ta},
    {.name = "matmul_tb", .build = matmul_tb},
    {.name = "matmul_ta_tb", .build = matmul_ta_tb},
    {.name = "matmul_batched", .build = matmul_batched},
    {.name = "matmul_batched_ta", .build = matmul_batched_ta},
    {.name = "matmul_batched_tb", .build = matmul_batched_tb},
    {.name = "matmul_batched_ta_tb", .build = matmul_batched_ta_tb},
    {.name = "matmul_shared", .build = matmul_shared},
    {.name = "matmul_shared_ta", .build = matmul_shared_ta},
    {.name = "matmul_shared_tb", .build = matmul_shared_tb},
    {.name = "matmul_shared_ta_tb", .build = matmul_shared_ta_tb},
    {.name = "matmul_over_batch", .build = matmul_over_batch},
    {.name = "add", .build = add},
    {.name = "add_twice_the_same", .build = add_twice_the_same},
    {.name = "sub", .build = sub},
    {.name = "mul_outer", .build = mul_outer},
    {.name = "div", .build = divide, .low = 0.5, .high = 2.0},
    {.name = "scale", .build = scale},
    {.name = "scale_by", .build = scale_by},
    {.name = "relu", .build = relu},
    {.name = "gelu_erf", .build = gelu_erf, .low = -3.0, .high = 3.0},
    {.name = "gelu_tanh", .build = gelu_tanh, .low = -3.0, .high = 3.0},
    {.name = "sigmoid", .build = sigmoid, .low = -2.0, .high = 2.0},
    {.name = "tanh", .build = hyperbolic_tangent},
    {.name = "softmax", .build = softmax, .low = -2.0, .high = 2.0},
    {.name = "concat_last", .build = concat_last},
    {.name = "concat_batch", .build = concat_batch},
    {.name = "slice", .build = slice},
    {.name = "slice_leading", .build = slice_leading},
    {.name = "split_with_an_unused_part", .build = split_with_an_unused_part},
    {.name = "split_batch", .build = split_batch},
    {.name = "reshape", .build = reshape},
    {.name = "transpose", .build = transpose},
    {.name = "reduce_sum_rows", .build = reduce_sum_rows},
    {.name = "reduce_sum_last", .build = reduce_sum_last},
    {.name = "reduce_mean_rows", .build = reduce_mean_rows},
    {.name = "reduce_mean_middle", .build = reduce_mean_middle},
    {.name = "gather", .build = gather, .ids_below = 3},
    {.name = "cast_there_and_back", .build = cast_there_and_back},
    {.name = "copy", .build = copy},
    {.name = "fan_out", .build = fan_out},
};

static void test_gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        gradient_check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients_agree_with_finite_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
