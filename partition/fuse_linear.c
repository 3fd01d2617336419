/* Fusing relu into the products around it, for pass optimize: see plan.h. Not a bit changes.
 *
 *   relu(linear(x))                      -> linear(x) with relu
 *   relu_gradient(y, linear_input_gradient(dy, W))  -> linear_input_gradient(dy, W, y)
 *
 * Only where nobody else reads what lies between, and where no target or rule puts the two in different places. The
 * first op takes over the second one's output, so whoever reads that sees no difference. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "partition/plan.h"

/* The index of the first rule that matches, or -1. */
static int64_t rule_of(const td_plan_request *request, const char *name)
{
    const td_option_list *rules = &request->options->placements;
    for (int64_t i = 0; i < rules->n; i++)
        if (td_glob_match(rules->items[i].match, name))
            return i;
    return -1;
}

/* Backward ops follow the op that they differentiate. */
static const td_node *placed_as(const td_graph *graph, const td_node *node)
{
    return node->forward >= 0 ? &graph->nodes[node->forward] : node;
}

static bool same_place(const td_graph *graph, const td_plan_request *request, const td_node *a, const td_node *b)
{
    const td_node *x = placed_as(graph, a), *y = placed_as(graph, b);
    bool same_target = (!x->target && !y->target) || (x->target && y->target && strcmp(x->target, y->target) == 0);
    return same_target && rule_of(request, x->name) == rule_of(request, y->name) &&
           rule_of(request, a->name) == rule_of(request, b->name);
}

/* The node that makes `value` for one reader alone, if it is an op of this name. */
static td_node *only_producer(td_plan *plan, const int32_t *uses, int32_t value, const char *op)
{
    td_graph *graph = plan->graph;
    int32_t producer = value < 0 ? -1 : graph->values[value].producer;
    if (producer < 0 || uses[value] != 1 || graph->values[value].is_output)
        return NULL;
    for (int32_t i = 0; i < plan->n_outputs; i++)
        if (plan->outputs[i] == value)
            return NULL;
    return strcmp(graph->nodes[producer].op->name, op) == 0 ? &graph->nodes[producer] : NULL;
}

/* `first` gives what `second` gave, and backward ops follow it. */
static void take_over(td_graph *graph, td_node *first, const td_node *second)
{
    int32_t new_place = (int32_t)(first - graph->nodes), old_place = (int32_t)(second - graph->nodes);
    first->outputs[0] = second->outputs[0];
    graph->values[first->outputs[0]].producer = new_place;
    for (int64_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].forward == old_place)
            graph->nodes[n].forward = new_place;
}

static bool fuse_forward(td_plan *plan, const td_plan_request *request, const int32_t *uses, const td_node *relu)
{
    td_node *linear = only_producer(plan, uses, relu->inputs[0], "linear");
    if (!linear || !same_place(plan->graph, request, linear, relu))
        return false;
    for (int32_t i = 0; i < linear->n_attrs; i++)
        if (strcmp(linear->attrs[i].key, "relu") == 0)
            linear->attrs[i].i = 1;
    take_over(plan->graph, linear, relu);
    return true;
}

static bool fuse_backward(td_plan *plan, const td_plan_request *request, const int32_t *uses, const td_node *relu)
{
    td_node *product = only_producer(plan, uses, relu->inputs[1], "linear_input_gradient");
    if (!product || product->inputs[2] >= 0 || !same_place(plan->graph, request, product, relu))
        return false;
    product->inputs[2] = relu->inputs[0];
    take_over(plan->graph, product, relu);
    return true;
}

void td_fuse_linear(td_plan *plan, const td_plan_request *request, const int32_t *uses, bool *replaced)
{
    const td_graph *graph = plan->graph;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        if (strcmp(node->op->name, "relu") == 0)
            replaced[n] = fuse_forward(plan, request, uses, node);
        else if (strcmp(node->op->name, "relu_gradient") == 0)
            replaced[n] = fuse_backward(plan, request, uses, node);
    }
}
