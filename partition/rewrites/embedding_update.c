/* Rule: an embedding's row-sparse gradient that only its update reads is never made. Gradient and update become one
 * "embedding_update", which sums duplicates and updates each touched row in one pass. */
#include <string.h>

#include "base/memory.h"
#include "partition/rewrite.h"

/* Adds the fused node: of update `u` and gradient op `g` before it. */
static td_status *add_fused(td_rewriter *r, const td_node *u, const td_node *g)
{
    enum { TABLE, OUTPUT_GRADIENT, IDS, WEIGHTS, COEFFICIENTS, SLOTS };
    td_graph *graph = r->graph;
    td_value inputs[SLOTS + TD_MAX_SLOTS];
    int32_t n_slots = u->n_inputs - 3;
    inputs[TABLE] = (td_value){graph, u->inputs[0]};
    inputs[OUTPUT_GRADIENT] = (td_value){graph, g->inputs[1]};
    inputs[IDS] = (td_value){graph, g->inputs[0]};
    inputs[WEIGHTS] = (td_value){graph, g->n_inputs > 2 ? g->inputs[2] : -1};
    inputs[COEFFICIENTS] = (td_value){graph, u->inputs[2]};
    for (int32_t i = 0; i < n_slots; i++)
        inputs[SLOTS + i] = (td_value){graph, u->inputs[3 + i]};
    const td_attr attrs[] = {TD_STRING("rule", u->op->name),
                             TD_STRING("pooling", td_attr_string(g->attrs, g->n_attrs, "pooling", "none")),
                             TD_INT("offset", td_attr_int(g->attrs, g->n_attrs, "offset", 0)),
                             TD_INT("rounding", td_attr_int(u->attrs, u->n_attrs, "rounding", 0))};
    char *name = td_format("%s_rows", u->name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a fused update");
    td_graph_add(graph, "embedding_update", name, inputs, SLOTS + n_slots, attrs, 4, NULL, 0);
    td_free(name);
    return graph->failed ? td_graph_check(graph) : NULL;
}

td_status *td_rewrite_embedding_update(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *u = &r->graph->nodes[node];
    if (u->phase != TD_UPDATE || u->n_inputs < 3 || u->inputs[1] < 0 || u->op->flags & TD_OP_REMOTE)
        return NULL;
    int32_t gradient = r->graph->values[u->inputs[1]].producer;
    if (gradient < 0 || r->uses[u->inputs[1]] != 1 || !td_rewrite_is_lookup_gradient(r, gradient))
        return NULL;
    *out_changed = true;
    TD_TRY(add_fused(r, u, &r->graph->nodes[gradient]));
    TD_TRY(td_rewriter_follow(r));
    int32_t fused = (int32_t)r->graph->n_nodes - 1;
    td_rewrite_count_inputs(r, fused);
    TD_TRY(td_rewrite_replace(r, gradient, fused));
    return td_rewrite_replace(r, node, fused);
}
