/* Ops over images: shapes they infer, how they refuse, and that building them survives every failed allocation. What they
 * compute is held to finite differences by the conformance suite. */
#include "tests/base/check.h"

#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

static td_value images(td_graph *g)
{
    return td_input(g, "x", TD_F32, TD_SHAPE(td_extent(g, "B", 8), 4, 9, 7));
}

/* ---- shapes ----------------------------------------------------------------------------------------------------------------- */

static void assert_shape(td_value x, int64_t channels, int64_t height, int64_t width)
{
    td_shape shape = td_value_shape(x);
    assert_int_equal(shape.rank, 4);
    assert_true(shape.dims[0].extent >= 0);
    assert_int_equal(td_value_dim(x, 1), channels);
    assert_int_equal(td_value_dim(x, 2), height);
    assert_int_equal(td_value_dim(x, 3), width);
}

static void test_windows_give_as_many_pixels_as_they_fit(void **state)
{
    (void)state;
    td_graph *g = NULL;
    assert_ok(td_graph_create(&g));
    td_value x = images(g);
    assert_shape(td_conv2d(x, 6, 5, (td_conv2d_options){.padding = 2}, "a"), 6, 9, 7);
    assert_shape(td_conv2d(x, 6, 3, (td_conv2d_options){.stride = 2, .dilation = 2, .groups = 2}, "b"), 6, 3, 2);
    assert_int_equal(td_value_dim(td_graph_find(g, "b.weight"), 1), 2);
    assert_shape(td_name(td_max_pool2d(x, 2, 0, 0), "c"), 4, 4, 3);
    assert_shape(td_name(td_avg_pool2d(x, 3, 2, 1, true), "d"), 4, 5, 4);
    assert_ok(td_graph_check(g));
    td_graph_destroy(g);
}

/* ---- refusals ----------------------------------------------------------------------------------------------------------------- */

static td_value flat_images(td_graph *g)
{
    return td_max_pool2d(td_input(g, "x", TD_F32, TD_SHAPE(td_extent(g, "B", 8), 63)), 2, 0, 0);
}
static td_value images_of_any_height(td_graph *g)
{
    return td_max_pool2d(td_input(g, "x", TD_F32, TD_SHAPE(2, 3, td_extent(g, "H", 8), 3)), 2, 0, 0);
}
static td_value byte_images(td_graph *g)
{
    return td_avg_pool2d(td_input(g, "x", TD_U8, TD_SHAPE(2, 3, 8, 3)), 2, 0, 0, true);
}
static td_value large_window(td_graph *g)
{
    return td_conv2d(images(g), 2, 8, (td_conv2d_options){0}, "a");
}
static td_value uneven_groups(td_graph *g)
{
    return td_conv2d(images(g), 6, 3, (td_conv2d_options){.groups = 3}, "a");
}
static td_value uneven_filters(td_graph *g)
{
    return td_conv2d(images(g), 5, 3, (td_conv2d_options){.groups = 2}, "a");
}
static td_value other_channels(td_graph *g)
{
    td_value weight = td_parameter(g, "w", TD_F32, TD_SHAPE(2, 3, 3, 3), td_init_constant(0));
    return td_conv2d_with(images(g), weight, TD_NO_VALUE, (td_conv2d_options){0}, "a");
}
static td_value negative_stride(td_graph *g)
{
    return td_conv2d(images(g), 2, 3, (td_conv2d_options){.stride = -1}, "a");
}
static td_value wide_padding(td_graph *g)
{
    return td_max_pool2d(images(g), 3, 0, 2);
}

static const struct {
    td_value (*build)(td_graph *g);
    const char *message;
} bad[] = {
    {flat_images, "max_pool2d x/max_pool2d: x is [B<=8, 63]; it must be [samples, channels, height, width]"},
    {images_of_any_height, "max_pool2d x/max_pool2d: x is [2, 3, H<=8, 3]; it must be"},
    {byte_images, "avg_pool2d x/avg_pool2d: "},
    {large_window, "conv2d a/conv2d: a window of 8 (dilation 1) does not fit into width 7 with padding 0"},
    {uneven_groups,
     "conv2d a: it needs a name, and x (\"x\") as [samples, channels, height, width] with channels a multiple"},
    {uneven_filters, "conv2d a/conv2d: weight is [5, 2, 3, 3] in 2 groups; it must be"},
    {other_channels, "conv2d a/conv2d: x is [B<=8, 4, 9, 7] and weight is [2, 3, 3, 3] in 1 groups; the channels of x"},
    {negative_stride, "conv2d a/conv2d: stride -1 must be from 1 to"},
    {wide_padding, "max_pool2d x/max_pool2d: padding 2 is more than half the kernel 3"},
};

static void test_rules_refuse_with_one_clear_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        td_graph *g = NULL;
        assert_ok(td_graph_create(&g));
        (void)bad[i].build(g);
        td_status *status = td_graph_check(g);
        if (!status || !strstr(td_status_message(status), bad[i].message) || strchr(td_status_message(status), '\n'))
            fail_msg("\"%s\" is not one line that says \"%s\"", status ? td_status_message(status) : "nothing",
                     bad[i].message);
        assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
        td_status_destroy(status);
        td_graph_destroy(g);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------- */

static td_status *build(void *context)
{
    td_graph **graph = context;
    int32_t *gradients = NULL;
    const double one = 1;
    td_status *status = td_graph_create(graph);
    if (!status) {
        td_value x = td_max_pool2d(td_conv2d(images(*graph), 6, 3, (td_conv2d_options){.padding = 1}, "conv"), 2, 0, 0);
        x = td_avg_pool2d(x, 3, 0, 0, true);
        x = td_reshape(x, TD_SHAPE(td_value_shape(x).dims[0], 6));
        const td_value label = td_input(*graph, "label", TD_I64, TD_SHAPE(td_extent(*graph, "B", 8)));
        const td_value loss = td_softmax_cross_entropy(x, label);
        const td_value seed = td_scalar(*graph, "seed", TD_F64, 1, &one);
        status = td_graph_check(*graph);
        if (!status)
            status = td_graph_differentiate(*graph, loss, seed, &gradients);
    }
    td_free(gradients);
    if (status)
        td_graph_destroy(*graph);
    if (status)
        *graph = NULL;
    return status;
}

static void undo(void *context)
{
    td_graph **graph = context;
    td_graph_destroy(*graph);
    *graph = NULL;
}

static void test_building_survives_every_allocation_failure(void **state)
{
    (void)state;
    td_graph *graph = NULL;
    assert_true(assert_survives_allocation_failures(build, undo, &graph) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_give_as_many_pixels_as_they_fit),
        cmocka_unit_test(test_rules_refuse_with_one_clear_line),
        cmocka_unit_test(test_building_survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
