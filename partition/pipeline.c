/* Pass: what consecutive steps do to the same bytes.
 *
 * Steps overlap by true dependencies: a cluster of the next step waits for those of this one that touch what it touches, one
 * of the two writing (state, or a block of the arena that is not doubled), and each cluster for itself. Nothing else holds a
 * step back.
 *
 * Only waits that others do not imply are kept, so that their number grows with the plan. Of a state: its writer comes after
 * its readers within a step, so readers of the next step wait for the writer, and the writer for itself; and for the few that read
 * what it has written. Of a byte of an
 * arena: the blocks that hold it follow each other within a step, so the maker of the first waits for the users of the last.
 *
 * Where windows have several micro-batches, each of them is such a step, and there are two sets of waits: after one that ends
 * its window, and after one that does not, where nothing that runs once a window has touched anything. Whoever runs once may
 * run in the next, so it still waits like everybody. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

/* What a cluster does to memory that outlives the step's own order: for each root it touches. */
typedef struct touch {
    int32_t root, cluster;
    bool writes;
} touch;

/* Cluster `to` of the next step waits for `from` of this one. */
typedef struct wait {
    int32_t from, to;
} wait;

typedef struct work {
    td_plan *plan;
    bool within; /* after a micro-batch that does not end its window: what runs once a window has not run */
    touch *touches;
    int64_t n_touches;
    int32_t *first; /* touches of root v: first[v] .. first[v + 1] */
    wait *waits;
    int64_t n_waits, waits_capacity;
} work;

static td_status *add_wait(work *w, int32_t from, int32_t to)
{
    TD_TRY(td_grow(&w->waits, &w->waits_capacity, w->n_waits, sizeof *w->waits));
    w->waits[w->n_waits++] = (wait){from, to};
    return NULL;
}

/* ---- who touches what ------------------------------------------------------------------------------------------------------ */

static int compare_touches(const void *a, const void *b)
{
    const touch *x = a, *y = b;
    if (x->root != y->root)
        return x->root < y->root ? -1 : 1;
    if (x->cluster != y->cluster)
        return x->cluster < y->cluster ? -1 : 1;
    return (int)y->writes - (int)x->writes;
}

/* One touch per root and cluster, the writing one if there is one. */
static int64_t distinct_touches(touch *touches, int64_t n)
{
    int64_t kept = 0;
    qsort(touches, (size_t)n, sizeof *touches, compare_touches);
    for (int64_t i = 0; i < n; i++)
        if (!kept || touches[kept - 1].root != touches[i].root || touches[kept - 1].cluster != touches[i].cluster)
            touches[kept++] = touches[i];
    return kept;
}

static int64_t collect_touches(const td_plan *plan, bool within, touch *touches)
{
    int64_t n = 0;
    for (int32_t i = 0; i < plan->graph->n_nodes; i++) {
        const td_node *node = &plan->graph->nodes[i];
        if (within && plan->nodes[i].once)
            continue;
        for (int32_t k = 0; k < node->n_inputs + node->n_outputs; k++) {
            int32_t value = k < node->n_inputs ? node->inputs[k] : node->outputs[k - node->n_inputs];
            if (value < 0)
                continue;
            int32_t root = td_plan_root(plan, value);
            bool writes = k >= node->n_inputs || td_node_writes(node, k);
            if (plan->values[root].doubled || plan->values[root].storage == TD_BOUND ||
                plan->values[root].storage == TD_NUMBERS || plan->values[root].storage == TD_PREVIOUS)
                continue;
            if (plan->nodes[i].early == TD_EARLY_FIRST && plan->values[root].storage == TD_STORE)
                continue; /* reads rows that the update of the step before does not write */
            touches[n++] = (touch){root, plan->nodes[i].cluster, writes};
        }
    }
    return n;
}

static td_status *find_touches(work *w)
{
    const td_graph *graph = w->plan->graph;
    int64_t most = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++)
        most += graph->nodes[i].n_inputs + graph->nodes[i].n_outputs;
    TD_TRY(TD_NEW(w->touches, most + 1));
    TD_TRY(TD_NEW(w->first, graph->n_values + 2));
    w->n_touches = distinct_touches(w->touches, collect_touches(w->plan, w->within, w->touches));
    for (int64_t i = 0; i < w->n_touches; i++)
        w->first[w->touches[i].root + 1]++;
    for (int64_t v = 0; v < graph->n_values; v++)
        w->first[v + 1] += w->first[v];
    return NULL;
}

/* ---- state ----------------------------------------------------------------------------------------------------------------- */

static td_status *wait_for_writers(work *w)
{
    for (int32_t v = 0; v < w->plan->graph->n_values; v++) {
        int32_t writer = -1, last = -1; /* the same, but where an early step is settled */
        if (w->plan->values[v].storage != TD_STORE)
            continue;
        for (int32_t i = w->first[v]; i < w->first[v + 1]; i++) {
            const int32_t cluster = w->touches[i].cluster;
            if (!w->touches[i].writes)
                continue;
            if (writer < 0 || td_cluster_reaches(w->plan, cluster, writer))
                writer = cluster;
            if (last < 0 || td_cluster_reaches(w->plan, last, cluster))
                last = cluster;
        }
        for (int32_t i = w->first[v]; writer >= 0 && i < w->first[v + 1]; i++) {
            TD_TRY(add_wait(w, last, w->touches[i].cluster));
            if (td_cluster_reaches(w->plan, last, w->touches[i].cluster))
                TD_TRY(add_wait(w, w->touches[i].cluster, writer));
        }
    }
    return NULL;
}

/* What the window before left is not applied in a window that is lost already: its last micro-batch waits for the loss of the one
 * before and looks at it (runtime/lanes.c), and the loss of the next one, which may lie there, waits for that. */
static td_status *wait_for_loss(work *w)
{
    const td_plan *plan = w->plan;
    const int32_t loss = plan->nodes[plan->graph->values[plan->loss].producer].cluster;
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        if (!plan->graph->nodes[n].delayed)
            continue;
        TD_TRY(add_wait(w, plan->nodes[n].cluster, loss));
        if (w->within)
            TD_TRY(add_wait(w, loss, plan->nodes[n].cluster));
    }
    return NULL;
}

/* Buckets leave in turn, of one micro-batch after another: whoever takes them away (runtime/remote.h) has one at a time. Within
 * a micro-batch each waits for the word of the one before (graph/ops/rank_sum.c). */
static td_status *wait_for_buckets(work *w)
{
    const td_graph *graph = w->plan->graph;
    int32_t first = -1, last = -1;
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        const int32_t cluster = w->plan->nodes[n].cluster;
        if (strcmp(node->op->name, "rank_send") != 0)
            continue;
        first = node->inputs[0] < 0 ? cluster : first;
        last = last < 0 || td_cluster_reaches(w->plan, last, cluster) ? cluster : last;
    }
    return last < 0 ? NULL : add_wait(w, last, first);
}

/* ---- arenas ---------------------------------------------------------------------------------------------------------------- */

/* A block, by the place of its maker: its subgraph's in a topological order, which knows of waits beyond the graph's edges too
 * (slots.c), then its own there. */
typedef struct span {
    int32_t root, order, position;
    bool once;
    int64_t begin, end;
} span;

/* The bytes of an arena between neighbouring edges of blocks: which block holds them first and last in a step. */
typedef struct strips {
    int64_t *edges, n_edges;
    int32_t *unpainted; /* of each strip: the next from it on that has no block yet, as a forest */
    int32_t *block[2];  /* first, last; -1: none */
} strips;

static void strips_deinit(strips *s)
{
    td_free(s->edges);
    td_free(s->unpainted);
    td_free(s->block[0]);
    td_free(s->block[1]);
}

static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

static int compare_edges(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int64_t collect_spans(const td_plan *plan, int32_t site, span *spans)
{
    int64_t n = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        if (value->storage != TD_ARENA || value->device != site || value->doubled || !value->block_bytes)
            continue;
        const td_plan_node *maker = &plan->nodes[plan->graph->values[v].producer];
        spans[n++] = (span){v,
                            plan->chains[maker->cluster].order,
                            maker->position,
                            maker->once,
                            value->offset,
                            value->offset + value->block_bytes};
    }
    qsort(spans, (size_t)n, sizeof *spans, compare_spans);
    return n;
}

static td_status *strips_init(strips *s, const span *spans, int64_t n)
{
    TD_TRY(TD_NEW(s->edges, 2 * n + 1));
    TD_TRY(TD_NEW(s->unpainted, 2 * n + 1));
    for (int k = 0; k < 2; k++)
        TD_TRY(TD_NEW(s->block[k], 2 * n + 1));
    for (int64_t i = 0; i < n; i++) {
        s->edges[2 * i] = spans[i].begin;
        s->edges[2 * i + 1] = spans[i].end;
    }
    qsort(s->edges, (size_t)(2 * n), sizeof *s->edges, compare_edges);
    for (int64_t i = 0; i < 2 * n; i++)
        if (!s->n_edges || s->edges[i] != s->edges[s->n_edges - 1])
            s->edges[s->n_edges++] = s->edges[i];
    return NULL;
}

static int32_t next_unpainted(strips *s, int32_t strip)
{
    while (s->unpainted[strip] != strip) {
        s->unpainted[strip] = s->unpainted[s->unpainted[strip]];
        strip = s->unpainted[strip];
    }
    return strip;
}

static int32_t strip_at(const strips *s, int64_t offset)
{
    const int64_t *found = bsearch(&offset, s->edges, (size_t)s->n_edges, sizeof offset, compare_edges);
    return (int32_t)(found - s->edges);
}

/* Blocks in the order of making (`which` 0) or backwards (1): each takes the strips that none has taken before. `within`: but
 * for those made once a window. */
static void paint(strips *s, const span *spans, int64_t n, int which, bool within)
{
    for (int32_t i = 0; i < s->n_edges; i++) {
        s->unpainted[i] = i;
        s->block[which][i] = -1;
    }
    for (int64_t i = 0; i < n; i++) {
        const span *b = &spans[which ? n - 1 - i : i];
        if (within && b->once)
            continue;
        int32_t end = strip_at(s, b->end);
        for (int32_t k = next_unpainted(s, strip_at(s, b->begin)); k < end; k = next_unpainted(s, k)) {
            s->block[which][k] = b->root;
            s->unpainted[k] = k + 1;
        }
    }
}

static td_status *wait_for_users(work *w, int32_t first, int32_t last)
{
    const td_plan *plan = w->plan;
    int32_t maker = plan->nodes[plan->graph->values[first].producer].cluster;
    for (int32_t i = w->first[last]; i < w->first[last + 1]; i++)
        TD_TRY(add_wait(w, w->touches[i].cluster, maker));
    return NULL;
}

static td_status *wait_for_bytes(work *w, int32_t site)
{
    span *spans = NULL;
    strips s = {0};
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(spans, w->plan->graph->n_values + 1));
    int64_t n = collect_spans(w->plan, site, spans);
    TD_TRY_OR(status, done, strips_init(&s, spans, n));
    paint(&s, spans, n, 0, false);
    paint(&s, spans, n, 1, w->within);
    for (int32_t i = 0; i < s.n_edges; i++) {
        bool again = i && s.block[0][i] == s.block[0][i - 1] && s.block[1][i] == s.block[1][i - 1];
        if (s.block[0][i] >= 0 && s.block[1][i] >= 0 && !again)
            TD_TRY_OR(status, done, wait_for_users(w, s.block[0][i], s.block[1][i]));
    }
done:
    strips_deinit(&s);
    td_free(spans);
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------- */

static int compare_waits(const void *a, const void *b)
{
    const wait *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static td_status *link_clusters(work *w)
{
    td_plan *plan = w->plan;
    qsort(w->waits, (size_t)w->n_waits, sizeof *w->waits, compare_waits);
    for (int64_t begin = 0, end; begin < w->n_waits; begin = end) {
        td_cluster *cluster = &plan->clusters[w->waits[begin].from];
        int32_t *to = NULL, n = 0;
        for (end = begin + 1; end < w->n_waits && w->waits[end].from == w->waits[begin].from; end++)
            ;
        TD_TRY(TD_NEW(to, end - begin));
        for (int64_t i = begin; i < end; i++)
            if (i == begin || w->waits[i].to != w->waits[i - 1].to)
                to[n++] = w->waits[i].to;
        *(w->within ? &cluster->within : &cluster->across) = to;
        *(w->within ? &cluster->n_within : &cluster->n_across) = n;
    }
    return NULL;
}

static td_status *find_waits(td_plan *plan, bool within)
{
    work w = {.plan = plan, .within = within};
    td_status *status = NULL;
    TD_TRY_OR(status, done, find_touches(&w));
    TD_TRY_OR(status, done, wait_for_writers(&w));
    if (plan->micro >= 0 && plan->delayed)
        TD_TRY_OR(status, done, wait_for_loss(&w));
    TD_TRY_OR(status, done, wait_for_buckets(&w));
    for (int32_t s = 0; s < plan->n_sites; s++)
        TD_TRY_OR(status, done, wait_for_bytes(&w, s));
    for (int32_t c = 0; c < plan->n_clusters; c++)
        TD_TRY_OR(status, done, add_wait(&w, c, c));
    status = link_clusters(&w);
done:
    td_free(w.touches);
    td_free(w.first);
    td_free(w.waits);
    return status;
}

td_status *td_pass_pipeline(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    if (!plan->pipelined)
        return NULL;
    TD_TRY(find_waits(plan, false));
    return plan->micro >= 0 ? find_waits(plan, true) : NULL;
}
