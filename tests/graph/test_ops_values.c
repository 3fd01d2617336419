/* Values of the dense ops' reference kernels, worked out by hand: where a gradient check would not see a mistake that
 * forward and backward share, and at the edges (NaN, empty, saturation, rounding). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/math.h"
#include "graph/op.h"
#include "tests/base/check.h"
#include "tests/support/interpreter.h"

/* One op over inputs given as numbers, and what must come out. */
static td_graph *graph;
static interpreter *run;

static int setup(void **state)
{
    (void)state;
    assert_ok(td_graph_create(&graph));
    run = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    interpreter_destroy(run);
    td_graph_destroy(graph);
    return 0;
}

static void start(void)
{
    assert_ok(interpreter_create(graph, NULL, &run));
}

static void finish(td_value result, int64_t n, const double *wanted)
{
    assert_ok(interpreter_run(run));
    assert_int_equal(interpreter_elements(run, result), n);
    for (int64_t i = 0; i < n; i++) {
        double found = interpreter_get(run, result, i);
        if (!(found == wanted[i] || (isnan(found) && isnan(wanted[i]))))
            fail_msg("%s[%lld] is %.17g, not %.17g", td_value_name(result), (long long)i, found, wanted[i]);
    }
}
#define FINISH(result, ...)                                                                                            \
    finish((result), (int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})
#define SET(value, ...) interpreter_set(run, (value), (double[]){__VA_ARGS__})

static td_value input(const char *name, td_shape shape)
{
    return td_input(graph, name, TD_F32, shape);
}

static void test_linear(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(2, 3)), w = input("w", TD_SHAPE(2, 3)), b = input("b", TD_SHAPE(2));
    td_value y = td_linear_with(x, w, b, "fc");
    start();
    SET(x, 1, 2, 3, 4, 5, 6);
    SET(w, 1, 0, -1, 2, 1, 0);
    SET(b, 10, 20);
    FINISH(y, 8, 24, 8, 33);
}

static void test_matmul_with_transposes(void **state)
{
    (void)state;
    td_value a = input("a", TD_SHAPE(2, 2, 1)), b = input("b", TD_SHAPE(2, 3, 2));
    td_value y = td_matmul(a, b, true, true); /* [2, 1, 2] x [2, 2, 3] */
    start();
    SET(a, 1, 2, 3, 4);
    SET(b, 1, 10, 2, 20, 3, 30, 1, 0, 0, 1, 1, 1);
    FINISH(y, 21, 42, 63, 3, 4, 7);
}

static void test_arithmetic_broadcasts(void **state)
{
    (void)state;
    td_value a = input("a", TD_SHAPE(2, 1)), b = input("b", TD_SHAPE(3));
    td_value y = td_div(td_sub(td_mul(a, b), b), td_name(td_add(a, b), "sum"));
    start();
    SET(a, 1, 3);
    SET(b, 1, 3, 5);
    FINISH(y, 0, 0, 0, 0.5, 1, 1.25);
}

static void test_integers_wrap_around(void **state)
{
    (void)state;
    td_value a = td_input(graph, "a", TD_I32, TD_SHAPE(2)), b = td_input(graph, "b", TD_I32, TD_SHAPE(2));
    td_value y = td_add(a, b);
    start();
    SET(a, INT32_MAX, 7);
    SET(b, 1, -9);
    FINISH(y, INT32_MIN, -2);
}

static void test_relu_keeps_a_nan(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(4)), y = td_relu(x);
    start();
    SET(x, -2, 0, 3, NAN);
    FINISH(y, 0, 0, 3, NAN);
}

static void test_activations_at_known_points(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(3));
    td_value all = td_concat(4,
                             (td_value[]){td_sigmoid(x), td_tanh(x), td_name(td_gelu(x, false), "erf"),
                                          td_name(td_gelu(x, true), "tanh_form")},
                             0);
    start();
    SET(x, 0, 100, -100);
    FINISH(all, 0.5, 1, (double)td_expf(-100.0f), 0, 1, -1, 0, 100, 0, 0, 100, 0);
}

static void test_softmax_of_large_numbers(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(2, 2)), y = td_softmax(x);
    start();
    SET(x, 1000, 1000, -1000, 0);
    FINISH(y, 0.5, 0.5, 0, 1);
}

static void test_concat_slice_and_split(void **state)
{
    (void)state;
    td_value a = input("a", TD_SHAPE(2, 1)), b = input("b", TD_SHAPE(2, 3)), parts[2];
    td_split(td_name(td_concat(2, (td_value[]){a, b}, 1), "whole"), 1, 2, parts);
    td_value y = td_concat(2, (td_value[]){parts[1], td_slice(parts[0], 0, 1, 1)}, 0);
    start();
    SET(a, 1, 2);
    SET(b, 10, 11, 12, 20, 21, 22);
    FINISH(y, 11, 12, 21, 22, 2, 20);
}

static void test_transpose(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(2, 1, 3)), y = td_transpose(x, 3, (int32_t[]){2, 0, 1});
    start();
    SET(x, 1, 2, 3, 4, 5, 6);
    FINISH(y, 1, 4, 2, 5, 3, 6);
}

static void test_reductions(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(2, 3));
    td_value y = td_concat(2, (td_value[]){td_reduce_sum(x, 0, false), td_reduce_mean(x, 1, false)}, 0);
    start();
    SET(x, 1, 2, 3, 4, 5, 9);
    FINISH(y, 5, 7, 12, 2, 6);
}

/* In f32 the ones would be lost beside 2^24. */
static void test_sums_are_rounded_once(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(3)), y = td_reduce_sum(x, 0, true);
    start();
    SET(x, 16777216, 1, 1);
    FINISH(y, 16777218);
}

static void test_mean_divides_by_the_actual_extent(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(td_extent(graph, "B", 4))), y = td_reduce_mean(x, 0, true);
    assert_ok(interpreter_create(graph, (int64_t[]){2}, &run));
    SET(x, 3, 5);
    FINISH(y, 4);
}

static void test_gather(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(3, 2)), i = td_input(graph, "i", TD_I32, TD_SHAPE(2)), y = td_gather(x, i);
    start();
    SET(x, 1, 2, 3, 4, 5, 6);
    SET(i, 2, 0);
    FINISH(y, 5, 6, 1, 2);
}

static void test_gather_refuses_an_index_outside(void **state)
{
    (void)state;
    td_value x = input("x", TD_SHAPE(3, 2)), i = td_input(graph, "i", TD_I64, TD_SHAPE(2));
    (void)td_gather(x, i);
    start();
    SET(i, 2, 3);
    assert_error(interpreter_run(run), TD_DATA_ERROR,
                 "gather x/gather: index 3 at position 1 is outside the 3 rows of x");
}

static void test_casts_round_and_saturate(void **state)
{
    (void)state;
    td_value x = td_input(graph, "x", TD_F64, TD_SHAPE(6));
    td_value i = td_name(td_cast(x, TD_I32), "i"), u = td_name(td_cast(x, TD_U8), "u"),
             t = td_name(td_cast(x, TD_BOOL), "t");
    td_value b = td_name(td_cast(x, TD_BF16), "b"), h = td_name(td_cast(x, TD_F16), "h");
    td_value back = td_name(td_cast(i, TD_F32), "back");
    start();
    SET(x, -1.75, 2.5, 1e10, -1e10, NAN, 257.0);
    FINISH(i, -1, 2, INT32_MAX, INT32_MIN, 0, 257);
    FINISH(u, 0, 2, 255, 0, 0, 255);
    FINISH(t, 1, 1, 1, 1, 1, 1);
    FINISH(b, -1.75, 2.5, 0x1.2ap33, -0x1.2ap33, NAN, 256);
    FINISH(h, -1.75, 2.5, INFINITY, -INFINITY, NAN, 257);
    FINISH(back, -1, 2, 0x1p31, -0x1p31, 0, 257);
}

/* 1 + 2^-8 lies halfway between two bf16: a sum in bf16 would lose both halves. */
static void test_sixteen_bit_sums_are_rounded_once(void **state)
{
    (void)state;
    td_value a = td_input(graph, "a", TD_BF16, TD_SHAPE(1)), b = td_input(graph, "b", TD_BF16, TD_SHAPE(1));
    td_value y = td_graph_add1(graph, "add_n", "sum", (td_value[]){a, b, b}, 3, NULL, 0);
    start();
    SET(a, 1);
    SET(b, 0x1p-8);
    FINISH(y, 1 + 0x1p-7);
}

static td_status *add_one(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    *(int *)context += n_inputs;
    ((float *)output->data)[0] = ((const float *)inputs[0].data)[0] + 1.0f;
    return NULL;
}

static void test_host_call_runs_the_function(void **state)
{
    (void)state;
    int calls = 0;
    td_value x = input("x", TD_SHAPE(1));
    td_value y = td_host_call(graph, add_one, &calls, 1, &x, TD_F32, TD_SHAPE(1), "mine");
    start();
    SET(x, 41);
    FINISH(y, 42);
    assert_int_equal(calls, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_linear),
        TEST(test_matmul_with_transposes),
        TEST(test_arithmetic_broadcasts),
        TEST(test_integers_wrap_around),
        TEST(test_relu_keeps_a_nan),
        TEST(test_activations_at_known_points),
        TEST(test_softmax_of_large_numbers),
        TEST(test_concat_slice_and_split),
        TEST(test_transpose),
        TEST(test_reductions),
        TEST(test_sums_are_rounded_once),
        TEST(test_mean_divides_by_the_actual_extent),
        TEST(test_gather),
        TEST(test_gather_refuses_an_index_outside),
        TEST(test_casts_round_and_saturate),
        TEST(test_sixteen_bit_sums_are_rounded_once),
        TEST(test_host_call_runs_the_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
