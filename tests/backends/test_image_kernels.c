/* The CPU kernels of image ops give the reference kernels' bits: every instruction set, teams of 1 and 3, shapes that are no
 * multiples of anything, batches at capacity, below and 0. Sums longer than a chunk, more samples than parts, more samples than
 * are laid out at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/kernel_check.h"

static td_value images(td_graph *g, int64_t samples, int64_t channels, int64_t height, int64_t width)
{
    td_value x = td_input(g, "x", TD_F32, TD_SHAPE(td_extent(g, "B", samples), channels, height, width));
    return td_name(td_mul(x, td_parameter(g, "p", TD_F32, TD_SHAPE(channels, 1, 1), td_init_constant(0))), "images");
}

static td_value lenet_layers(td_graph *g)
{
    td_value x = td_conv2d(images(g, 19, 1, 12, 10), 6, 5, (td_conv2d_options){.padding = 2}, "a");
    x = td_max_pool2d(td_tanh(x), 2, 0, 0);
    return td_max_pool2d(td_conv2d(x, 17, 3, (td_conv2d_options){0}, "b"), 3, 1, 1);
}

static td_value sums_beyond_a_chunk(td_graph *g)
{
    td_value x = td_conv2d(images(g, 3, 31, 18, 19), 20, 3, (td_conv2d_options){.padding = 1, .no_bias = true}, "a");
    return td_avg_pool2d(x, 3, 2, 1, false);
}

static td_value groups_strides_and_dilation(td_graph *g)
{
    td_value x = td_conv2d(images(g, 5, 6, 13, 11), 9, 3,
                           (td_conv2d_options){.stride = 2, .padding = 3, .groups = 3, .dilation = 2}, "a");
    return td_avg_pool2d(td_conv2d(x, 4, 1, (td_conv2d_options){.stride = 2}, "b"), 2, 1, 0, true);
}

/* The padding reaches beyond what the filter can see from inside. */
static td_value padding_wider_than_the_filter(td_graph *g)
{
    td_value x = images(g, 4, 3, 4, 5);
    td_value weight = td_parameter(g, "w", TD_F32, TD_SHAPE(3, 3, 1, 2), td_init_constant(0));
    return td_conv2d_with(x, weight, TD_NO_VALUE, (td_conv2d_options){.padding = 3}, "a");
}

/* Vectors of pixels: three in a row of 33, seven channels and five, also where planes stay as they are. */
static td_value few_channels(td_graph *g)
{
    td_value x = td_conv2d(images(g, 3, 31, 7, 33), 7, 3, (td_conv2d_options){.padding = 1}, "a");
    x = td_conv2d(x, 5, 1, (td_conv2d_options){.no_bias = true}, "b");
    return td_conv2d(x, 2, 2, (td_conv2d_options){.stride = 2}, "c");
}

/* Windows of equal pixels, and of quiet NaNs beside numbers. */
static td_value ties_and_nans(td_graph *g)
{
    td_value x = td_relu(images(g, 4, 3, 7, 45));
    return td_max_pool2d(td_div(x, x), 2, 0, 0);
}

static const gradient_case cases[] = {
    {.name = "lenet_layers", .build = lenet_layers},
    {.name = "sums_beyond_a_chunk", .build = sums_beyond_a_chunk},
    {.name = "groups_strides_and_dilation", .build = groups_strides_and_dilation},
    {.name = "few_channels", .build = few_channels},
    {.name = "ties_and_nans", .build = ties_and_nans},
    {.name = "padding_wider_than_the_filter", .build = padding_wider_than_the_filter},
};

static void test_kernels_give_the_reference_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        kernel_check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels_give_the_reference_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
