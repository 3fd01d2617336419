/* See gradient_check.h. */
#include "tests/support/gradient_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

void case_graph_require(const case_graph *k, td_status *status)
{
    if (!status)
        return;
    print_error("%s: %s (%s)\n", k->c->name, td_status_message(status), td_status_trace(status));
    td_status_destroy(status);
    fail();
}

/* The loss: sum(result * weights) as one number. */
void case_graph_init(case_graph *k, const gradient_case *c)
{
    *k = (case_graph){.c = c};
    case_graph_require(k, td_graph_create(&k->graph));
    k->result = c->build(k->graph);
    td_value loss = td_value_dtype(k->result) == TD_F32 ? k->result : td_name(td_cast(k->result, TD_F32), "check.cast");
    k->weights = td_input(k->graph, "check.weights", TD_F32, td_value_shape(k->result));
    loss = td_name(td_mul(loss, k->weights), "check.weighted");
    for (int32_t axis = td_value_shape(loss).rank - 1; axis >= 0; axis--) {
        char name[32];
        (void)snprintf(name, sizeof name, "check.sum.%d", (int)axis);
        loss = td_name(td_reduce_sum(loss, axis, false), name);
    }
    td_value seed = td_input(k->graph, "check.seed", TD_F32, td_value_shape(loss));
    case_graph_require(k, td_graph_check(k->graph));
    k->n_sources = k->graph->n_values;
    case_graph_require(k, td_graph_differentiate(k->graph, loss, seed, &k->gradients));
}

void case_graph_deinit(case_graph *k)
{
    td_free(k->gradients);
    td_graph_destroy(k->graph);
}

static void fill(const case_graph *k, interpreter *run)
{
    double low = k->c->low, high = k->c->high;
    if (low == 0.0 && high == 0.0) {
        low = -1.0;
        high = 1.0;
    }
    for (int32_t v = 0; v < k->n_sources; v++) {
        const td_value_info *info = &k->graph->values[v];
        if (info->producer >= 0 || info->kind == TD_SCALAR)
            continue;
        bool integer = info->dtype == TD_I32 || info->dtype == TD_I64;
        interpreter_fill(run, (td_value){k->graph, v}, 77u + (uint64_t)v * 1000003u, integer ? 0.0 : low,
                         integer ? (double)k->c->ids_below : high);
    }
    interpreter_put(run, td_graph_find(k->graph, "check.seed"), 0, 1.0);
}

interpreter *case_graph_run(const case_graph *k, int64_t below)
{
    interpreter *run = NULL;
    int64_t *extents = td_calloc((size_t)k->graph->n_extents + 1, sizeof *extents);
    assert_non_null(extents);
    for (int64_t i = 0; i < k->graph->n_extents; i++)
        extents[i] = k->graph->extents[i].capacity > below ? k->graph->extents[i].capacity - below : 0;
    case_graph_require(k, interpreter_create(k->graph, extents, &run));
    td_free(extents);
    fill(k, run);
    return run;
}

/* ---- finite differences ------------------------------------------------------------------------------------------------- */

/* In double, from the result's elements: a float sum would drown small differences. */
static double loss_of(const case_graph *k, interpreter *run)
{
    double sum = 0.0;
    case_graph_require(k, interpreter_run_forward(run));
    for (int64_t i = 0; i < interpreter_elements(run, k->result); i++)
        sum += interpreter_get(run, k->result, i) * interpreter_get(run, k->weights, i);
    return sum;
}

/* Element i of the gradient of a table [rows, ..], dense or row-sparse. */
static double gradient_at(const case_graph *k, interpreter *run, int32_t value, int64_t i)
{
    const td_tensor *t = &run->tensors[value];
    if (t->kind != TD_ROW_SPARSE)
        return interpreter_get(run, (td_value){k->graph, value}, i);
    int64_t width = 1, count = *(const int64_t *)t->count;
    for (int32_t axis = 1; axis < t->rank; axis++)
        width *= t->dims[axis];
    for (int64_t row = 0; row < count; row++)
        if (((const int64_t *)t->index)[row] == i / width)
            return interpreter_get(run, (td_value){k->graph, value}, row * width + i % width);
    return 0.0;
}

static void check_parameter(const case_graph *k, interpreter *run, int32_t parameter)
{
    td_value p = {k->graph, parameter};
    double step = k->c->step > 0.0 ? k->c->step : 1e-2, tolerance = k->c->tolerance > 0.0 ? k->c->tolerance : 2e-3;
    int64_t n = interpreter_elements(run, p);
    double *built = td_calloc((size_t)n + 1, sizeof *built);
    assert_non_null(built);
    case_graph_require(k, interpreter_run(run));
    for (int64_t i = 0; i < n; i++)
        built[i] = gradient_at(k, run, k->gradients[parameter], i);
    for (int64_t i = 0; i < n; i++) {
        double before = interpreter_get(run, p, i);
        interpreter_put(run, p, i, before + step);
        double above = interpreter_get(run, p, i), loss_above = loss_of(k, run);
        interpreter_put(run, p, i, before - step);
        double below = interpreter_get(run, p, i), loss_below = loss_of(k, run);
        interpreter_put(run, p, i, before);
        double difference = (loss_above - loss_below) / (above - below);
        if (!(fabs(difference - built[i]) <= tolerance * (1.0 + fabs(difference)))) {
            print_error("%s: gradient of %s[%lld] is %g, finite differences say %g\n", k->c->name, td_value_name(p),
                        (long long)i, built[i], difference);
            fail();
        }
    }
    td_free(built);
}

/* Text -> graph -> text, and a copy's text: all the same. */
static void check_text(const case_graph *k)
{
    char *first = NULL, *second = NULL, *third = NULL;
    td_graph *parsed = NULL, *copy = NULL;
    case_graph_require(k, td_graph_print(k->graph, &first));
    case_graph_require(k, td_graph_parse(first, strlen(first), k->c->name, &parsed));
    case_graph_require(k, td_graph_clone(k->graph, &copy));
    case_graph_require(k, td_graph_print(parsed, &second));
    case_graph_require(k, td_graph_print(copy, &third));
    assert_string_equal(first, second);
    assert_string_equal(first, third);
    td_text_free(first);
    td_text_free(second);
    td_text_free(third);
    td_graph_destroy(parsed);
    td_graph_destroy(copy);
}

void gradient_check(const gradient_case *c)
{
    case_graph k;
    int32_t checked = 0;
    case_graph_init(&k, c);
    check_text(&k);
    interpreter *run = case_graph_run(&k, 1);
    for (int32_t v = 0; v < k.n_sources; v++)
        if (k.gradients[v] >= 0) {
            check_parameter(&k, run, v);
            checked++;
        }
    assert_true(checked > 0);
    interpreter_destroy(run);
    case_graph_deinit(&k);
}
