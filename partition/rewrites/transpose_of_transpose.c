/* Rule: axis i of a transpose of a transpose is axis inner[outer[i]]; when all stay where they are, it is the input. */
#include "partition/rewrite.h"

td_status *td_rewrite_transpose_of_transpose(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    if (!td_rewrite_is(r, node, "transpose") || n->target)
        return NULL;
    const td_attr *outer = td_attr_find(n->attrs, n->n_attrs, "permutation");
    const td_node *before = td_rewrite_maker(r, n->inputs[0]);
    bool two = before && before->op == n->op && !before->target;
    const td_attr *inner = two ? td_attr_find(before->attrs, before->n_attrs, "permutation") : NULL;
    int64_t axes[TD_MAX_RANK];
    bool stays = true;
    for (int32_t i = 0; i < outer->n_ints; i++) {
        axes[i] = inner ? inner->ints[outer->ints[i]] : outer->ints[i];
        stays = stays && axes[i] == i;
    }
    if (stays)
        return td_rewrite_as(r, node, two ? before->inputs[0] : n->inputs[0], out_changed);
    if (!two)
        return NULL;
    *out_changed = true;
    td_attr attr = TD_INTS("permutation", axes, outer->n_ints);
    return td_rewrite_turn(r, node, "transpose", before->inputs, 1, &attr, 1);
}
