/* The loss may be made by any op that gives one number, not by a loss op alone: gradients start there all the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tandem/tandem.h"
#include "tests/base/check.h"

enum { ROWS = 6, IN = 4 };

typedef td_value (*loss_builder)(td_value y, td_value target);

static td_value plain(td_value y, td_value target)
{
    return td_mse(y, target);
}

static td_value doubled(td_value y, td_value target)
{
    return td_scale(td_mse(y, target), 2);
}

/* The halves are equal, so that their gradients add up to that of one to the bit. */
static td_value of_two_halves(td_value y, td_value target)
{
    td_value first = td_name(td_mse(y, target), "first"), second = td_name(td_mse(y, target), "second");
    return td_add(td_scale(first, 0.5), td_scale(second, 0.5));
}

/* As a table of numbers: shape [1, 1]. */
static td_value of_rank_two(td_value y, td_value target)
{
    return td_reshape(td_mse(y, target), TD_SHAPE(1, 1));
}

/* A number without dimensions. */
static td_value of_rank_zero(td_value y, td_value target)
{
    td_value difference = td_sub(y, target);
    td_value of_columns = td_name(td_reduce_mean(td_mul(difference, difference), 0, false), "of_columns");
    return td_reduce_mean(of_columns, 0, false);
}

static td_status *step(td_session *session, td_step_report *out_report)
{
    float x[ROWS * IN], target[ROWS];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = 0.25f * (float)(i % 7 - 3);
    for (int i = 0; i < ROWS; i++)
        target[i] = (float)(i % 3);
    td_field fields[] = {
        {"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, IN}, .data = x}},
        {"target", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, 1}, .data = target}},
    };
    td_batch batch = {.samples = ROWS, .n_fields = 2, .fields = fields};
    return td_session_step(session, &batch, out_report);
}

/* The parameters of a linear layer after three steps; *out_loss is the last loss. */
static void train(loss_builder build_loss, double lr, bool cut, float out_weight[IN], float *out_loss)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    td_step_report report;
    assert_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", ROWS);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, IN));
    td_value target = td_input(graph, "target", TD_F32, TD_SHAPE(batch, 1));
    td_value loss = build_loss(td_linear(x, 1, "layer"), target);
    td_train_options options = td_train_defaults();
    if (cut) {
        td_add_device(&options, "accel", "emulated:memory=16MiB,cores=1");
        td_place(&options, "layer*", "cpu");
    }
    td_group(&options, "*", td_sgd(lr));
    assert_ok(td_plan_train(graph, loss, &options, &plan));
    assert_ok(td_store_create(plan, &store));
    assert_ok(td_session_create(plan, store, &session));
    for (int i = 0; i < 3; i++)
        assert_ok(step(session, &report));
    *out_loss = report.loss;
    assert_ok(td_store_read(store, td_store_find(store, "layer.weight"), 0, IN, out_weight));
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
}

static void test_a_loss_of_other_ops_trains_to_the_same_bits(void **state)
{
    (void)state;
    const struct {
        loss_builder build;
        double lr, factor;
    } cases[] = {{doubled, 0.0625, 2}, {of_two_halves, 0.125, 1}, {of_rank_two, 0.125, 1}};
    float expected[IN], found[IN], expected_loss, loss;
    train(plain, 0.125, false, expected, &expected_loss);
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        train(cases[i / 2].build, cases[i / 2].lr, i % 2, found, &loss);
        assert_memory_equal(found, expected, sizeof expected);
        assert_true(loss == (float)cases[i / 2].factor * expected_loss);
    }
}

static void test_a_loss_without_dimensions_trains(void **state)
{
    (void)state;
    float expected[IN], found[IN], expected_loss, loss;
    train(plain, 0.125, false, expected, &expected_loss);
    train(of_rank_zero, 0.125, false, found, &loss);
    for (int i = 0; i < IN; i++)
        assert_float_equal(found[i], expected[i], 1e-6);
    assert_float_equal(loss, expected_loss, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loss_of_other_ops_trains_to_the_same_bits),
        cmocka_unit_test(test_a_loss_without_dimensions_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
