/* Rule: an op that hands its input on is its input. Each kernel below was looked through for that: it multiplies by exactly 1,
 * sums one term, keeps every element, or only moves bytes. An explicit target is kept: the user asked for a value there. */
#include <string.h>

#include "partition/rewrite.h"

static bool takes_the_whole_axis(const td_node *node)
{
    return td_attr_int(node->attrs, node->n_attrs, "begin", 0) == 0; /* the size is in the types, which must be equal */
}

static bool drops_nothing(const td_rewriter *r, const td_node *node)
{
    return td_attr_float(node->attrs, node->n_attrs, "rate", 1) == 0 || !r->plan->training;
}

static bool hands_on(const td_rewriter *r, const td_node *node)
{
    static const char *const always[] = {"cast", "copy"}; /* between equal types */
    static const char *const of_one[] = {"add_n", "concat", "split"};
    const char *op = node->op->name;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strcmp(op, always[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++)
        if (strcmp(op, of_one[i]) == 0)
            return node->n_inputs == 1 && node->n_outputs == 1;
    if (strcmp(op, "scale") == 0)
        return (float)td_attr_float(node->attrs, node->n_attrs, "factor", 0) == 1.0f;
    if (strcmp(op, "slice") == 0)
        return takes_the_whole_axis(node);
    return (strcmp(op, "dropout") == 0 || strcmp(op, "dropout_gradient") == 0) && drops_nothing(r, node);
}

td_status *td_rewrite_no_op(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    if (n->target || n->n_inputs < 1 || n->inputs[0] < 0 || n->n_outputs != 1 || !hands_on(r, n))
        return NULL;
    return td_rewrite_as(r, node, n->inputs[0], out_changed);
}
