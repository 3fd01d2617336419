/* The independent look at a plan: see plan_check.h. */
#include "tests/support/plan_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* A relation as bits: row a, column b. */
typedef struct relation {
    uint64_t *bits;
    int64_t words;
    int32_t n;
} relation;

typedef struct checker {
    const td_plan *plan;
    const td_graph *graph;
    char *problem;
    bool good;
    relation edge;           /* between nodes: data, and readers of state before its writer */
    relation before;         /* between clusters, within a step: what the runtime waits for, closed */
    relation across;         /* cluster a of a step ends before cluster b of the next step begins */
    int32_t *memory;         /* of each value: the value whose memory it is */
    relation users, writers; /* rows: values with memory of their own; columns: nodes that touch it, that write it */
} checker;

static void complain(checker *c, const char *format, ...)
{
    va_list arguments;
    if (!c->good)
        return;
    c->good = false;
    va_start(arguments, format);
    (void)vsnprintf(c->problem, PLAN_PROBLEM_BYTES, format, arguments);
    va_end(arguments);
}

static bool relation_init(relation *r, int64_t rows, int64_t columns)
{
    r->n = (int32_t)rows;
    r->words = (columns + 63) / 64;
    r->bits = td_calloc((size_t)(rows * r->words) + 1, sizeof *r->bits);
    return r->bits != NULL;
}

static bool has(const relation *r, int32_t a, int32_t b)
{
    return r->bits[a * r->words + b / 64] >> (b % 64) & 1;
}

static void put(relation *r, int32_t a, int32_t b)
{
    r->bits[a * r->words + b / 64] |= 1ull << (b % 64);
}

static void join(relation *r, int32_t into, const relation *from, int32_t row)
{
    for (int64_t w = 0; w < r->words; w++)
        r->bits[into * r->words + w] |= from->bits[row * from->words + w];
}

/* Depth first from `a`; marks 1 on the way, 2 when done. False: there is a cycle. `closed` gets everything reached. */
static bool visit(const relation *r, relation *closed, char *mark, int32_t a)
{
    mark[a] = 1;
    for (int32_t b = 0; b < r->n; b++) {
        if (!has(r, a, b))
            continue;
        if (mark[b] == 1 || (mark[b] == 0 && !visit(r, closed, mark, b)))
            return false;
        put(closed, a, b);
        join(closed, a, closed, b);
    }
    mark[a] = 2;
    return true;
}

/* *closed: the transitive closure of r. False: r has a cycle (or there is no memory). */
static bool close_relation(const relation *r, relation *closed)
{
    char *mark = td_calloc((size_t)r->n + 1, 1);
    bool good = mark && relation_init(closed, r->n, r->n);
    for (int32_t a = 0; good && a < r->n; a++)
        good = mark[a] == 2 || visit(r, closed, mark, a);
    td_free(mark);
    return good;
}

/* ---- what the plan says ----------------------------------------------------------------------------------------------------- */

static bool is_view(const td_node *node)
{
    return node->op->flags & TD_OP_VIEW;
}

static const char *node_name(const checker *c, int32_t n)
{
    return c->graph->nodes[n].name;
}

static void find_memory(checker *c)
{
    for (int32_t v = 0; v < c->graph->n_values; v++) {
        int32_t root = v;
        for (int64_t steps = 0; c->plan->values[root].storage == TD_ALIAS && steps <= c->graph->n_values; steps++)
            root = c->plan->values[root].root;
        c->memory[v] = root;
        if (c->plan->values[root].storage == TD_ALIAS)
            complain(c, "\"%s\" is an alias of itself", c->graph->values[v].name);
    }
}

/* Data edges, and from everyone who reads a state's memory, through views too, to who writes it; the other way for those who declare
 * that they read what it leaves. */
static void find_edges(checker *c)
{
    const td_graph *graph = c->graph;
    for (int32_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++) {
            int32_t value = graph->nodes[n].inputs[i];
            if (value >= 0 && graph->values[value].producer >= 0)
                put(&c->edge, graph->values[value].producer, n);
        }
    for (int32_t writer = 0; writer < graph->n_nodes; writer++)
        for (int32_t k = 0; k < graph->nodes[writer].n_inputs; k++)
            for (int32_t n = 0; td_node_writes(&graph->nodes[writer], k) && n < graph->n_nodes; n++)
                for (int32_t i = 0; n != writer && i < graph->nodes[n].n_inputs; i++) {
                    int32_t value = graph->nodes[n].inputs[i];
                    if (value < 0 || c->memory[value] != c->memory[graph->nodes[writer].inputs[k]])
                        continue;
                    bool after = td_node_port(&graph->nodes[n], i)->flags & TD_PORT_AFTER;
                    put(&c->edge, after ? writer : n, after ? n : writer);
                }
}

static bool find_before(checker *c)
{
    relation direct = {0};
    bool good = relation_init(&direct, c->plan->n_clusters, c->plan->n_clusters);
    for (int32_t b = 0; good && b < c->plan->n_clusters; b++)
        for (int32_t i = 0; i < c->plan->clusters[b].n_before; i++)
            put(&direct, c->plan->clusters[b].before[i], b);
    good = good && close_relation(&direct, &c->before);
    td_free(direct.bits);
    return good;
}

static bool find_across(checker *c)
{
    int32_t n = c->plan->n_clusters;
    if (!relation_init(&c->across, n, n))
        return false;
    for (int32_t a = n - 1; a >= 0; a--)
        for (int32_t i = 0; i < c->plan->clusters[a].n_across; i++) {
            int32_t b = c->plan->clusters[a].across[i];
            put(&c->across, a, b);
            join(&c->across, a, &c->before, b);
        }
    for (int32_t a = 0; a < n; a++) /* whatever comes after a in this step may be what the next one waits for */
        for (int32_t b = 0; b < n; b++)
            for (int32_t i = 0; has(&c->before, a, b) && i < c->plan->clusters[b].n_across; i++) {
                put(&c->across, a, c->plan->clusters[b].across[i]);
                join(&c->across, a, &c->before, c->plan->clusters[b].across[i]);
            }
    return true;
}

/* Node a ends before node b begins, in one step, on whatever lanes they run. */
static bool happens_before(const checker *c, int32_t a, int32_t b)
{
    const td_plan_node *p = &c->plan->nodes[a], *q = &c->plan->nodes[b];
    return p->cluster == q->cluster ? p->position < q->position : has(&c->before, p->cluster, q->cluster);
}

/* ---- clusters ---------------------------------------------------------------------------------------------------------------- */

static void check_sequence(checker *c)
{
    const td_plan *plan = c->plan;
    int64_t n = c->graph->n_nodes;
    int32_t at = 0;
    char *seen = td_calloc((size_t)n + 1, 1);
    for (int32_t k = 0; seen && k < plan->n_clusters; at += plan->clusters[k++].n)
        for (int32_t i = 0; i < plan->clusters[k].n; i++) {
            int32_t node = at + i < n ? plan->sequence[at + i] : -1;
            const td_plan_node *p = node >= 0 && node < n ? &plan->nodes[node] : NULL;
            if (!p || seen[node]++)
                complain(c, "the sequence is no permutation of the nodes at %d", at + i);
            else if (plan->clusters[k].first != at || p->cluster != k || p->position != i)
                complain(c, "\"%s\" is not where its cluster says", node_name(c, node));
            else if (p->device != plan->clusters[k].device || p->lane != plan->clusters[k].lane)
                complain(c, "\"%s\" is in a cluster of another lane", node_name(c, node));
        }
    if (!seen || at != n)
        complain(c, "%d nodes are in clusters, the graph has %lld", at, (long long)n);
    td_free(seen);
}

static void check_edges(checker *c)
{
    for (int32_t a = 0; a < c->graph->n_nodes; a++)
        for (int32_t b = 0; b < c->graph->n_nodes; b++)
            if (has(&c->edge, a, b) && !happens_before(c, a, b))
                complain(c, "\"%s\" must end before \"%s\" begins", node_name(c, a), node_name(c, b));
}

/* A path that leaves a cluster at `x` and comes back would make it wait for itself. */
static void check_detour(checker *c, const relation *reach, char *reaches, int32_t x)
{
    memset(reaches, 0, (size_t)c->plan->n_clusters);
    for (int32_t a = 0; a < c->graph->n_nodes; a++)
        if (has(reach, a, x))
            reaches[c->plan->nodes[a].cluster] = 1;
    for (int32_t b = 0; b < c->graph->n_nodes; b++)
        if (has(reach, x, b) && reaches[c->plan->nodes[b].cluster] &&
            c->plan->nodes[b].cluster != c->plan->nodes[x].cluster)
            complain(c, "a path leaves the cluster of \"%s\" at \"%s\" and comes back", node_name(c, b),
                     node_name(c, x));
}

/* No cluster has a detour, and the quotient of the edges themselves has no cycle. */
static void check_convex(checker *c)
{
    relation reach = {0}, quotient = {0}, closed = {0};
    int64_t n = c->graph->n_nodes;
    char *reaches = td_calloc((size_t)c->plan->n_clusters + 1, 1);
    if (!close_relation(&c->edge, &reach))
        complain(c, "the graph has a cycle");
    if (c->good && (!reaches || !relation_init(&quotient, c->plan->n_clusters, c->plan->n_clusters)))
        complain(c, "no memory");
    for (int32_t a = 0; c->good && a < n; a++)
        for (int32_t b = 0; b < n; b++) {
            int32_t from = c->plan->nodes[a].cluster, to = c->plan->nodes[b].cluster;
            if (has(&c->edge, a, b) && from != to)
                put(&quotient, from, to);
        }
    for (int32_t x = 0; c->good && x < n; x++)
        check_detour(c, &reach, reaches, x);
    if (c->good && !close_relation(&quotient, &closed))
        complain(c, "the quotient of the clusters has a cycle");
    td_free(reaches);
    td_free(reach.bits);
    td_free(quotient.bits);
    td_free(closed.bits);
}

/* ---- copies -------------------------------------------------------------------------------------------------------------------- */

static bool is_copy(const checker *c, int32_t n)
{
    return c->plan->nodes[n].lane != TD_QUEUE_COMPUTE;
}

/* Host memory is one space, whatever number of sites it has; each accelerator has its own. */
static int32_t space_of(const checker *c, int32_t site)
{
    return site < 0 || c->plan->sites[site].is_host ? -1 : site;
}

static void check_reads(checker *c, int32_t n)
{
    const td_node *node = &c->graph->nodes[n];
    for (int32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        int32_t value = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        if (value < 0 || c->plan->values[value].device < 0 || is_copy(c, n))
            continue;
        if (space_of(c, c->plan->values[value].device) != space_of(c, c->plan->nodes[n].device))
            complain(c, "\"%s\" touches \"%s\" in another memory", node->name, c->graph->values[value].name);
    }
}

/* What a copied value is a copy of. */
static int32_t origin_of(const checker *c, int32_t value)
{
    int32_t producer = c->graph->values[value].producer;
    while (producer >= 0 && is_copy(c, producer)) {
        value = c->graph->nodes[producer].inputs[0];
        producer = c->graph->values[value].producer;
    }
    return value;
}

static bool is_read(const checker *c, int32_t value)
{
    for (int32_t n = 0; n < c->graph->n_nodes; n++)
        for (int32_t i = 0; i < c->graph->nodes[n].n_inputs; i++)
            if (c->graph->nodes[n].inputs[i] == value)
                return true;
    for (int32_t i = 0; i < c->plan->n_outputs; i++)
        if (c->plan->outputs[i] == value)
            return true;
    return c->plan->loss == value;
}

static void check_copies(checker *c)
{
    for (int32_t n = 0; n < c->graph->n_nodes; n++) {
        check_reads(c, n);
        if (!is_copy(c, n))
            continue;
        int32_t from = c->graph->nodes[n].inputs[0], to = td_copied_to(&c->graph->nodes[n]);
        int32_t from_space = space_of(c, c->plan->values[from].device),
                to_space = space_of(c, c->plan->values[to].device);
        td_queue_kind lane = to_space < 0 ? TD_QUEUE_TO_HOST : TD_QUEUE_TO_DEVICE;
        if (from_space == to_space || (from_space >= 0 && to_space >= 0) || c->plan->nodes[n].lane != lane)
            complain(c, "copy \"%s\" does not go between the host and an accelerator", node_name(c, n));
        if (!is_read(c, to))
            complain(c, "copy \"%s\" is of use to nobody", node_name(c, n));
        for (int32_t k = 0; k < n; k++)
            if (is_copy(c, k) && origin_of(c, to) == origin_of(c, td_copied_to(&c->graph->nodes[k])) &&
                space_of(c, c->plan->values[td_copied_to(&c->graph->nodes[k])].device) == to_space)
                complain(c, "\"%s\" and \"%s\" copy one value to one place", node_name(c, n), node_name(c, k));
    }
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------- */

/* Who touches the memory of each value, and who writes it. */
static bool find_users(checker *c)
{
    if (!relation_init(&c->users, c->graph->n_values, c->graph->n_nodes) ||
        !relation_init(&c->writers, c->graph->n_values, c->graph->n_nodes))
        return false;
    for (int32_t n = 0; n < c->graph->n_nodes; n++) {
        const td_node *node = &c->graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
            int32_t value = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
            if (value < 0)
                continue;
            put(&c->users, c->memory[value], n);
            if (i >= node->n_inputs ? !is_view(node) : td_node_writes(node, i))
                put(&c->writers, c->memory[value], n);
        }
    }
    return true;
}

static bool caller_reads(const checker *c, int32_t root)
{
    for (int32_t i = 0; i < c->plan->n_outputs; i++)
        if (c->memory[c->plan->outputs[i]] == root)
            return true;
    return c->plan->loss >= 0 && c->memory[c->plan->loss] == root;
}

/* All that touches a has ended before anything that touches b begins, and nobody looks at a afterwards. */
static bool gives_way(const checker *c, int32_t a, int32_t b)
{
    bool good = !caller_reads(c, a);
    for (int32_t x = 0; good && x < c->graph->n_nodes; x++)
        for (int32_t y = 0; good && has(&c->users, a, x) && y < c->graph->n_nodes; y++)
            good = !has(&c->users, b, y) || happens_before(c, x, y);
    return good;
}

static int64_t block_end(const td_plan_value *v)
{
    return v->offset + v->block_bytes * (v->doubled ? 2 : 1);
}

static bool in_arena(const checker *c, int32_t v)
{
    return c->plan->values[v].storage == TD_ARENA && c->plan->values[v].block_bytes > 0;
}

static void check_sharing(checker *c)
{
    for (int32_t a = 0; a < c->graph->n_values; a++)
        for (int32_t b = 0; in_arena(c, a) && b < a; b++) {
            const td_plan_value *x = &c->plan->values[a], *y = &c->plan->values[b];
            if (!in_arena(c, b) || x->device != y->device || x->offset >= block_end(y) || y->offset >= block_end(x))
                continue;
            if (x->doubled || y->doubled || (!gives_way(c, a, b) && !gives_way(c, b, a)))
                complain(c, "\"%s\" and \"%s\" share bytes but are in use at once", c->graph->values[a].name,
                         c->graph->values[b].name);
        }
}

/* The op that last wrote what a value is: its producer, or through views that of what they look at; -1: a source. */
static int32_t version_of(const checker *c, int32_t value)
{
    int32_t producer = c->graph->values[value].producer;
    while (producer >= 0 && is_view(&c->graph->nodes[producer])) {
        value = c->graph->nodes[producer].inputs[0];
        producer = c->graph->values[value].producer;
    }
    return producer;
}

/* Whether a value is what was there before `writer` wrote, not what it or a later one made. */
static bool is_older(const checker *c, int32_t value, int32_t writer)
{
    int32_t version = version_of(c, value);
    return version < 0 || (version != writer && !happens_before(c, writer, version));
}

static bool may_be_in_place(const td_node *node, int32_t output, const checker *c, int32_t root)
{
    for (int k = 0; k < 3 && node->op->in_place[k].output; k++)
        if (node->outputs[node->op->in_place[k].output - 1] == output &&
            node->inputs[node->op->in_place[k].input - 1] >= 0 &&
            c->memory[node->inputs[node->op->in_place[k].input - 1]] == root)
            return true;
    return false;
}

/* `writer` makes `output` in memory that was another value's: whoever reads an older version must have ended. */
static void check_in_place(checker *c, int32_t output)
{
    int32_t writer = c->graph->values[output].producer, root = c->memory[output];
    const td_node *node = &c->graph->nodes[writer];
    if (c->plan->values[root].storage != TD_ARENA || !may_be_in_place(node, output, c, root) ||
        c->plan->values[output].bytes[0] != c->plan->values[root].bytes[0])
        complain(c, "\"%s\" must not work in place", node->name);
    for (int32_t n = 0; n < c->graph->n_nodes; n++)
        for (int32_t i = 0; n != writer && i < c->graph->nodes[n].n_inputs; i++) {
            int32_t value = c->graph->nodes[n].inputs[i];
            if (value >= 0 && c->memory[value] == root && is_older(c, value, writer) && !happens_before(c, n, writer))
                complain(c, "\"%s\" overwrites \"%s\" while \"%s\" may read it", node->name,
                         c->graph->values[value].name, node_name(c, n));
        }
    for (int32_t i = 0; i <= c->plan->n_outputs; i++) {
        int32_t value = i < c->plan->n_outputs ? c->plan->outputs[i] : c->plan->loss;
        if (value >= 0 && c->memory[value] == root && is_older(c, value, writer))
            complain(c, "\"%s\" overwrites the output \"%s\"", node->name, c->graph->values[value].name);
    }
}

static void check_aliases(checker *c)
{
    for (int32_t v = 0; v < c->graph->n_values; v++) {
        int32_t producer = c->graph->values[v].producer;
        if (c->plan->values[v].storage == TD_ALIAS && producer >= 0 && !is_view(&c->graph->nodes[producer]))
            check_in_place(c, v);
    }
}

static void check_peaks(checker *c)
{
    for (int32_t s = 0; s < c->plan->n_sites; s++) {
        int64_t store = 0, end = 0, scratch = 0;
        for (int32_t v = 0; v < c->graph->n_values; v++) {
            const td_plan_value *value = &c->plan->values[v];
            if (value->device != s)
                continue;
            store += value->storage == TD_STORE ? value->block_bytes : 0;
            if (value->storage == TD_ARENA && (value->offset < 0 || value->offset % TD_ALIGNMENT))
                complain(c, "\"%s\" is not aligned", c->graph->values[v].name);
            end = value->storage == TD_ARENA && block_end(value) > end ? block_end(value) : end;
        }
        for (int32_t n = 0; n < c->graph->n_nodes; n++)
            if (c->plan->nodes[n].device == s && (int64_t)c->plan->nodes[n].scratch_bytes > scratch)
                scratch = (int64_t)c->plan->nodes[n].scratch_bytes;
        const td_plan_arena *arena = &c->plan->arenas[s];
        td_plan_device_summary summary = td_plan_device(c->plan, s);
        if (arena->store_bytes != store || arena->scratch_bytes < scratch ||
            arena->bytes < end + arena->scratch_bytes * c->plan->sites[s].lanes)
            complain(c, "the sums of %s are wrong", c->plan->sites[s].name);
        if (summary.peak_bytes != (uint64_t)(store + arena->bytes) ||
            (summary.capacity_bytes && summary.peak_bytes > summary.capacity_bytes))
            complain(c, "the peak of %s is beyond its memory, or no sum", c->plan->sites[s].name);
    }
}

/* ---- one step and the next -------------------------------------------------------------------------------------------------------- */

static bool is_shared_by_steps(const checker *c, int32_t root)
{
    const td_plan_value *v = &c->plan->values[root];
    return v->storage == TD_STORE || (v->storage == TD_ARENA && !v->doubled && v->block_bytes > 0);
}

static bool same_bytes(const checker *c, int32_t a, int32_t b)
{
    const td_plan_value *x = &c->plan->values[a], *y = &c->plan->values[b];
    return a == b || (in_arena(c, a) && in_arena(c, b) && x->device == y->device && x->offset < block_end(y) &&
                      y->offset < block_end(x));
}

/* Node x of a step, node y of the next: both touch these bytes and one of them writes. */
static void check_next_step(checker *c, int32_t a, int32_t b)
{
    for (int32_t x = 0; x < c->graph->n_nodes; x++)
        for (int32_t y = 0; has(&c->users, a, x) && y < c->graph->n_nodes; y++) {
            if (!has(&c->users, b, y) || (!has(&c->writers, a, x) && !has(&c->writers, b, y)))
                continue;
            bool early = c->plan->nodes[x].early == TD_EARLY_FIRST || c->plan->nodes[y].early == TD_EARLY_FIRST;
            if (early && c->plan->values[a].storage == TD_STORE)
                continue; /* reads rows that the other does not write */
            if (!has(&c->across, c->plan->nodes[x].cluster, c->plan->nodes[y].cluster))
                complain(c, "\"%s\" of the next step does not wait for \"%s\"", node_name(c, y), node_name(c, x));
        }
}

static void check_across(checker *c)
{
    for (int32_t a = 0; a < c->graph->n_values; a++)
        for (int32_t b = 0; c->memory[a] == a && is_shared_by_steps(c, a) && b < c->graph->n_values; b++)
            if (c->memory[b] == b && is_shared_by_steps(c, b) && same_bytes(c, a, b))
                check_next_step(c, a, b);
    for (int32_t v = 0; v < c->graph->n_values; v++)
        if (c->memory[v] == v && caller_reads(c, v) && !c->plan->values[v].doubled)
            complain(c, "\"%s\" is read by the caller while the next step may make it again", c->graph->values[v].name);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------- */

bool plan_check(const td_plan *plan, char problem[PLAN_PROBLEM_BYTES])
{
    checker c = {.plan = plan, .graph = plan->graph, .problem = problem, .good = true};
    problem[0] = '\0';
    c.memory = td_calloc((size_t)plan->graph->n_values + 1, sizeof *c.memory);
    if (!c.memory || !relation_init(&c.edge, plan->graph->n_nodes, plan->graph->n_nodes))
        complain(&c, "no memory");
    if (c.good)
        check_sequence(&c);
    if (c.good)
        find_memory(&c);
    if (c.good && !find_before(&c))
        complain(&c, "what clusters wait for has a cycle");
    if (c.good && !find_users(&c))
        complain(&c, "no memory");
    if (c.good) {
        find_edges(&c);
        check_edges(&c);
        check_convex(&c);
        check_copies(&c);
        check_sharing(&c);
        check_aliases(&c);
        check_peaks(&c);
    }
    if (c.good && plan->pipelined && !find_across(&c))
        complain(&c, "no memory");
    if (c.good && plan->pipelined)
        check_across(&c);
    td_free(c.memory);
    td_free(c.edge.bits);
    td_free(c.before.bits);
    td_free(c.across.bits);
    td_free(c.users.bits);
    td_free(c.writers.bits);
    return c.good;
}
