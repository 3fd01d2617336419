/* Pass: the offloaded updates of one subgraph become one op, so that many small parameters share one dispatch over the host's threads.
 *
 * Members are update_mixed ops (fold.c) of one rule whose copies have one dtype, in the order of their names. They run in sequence on one
 * lane anyway, and no update leads to another, so nothing waits for more than it did. Values keep their names, and --explain finds an
 * update by its own. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "graph/ops/update_part.h"
#include "partition/plan.h"

enum { MOST_MEMBERS = 64 };

typedef struct chunking {
    td_plan *plan;
    td_graph *graph;
    int32_t *list, n;
    bool *keep, *keep_value;
} chunking;

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for chunks of updates");
}

static const char *text_of(const td_node *node, const char *key)
{
    return td_attr_string(node->attrs, node->n_attrs, key, "");
}

/* Those that may be one op are equal but for their names. */
static int compare_kinds(const chunking *c, int32_t a, int32_t b)
{
    const td_node *x = &c->graph->nodes[a], *y = &c->graph->nodes[b];
    const int32_t p = c->plan->nodes[a].cluster, q = c->plan->nodes[b].cluster;
    if (p != q)
        return p < q ? -1 : 1;
    if (x->delayed != y->delayed)
        return x->delayed ? 1 : -1;
    int order = strcmp(text_of(x, "rule"), text_of(y, "rule"));
    return order ? order : strcmp(text_of(x, "copy"), text_of(y, "copy"));
}

static int compare_members(const void *a, const void *b, void *context)
{
    const chunking *c = context;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    int order = compare_kinds(c, x, y);
    return order ? order : strcmp(c->graph->nodes[x].name, c->graph->nodes[y].name);
}

static td_status *list_names(const chunking *c, const int32_t *members, int32_t n, char **out)
{
    td_string text = {0};
    for (int32_t i = 0; i < n; i++)
        td_string_format(&text, "%s%s", i ? " " : "", c->graph->nodes[members[i]].name);
    return td_string_finish(&text, out);
}

/* The new node takes over the place of the first member, and the values of all. */
static td_status *take_over(chunking *c, const int32_t *members, int32_t n)
{
    const int32_t id = (int32_t)c->graph->n_nodes - 1;
    TD_TRY(td_plan_follow(c->plan));
    td_plan_node *to = &c->plan->nodes[id];
    const td_plan_node *from = &c->plan->nodes[members[0]];
    to->device = from->device;
    to->lane = from->lane;
    to->cluster = from->cluster;
    to->cause = td_strdup(from->cause);
    if (!to->cause)
        return no_memory();
    c->keep[id] = true;
    c->graph->nodes[id].delayed = c->graph->nodes[members[0]].delayed;
    for (int32_t i = 0; i < n; i++) {
        const td_node *member = &c->graph->nodes[members[i]];
        c->keep[members[i]] = false;
        for (int32_t k = 0; k < member->n_outputs; k++) {
            c->graph->nodes[id].outputs[i] = member->outputs[k];
            c->graph->values[member->outputs[k]].producer = id;
            c->graph->values[member->outputs[k]].output = i;
        }
    }
    return NULL;
}

static td_status *join(chunking *c, const int32_t *members, int32_t n)
{
    td_graph *graph = c->graph;
    td_value inputs[MOST_MEMBERS * MIXED_INPUTS], outputs[MOST_MEMBERS];
    int64_t rounding[MOST_MEMBERS] = {0};
    const td_node *first = &graph->nodes[members[0]];
    const int32_t copies = first->n_outputs ? n : 0;
    for (int32_t i = 0; i < n; i++) {
        const td_node *member = &graph->nodes[members[i]];
        const td_attr *own = td_attr_find(member->attrs, member->n_attrs, "rounding");
        rounding[i] = own && own->n_ints ? own->ints[0] : 0;
        for (int32_t k = 0; k < MIXED_INPUTS; k++)
            inputs[i * MIXED_INPUTS + k] = (td_value){graph, member->inputs[k]};
    }
    char *names = NULL, *name = td_format("%s+%d", first->name, n - 1);
    if (!name)
        return no_memory();
    td_status *status = list_names(c, members, n, &names);
    if (!status) {
        const td_attr attrs[] = {TD_STRING("rule", text_of(first, "rule")), TD_STRING("copy", text_of(first, "copy")),
                                 TD_INT("outputs", copies), TD_STRING("names", names),
                                 TD_INTS("rounding", rounding, n)};
        td_graph_add(graph, "update_mixed", name, inputs, n * MIXED_INPUTS, attrs, 5, outputs, copies);
        status = graph->failed ? td_graph_check(graph) : take_over(c, members, n);
    }
    td_free(name);
    td_free(names);
    return status;
}

static td_status *join_all(chunking *c)
{
    td_status *status = NULL;
    qsort_r(c->list, (size_t)c->n, sizeof *c->list, compare_members, c);
    for (int32_t begin = 0, end; begin < c->n && !status; begin = end) {
        for (end = begin + 1; end < c->n && end - begin < MOST_MEMBERS; end++)
            if (compare_kinds(c, c->list[begin], c->list[end]) != 0)
                break;
        if (end - begin > 1)
            status = join(c, c->list + begin, end - begin);
    }
    return status;
}

static td_status *collect(chunking *c)
{
    const int64_t n_nodes = c->graph->n_nodes, n_values = c->graph->n_values;
    TD_TRY(TD_NEW(c->list, n_nodes + 1));
    TD_TRY(TD_NEW(c->keep, 2 * n_nodes + 1)); /* each node may be replaced once, each value named again */
    TD_TRY(TD_NEW(c->keep_value, n_values + n_nodes + 1));
    memset(c->keep, 1, (size_t)n_nodes);
    memset(c->keep_value, 1, (size_t)n_values);
    for (int32_t n = 0; n < n_nodes; n++)
        if (strcmp(c->graph->nodes[n].op->name, "update_mixed") == 0 && c->graph->nodes[n].n_inputs == MIXED_INPUTS)
            c->list[c->n++] = n;
    return NULL;
}

td_status *td_pass_chunk(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    chunking c = {.plan = plan, .graph = plan->graph};
    td_status *status = collect(&c);
    plan->graph->phase = TD_UPDATE;
    if (!status && c.n > 1)
        status = join_all(&c);
    plan->graph->phase = TD_FORWARD;
    if (!status && c.n > 1)
        status = td_plan_compact(plan, c.keep, c.keep_value);
    td_free(c.list);
    td_free(c.keep);
    td_free(c.keep_value);
    return status;
}
