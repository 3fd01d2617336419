/* Topological orders that do not depend on the order in which nodes were made: Kahn's algorithm over data edges and state
 * order, always taking the ready node with the smallest name.
 *
 * State order comes from declared reads and writes: whoever reads a parameter or state runs before the one op that writes
 * it (the update), unless it declares that it reads what that op leaves (TD_PORT_AFTER); two writers of one state have no
 * order, so they are an error. But one op may write what the writer has left (both flags: settle_update, rank_gather); whoever reads
 * after the writer then reads after that one. Where nothing else writes, it is the writer. In a plan every update also follows the loss, and a node that is to run late follows the value that
 * it names (td_node.after). */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "graph/op.h"

const td_port *td_node_port(const td_node *node, int32_t input)
{
    return td_op_port(node->op, input);
}

bool td_node_writes(const td_node *node, int32_t input)
{
    return node->inputs[input] >= 0 && td_node_port(node, input)->flags & TD_PORT_WRITES;
}

/* writer[v]: the node that writes state v, or -1. last[v]: the one that writes what it has left, or the same. */
static td_status *find_writers(const td_graph *graph, int32_t *writer, int32_t *last)
{
    memset(writer, 0xff, (size_t)graph->n_values * sizeof *writer);
    memset(last, 0xff, (size_t)graph->n_values * sizeof *last);
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs; i++) {
            if (!td_node_writes(node, i))
                continue;
            const int32_t value = td_graph_behind_views(graph, node->inputs[i]);
            int32_t *mine = td_node_port(node, i)->flags & TD_PORT_AFTER ? &last[value] : &writer[value];
            if (*mine >= 0 && *mine != n)
                return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\" and \"%s\" both write \"%s\": state has one writer a step",
                                graph->nodes[*mine].name, node->name, graph->values[value].name);
            *mine = n;
        }
    }
    for (int64_t v = 0; v < graph->n_values; v++) {
        writer[v] = writer[v] < 0 ? last[v] : writer[v];
        last[v] = last[v] < 0 ? writer[v] : last[v];
    }
    return NULL;
}

int32_t td_graph_behind_views(const td_graph *graph, int32_t value)
{
    int32_t producer = graph->values[value].producer;
    while (producer >= 0 && graph->nodes[producer].op->flags & TD_OP_VIEW) {
        value = graph->nodes[producer].inputs[0];
        producer = graph->values[value].producer;
    }
    return value;
}

typedef struct edge_sink {
    td_edges *edges;
    int32_t *fill; /* NULL: only count */
    int64_t count;
} edge_sink;

static void add_edge(edge_sink *sink, int32_t from, int32_t to)
{
    if (from < 0 || to < 0 || from == to)
        return;
    sink->count++;
    if (!sink->fill) {
        sink->edges->first[from + 1]++;
        return;
    }
    sink->edges->to[sink->fill[from]++] = to;
    sink->edges->indegree[to]++;
}

/* td_graph_behind_views, remembered in behind[] (-1: not known yet): chains of views cost their length once. */
static int32_t memory_of(const td_graph *graph, int32_t *behind, int32_t value)
{
    int32_t root = value;
    while (behind[root] < 0) {
        int32_t producer = graph->values[root].producer;
        if (producer >= 0 && graph->nodes[producer].op->flags & TD_OP_VIEW)
            root = graph->nodes[producer].inputs[0];
        else
            behind[root] = root;
    }
    root = behind[root];
    while (behind[value] < 0) {
        behind[value] = root;
        value = graph->nodes[graph->values[value].producer].inputs[0];
    }
    return root;
}

/* Counts the edges of each node into e->first[node + 1]; with `fill`, stores them. Returns how many there are. A view of a
 * state is the state's memory, so who reads the view reads the state. */
static int64_t each_edge(const td_graph *graph, const int32_t *writer, const int32_t *last, int32_t *behind,
                         td_edges *e, int32_t *fill)
{
    edge_sink sink = {.edges = e, .fill = fill};
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i] < 0)
                continue;
            const int32_t state = memory_of(graph, behind, node->inputs[i]);
            const bool after = td_node_port(node, i)->flags & TD_PORT_AFTER;
            add_edge(&sink, graph->values[node->inputs[i]].producer, n);
            if (!after)
                add_edge(&sink, n, writer[state]);
            else
                add_edge(&sink, last[state] == n ? writer[state] : last[state], n);
        }
        if (node->after >= 0)
            add_edge(&sink, graph->values[node->after].producer, n);
        if (graph->gated && node->phase == TD_UPDATE && !node->delayed && !node->speculates)
            add_edge(&sink, graph->values[graph->gate].producer, n);
        if (graph->gated && graph->sum_gate >= 0 && node->op->flags & TD_OP_KEEPS)
            add_edge(&sink, graph->values[graph->sum_gate].producer, n);
    }
    return sink.count;
}

/* ---- a heap of nodes by name rank --------------------------------------------------------------------------------------------- */

typedef struct heap {
    int32_t *items;
    int32_t n;
    const int32_t *rank;
} heap;

static void heap_push(heap *h, int32_t item)
{
    int32_t i = h->n++;
    for (; i > 0 && h->rank[h->items[(i - 1) / 2]] > h->rank[item]; i = (i - 1) / 2)
        h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = item;
}

static int32_t heap_pop(heap *h)
{
    int32_t top = h->items[0], item = h->items[--h->n], i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child + 1 < h->n && h->rank[h->items[child + 1]] < h->rank[h->items[child]])
            child++;
        if (child >= h->n || h->rank[h->items[child]] >= h->rank[item])
            break;
        h->items[i] = h->items[child];
        i = child;
    }
    h->items[i] = item;
    return top;
}

static int compare_names(const void *a, const void *b, void *context)
{
    const td_graph *graph = context;
    return strcmp(graph->nodes[*(const int32_t *)a].name, graph->nodes[*(const int32_t *)b].name);
}

td_status *td_graph_name_ranks(const td_graph *graph, int32_t **out_rank)
{
    int32_t *rank = NULL, *sorted = NULL;
    *out_rank = NULL;
    TD_TRY(TD_NEW(rank, graph->n_nodes + 1));
    td_status *status = TD_NEW(sorted, graph->n_nodes + 1);
    if (status) {
        td_free(rank);
        return status;
    }
    for (int32_t i = 0; i < graph->n_nodes; i++)
        sorted[i] = i;
    qsort_r(sorted, (size_t)graph->n_nodes, sizeof *sorted, compare_names, (void *)(uintptr_t)graph);
    for (int32_t i = 0; i < graph->n_nodes; i++)
        rank[sorted[i]] = i;
    td_free(sorted);
    *out_rank = rank;
    return NULL;
}

/* Names the ops of one cycle: every op that is left waits for another one that is left, so going back from any of them must
 * come round. */
static td_status *refuse_cycle(const td_graph *graph, const td_edges *e)
{
    enum { MOST = 10 };
    int32_t n = (int32_t)graph->n_nodes, at = 0, named = 0, *before = NULL;
    char *text = NULL;
    td_string names = {0};
    TD_TRY(TD_NEW(before, n + 1));
    for (int32_t a = 0; a < n; a++)
        for (int32_t k = e->first[a]; e->indegree[a] > 0 && k < e->first[a + 1]; k++)
            before[e->to[k]] = a + 1;
    while (e->indegree[at] == 0)
        at++;
    for (int32_t steps = 0; steps < n; steps++) /* by then it goes round */
        at = before[at] - 1;
    int32_t begin = at;
    do {
        td_string_format(&names, "\"%s\" waits for ", graph->nodes[at].name);
        at = before[at] - 1;
    } while (at != begin && ++named < MOST);
    td_free(before);
    td_string_format(&names, "%s\"%s\"", at == begin ? "" : "... ", graph->nodes[begin].name);
    TD_TRY(td_string_finish(&names, &text));
    td_status *status = TD_ERROR(TD_INVALID_ARGUMENT,
                                 "the graph has a cycle: %s (through values, or state that is read before it is "
                                 "written); cut it at one of them",
                                 text);
    td_free(text);
    return status;
}

static td_status *kahn(const td_graph *graph, td_edges *e, heap *h, int32_t *order)
{
    int32_t n = (int32_t)graph->n_nodes, done = 0;
    for (int32_t i = 0; i < n; i++)
        if (e->indegree[i] == 0)
            heap_push(h, i);
    while (h->n) {
        int32_t node = heap_pop(h);
        order[done++] = node;
        for (int32_t k = e->first[node]; k < e->first[node + 1]; k++)
            if (--e->indegree[e->to[k]] == 0)
                heap_push(h, e->to[k]);
    }
    return done == n ? NULL : refuse_cycle(graph, e);
}

void td_edges_deinit(td_edges *edges)
{
    td_free(edges->first);
    td_free(edges->to);
    td_free(edges->indegree);
    *edges = (td_edges){0};
}

td_status *td_graph_edges(const td_graph *graph, td_edges *out_edges)
{
    td_status *status = NULL;
    int32_t *writer = NULL, *last = NULL, *fill = NULL, *behind = NULL;
    int64_t n = graph->n_nodes;
    *out_edges = (td_edges){0};
    TD_TRY_OR(status, done, TD_NEW(writer, graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(last, graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(fill, n + 1));
    TD_TRY_OR(status, done, TD_NEW(behind, graph->n_values + 1));
    memset(behind, 0xff, (size_t)graph->n_values * sizeof *behind);
    TD_TRY_OR(status, done, TD_NEW(out_edges->first, n + 2));
    TD_TRY_OR(status, done, TD_NEW(out_edges->indegree, n + 1));
    TD_TRY_OR(status, done, find_writers(graph, writer, last));
    int64_t count = each_edge(graph, writer, last, behind, out_edges, NULL);
    TD_TRY_OR(status, done, TD_NEW(out_edges->to, count + 1));
    for (int64_t i = 0; i < n; i++) {
        out_edges->first[i + 1] += out_edges->first[i];
        fill[i] = out_edges->first[i];
    }
    (void)each_edge(graph, writer, last, behind, out_edges, fill);
done:
    td_free(writer);
    td_free(last);
    td_free(fill);
    td_free(behind);
    if (status)
        td_edges_deinit(out_edges);
    return status;
}

td_status *td_graph_order(const td_graph *graph, int32_t **out_order)
{
    td_status *status = NULL;
    td_edges edges = {0};
    heap h = {0};
    int32_t *rank = NULL, *order = NULL;
    *out_order = NULL;
    TD_TRY_OR(status, done, TD_NEW(order, graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(h.items, graph->n_nodes + 1));
    TD_TRY_OR(status, done, td_graph_name_ranks(graph, &rank));
    TD_TRY_OR(status, done, td_graph_edges(graph, &edges));
    h.rank = rank;
    TD_TRY_OR(status, done, kahn(graph, &edges, &h, order));
    *out_order = order;
    order = NULL;
done:
    td_free(rank);
    td_free(order);
    td_free(h.items);
    td_edges_deinit(&edges);
    return status;
}
