/* Rule: relu becomes part of the product before it, and its gradient part of the one before that.
 *
 *   relu(linear(x))                                 -> linear(x) with relu
 *   relu_gradient(y, linear_input_gradient(dy, W))  -> linear_input_gradient(dy, W, y)
 *
 * Only where nobody else reads what lies between, and where no target or rule puts the two in different places. The
 * product takes over relu's output, so whoever reads that sees no difference, and keeps its own name. */
#include <string.h>

#include "partition/rewrite.h"

/* The node that makes `value` for one reader alone, if it is an op of this name; else -1. */
static int32_t only_maker(const td_rewriter *r, int32_t value, const char *op)
{
    int32_t maker = value < 0 ? -1 : r->graph->values[value].producer;
    if (maker < 0 || r->uses[value] != 1 || r->graph->values[value].is_output || !td_rewrite_is(r, maker, op))
        return -1;
    for (int32_t i = 0; i < r->plan->n_outputs; i++)
        if (r->plan->outputs[i] == value)
            return -1;
    return maker;
}

static td_status *take_over(td_rewriter *r, int32_t product, int32_t relu)
{
    int32_t output = r->graph->nodes[relu].outputs[0];
    r->graph->nodes[product].outputs[0] = output;
    r->graph->values[output].producer = product;
    return td_rewrite_replace(r, relu, product);
}

static td_status *fuse_forward(td_rewriter *r, int32_t relu, bool *out_changed)
{
    int32_t product = only_maker(r, r->graph->nodes[relu].inputs[0], "linear");
    if (product < 0 || !td_rewrite_same_place(r, product, relu))
        return NULL;
    td_node *linear = &r->graph->nodes[product];
    for (int32_t i = 0; i < linear->n_attrs; i++)
        if (strcmp(linear->attrs[i].key, "relu") == 0)
            linear->attrs[i].i = 1;
    *out_changed = true;
    return take_over(r, product, relu);
}

static td_status *fuse_backward(td_rewriter *r, int32_t relu, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[relu];
    int32_t product = only_maker(r, n->inputs[1], "linear_input_gradient");
    if (product < 0 || r->graph->nodes[product].inputs[2] >= 0 || !td_rewrite_same_place(r, product, relu))
        return NULL;
    r->graph->nodes[product].inputs[2] = n->inputs[0];
    r->uses[n->inputs[0]]++;
    *out_changed = true;
    return take_over(r, product, relu);
}

td_status *td_rewrite_linear_relu(td_rewriter *r, int32_t node, bool *out_changed)
{
    if (td_rewrite_is(r, node, "relu"))
        return fuse_forward(r, node, out_changed);
    if (td_rewrite_is(r, node, "relu_gradient"))
        return fuse_backward(r, node, out_changed);
    return NULL;
}
