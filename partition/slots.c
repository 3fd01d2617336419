/* Pass: what an offloaded optimizer has in flight is bounded by a fixed number of slots.
 *
 *     device        g1  g2  g3  g4  g5          gradients of bucket k + SLOTS are made when the copy of bucket k is over,
 *     to the host       c1  c2  c3  c4          it lands when what the host does with bucket k is,
 *     host                  u1  u2  u3          and the update of bucket k + SLOTS is made when the parameters of k have left
 *     to the device             r1  r2
 *
 * Each is one more thing that a subgraph waits for. All keep to one order, in which devices go on only when nothing else can, so no
 * cycle can arise; where that order has an end after the beginning that is to wait for it (all gradients must be there before a
 * clipped update, say), that kind is not bounded, and as many slots are used as there are buckets. On the host, slots have fixed places
 * at the beginning of its arena (memory.c), so their bytes are what the plan says. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/cluster.h"

enum { SLOTS = 4 };

typedef struct slotting {
    td_plan *plan;
    int32_t *position;       /* of each cluster in the one order */
    int32_t *first, *reader; /* readers of value v: nodes reader[first[v]] .. reader[first[v + 1] - 1] */
    int32_t *list, n;        /* clusters that make values of a kind, by position: a bucket each */
    int32_t *bucket;         /* of each of those clusters: its place in the list */
    int64_t *bytes;          /* of each bucket */
    int32_t *values;         /* room for all values */
    td_cluster_pair *pairs;
    int64_t n_pairs, capacity;
} slotting;

/* ---- the one order --------------------------------------------------------------------------------------------------------- */

enum { RETURNING, LEAVING, UPDATING, COMPUTING, KINDS };

static int32_t kind_of(const td_plan *plan, int32_t cluster)
{
    const td_cluster *c = &plan->clusters[cluster];
    if (c->lane == TD_QUEUE_COMPUTE)
        return plan->sites[c->device].is_host ? UPDATING : COMPUTING;
    return c->lane == TD_QUEUE_TO_HOST ? LEAVING : RETURNING;
}

/* Kahn's algorithm with a queue for each kind: room for all clusters each. */
static td_status *find_positions(slotting *s)
{
    const td_plan *plan = s->plan;
    int32_t n = plan->n_clusters, *queues = NULL, *waiting = NULL, begin[KINDS] = {0}, end[KINDS] = {0};
    TD_TRY(TD_NEW(waiting, n + 1));
    td_status *status = TD_NEW(queues, (int64_t)n * KINDS + 1);
    for (int32_t c = 0; c < n && !status; c++) {
        int32_t kind = kind_of(plan, c);
        waiting[c] = plan->clusters[c].n_before;
        if (!waiting[c])
            queues[kind * n + end[kind]++] = c;
    }
    for (int32_t at = 0; at < n && !status; at++) {
        int32_t kind = 0;
        while (kind < KINDS - 1 && begin[kind] == end[kind])
            kind++;
        const int32_t c = queues[kind * n + begin[kind]++];
        s->position[c] = at;
        for (int32_t k = 0; k < plan->clusters[c].n_after; k++) {
            const int32_t next = plan->clusters[c].after[k], to = kind_of(plan, next);
            if (--waiting[next] == 0)
                queues[to * n + end[to]++] = next;
        }
    }
    td_free(waiting);
    td_free(queues);
    return status;
}

static td_status *find_readers(slotting *s)
{
    const td_graph *graph = s->plan->graph;
    int64_t inputs = 0;
    TD_TRY(TD_NEW(s->first, graph->n_values + 2));
    for (int32_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++, inputs++)
            if (graph->nodes[n].inputs[i] >= 0)
                s->first[graph->nodes[n].inputs[i] + 2]++;
    TD_TRY(TD_NEW(s->reader, inputs + 1));
    for (int64_t v = 1; v < graph->n_values; v++)
        s->first[v + 1] += s->first[v];
    for (int32_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] >= 0)
                s->reader[s->first[graph->nodes[n].inputs[i] + 1]++] = n;
    return NULL;
}

/* ---- what is in slots -------------------------------------------------------------------------------------------------------- */

/* The host ops that read a gradient which has crossed and keep nothing of it. */
static bool takes_up(const td_node *node)
{
    static const char *const ops[] = {"update_mixed",       "accumulate",   "accumulate_replicas", "gradient_squares",
                                      "gradient_nonfinite", "early_update", "settle_update"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(node->op->name, ops[i]) == 0)
            return true;
    return false;
}

/* A gradient of an offloaded parameter that has crossed to the host. */
static bool is_landed(const slotting *s, int32_t value)
{
    const td_graph *graph = s->plan->graph;
    const int32_t producer = graph->values[value].producer;
    bool applied = false;
    if (producer < 0 || s->plan->nodes[producer].lane != TD_QUEUE_TO_HOST || graph->values[value].kind != TD_DENSE)
        return false;
    for (int32_t k = s->first[value]; k < s->first[value + 1]; k++) {
        const td_node *reader = &graph->nodes[s->reader[k]];
        if (!takes_up(reader))
            return false;
        applied = applied || reader->phase == TD_UPDATE || reader->op->flags & TD_OP_KEEPS;
    }
    for (int32_t i = 0; i < s->plan->n_outputs; i++)
        applied = applied && s->plan->outputs[i] != value;
    return applied;
}

/* A parameter in 16 bit on its way back. */
static bool is_copied_out(const slotting *s, int32_t value)
{
    const td_value_info *info = &s->plan->graph->values[value];
    return info->class == TD_CLASS_STAGING && info->parameter >= 0 && info->producer >= 0 &&
           s->plan->graph->nodes[info->producer].phase == TD_UPDATE && s->first[value] < s->first[value + 1];
}

typedef bool (*slotted_fn)(const slotting *s, int32_t value);

static int64_t bytes_of(const slotting *s, int32_t value)
{
    int64_t bytes[3];
    td_value_bytes(s->plan->graph, value, NULL, bytes);
    return td_plan_align(bytes[0]);
}

static int compare_positions(const void *a, const void *b, void *context)
{
    const slotting *s = context;
    return s->position[*(const int32_t *)a] - s->position[*(const int32_t *)b];
}

static int32_t maker_of(const slotting *s, int32_t value)
{
    return s->plan->nodes[s->plan->graph->values[value].producer].cluster;
}

static void list_buckets(slotting *s, slotted_fn slotted)
{
    int32_t kept = 0;
    s->n = 0;
    for (int32_t v = 0; v < s->plan->graph->n_values; v++)
        if (slotted(s, v))
            s->list[s->n++] = maker_of(s, v);
    qsort_r(s->list, (size_t)s->n, sizeof *s->list, compare_positions, s);
    for (int32_t i = 0; i < s->n; i++)
        if (!kept || s->list[kept - 1] != s->list[i])
            s->list[kept++] = s->list[i];
    s->n = kept;
    for (int32_t b = 0; b < s->n; b++) {
        s->bucket[s->list[b]] = b;
        s->bytes[b] = 0;
    }
    for (int32_t v = 0; v < s->plan->graph->n_values; v++)
        if (slotted(s, v))
            s->bytes[s->bucket[maker_of(s, v)]] += bytes_of(s, v);
}

/* ---- bounding a kind ------------------------------------------------------------------------------------------------------- */

static td_status *add_pair(slotting *s, int32_t from, int32_t to)
{
    TD_TRY(td_grow(&s->pairs, &s->capacity, s->n_pairs, sizeof *s->pairs));
    s->pairs[s->n_pairs++] = (td_cluster_pair){from, to};
    return NULL;
}

/* *out_bounded: each bucket waits for whoever reads what was in its slot before. */
static td_status *wait_for_slots(slotting *s, slotted_fn slotted, bool *out_bounded)
{
    const int64_t before = s->n_pairs;
    *out_bounded = true;
    for (int32_t v = 0; v < s->plan->graph->n_values && *out_bounded; v++) {
        if (!slotted(s, v) || s->bucket[maker_of(s, v)] + SLOTS >= s->n)
            continue;
        const int32_t next = s->list[s->bucket[maker_of(s, v)] + SLOTS];
        for (int32_t k = s->first[v]; k < s->first[v + 1] && *out_bounded; k++) {
            const int32_t reader = s->plan->nodes[s->reader[k]].cluster;
            *out_bounded = s->position[reader] < s->position[next];
            if (*out_bounded)
                TD_TRY(add_pair(s, reader, next));
        }
    }
    if (!*out_bounded)
        s->n_pairs = before;
    return NULL;
}

static int compare_names(const void *a, const void *b, void *context)
{
    const slotting *s = context;
    const td_value_info *values = s->plan->graph->values;
    return strcmp(values[*(const int32_t *)a].name, values[*(const int32_t *)b].name);
}

/* Places in the host's arena from `base` on, in the order of names: no place may depend on when a value was made. */
static int64_t give_places(slotting *s, slotted_fn slotted, int64_t base, td_plan_slots *out)
{
    *out = (td_plan_slots){.n = s->n < SLOTS ? s->n : SLOTS};
    for (int32_t b = 0; b < s->n; b++) {
        out->bytes = s->bytes[b] > out->bytes ? s->bytes[b] : out->bytes;
        s->bytes[b] = 0;
    }
    int32_t n = 0;
    for (int32_t v = 0; v < s->plan->graph->n_values; v++)
        if (slotted(s, v))
            s->values[n++] = v;
    qsort_r(s->values, (size_t)n, sizeof *s->values, compare_names, s);
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = s->values[i], b = s->bucket[maker_of(s, v)];
        s->plan->values[v].in_slot = true;
        s->plan->values[v].offset = base + b % SLOTS * out->bytes + s->bytes[b];
        s->bytes[b] += bytes_of(s, v);
    }
    return base + out->n * out->bytes;
}

static td_status *bound(slotting *s, slotted_fn slotted, int64_t *base, td_plan_slots *out)
{
    bool bounded = false;
    TD_TRY(wait_for_slots(s, slotted, &bounded));
    if (bounded && s->n)
        *base = give_places(s, slotted, *base, out);
    return NULL;
}

/* earlier[b]: the bucket that is SLOTS before b among those of the same device; -1: there is none. */
static void find_earlier(const slotting *s, int32_t device, int32_t *earlier)
{
    int32_t recent[SLOTS], n = 0;
    for (int32_t b = 0; b < s->n; b++)
        if (s->plan->clusters[s->list[b]].device == device) {
            earlier[b] = n < SLOTS ? -1 : recent[n % SLOTS];
            recent[n++ % SLOTS] = b;
        }
}

/* A device makes gradients of a bucket when those of an earlier one have left it; for those of other devices it does not wait. */
static td_status *hold_back_devices(slotting *s)
{
    const td_graph *graph = s->plan->graph;
    int32_t *earlier = NULL;
    td_status *status = TD_NEW(earlier, s->n + 1);
    for (int32_t d = 0; d < s->plan->n_sites && !status; d++)
        find_earlier(s, d, earlier);
    for (int32_t v = 0; v < graph->n_values && !status; v++) {
        if (!is_landed(s, v) || earlier[s->bucket[maker_of(s, v)]] < 0)
            continue;
        const int32_t copy = s->list[earlier[s->bucket[maker_of(s, v)]]];
        const int32_t made = td_graph_behind_views(graph, graph->nodes[graph->values[v].producer].inputs[0]);
        const int32_t maker = graph->values[made].producer < 0 ? -1 : maker_of(s, made);
        if (maker >= 0 && s->position[copy] < s->position[maker])
            status = add_pair(s, copy, maker);
    }
    td_free(earlier);
    return status;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------------------- */

static td_status *slot_all(slotting *s)
{
    int64_t base = 0;
    TD_TRY(find_positions(s));
    TD_TRY(find_readers(s));
    list_buckets(s, is_landed);
    TD_TRY(bound(s, is_landed, &base, &s->plan->gradient_slots));
    TD_TRY(hold_back_devices(s));
    list_buckets(s, is_copied_out);
    TD_TRY(bound(s, is_copied_out, &base, &s->plan->parameter_slots));
    return s->n_pairs ? td_cluster_link(s->plan, s->pairs, s->n_pairs) : NULL;
}

td_status *td_pass_slots(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    slotting s = {.plan = plan};
    td_status *status = NULL;
    if (!plan->training || !td_plan_is_offloading(plan))
        return NULL;
    TD_TRY_OR(status, done, TD_NEW(s.position, plan->n_clusters + 1));
    TD_TRY_OR(status, done, TD_NEW(s.bucket, plan->n_clusters + 1));
    TD_TRY_OR(status, done, TD_NEW(s.bytes, plan->n_clusters + 1));
    TD_TRY_OR(status, done, TD_NEW(s.values, plan->graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(s.list, plan->graph->n_values + 1));
    status = slot_all(&s);
done:
    td_free(s.position);
    td_free(s.bucket);
    td_free(s.bytes);
    td_free(s.values);
    td_free(s.list);
    td_free(s.first);
    td_free(s.reader);
    td_free(s.pairs);
    return status;
}
