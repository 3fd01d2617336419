/* Pass: gradients that are no finite numbers, found before any update. Each parameter's gradient gets a flag where it is,
 * "<parameter>/nonfinite"; one node, "overflow", makes of all of them and the loss one number, which of them is not finite. From
 * then on updates wait for it to be on the host (copies.c), and the session leaves the step out (runtime/nonfinite.c).
 *
 * It costs a look at every gradient, so it is done where there is a use for it: in fp16, where overflows are part of the
 * method; where steps may be skipped (td_on_nan); and with clipping, which has looked at them all: its sums say it.
 *
 * What is looked at is the gradient before casts, in the fewest bytes. In place of a row-sparse gradient, which a fused update
 * never writes down, it is what the lookup's backward reads; sums of it beyond f32 are found a step later, as the parameter's.
 * Where the workers of a job share optimizer state, each looks at its stretches, and "workers/nonfinite" makes the flags of all.
 *
 * The order of the flags is that of the backward pass, by the longest way from the loss: of many gradients that one overflow
 * spoils, the first to be made is named. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/shard.h"

/* A value to be looked at, and the parameter that it is for. */
typedef struct look {
    int32_t value, parameter, depth;
} look;

typedef struct looks {
    td_plan *plan;
    look *items;
    int64_t n, capacity;
    int32_t *depth; /* of each value: nodes on the longest way to it */
} looks;

static td_status *measure_depths(looks *l)
{
    const td_graph *graph = l->plan->graph;
    int32_t *order = NULL;
    TD_TRY(TD_NEW(l->depth, graph->n_values + 1));
    TD_TRY(td_graph_order(graph, &order));
    for (int64_t k = 0; k < graph->n_nodes; k++) {
        const td_node *node = &graph->nodes[order[k]];
        int32_t depth = 0;
        for (int32_t i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0 && l->depth[node->inputs[i]] > depth)
                depth = l->depth[node->inputs[i]];
        for (int32_t i = 0; i < node->n_outputs; i++)
            l->depth[node->outputs[i]] = depth + 1;
    }
    td_free(order);
    return NULL;
}

static td_status *add_look(looks *l, int32_t value, int32_t parameter)
{
    TD_TRY(td_grow(&l->items, &l->capacity, l->n, sizeof *l->items));
    l->items[l->n++] = (look){value, parameter, l->depth[value]};
    return NULL;
}

static bool is_op(const td_node *node, const char *name)
{
    return strcmp(node->op->name, name) == 0;
}

/* The gradient of a lookup among its inputs, or -1 for any other op. */
static int32_t lookup_gradient_port(const td_node *node)
{
    if (!is_op(node, "embedding_gradient") && !is_op(node, "embedding_bag_gradient"))
        return -1;
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (strcmp(td_node_port(node, i)->name, "gradient") == 0)
            return i;
    return -1;
}

/* Behind casts to more bits, and behind what makes a gradient row-sparse. */
static td_status *look_at(looks *l, int32_t value, int32_t parameter)
{
    const td_graph *graph = l->plan->graph;
    int32_t producer = graph->values[value].producer;
    const td_node *node = producer < 0 ? NULL : &graph->nodes[producer];
    if (node && is_op(node, "row_sparse_add")) {
        TD_TRY(look_at(l, node->inputs[0], parameter));
        return look_at(l, node->inputs[1], parameter);
    }
    int32_t port = node ? lookup_gradient_port(node) : -1;
    if (node && is_op(node, "cast") &&
        td_dtype_bytes(graph->values[node->inputs[0]].dtype) < td_dtype_bytes(graph->values[value].dtype))
        port = 0;
    return port >= 0 ? look_at(l, node->inputs[port], parameter) : add_look(l, value, parameter);
}

/* With clipping: the squares of a parameter's gradient, which say whether it is finite. */
static td_status *look_at_squares(looks *l, int32_t parameter)
{
    const td_plan_shard *shard = td_plan_shard_of(l->plan, parameter);
    if (shard)
        return add_look(l, shard->squares, parameter);
    char *name = td_format("%s/squares", l->plan->graph->values[parameter].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the sums of a norm");
    const int32_t squares = td_graph_find(l->plan->graph, name).id;
    td_free(name);
    return add_look(l, squares, parameter);
}

static td_status *collect_looks(looks *l, bool clipped)
{
    for (int32_t v = 0; v < l->plan->n_gradients; v++) {
        const td_plan_served *served = td_plan_served_of(l->plan, v);
        if (l->plan->gradients[v] < 0)
            continue;
        if (served && l->plan->offers) {
            TD_TRY(add_look(l, served->squares, v));
            continue;
        }
        if (!clipped) {
            TD_TRY(look_at(l, l->plan->gradients[v], v));
            continue;
        }
        TD_TRY(look_at_squares(l, v));
    }
    return NULL;
}

static int compare_looks(const void *a, const void *b, void *context)
{
    const look *x = a, *y = b;
    const td_graph *graph = context;
    if (x->depth != y->depth)
        return x->depth < y->depth ? -1 : 1;
    int order = strcmp(graph->values[x->parameter].name, graph->values[y->parameter].name);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

/* *out: the flag of a look; with clipping, and of served tables, what was collected is one. */
static td_status *add_flag(looks *l, int64_t index, bool clipped, td_value *out)
{
    td_graph *graph = l->plan->graph;
    const look *at = &l->items[index];
    const td_value gradient = {graph, at->value};
    int64_t same = 0;
    *out = gradient;
    if (clipped || (l->plan->offers && td_plan_served_of(l->plan, at->parameter)))
        return NULL;
    for (int64_t i = 0; i < index; i++)
        same += l->items[i].parameter == at->parameter;
    char *name = same ? td_format("%s/nonfinite.%lld", graph->values[at->parameter].name, (long long)same)
                      : td_format("%s/nonfinite", graph->values[at->parameter].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a flag's name");
    *out = td_graph_add1(graph, "gradient_nonfinite", name, &gradient, 1, NULL, 0);
    td_free(name);
    return graph->failed ? td_graph_check(graph) : NULL;
}

/* The flags of shared parameters' stretches here become those of all of them. With clipping they are, as sums of squares. */
static td_status *combine(const looks *l, td_value *flags, bool clipped)
{
    td_value **values = NULL;
    int32_t n = 0;
    if (!td_plan_is_sharded(l->plan) || clipped)
        return NULL;
    TD_TRY(TD_NEW(values, l->n + 1));
    for (int64_t i = 0; i < l->n; i++)
        if (td_plan_shard_of(l->plan, l->items[i].parameter))
            values[n++] = &flags[i];
    td_status *status = td_shard_combine(l->plan, "workers/nonfinite", values, n);
    td_free(values);
    return status;
}

static td_status *add_nodes(looks *l, bool clipped)
{
    td_plan *plan = l->plan;
    td_graph *graph = plan->graph;
    td_value *inputs = NULL, first;
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(inputs, l->n + 1));
    TD_TRY_OR(status, done, TD_NEW(plan->watched, l->n + 1));
    inputs[0] = (td_value){graph, plan->loss};
    for (int64_t i = 0; i < l->n; i++) {
        TD_TRY_OR(status, done, add_flag(l, i, clipped, &inputs[1 + i]));
        plan->watched[i] = td_strdup(graph->values[l->items[i].parameter].name);
        plan->n_watched++;
        if (!plan->watched[i])
            TD_TRY_OR(status, done, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a parameter's name"));
    }
    TD_TRY_OR(status, done, combine(l, inputs + 1, clipped));
    first = td_graph_add1(graph, "first_overflow", "overflow", inputs, (int32_t)(1 + l->n), NULL, 0);
    if (graph->failed)
        TD_TRY_OR(status, done, td_graph_check(graph));
    plan->outputs[plan->n_outputs++] = first.id;
    plan->reports_overflow = true;
done:
    td_free(inputs);
    return status;
}

bool td_options_wait_for_gradients(const td_train_options *options)
{
    return options->clip_norm > 0 || options->on_nan == TD_NAN_SKIP || options->precision == TD_MIXED_FP16;
}

td_status *td_pass_overflow(td_plan *plan, const td_plan_request *request)
{
    const td_train_options *options = request->options;
    const bool clipped = plan->reports_norm;
    plan->has_loss_scale = plan->training && options->precision == TD_MIXED_FP16;
    plan->loss_scale = options->loss_scale;
    if (plan->has_loss_scale)
        TD_TRY(td_loss_scale_check(&plan->loss_scale));
    if (!plan->training || !td_options_wait_for_gradients(options))
        return NULL;
    looks l = {.plan = plan};
    td_status *status = measure_depths(&l);
    if (!status)
        status = collect_looks(&l, clipped);
    plan->graph->phase = TD_BACKWARD;
    if (!status && l.n) {
        qsort_r(l.items, (size_t)l.n, sizeof *l.items, compare_looks, plan->graph);
        status = add_nodes(&l, clipped);
    }
    plan->graph->phase = TD_FORWARD;
    td_free(l.items);
    td_free(l.depth);
    return status;
}
