/* What must come before what in a view, by its plan: of each subgraph the nodes, those of the step before that it waits for, and which
 * of these it reads from. See view.h. */
#include "base/memory.h"
#include "profiler/view.h"

static td_status *fill_comes_after(td_view *view)
{
    const td_trace_plan *plan = view->plan;
    TD_TRY(TD_NEW(view->comes_after, plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(view->n_comes_after, plan->n_subgraphs + 1));
    for (int32_t s = 0; s < plan->n_subgraphs; s++)
        for (int32_t i = 0; i < plan->subgraphs[s].n_next; i++)
            view->n_comes_after[plan->subgraphs[s].next[i]]++;
    for (int32_t s = 0; s < plan->n_subgraphs; s++) {
        TD_TRY(TD_NEW(view->comes_after[s], view->n_comes_after[s] + 1));
        view->n_comes_after[s] = 0;
    }
    for (int32_t s = 0; s < plan->n_subgraphs; s++)
        for (int32_t i = 0; i < plan->subgraphs[s].n_next; i++) {
            int32_t to = plan->subgraphs[s].next[i];
            view->comes_after[to][view->n_comes_after[to]++] = s;
        }
    return NULL;
}

/* Marks those of `list` that `made` says. */
static td_status *mark_reads(const bool *made, const int32_t *list, int32_t n, bool **out)
{
    TD_TRY(TD_NEW(*out, n + 1));
    for (int32_t i = 0; i < n; i++)
        (*out)[i] = made[list[i]];
    return NULL;
}

/* made[s]: subgraph s made something that a node reads. */
static void note_makers(const td_trace_plan *plan, const td_trace_node *node, bool value, bool *made)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t producer = node->inputs[i] < 0 ? -1 : plan->values[node->inputs[i]].producer;
        int32_t maker = producer < 0 ? -1 : plan->nodes[producer].subgraph;
        if (maker >= 0)
            made[maker] = value;
    }
}

static td_status *chain_nodes(td_view *view)
{
    const td_trace_plan *plan = view->plan;
    TD_TRY(TD_NEW(view->first_node, plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(view->next_node, plan->n_nodes + 1));
    for (int32_t s = 0; s < plan->n_subgraphs; s++)
        view->first_node[s] = -1;
    for (int32_t n = plan->n_nodes - 1; n >= 0; n--)
        if (plan->nodes[n].subgraph >= 0) {
            view->next_node[n] = view->first_node[plan->nodes[n].subgraph];
            view->first_node[plan->nodes[n].subgraph] = n;
        }
    return NULL;
}

static td_status *fill_reads(td_view *view)
{
    const td_trace_plan *plan = view->plan;
    const int32_t *first = view->first_node, *next = view->next_node;
    bool *made = NULL;
    TD_TRY(TD_NEW(view->after_reads, plan->n_subgraphs + 1));
    TD_TRY(TD_NEW(view->comes_after_reads, plan->n_subgraphs + 1));
    td_status *status = TD_NEW(made, plan->n_subgraphs + 1);
    for (int32_t s = 0; !status && s < plan->n_subgraphs; s++) {
        for (int32_t n = first[s]; n >= 0; n = next[n])
            note_makers(plan, &plan->nodes[n], true, made);
        status = mark_reads(made, plan->subgraphs[s].after, plan->subgraphs[s].n_after, &view->after_reads[s]);
        if (!status)
            status = mark_reads(made, view->comes_after[s], view->n_comes_after[s], &view->comes_after_reads[s]);
        for (int32_t n = first[s]; n >= 0; n = next[n])
            note_makers(plan, &plan->nodes[n], false, made);
    }
    td_free(made);
    return status;
}

td_status *td_view_fill_order(td_view *view)
{
    TD_TRY(fill_comes_after(view));
    TD_TRY(chain_nodes(view));
    return fill_reads(view);
}
