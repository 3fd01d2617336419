/* Pass: the graph made smaller without changing a bit of what it computes, as far as the level asks (compile.jit_level): the
 * rules of rewrites/ in one sweep, then whatever neither a loss, an output, an update nor a host function needs is dropped. At
 * O0 only the latter: a plan must not want inputs that nothing of it reads. */
#include "base/memory.h"
#include "partition/rewrite.h"

/* ---- the sweep ----------------------------------------------------------------------------------------------------------- */

static void count_uses(td_rewriter *r)
{
    for (int64_t n = 0; n < r->graph->n_nodes; n++) {
        const td_node *node = &r->graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                r->uses[node->inputs[i]]++;
        if (node->after >= 0) /* who waits for a value must find it */
            r->uses[node->after]++;
    }
}

static int32_t resolve(const td_rewriter *r, int32_t value)
{
    while (value >= 0 && r->same[value] != value)
        value = r->same[value];
    return value;
}

static void resolve_inputs(td_rewriter *r, int32_t node)
{
    td_node *n = &r->graph->nodes[node];
    for (int32_t i = 0; i < n->n_inputs; i++)
        n->inputs[i] = resolve(r, n->inputs[i]);
    n->after = resolve(r, n->after);
}

/* Each change makes the graph smaller or simpler by itself, so this ends; the limit is for a rule that would break that. */
static td_status *try_rules(td_rewriter *r, int32_t node)
{
    enum { MOST_CHANGES = 100 };
    int32_t n_rules = 0, changes = 0;
    const td_rewrite *rules = td_rewrites(&n_rules);
    for (r->rule = 0; r->rule < n_rules && !r->gone[node]; r->rule++) {
        bool changed = false;
        if (rules[r->rule].level > r->plan->jit_level || !rules[r->rule].apply)
            continue;
        TD_TRY(rules[r->rule].apply(r, node, &changed));
        if (!changed)
            continue;
        if (++changes > MOST_CHANGES)
            return TD_ERROR(TD_INTERNAL, "optimize: rule %s does not come to an end at \"%s\"", rules[r->rule].name,
                            r->graph->nodes[node].name);
        r->rule = -1; /* a change may be what another rule waits for */
    }
    return NULL;
}

static int32_t still_there(const td_rewriter *r, int32_t node)
{
    while (node >= 0 && r->gone[node])
        node = r->into[node];
    return node;
}

static void adopt(td_rewriter *r)
{
    td_plan *plan = r->plan;
    plan->loss = resolve(r, plan->loss);
    for (int32_t i = 0; i < plan->n_outputs; i++)
        plan->outputs[i] = resolve(r, plan->outputs[i]);
    for (int64_t n = 0; n < r->graph->n_nodes; n++)
        r->graph->nodes[n].forward = still_there(r, r->graph->nodes[n].forward);
}

static td_status *sweep(td_rewriter *r)
{
    int32_t *order = NULL;
    int64_t n = r->graph->n_nodes;
    TD_TRY(td_graph_order(r->graph, &order));
    td_status *status = td_rewriter_follow(r);
    if (!status)
        count_uses(r);
    for (int64_t i = 0; i < n && !status; i++) {
        resolve_inputs(r, order[i]);
        if (!r->gone[order[i]])
            status = try_rules(r, order[i]);
    }
    if (!status)
        adopt(r);
    td_free(order);
    return status;
}

td_status *td_pass_optimize(td_plan *plan, const td_plan_request *request)
{
    td_rewriter r = {.plan = plan, .graph = plan->graph, .request = request};
    int32_t n_rules = 0;
    (void)td_rewrites(&n_rules);
    plan->random = td_graph_find(plan->graph, "step.random").id;
    plan->graph->phase = TD_UPDATE;
    plan->jit_level = request->options->jit_level;
    TD_TRY(TD_NEW(plan->rewrites, n_rules + 1));
    td_status *status = plan->jit_level > TD_O0 ? sweep(&r) : td_rewriter_follow(&r);
    if (!status)
        status = td_plan_drop_unneeded(plan, r.gone);
    td_rewrite_seen_destroy(r.seen);
    td_free(r.same);
    td_free(r.uses);
    td_free(r.gone);
    td_free(r.into);
    return status;
}
