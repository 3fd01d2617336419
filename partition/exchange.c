/* Pass: what the replicas of a distributed job sum up: the loss and the gradients of all parameters that live here; whoever reads them
 * reads the sums. Gradients of served tables are left out: their owners sum them (serve.c).
 *
 * They go in buckets, in the order in which backward makes them, so that the first are on their way while it makes the next:
 *
 *     top.1 ... top.0 ... bottom.1 ... bottom.0                      backward
 *          workers/send.1     workers/send.2   workers/send.3        each once its gradients are there; waits for nobody's
 *                                                   workers/sum.0, .1, .2, .3     after the last has left; update
 *
 * A gradient's depth (the longest path to it, in edges) stands for when it is made. Buckets change no bit, but are the same on all
 * ranks, as everything that the graph and names alone decide.
 *
 * Where an update waits for something about all gradients (clipping, steps that may be left out), "ps/offer" takes those of served
 * tables to their owners and brings back their squares.
 *
 * Where workers share optimizer state (shard.h), each gets the sums of its stretch of a bucket alone.
 *
 * Sends take part in every micro-batch, for its loss, and in a replica's last, for its gradients; sums are there in the window's
 * last (window.c). */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/shard.h"

enum { BUCKETS = 8, LEAST_BUCKET_BYTES = 256 << 10 };

/* A parameter whose gradient is summed up. */
typedef struct summand {
    int32_t parameter, depth;
    const char *name;
    int64_t bytes;      /* of its gradient */
    int64_t rows_bytes; /* of a row-sparse one: count, keys and rows, each a multiple of 8 */
    int64_t elements;   /* of a dense one */
} summand;

/* The loss: the first of all; or gradients. */
typedef struct bucket {
    int32_t index, first, n; /* of the summands; of the loss -1, 1 */
    td_value sent;
    int64_t *bounds; /* [workers + 1]: where their stretches begin; NULL: they have all of it */
} bucket;

typedef struct exchange {
    td_plan *plan;
    summand *summands;
    bucket *buckets;
    td_value *inputs, *outputs; /* of one node */
    int32_t n, n_buckets;
    int32_t replicas;
} exchange;

/* ---- what leaves when ------------------------------------------------------------------------------------------------------------- */

static td_status *find_depths(const td_graph *graph, int32_t *depth)
{
    td_edges edges = {0};
    int32_t *order = NULL;
    td_status *status = td_graph_order(graph, &order);
    if (!status)
        status = td_graph_edges(graph, &edges);
    for (int64_t i = 0; i < graph->n_nodes && !status; i++) {
        const int32_t a = order[i];
        for (int32_t k = edges.first[a]; k < edges.first[a + 1]; k++)
            if (depth[edges.to[k]] <= depth[a])
                depth[edges.to[k]] = depth[a] + 1;
    }
    td_free(order);
    td_edges_deinit(&edges);
    return status;
}

static int by_depth(const void *a, const void *b)
{
    const summand *x = a, *y = b;
    return x->depth != y->depth ? (x->depth > y->depth) - (x->depth < y->depth) : strcmp(x->name, y->name);
}

static summand describe(const td_plan *plan, int32_t parameter, const int32_t *depth)
{
    const td_graph *graph = plan->graph;
    const int32_t gradient = plan->gradients[parameter], maker = graph->values[gradient].producer;
    int64_t bytes[3];
    td_value_bytes(graph, gradient, NULL, bytes);
    summand s = {.parameter = parameter, .name = graph->values[parameter].name};
    s.depth = maker < 0 ? 0 : depth[maker];
    for (int32_t i = 0; i < 3; i++) {
        s.bytes += bytes[i];
        s.rows_bytes += graph->values[gradient].kind == TD_ROW_SPARSE ? (bytes[i] + 7) / 8 * 8 : 0;
    }
    s.elements = s.rows_bytes ? 0 : s.bytes / (int64_t)sizeof(float);
    return s;
}

static td_status *list_summands(exchange *e)
{
    const td_plan *plan = e->plan;
    int32_t *depth = NULL;
    TD_TRY(TD_NEW(depth, plan->graph->n_nodes + 1));
    td_status *status = find_depths(plan->graph, depth);
    for (int32_t v = 0; v < plan->n_gradients && !status; v++)
        if (plan->gradients[v] >= 0 && !plan->graph->values[v].served)
            e->summands[e->n++] = describe(plan, v, depth);
    qsort(e->summands, (size_t)e->n, sizeof *e->summands, by_depth);
    td_free(depth);
    return status;
}

static void cut(exchange *e)
{
    int64_t total = 0, bytes = 0;
    for (int32_t i = 0; i < e->n; i++)
        total += e->summands[i].bytes;
    const int64_t most = total / BUCKETS < LEAST_BUCKET_BYTES ? LEAST_BUCKET_BYTES : total / BUCKETS;
    e->buckets[0] = (bucket){.first = -1, .n = 1};
    e->n_buckets = 1;
    for (int32_t i = 0; i < e->n; i++) {
        if (!bytes) {
            e->buckets[e->n_buckets] = (bucket){.index = e->n_buckets, .first = i};
            e->n_buckets++;
        }
        e->buckets[e->n_buckets - 1].n++;
        bytes += e->summands[i].bytes;
        bytes = bytes < most ? bytes : 0;
    }
}

/* Cuts a bucket for the workers, and notes what of its parameters each has. */
static td_status *share(const exchange *e, const td_plan_request *request, bucket *b)
{
    td_plan *plan = e->plan;
    int64_t *elements = NULL, *grains = NULL, at = 0;
    td_status *status = TD_NEW(b->bounds, plan->shard_workers + 1);
    if (!status)
        status = TD_NEW(elements, b->n);
    if (!status)
        status = TD_NEW(grains, b->n);
    for (int32_t i = 0; i < b->n && !status; i++) {
        elements[i] = e->summands[b->first + i].elements;
        grains[i] = td_shard_grain(plan, request, e->summands[b->first + i].parameter, elements[i]);
    }
    if (!status)
        td_shard_cut(elements, grains, b->n, plan->shard_workers, b->bounds);
    for (int32_t i = 0; i < b->n && !status; at += elements[i++])
        if (elements[i])
            status = td_shard_add(plan, e->summands[b->first + i].parameter, b->index, at, elements[i], b->bounds);
    td_free(elements);
    td_free(grains);
    return status;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------------------ */

static td_value value_of(const exchange *e, const bucket *b, int32_t i)
{
    const td_plan *plan = e->plan;
    return (td_value){plan->graph, b->first < 0 ? plan->loss : plan->gradients[e->summands[b->first + i].parameter]};
}

static td_status *add_node(const exchange *e, const char *op, const char *name, const bucket *b, int32_t n_inputs,
                           const td_attr *attrs, int32_t n_attrs, td_value *outputs, int32_t n_outputs)
{
    char *full = td_format("workers/%s.%d", name, b->index);
    if (!full)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the sums of gradients");
    td_graph_add(e->plan->graph, op, full, e->inputs, n_inputs, attrs, n_attrs, outputs, n_outputs);
    td_free(full);
    return e->plan->graph->failed ? td_graph_check(e->plan->graph) : NULL;
}

static int32_t n_bounds(const exchange *e, const bucket *b)
{
    return b->bounds ? e->plan->shard_workers + 1 : 0;
}

static td_status *add_send(exchange *e, bucket *b)
{
    int64_t rows_bytes = 0;
    e->inputs[0] = b->index ? e->buckets[b->index - 1].sent : TD_NO_VALUE;
    for (int32_t i = 0; i < b->n; i++) {
        e->inputs[1 + i] = value_of(e, b, i);
        rows_bytes += b->first < 0 ? 0 : e->summands[b->first + i].rows_bytes;
    }
    const td_attr attrs[] = {TD_INT("bucket", b->index), TD_INT("rows_bytes", rows_bytes),
                             TD_INTS("bounds", b->bounds, n_bounds(e, b))};
    return add_node(e, "rank_send", "send", b, 1 + b->n, attrs, b->bounds ? 3 : 2, &b->sent, 1);
}

static td_status *add_sum(exchange *e, const bucket *b)
{
    td_plan *plan = e->plan;
    const td_attr attrs[] = {TD_INT("bucket", b->index), TD_INT("outputs", b->n), TD_INT("replicas", e->replicas),
                             TD_INTS("bounds", b->bounds, n_bounds(e, b)), TD_INT("worker", plan->shard_worker)};
    e->inputs[0] = e->buckets[e->n_buckets - 1].sent;
    e->inputs[1] = b->index ? (td_value){plan->graph, plan->loss} : TD_NO_VALUE;
    for (int32_t i = 0; i < b->n; i++)
        e->inputs[2 + i] = value_of(e, b, i);
    TD_TRY(add_node(e, "rank_sum", "sum", b, 2 + b->n, attrs, b->bounds ? 5 : 3, e->outputs, b->n));
    if (!b->index)
        plan->loss = e->outputs[0].id;
    for (int32_t i = 0; i < b->n && b->index; i++) {
        const int32_t parameter = e->summands[b->first + i].parameter;
        plan->graph->values[e->outputs[i].id].parameter = parameter;
        plan->gradients[parameter] = e->outputs[i].id;
    }
    return NULL;
}

static td_status *add_sums(exchange *e, const td_plan_request *request)
{
    TD_TRY(list_summands(e));
    cut(e);
    for (int32_t b = 1; b < e->n_buckets && td_plan_is_sharded(e->plan); b++)
        TD_TRY(share(e, request, &e->buckets[b]));
    for (int32_t b = 0; b < e->n_buckets; b++)
        TD_TRY(add_send(e, &e->buckets[b]));
    for (int32_t b = 0; b < e->n_buckets; b++)
        TD_TRY(add_sum(e, &e->buckets[b]));
    return NULL;
}

/* Served tables: their owners tell the squares of the sums that they have been offered. After the sum, on every rank, so that no
 * two of them wait for each other. */
static td_status *add_offer(exchange *e)
{
    enum { INPUTS = 3 };
    td_plan *plan = e->plan;
    td_graph *graph = plan->graph;
    td_value *inputs = NULL, *squares = NULL;
    int32_t n = 0;
    td_status *status = TD_NEW(inputs, INPUTS * plan->n_served + 1);
    if (!status)
        status = TD_NEW(squares, plan->n_served + 1);
    for (int32_t t = 0; t < plan->n_served && !status; t++) {
        const td_plan_served *served = &plan->served[t];
        if (plan->gradients[served->parameter] < 0)
            continue;
        inputs[INPUTS * n] = (td_value){graph, served->parameter};
        inputs[INPUTS * n + 1] = (td_value){graph, plan->gradients[served->parameter]};
        inputs[INPUTS * n + 2] = (td_value){graph, plan->keys[served->keys].value};
        n++;
    }
    const td_attr outputs = TD_INT("outputs", n);
    if (!status && n)
        td_graph_add(graph, "ps_offer", "ps/offer", inputs, INPUTS * n, &outputs, 1, squares, n);
    if (!status && graph->failed)
        status = td_graph_check(graph);
    if (!status && n)
        graph->nodes[graph->n_nodes - 1].after = plan->loss;
    for (int32_t t = 0, k = 0; t < plan->n_served && !status; t++)
        if (plan->gradients[plan->served[t].parameter] >= 0)
            plan->served[t].squares = squares[k++].id;
    plan->offers = n > 0;
    td_free(inputs);
    td_free(squares);
    return status;
}

td_status *td_pass_exchange(td_plan *plan, const td_plan_request *request)
{
    enum { BEFORE = 2 }; /* inputs that are no values */
    if (!plan->training || !plan->in_job)
        return NULL;
    exchange e = {.plan = plan, .replicas = plan->all_replicas};
    plan->shard_workers = request->options->shard_optimizer && request->workers > 1 ? request->workers : 0;
    plan->shard_worker = request->worker;
    td_status *status = TD_NEW(e.inputs, plan->n_gradients + BEFORE + 1);
    if (!status)
        status = TD_NEW(e.outputs, plan->n_gradients + 1);
    if (!status)
        status = TD_NEW(e.summands, plan->n_gradients + 1);
    if (!status)
        status = TD_NEW(e.buckets, plan->n_gradients + 2);
    plan->graph->phase = TD_BACKWARD;
    if (!status)
        status = add_sums(&e, request);
    if (!status && td_options_wait_for_gradients(request->options))
        status = add_offer(&e);
    plan->graph->phase = TD_FORWARD;
    td_free(e.inputs);
    td_free(e.outputs);
    td_free(e.summands);
    for (int32_t b = 0; b < e.n_buckets; b++)
        td_free(e.buckets[b].bounds);
    td_free(e.buckets);
    return status;
}
