/* Rule, by the pass "fuse": elementwise ops of one device that feed only each other become one fused_elementwise, one pass over
 * memory for all. It comes after placement, so that no placement depends on it, and rounds where the single ops did, so that no
 * bit does.
 *
 * A group grows from its last op backwards: an op joins when every reader of its output is in the group already and both
 * outputs have one shape. So all paths out of an op of the group lead through the last one:
 *
 *     a -> b -> d        a joins only if neither b nor c is read by anybody but d; were c outside and d waiting for it,
 *      \-> c -/          the group would wait for itself.
 *
 * The last op keeps its name and becomes the fused one; the others stay known by name (td_plan.rewritten). */
#include <string.h>

#include "base/fused.h"
#include "base/memory.h"
#include "partition/fuse.h"
#include "partition/rewrite.h"

enum { NOT_READ = -2, NO_GROUP = -1 };

typedef struct groups {
    int32_t *root;    /* of each node: the last op of its group, itself where it is alone; NO_GROUP: cannot be fused */
    int32_t *readers; /* of each value: the group that all its readers are in; NO_GROUP: more than one */
    int32_t *uses;    /* of each value */
    int32_t *instructions; /* of each root */
    int32_t *inputs;       /* of each root, at most */
} groups;

static void groups_deinit(groups *g)
{
    td_free(g->root);
    td_free(g->readers);
    td_free(g->uses);
    td_free(g->instructions);
    td_free(g->inputs);
}

static td_status *groups_init(const td_plan *plan, groups *g)
{
    const td_graph *graph = plan->graph;
    TD_TRY(TD_NEW(g->root, graph->n_nodes + 1));
    TD_TRY(TD_NEW(g->instructions, graph->n_nodes + 1));
    TD_TRY(TD_NEW(g->inputs, graph->n_nodes + 1));
    TD_TRY(TD_NEW(g->readers, graph->n_values + 1));
    TD_TRY(TD_NEW(g->uses, graph->n_values + 1));
    for (int64_t v = 0; v < graph->n_values; v++)
        g->readers[v] = NOT_READ;
    for (int32_t i = -1; i < plan->n_outputs; i++) { /* the caller reads these */
        int32_t value = i < 0 ? plan->loss : plan->outputs[i];
        if (value >= 0)
            g->readers[value] = NO_GROUP;
    }
    for (int64_t n = 0; n < graph->n_nodes; n++) /* others wait for these */
        if (graph->nodes[n].after >= 0)
            g->readers[graph->nodes[n].after] = NO_GROUP;
    return NULL;
}

/* Whether `node` may join the group of its readers. */
static bool may_join(const td_plan *plan, const groups *g, int32_t node, int32_t root, int32_t instructions)
{
    const td_node *n = &plan->graph->nodes[node];
    if (root < 0 || plan->nodes[root].device != plan->nodes[node].device)
        return false;
    const td_shape *own = &plan->graph->values[n->outputs[0]].shape;
    int32_t inputs = g->inputs[root] - g->uses[n->outputs[0]] + n->n_inputs;
    return td_shape_equal(own, &plan->graph->values[plan->graph->nodes[root].outputs[0]].shape) &&
           g->instructions[root] + instructions <= TD_FUSED_MOST_INSTRUCTIONS && inputs <= TD_FUSED_MOST_INPUTS;
}

/* An op that reads what has to come from another device is left alone: fused, the others would wait for that too. */
static bool waits_for_a_copy(const td_plan *plan, int32_t node)
{
    const td_node *n = &plan->graph->nodes[node];
    for (int32_t i = 0; i < n->n_inputs; i++) {
        int32_t device = n->inputs[i] < 0 ? -1 : plan->values[n->inputs[i]].device;
        if (device >= 0 && device != plan->nodes[node].device)
            return true;
    }
    return false;
}

/* `node` after all readers of its output. */
static void join(const td_plan *plan, groups *g, int32_t node)
{
    const td_node *n = &plan->graph->nodes[node];
    int32_t root = NO_GROUP;
    int32_t instructions = n->after < 0 ? td_fuse_instructions(plan->graph, n) : 0; /* it has its own time to begin */
    bool fits = instructions > 0 && !waits_for_a_copy(plan, node) && instructions <= TD_FUSED_MOST_INSTRUCTIONS &&
                n->n_inputs <= TD_FUSED_MOST_INPUTS;
    if (fits) {
        root = g->readers[n->outputs[0]];
        if (may_join(plan, g, node, root, instructions)) {
            g->inputs[root] += n->n_inputs - g->uses[n->outputs[0]];
            g->instructions[root] += instructions;
        } else {
            root = node;
            g->inputs[root] = n->n_inputs;
            g->instructions[root] = instructions;
        }
    }
    g->root[node] = root;
    for (int32_t i = 0; i < n->n_inputs; i++) {
        int32_t value = n->inputs[i];
        if (value < 0)
            continue;
        g->uses[value]++;
        g->readers[value] = g->readers[value] == NOT_READ || g->readers[value] == root ? root : NO_GROUP;
    }
}

/* Nodes by group, each group in topological order: members of root r are list[first[r] .. first[r + 1]). */
typedef struct members {
    int32_t *first, *list;
} members;

static td_status *list_members(const td_plan *plan, const groups *g, const int32_t *order, members *m)
{
    int64_t n = plan->graph->n_nodes;
    int32_t *fill = NULL;
    TD_TRY(TD_NEW(m->first, n + 2));
    TD_TRY(TD_NEW(m->list, n + 1));
    TD_TRY(TD_NEW(fill, n + 1));
    for (int64_t i = 0; i < n; i++)
        if (g->root[i] >= 0)
            m->first[g->root[i] + 1]++;
    for (int64_t i = 0; i < n; i++)
        m->first[i + 1] += m->first[i];
    memcpy(fill, m->first, (size_t)n * sizeof *fill);
    for (int64_t i = 0; i < n; i++)
        if (g->root[order[i]] >= 0)
            m->list[fill[g->root[order[i]]]++] = order[i];
    td_free(fill);
    return NULL;
}

static td_status *fuse_group(td_plan *plan, const int32_t *list, int32_t n, int32_t *index, bool *gone)
{
    td_node was = plan->graph->nodes[list[n - 1]];
    const char *name = was.name;
    bool fused = false;
    TD_TRY(td_fuse_members(plan, list, n, index, &fused));
    for (int32_t i = 0; fused && i < n - 1; i++) {
        gone[list[i]] = true;
        TD_TRY(td_plan_note_rewrite(plan, TD_RULE_elementwise_chain, &plan->graph->nodes[list[i]], name));
    }
    return fused ? td_plan_note_rewrite(plan, TD_RULE_elementwise_chain, &was, name) : NULL;
}

static td_status *fuse_groups(td_plan *plan, const int32_t *order, const members *m, bool *gone)
{
    int32_t *index = NULL;
    TD_TRY(TD_NEW(index, plan->graph->n_values + 1));
    memset(index, 0xff, ((size_t)plan->graph->n_values + 1) * sizeof *index);
    td_status *status = NULL;
    for (int64_t i = 0; i < plan->graph->n_nodes && !status; i++) {
        int32_t root = order[i], n = m->first[root + 1] - m->first[root];
        if (n > 1)
            status = fuse_group(plan, m->list + m->first[root], n, index, gone);
    }
    td_free(index);
    return status;
}

td_status *td_rewrite_elementwise_chain(td_plan *plan)
{
    groups g = {0};
    members m = {0};
    int32_t *order = NULL;
    bool *gone = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, td_graph_order(plan->graph, &order));
    TD_TRY_OR(status, done, groups_init(plan, &g));
    for (int64_t i = plan->graph->n_nodes - 1; i >= 0; i--)
        join(plan, &g, order[i]);
    TD_TRY_OR(status, done, list_members(plan, &g, order, &m));
    TD_TRY_OR(status, done, TD_NEW(gone, plan->graph->n_nodes + 1));
    TD_TRY_OR(status, done, fuse_groups(plan, order, &m, gone));
    TD_TRY_OR(status, done, td_plan_drop_unneeded(plan, gone));
done:
    groups_deinit(&g);
    td_free(m.first);
    td_free(m.list);
    td_free(order);
    td_free(gone);
    return status;
}
