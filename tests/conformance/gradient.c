/* The gradient that an op builds, run on reference kernels, against central finite differences of its forward.
 *
 * The loss is the sum of all differentiable outputs' elements times fixed numbers, added up in double from the outputs, so
 * that rounding of a long sum does not drown small differences. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tests/conformance/conformance.h"
#include "tests/support/interpreter.h"

enum { MOST_ELEMENTS = 60 }; /* tried per input, spread over it */

static const double step = 1e-2, tolerance = 4e-3;

typedef struct checker {
    built_case built;
    td_value outputs[MAX_ARGUMENTS], weights[MAX_ARGUMENTS];
    int32_t n_outputs;
    int32_t *gradients;
    interpreter *run;
    int64_t checked;
} checker;

static bool is_differentiable(const td_op *op, const checker *k, int32_t output)
{
    const td_node *node = &k->built.graph->nodes[k->built.node];
    const td_value_info *info = &k->built.graph->values[node->outputs[output]];
    int32_t port = 0;
    while (port < output && port < 3 && op->outputs[port + 1].name)
        port++;
    return info->kind == TD_DENSE && info->dtype == TD_F32 && !(op->outputs[port].flags & TD_PORT_NO_GRADIENT);
}

/* The sum of the elements of value times weights, as one number. */
static td_value weighted_sum(checker *k, td_value value, int32_t index)
{
    td_graph *graph = k->built.graph;
    char name[48];
    snprintf(name, sizeof name, "check.weights%d", index);
    k->weights[index] = td_input(graph, name, TD_F32, td_value_shape(value));
    td_value sum = td_mul(value, k->weights[index]);
    snprintf(name, sizeof name, "check.weighted%d", index);
    td_name(sum, name);
    for (int32_t axis = td_value_shape(sum).rank - 1; axis >= 0; axis--) {
        snprintf(name, sizeof name, "check.sum%d.%d", index, axis);
        sum = td_name(td_reduce_sum(sum, axis, false), name);
    }
    return sum;
}

static td_status *add_loss(checker *k)
{
    td_graph *graph = k->built.graph;
    const td_node node = graph->nodes[k->built.node];
    td_value loss = TD_NO_VALUE;
    for (int32_t i = 0; i < node.n_outputs; i++) {
        if (!is_differentiable(node.op, k, i))
            continue;
        const int32_t index = k->n_outputs++;
        k->outputs[index] = (td_value){graph, node.outputs[i]};
        const td_value sum = weighted_sum(k, k->outputs[index], index);
        char name[32];
        snprintf(name, sizeof name, "check.loss%d", index);
        loss = loss.id < 0 ? sum : td_name(td_add(loss, sum), name);
    }
    if (loss.id < 0)
        return td_graph_check(graph);
    const td_value seed = td_input(graph, "check.seed", TD_F32, td_value_shape(loss));
    TD_TRY(td_graph_check(graph));
    return td_graph_differentiate(graph, loss, seed, &k->gradients);
}

static td_status *fill(checker *k)
{
    const td_node *node = &k->built.graph->nodes[k->built.node];
    TD_TRY(interpreter_create(k->built.graph, NULL, &k->run));
    for (int32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] < 0)
            continue;
        argument a = {.tensor = k->run->tensors[node->inputs[i]]};
        argument_fill(&k->built, i, &a);
    }
    for (int32_t i = 0; i < k->n_outputs; i++)
        interpreter_fill(k->run, k->weights[i], 17 + (uint64_t)i, -1, 1);
    interpreter_put(k->run, td_graph_find(k->built.graph, "check.seed"), 0, 1);
    return NULL;
}

static td_status *loss_of(checker *k, double *out)
{
    *out = 0;
    TD_TRY(interpreter_run_forward(k->run));
    for (int32_t i = 0; i < k->n_outputs; i++)
        for (int64_t e = 0; e < interpreter_elements(k->run, k->outputs[i]); e++)
            *out += interpreter_get(k->run, k->outputs[i], e) * interpreter_get(k->run, k->weights[i], e);
    return NULL;
}

/* Element i of a gradient of [rows, ..]. */
static double gradient_at(checker *k, int32_t gradient, int64_t i)
{
    const td_tensor *t = &k->run->tensors[gradient];
    if (t->kind != TD_ROW_SPARSE)
        return interpreter_get(k->run, (td_value){k->built.graph, gradient}, i);
    const int64_t width = td_tensor_elements(t) / (t->dims[0] ? t->dims[0] : 1);
    for (int64_t entry = 0; entry < *(int64_t *)t->count; entry++)
        if (((int64_t *)t->index)[entry] == i / width)
            return (double)((float *)t->data)[entry * width + i % width];
    return 0;
}

static td_status *check_parameter(checker *k, int32_t value, int32_t gradient)
{
    const td_value parameter = {k->built.graph, value};
    const int64_t n = interpreter_elements(k->run, parameter), stride = n / MOST_ELEMENTS + 1;
    for (int64_t i = 0; i < n; i += stride, k->checked++) {
        const double x = interpreter_get(k->run, parameter, i);
        double above, below;
        interpreter_put(k->run, parameter, i, x + step);
        const double high = interpreter_get(k->run, parameter, i);
        TD_TRY(loss_of(k, &above));
        interpreter_put(k->run, parameter, i, x - step);
        const double low = interpreter_get(k->run, parameter, i);
        TD_TRY(loss_of(k, &below));
        interpreter_put(k->run, parameter, i, x);
        const double slope = (above - below) / (high - low), given = gradient_at(k, gradient, i);
        if (!(fabs(given - slope) <= tolerance * (1 + fabs(slope))))
            return TD_ERROR(TD_INTERNAL, "gradient of %s, element %" PRId64 ": %.6g, finite differences say %.6g",
                            k->built.graph->values[value].name, i, given, slope);
    }
    return NULL;
}

static td_status *check(const conformance_case *source, checker *k)
{
    const int64_t constants[N_EXTENTS] = {source->batch, source->entries};
    TD_TRY(case_build(source, constants, &k->built));
    const int64_t n_sources = k->built.graph->nodes[k->built.node].outputs[0];
    bool any = false;
    for (int64_t v = 0; v < n_sources; v++)
        any = any || k->built.graph->values[v].class == TD_CLASS_PARAMETER;
    if (!any)
        return NULL;
    TD_TRY(add_loss(k));
    if (!k->gradients)
        return NULL;
    TD_TRY(fill(k));
    TD_TRY(interpreter_run(k->run));
    for (int64_t v = 0; v < n_sources; v++)
        if (k->gradients[v] >= 0)
            TD_TRY(check_parameter(k, (int32_t)v, k->gradients[v]));
    return NULL;
}

td_status *check_gradient(const conformance_case *source, int64_t *out_checked)
{
    *out_checked = 0;
    const td_op *op = td_op_find(source->op);
    if (!op || !op->gradient || source->flags & (CASE_FAILS | CASE_NO_GRADIENT))
        return NULL;
    checker k = {0};
    td_status *status = check(source, &k);
    *out_checked = k.checked;
    interpreter_destroy(k.run);
    td_free(k.gradients);
    case_deinit(&k.built);
    return td_status_prefix(status, "%s \"%s\"", source->op, source->inputs);
}
