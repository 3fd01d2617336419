/* See interpreter.h. */
#include "tests/support/interpreter.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"
#include "graph/ops/elements.h"

/* Storage for data, index and count of one value. */
static td_status *allocate(interpreter *run, int32_t value)
{
    td_tensor *t = &run->tensors[value];
    const td_value_info *info = &run->graph->values[value];
    int64_t bytes[3];
    void **buffers[3] = {&t->data, &t->index, &t->count};
    td_value_tensor(run->graph, value, run->extents, t);
    td_value_bytes(run->graph, value, run->extents, bytes);
    if (t->kind == TD_SCALAR)
        bytes[0] = info->n_scalars * (int64_t)td_dtype_bytes(t->dtype);
    for (int i = 0; i < 3; i++) {
        if (bytes[i] == 0)
            continue;
        *buffers[i] = td_calloc_aligned((size_t)bytes[i]);
        if (!*buffers[i])
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for \"%s\"", info->name);
    }
    for (int32_t i = 0; t->kind == TD_SCALAR && i < info->n_scalars; i++)
        interpreter_put(run, (td_value){run->graph, value}, i, info->scalars[i]);
    return NULL;
}

td_status *interpreter_create(td_graph *graph, const int64_t *extents, interpreter **out_run)
{
    *out_run = NULL;
    td_status *status = NULL;
    interpreter *run = NULL;
    TD_TRY(td_graph_check(graph));
    TD_TRY(TD_NEW(run, 1));
    run->graph = graph;
    run->n_values = graph->n_values;
    run->n_nodes = graph->n_nodes;
    TD_TRY_OR(status, failed, TD_NEW(run->extents, graph->n_extents + 1));
    TD_TRY_OR(status, failed, TD_NEW(run->tensors, graph->n_values + 1));
    TD_TRY_OR(status, failed, td_graph_order(graph, &run->order));
    for (int64_t i = 0; i < graph->n_extents; i++)
        run->extents[i] = extents ? extents[i] : graph->extents[i].capacity;
    for (int32_t i = 0; i < run->n_values; i++)
        TD_TRY_OR(status, failed, allocate(run, i));
    *out_run = run;
    return NULL;
failed:
    interpreter_destroy(run);
    return status;
}

void interpreter_destroy(interpreter *run)
{
    if (!run)
        return;
    for (int64_t i = 0; i < run->n_values && run->tensors; i++) {
        td_free(run->tensors[i].data);
        td_free(run->tensors[i].index);
        td_free(run->tensors[i].count);
    }
    td_free(run->tensors);
    td_free(run->extents);
    td_free(run->order);
    td_free(run);
}

/* ---- elements ------------------------------------------------------------------------------------------------------------- */

td_tensor *interpreter_tensor(interpreter *run, td_value value)
{
    return &run->tensors[value.id];
}

int64_t interpreter_elements(interpreter *run, td_value value)
{
    const td_tensor *t = &run->tensors[value.id];
    return t->kind == TD_RAGGED ? t->entries : td_tensor_elements(t);
}

double interpreter_get(interpreter *run, td_value value, int64_t i)
{
    const td_tensor *t = &run->tensors[value.id];
    if (t->dtype == TD_F64)
        return ((const double *)t->data)[i];
    return td_dtype_is_float(t->dtype) ? (double)td_get_f32(t, i) : (double)td_get_i64(t, i);
}

void interpreter_put(interpreter *run, td_value value, int64_t i, double number)
{
    const td_tensor *t = &run->tensors[value.id];
    if (t->dtype == TD_F64)
        ((double *)t->data)[i] = number;
    else if (td_dtype_is_float(t->dtype))
        td_set_f32(t, i, (float)number);
    else
        td_set_i64(t, i, (int64_t)number);
}

void interpreter_set(interpreter *run, td_value value, const double *numbers)
{
    for (int64_t i = 0; i < interpreter_elements(run, value); i++)
        interpreter_put(run, value, i, numbers[i]);
}

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static double next_uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void fill_offsets(const td_tensor *t, uint64_t *state)
{
    int64_t *offsets = t->index, bags = t->dims[0];
    offsets[0] = 0;
    for (int64_t bag = 0; bag < bags; bag++) {
        int64_t left = t->entries - offsets[bag];
        int64_t take = bag + 1 == bags ? left : (int64_t)(next_uniform(state) * 3.0);
        offsets[bag + 1] = offsets[bag] + (take < left ? take : left);
    }
}

void interpreter_fill(interpreter *run, td_value value, uint64_t seed, double low, double high)
{
    const td_tensor *t = &run->tensors[value.id];
    uint64_t state = seed;
    if (t->kind == TD_RAGGED)
        fill_offsets(t, &state);
    for (int64_t i = 0; i < interpreter_elements(run, value); i++) {
        double number = low + (high - low) * next_uniform(&state);
        if (!td_dtype_is_float(t->dtype))
            number = floor(number);
        else if (fabs(number) < 0.05)
            number += number < 0.0 ? -0.05 : 0.05;
        interpreter_put(run, value, i, number);
    }
}

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

static void poison(const td_tensor *t)
{
    if (t->data && td_tensor_elements(t) && t->kind == TD_DENSE)
        memset(t->data, 0xa5, (size_t)td_tensor_bytes(t));
}

static td_status *run_kernel(const td_node *node, const td_kernel_call *call)
{
    if (node->host_function)
        return node->host_function(node->host_context, call->inputs, call->n_inputs,
                                   (td_tensor *)(uintptr_t)call->outputs);
    if (!node->op->reference)
        return TD_ERROR(TD_UNSUPPORTED, "%s has no reference kernel", node->op->name);
    return node->op->reference(call);
}

static td_status *run_node(interpreter *run, const td_node *node)
{
    td_tensor *arguments = NULL;
    TD_TRY(TD_NEW(arguments, node->n_inputs + node->n_outputs + 1));
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            arguments[i] = run->tensors[node->inputs[i]];
    td_tensor *outputs = arguments + node->n_inputs;
    for (int32_t i = 0; i < node->n_outputs; i++) {
        outputs[i] = run->tensors[node->outputs[i]];
        poison(&outputs[i]);
    }
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = node->op->name,
                           .name = node->name,
                           .attrs = node->attrs,
                           .inputs = arguments,
                           .outputs = outputs,
                           .n_attrs = node->n_attrs,
                           .n_inputs = node->n_inputs,
                           .n_outputs = node->n_outputs};
    td_status *status = run_kernel(node, &call);
    td_free(arguments);
    return status;
}

static td_status *run_nodes(interpreter *run, bool forward_only)
{
    for (int64_t k = 0; k < run->n_nodes; k++) {
        const td_node *node = &run->graph->nodes[run->order[k]];
        if (!forward_only || node->phase == TD_FORWARD)
            TD_TRY(run_node(run, node));
    }
    return NULL;
}

td_status *interpreter_run(interpreter *run)
{
    return run_nodes(run, false);
}

td_status *interpreter_run_forward(interpreter *run)
{
    return run_nodes(run, true);
}
