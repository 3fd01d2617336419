/* Rule: reshapes move no bytes, so of several in a row only the last shape counts, and one to the shape that is there already
 * is nothing. */
#include "partition/rewrite.h"

td_status *td_rewrite_view_of_view(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    if (!td_rewrite_is(r, node, "reshape") || n->target)
        return NULL;
    if (td_rewrite_same_type(r, n->inputs[0], n->outputs[0]))
        return td_rewrite_as(r, node, n->inputs[0], out_changed);
    int32_t before = r->graph->values[n->inputs[0]].producer;
    if (before < 0 || !td_rewrite_is(r, before, "reshape") || r->graph->nodes[before].target)
        return NULL;
    *out_changed = true;
    return td_rewrite_turn(r, node, "reshape", r->graph->nodes[before].inputs, 1, n->attrs, n->n_attrs);
}
