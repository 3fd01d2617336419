/* The pass `group`: which lookups and updates become one op, and which stay as they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tandem/ops.h"
#include "tandem/plan.h"
#include "tests/base/check.h"

enum { BATCH = 8, ROWS = 20, DIM = 4 };

typedef struct model {
    td_graph *graph;
    td_train_options options;
    td_plan *plan;
    td_dim batch;
} model;

static void open_model(model *m)
{
    *m = (model){.options = td_train_defaults()};
    assert_ok(td_graph_create(&m->graph));
    m->batch = td_extent(m->graph, "B", BATCH);
    td_group(&m->options, "*", td_adagrad(0.1));
}

static td_value table(model *m, const char *name)
{
    return td_parameter(m->graph, name, TD_F32, TD_SHAPE(ROWS, DIM), td_init_uniform(1));
}

/* The sum of three rows of a table, under a name of its own. */
static td_value bag(model *m, td_value weight, const char *name)
{
    char ids[32];
    (void)snprintf(ids, sizeof ids, "%s_ids", name);
    td_value input = td_input(m->graph, ids, TD_I64, TD_SHAPE(m->batch, 3));
    return td_name(td_embedding_bag(weight, input, TD_SUM), name);
}

/* Plans for the mean square of `x` [B, width] against an input; *out_dump: the nodes after the pass. */
static void plan(model *m, td_value x, char **out_dump)
{
    td_value y = td_input(m->graph, "y", TD_F32, TD_SHAPE(m->batch, td_value_dim(x, 1)));
    m->options.keep_dumps = true;
    assert_ok(td_plan_train(m->graph, td_mse(x, y), &m->options, &m->plan));
    assert_ok(td_plan_dump(m->plan, "group", out_dump));
}

static void close_model(model *m, char *dump)
{
    td_text_free(dump);
    td_plan_release(m->plan);
    td_train_options_deinit(&m->options);
    td_graph_destroy(m->graph);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

static void test_bags_are_written_into_their_concat_and_tables_updated_together(void **state)
{
    (void)state;
    model m;
    char *dump = NULL, *text = NULL;
    open_model(&m);
    td_value numbers = td_input(m.graph, "numbers", TD_F32, TD_SHAPE(m.batch, 2));
    td_value parts[3] = {bag(&m, table(&m, "a.weight"), "bag_a"), numbers, bag(&m, table(&m, "b.weight"), "bag_b")};
    plan(&m, td_name(td_concat(3, parts, 1), "side_by_side"), &dump);
    assert_int_equal(count(dump, " embedding_lookups "), 1);
    assert_int_equal(count(dump, " embedding_updates "), 1);
    assert_int_equal(count(dump, " embedding_bag "), 0);
    assert_int_equal(count(dump, " concat "), 0);
    assert_int_equal(count(dump, " slice "), 0);
    assert_ok(td_plan_explain(m.plan, "bag_b", &text)); /* still known by its name */
    assert_non_null(strstr(text, "bag_b is one of the 3 parts of \"side_by_side+2\": "));
    assert_non_null(strstr(text, "runs on cpu"));
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "numbers", &text)); /* a part that is no op */
    assert_non_null(strstr(text, "numbers (input f32[B<=8, 2], 64 B) comes with each batch"));
    td_text_free(text);
    assert_ok(td_plan_explain(m.plan, "side_by_side", &text));
    assert_non_null(strstr(text, "is made by side_by_side+2 on cpu"));
    td_text_free(text);
    close_model(&m, dump);
}

static void test_a_table_that_two_lookups_share_is_updated_once(void **state)
{
    (void)state;
    model m;
    char *dump = NULL;
    open_model(&m);
    td_value shared = table(&m, "shared.weight");
    plan(&m, td_add(bag(&m, shared, "bag_a"), bag(&m, shared, "bag_b")), &dump);
    assert_int_equal(count(dump, " embedding_lookups "), 1);
    assert_int_equal(count(dump, " embedding_updates "), 1);
    assert_int_equal(count(dump, " row_sparse_add "), 0);
    close_model(&m, dump);
}

/* bag_a -> linear -> concat <- bag_b: put into the concat, bag_b would wait for what bag_a leads to. */
static void test_a_lookup_does_not_wait_for_what_another_leads_to(void **state)
{
    (void)state;
    model m;
    char *dump = NULL;
    open_model(&m);
    td_value parts[2] = {td_linear(bag(&m, table(&m, "a.weight"), "bag_a"), 3, "fc"),
                         bag(&m, table(&m, "b.weight"), "bag_b")};
    plan(&m, td_concat(2, parts, 1), &dump);
    assert_int_equal(count(dump, " concat "), 1);
    assert_int_equal(count(dump, " embedding_lookups "), 1);
    close_model(&m, dump);
}

/* An output is read by the caller, so it stays a value of its own. */
static void test_a_bag_that_the_caller_reads_is_a_value_of_its_own(void **state)
{
    (void)state;
    model m;
    char *dump = NULL;
    open_model(&m);
    td_value parts[2] = {bag(&m, table(&m, "a.weight"), "bag_a"), bag(&m, table(&m, "b.weight"), "bag_b")};
    td_output(parts[0]);
    plan(&m, td_concat(2, parts, 1), &dump);
    assert_int_equal(count(dump, " concat "), 1);
    assert_non_null(strstr(dump, " bag_a f32"));
    close_model(&m, dump);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bags_are_written_into_their_concat_and_tables_updated_together),
        cmocka_unit_test(test_a_table_that_two_lookups_share_is_updated_once),
        cmocka_unit_test(test_a_lookup_does_not_wait_for_what_another_leads_to),
        cmocka_unit_test(test_a_bag_that_the_caller_reads_is_a_value_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
