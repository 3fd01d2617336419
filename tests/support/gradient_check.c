/* See gradient_check.h. */
#include "tests/support/gradient_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "graph/op.h"
#include "tests/support/interpreter.h"

/* One case with its graph, differentiated. */
typedef struct checker {
    const gradient_case *c;
    td_graph *graph;
    td_value result, weights;
    int32_t *gradients;
    int64_t n_sources;
    interpreter *run;
} checker;

static void require(const checker *k, td_status *status)
{
    if (!status)
        return;
    print_error("%s: %s (%s)\n", k->c->name, td_status_message(status), td_status_trace(status));
    td_status_destroy(status);
    fail();
}

/* sum(result * weights) as one number */
static void build(checker *k)
{
    require(k, td_graph_create(&k->graph));
    k->result = k->c->build(k->graph);
    td_value flat = td_value_dtype(k->result) == TD_F32 ? k->result : td_cast(k->result, TD_F32);
    k->weights = td_input(k->graph, "check.weights", TD_F32, td_value_shape(k->result));
    td_value loss = td_mul(flat, k->weights);
    td_name(loss, "check.weighted");
    for (int32_t axis = td_value_shape(loss).rank - 1; axis >= 0; axis--) {
        char name[32];
        (void)snprintf(name, sizeof name, "check.sum.%d", (int)axis);
        loss = td_name(td_reduce_sum(loss, axis, false), name);
    }
    td_value seed = td_input(k->graph, "check.seed", TD_F32, td_value_shape(loss));
    require(k, td_graph_check(k->graph));
    k->n_sources = k->graph->n_values;
    require(k, td_graph_differentiate(k->graph, loss, seed, &k->gradients));
}

static void fill(checker *k)
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
        interpreter_fill(k->run, (td_value){k->graph, v}, 77u + (uint64_t)v * 1000003u, integer ? 0.0 : low,
                         integer ? (double)k->c->ids_below : high);
    }
    interpreter_put(k->run, td_graph_find(k->graph, "check.seed"), 0, 1.0);
}

/* In double, from the result's elements: a float sum would drown small differences. */
static double loss_of(checker *k)
{
    double sum = 0.0;
    require(k, interpreter_run_forward(k->run));
    for (int64_t i = 0; i < interpreter_elements(k->run, k->result); i++)
        sum += interpreter_get(k->run, k->result, i) * interpreter_get(k->run, k->weights, i);
    return sum;
}

/* Element i of the gradient of a table [rows, ..], dense or row-sparse. */
static double gradient_at(checker *k, int32_t value, int64_t i)
{
    const td_tensor *t = &k->run->tensors[value];
    if (t->kind != TD_ROW_SPARSE)
        return interpreter_get(k->run, (td_value){k->graph, value}, i);
    int64_t width = 1, count = *(const int64_t *)t->count;
    for (int32_t axis = 1; axis < t->rank; axis++)
        width *= t->dims[axis];
    for (int64_t row = 0; row < count; row++)
        if (((const int64_t *)t->index)[row] == i / width)
            return interpreter_get(k->run, (td_value){k->graph, value}, row * width + i % width);
    return 0.0;
}

static void check_parameter(checker *k, int32_t parameter)
{
    td_value p = {k->graph, parameter};
    double step = k->c->step > 0.0 ? k->c->step : 1e-2, tolerance = k->c->tolerance > 0.0 ? k->c->tolerance : 2e-3;
    int64_t n = interpreter_elements(k->run, p);
    double *built = td_calloc((size_t)n + 1, sizeof *built);
    assert_non_null(built);
    require(k, interpreter_run(k->run));
    for (int64_t i = 0; i < n; i++)
        built[i] = gradient_at(k, k->gradients[parameter], i);
    for (int64_t i = 0; i < n; i++) {
        double before = interpreter_get(k->run, p, i);
        interpreter_put(k->run, p, i, before + step);
        double above = interpreter_get(k->run, p, i), loss_above = loss_of(k);
        interpreter_put(k->run, p, i, before - step);
        double below = interpreter_get(k->run, p, i), loss_below = loss_of(k);
        interpreter_put(k->run, p, i, before);
        double difference = (loss_above - loss_below) / (above - below);
        if (!(fabs(difference - built[i]) <= tolerance * (1.0 + fabs(difference)))) {
            print_error("%s: gradient of %s[%lld] is %g, finite differences say %g\n", k->c->name, td_value_name(p),
                        (long long)i, built[i], difference);
            fail();
        }
    }
    td_free(built);
}

void gradient_check(const gradient_case *c)
{
    checker k = {.c = c};
    int32_t checked = 0;
    build(&k);
    int64_t *extents = td_calloc((size_t)k.graph->n_extents + 1, sizeof *extents);
    assert_non_null(extents);
    for (int64_t i = 0; i < k.graph->n_extents; i++)
        extents[i] = k.graph->extents[i].capacity > 1 ? k.graph->extents[i].capacity - 1 : k.graph->extents[i].capacity;
    require(&k, interpreter_create(k.graph, extents, &k.run));
    fill(&k);
    for (int32_t v = 0; v < k.n_sources; v++)
        if (k.gradients[v] >= 0) {
            check_parameter(&k, v);
            checked++;
        }
    assert_true(checked > 0);
    td_free(extents);
    td_free(k.gradients);
    interpreter_destroy(k.run);
    td_graph_destroy(k.graph);
}
