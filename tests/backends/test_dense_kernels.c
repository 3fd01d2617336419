/* The CPU kernels of dense ops give the reference kernels' bits: every instruction set, teams of 1 and 3, f32 and 16-bit
 * floats, shapes that are no multiples of anything, extents at capacity, below and 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/kernel_check.h"

/* Of the values that cases build: each case runs in every one. */
static td_dtype dtype;

static td_value input(td_graph *g, const char *name, td_shape shape)
{
    return td_input(g, name, dtype, shape);
}

static td_value parameter(td_graph *g, const char *name, td_shape shape)
{
    return td_parameter(g, name, dtype, shape, td_init_constant(0));
}

/* Teams divide the long one; 16-bit floats, whose kernels are the same but for conversions, do with a short one. */
static td_dim batch(td_graph *g)
{
    return td_extent(g, "B", dtype == TD_F32 ? 333 : 95);
}

/* [B, 67] */
static td_value batch_of(td_graph *g)
{
    td_value x = td_mul(input(g, "x", TD_SHAPE(batch(g), 67)), parameter(g, "p", TD_SHAPE(67)));
    return td_name(x, "batch");
}

static td_value activations(td_graph *g)
{
    td_value x = td_scale(batch_of(g), 4.0);
    return td_tanh(td_sigmoid(td_gelu(
        td_name(td_gelu(td_relu(td_scale_by(x, td_scalar(g, "s", TD_F32, 1, (double[]){0.75}))), true), "tanh_form"),
        false)));
}

static td_value arithmetic(td_graph *g)
{
    td_value x = batch_of(g);
    td_value sum = td_name(td_add(x, input(g, "column", TD_SHAPE(batch(g), 1))), "sum");
    return td_div(td_sub(td_mul(sum, x), parameter(g, "q", TD_SHAPE(1))), parameter(g, "r", TD_SHAPE(1, 67)));
}

static td_value broadcast_both_ways(td_graph *g)
{
    return td_mul(parameter(g, "q", TD_SHAPE(5, 1, 700)),
                  td_add(parameter(g, "r", TD_SHAPE(3, 1)), parameter(g, "s", TD_SHAPE(5, 3, 1))));
}

static td_value softmax(td_graph *g)
{
    td_value wide = td_softmax(td_scale(parameter(g, "q", TD_SHAPE(3, 1111)), 6.0));
    return td_add(td_reduce_sum(wide, 1, true), td_reduce_sum(td_softmax(batch_of(g)), 0, true));
}

static td_value softmax_of_one(td_graph *g)
{
    return td_softmax(td_reshape(batch_of(g), TD_SHAPE(-1, 67, 1)));
}

static td_value concat_and_slices(td_graph *g)
{
    td_value x = batch_of(g), parts[3];
    td_value y = td_concat(3, (td_value[]){x, td_slice(x, 1, 5, 23), td_copy(x)}, 1);
    td_split(td_name(td_slice(y, 1, 1, 150), "cut"), 1, 3, parts);
    return td_name(td_mul(parts[0], parts[2]), "product");
}

static td_value concat_along_the_batch(td_graph *g)
{
    td_value x = batch_of(g);
    return td_concat(3, (td_value[]){x, parameter(g, "q", TD_SHAPE(2, 67)), td_relu(x)}, 0);
}

static td_value long_parts(td_graph *g)
{
    td_value q = parameter(g, "q", TD_SHAPE(70, 600)), r = parameter(g, "r", TD_SHAPE(41, 600));
    return td_slice(td_concat(2, (td_value[]){q, r}, 0), 0, 3, 100);
}

static td_value transposes(td_graph *g)
{
    td_value x = td_reshape(batch_of(g), TD_SHAPE(-1, 67, 1));
    td_value swapped = td_name(td_transpose(x, 3, (int32_t[]){1, 0, 2}), "swapped");
    td_value heads = td_transpose(parameter(g, "q", TD_SHAPE(3, 35, 4, 9)), 4, (int32_t[]){0, 2, 1, 3});
    td_value turned = td_name(td_transpose(heads, 4, (int32_t[]){3, 1, 0, 2}), "turned");
    return td_add(td_name(td_reduce_sum(td_reduce_sum(swapped, 1, true), 0, true), "a"),
                  td_name(td_reduce_mean(turned, 1, false), "b"));
}

static td_value transpose_a_matrix(td_graph *g)
{
    return td_transpose(parameter(g, "q", TD_SHAPE(131, 77)), 2, (int32_t[]){1, 0});
}

static td_value reductions(td_graph *g)
{
    td_value x = batch_of(g);
    td_value rows = td_name(td_reduce_mean(x, 1, true), "rows"),
             columns = td_name(td_reduce_sum(x, 0, true), "columns");
    td_value middle = td_reduce_mean(parameter(g, "q", TD_SHAPE(4, 9, 67)), 1, false);
    return td_name(td_add(td_reduce_sum(td_mul(td_add(rows, columns), x), 0, true), middle), "end");
}

static td_value gathers(td_graph *g)
{
    td_value indices = td_input(g, "i", TD_I64, TD_SHAPE(batch(g), 2));
    td_value rows = td_gather(parameter(g, "q", TD_SHAPE(50, 7)), indices);
    td_value more = td_gather(parameter(g, "r", TD_SHAPE(50, 7)), td_input(g, "j", TD_I32, TD_SHAPE(2)));
    return td_add(rows, more);
}

static td_value casts(td_graph *g)
{
    td_value x = batch_of(g);
    td_value a = td_cast(td_name(td_cast(x, TD_F16), "half"), TD_F32),
             b = td_cast(td_name(td_cast(x, TD_BF16), "brain"), TD_F32);
    return td_add(td_name(a, "a"), td_name(b, "b"));
}

static td_value fan_out(td_graph *g)
{
    td_value x = batch_of(g), parts[2];
    td_split(td_name(td_concat(2, (td_value[]){x, x}, 1), "twice"), 1, 2, parts);
    return td_mul(td_add(td_relu(x), td_tanh(x)), td_name(td_relu(parts[1]), "half_used"));
}

static td_value linear(td_graph *g)
{
    return td_linear(td_relu(td_linear(batch_of(g), 70, "first")), 1, "second");
}

static td_value linear_without_bias(td_graph *g)
{
    return td_linear_with(td_reshape(batch_of(g), TD_SHAPE(-1, 1, 67)), parameter(g, "w", TD_SHAPE(5, 67)), TD_NO_VALUE,
                          "fc");
}

static td_value products(td_graph *g)
{
    td_value a = parameter(g, "a", TD_SHAPE(3, 33, 20)), b = parameter(g, "b", TD_SHAPE(3, 20, 41));
    td_value c = td_name(td_matmul(a, b, false, false), "c"), d = td_name(td_matmul(a, c, true, false), "d");
    td_value e = td_name(td_matmul(c, parameter(g, "h", TD_SHAPE(3, 8, 33)), true, true), "e");
    td_value f = td_name(td_matmul(e, parameter(g, "q", TD_SHAPE(6, 8)), false, true), "f");
    return td_name(td_matmul(d, f, false, false), "end");
}

static td_value product_over_the_batch(td_graph *g)
{
    td_value x = batch_of(g);
    return td_matmul(x, x, true, false);
}

static const gradient_case cases[] = {
    {.name = "activations", .build = activations, .low = -2.0, .high = 2.0},
    {.name = "arithmetic", .build = arithmetic},
    {.name = "broadcast_both_ways", .build = broadcast_both_ways},
    {.name = "softmax", .build = softmax},
    {.name = "softmax_of_one", .build = softmax_of_one},
    {.name = "concat_and_slices", .build = concat_and_slices},
    {.name = "concat_along_the_batch", .build = concat_along_the_batch},
    {.name = "long_parts", .build = long_parts},
    {.name = "transposes", .build = transposes},
    {.name = "transpose_a_matrix", .build = transpose_a_matrix},
    {.name = "reductions", .build = reductions},
    {.name = "gathers", .build = gathers, .ids_below = 50},
    {.name = "casts", .build = casts},
    {.name = "fan_out", .build = fan_out},
    {.name = "linear", .build = linear},
    {.name = "linear_without_bias", .build = linear_without_bias},
    {.name = "products", .build = products},
    {.name = "product_over_the_batch", .build = product_over_the_batch},
};

static void check_all(td_dtype which)
{
    dtype = which;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        kernel_check(&cases[i]);
}

static void test_f32_kernels_give_the_reference_bits(void **state)
{
    (void)state;
    check_all(TD_F32);
}

static void test_bf16_kernels_give_the_reference_bits(void **state)
{
    (void)state;
    check_all(TD_BF16);
}

static void test_f16_kernels_give_the_reference_bits(void **state)
{
    (void)state;
    check_all(TD_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_kernels_give_the_reference_bits),
        cmocka_unit_test(test_bf16_kernels_give_the_reference_bits),
        cmocka_unit_test(test_f16_kernels_give_the_reference_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
