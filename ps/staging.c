/* What messages take of a rank at most, by the plan: td_job_staging. Of served tables, of the buckets of gradients that workers sum up,
 * of parameters that they gather. Each line is the room that one of the allocations here, in runtime/served.c or in ps/ asks for at most;
 * the rows themselves are not in it, nor what reading and writing whole tables (checkpoints) takes in pieces. */
#include <string.h>

#include "base/dedup.h"
#include "base/memory.h"
#include "ps/bucket.h"
#include "ps/comm_state.h"
#include "ps/fold.h"
#include "ps/job_state.h"
#include "runtime/served.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The worker's side: client.c. */
static int64_t of_tables(const td_plan *plan, int32_t servers)
{
    const int32_t n = plan->n_served;
    td_plan_served_summary table;
    int64_t keys = 0, pulled = 0, pushed = 0;
    for (int32_t t = 0; td_plan_served_table(plan, t, &table); t++) {
        keys += table.keys;
        pulled += table.keys * table.row_bytes;
        pushed += table.push_bytes;
    }
    return td_buffer_bytes(td_client_pull_bytes(servers, n, keys)) +
           td_buffer_bytes(td_client_rows_bytes(servers, pulled)) +
           (pushed ? td_buffer_bytes(td_client_push_bytes(servers, n, pushed)) : 0) +
           2 * td_client_round_bytes(servers, n) + td_room_of((int64_t)servers * n) * (int64_t)sizeof(td_exact) +
           td_room_of((int64_t)n * TD_COEFFICIENTS) * (int64_t)sizeof(float) + td_served_bytes(plan);
}

/* ---- buckets: bucket.c ----------------------------------------------------------------------------------------------------------- */

/* Sums of row-sparse gradients, one after another, in two buffers in turn (fold.c), and the order of one's rows. */
typedef struct sparse {
    int64_t keys, numbers, order;
} sparse;

static void add_sparse(const td_plan *plan, int32_t value, int32_t replicas, sparse *most)
{
    td_tensor t;
    td_value_tensor(plan->graph, value, NULL, &t);
    const int64_t summed = least((replicas - 1) * t.entries, t.dims[0]) + t.entries;
    const int64_t numbers = summed * td_row_elements(&t);
    most->keys = summed > most->keys ? summed : most->keys;
    most->numbers = numbers > most->numbers ? numbers : most->numbers;
    most->order = t.entries > most->order ? t.entries : most->order;
}

/* As on a host of its own, summed up in order: where MPI sums up it is no more. */
static int64_t of_bucket(const td_plan *plan, const td_node *send, int32_t workers, int64_t *order)
{
    const int32_t index = (int32_t)td_attr_int(send->attrs, send->n_attrs, "bucket", 0);
    const int64_t rows_bytes = td_attr_int(send->attrs, send->n_attrs, "rows_bytes", 0);
    const td_attr *bounds = td_attr_find(send->attrs, send->n_attrs, "bounds");
    td_bucket_size s = {.workers = workers, .replicas = plan->all_replicas, .own = plan->replicas};
    sparse most = {0};
    for (int32_t i = 1; i < send->n_inputs && index; i++) {
        int64_t bytes[3];
        td_value_bytes(plan->graph, send->inputs[i], NULL, bytes);
        if (plan->graph->values[send->inputs[i]].kind == TD_ROW_SPARSE)
            add_sparse(plan, send->inputs[i], s.replicas, &most);
        else
            s.length += bytes[0] / (int64_t)sizeof(float);
    }
    s.ordered = s.length > 0;
    s.shares = bounds && bounds->n_ints;
    for (int32_t w = 0; w < workers; w++) {
        const int64_t size = s.shares ? bounds->ints[w + 1] - bounds->ints[w]
                                      : td_range(s.length, w + 1, workers) - td_range(s.length, w, workers);
        s.longest = size > s.longest ? size : s.longest;
    }
    s.rows_room = !index || rows_bytes ? td_rank_rows_room(plan->most_accumulated, rows_bytes) : 0;
    *order = most.order > *order ? most.order : *order;
    return td_bucket_shared_bytes(&s) + td_bucket_private_bytes(&s) +
           2 * (td_room_of(most.keys) * (int64_t)sizeof(int64_t) + td_room_of(most.numbers) * (int64_t)sizeof(float));
}

/* What is told about gradients where workers share optimizer state: combine.c. */
static int64_t of_combining(const td_plan *plan, const td_node *combine, int32_t workers)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < combine->n_inputs; i++) {
        int64_t one[3];
        td_value_bytes(plan->graph, combine->inputs[i], NULL, one);
        bytes += one[0];
    }
    return td_buffer_bytes(bytes) + td_room_of(bytes * workers) + 2 * workers * (int64_t)sizeof(td_parcel);
}

/* Each window under way has buckets of its own. A worker alone sends nothing. */
static int64_t of_buckets(const td_plan *plan, int32_t workers)
{
    const int32_t windows = plan->remote->windows > 1 ? plan->remote->windows : 1;
    int64_t bytes = 0, order = 0, combining = 0;
    for (int64_t n = 0; n < plan->graph->n_nodes && plan->all_replicas > 1; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (!strcmp(node->op->name, "rank_send"))
            bytes += of_bucket(plan, node, workers, &order);
        else if (!strcmp(node->op->name, "rank_combine"))
            combining += of_combining(plan, node, workers);
    }
    return windows * (bytes + (order ? (int64_t)td_dedup_scratch_bytes(order) : 0)) + combining;
}

/* ---- a rank ------------------------------------------------------------------------------------------------------------------------ */

/* A server's side. On a host of its own each replica's push and each worker's pull is a message that it keeps until it is done;
 * sums of replicas are two buffers in turn (fold.c). */
static int64_t of_server(const td_plan *plan, int32_t workers, int32_t servers)
{
    const int32_t replicas = plan->all_replicas;
    td_plan_served_summary table;
    int64_t bytes = 0, answer = 0, push = 0, scaled = 0;
    for (int32_t t = 0; td_plan_served_table(plan, t, &table); t++) {
        const int64_t rows = table.hashed ? INT64_MAX : (table.rows + servers - 1) / servers;
        const int64_t keys = least(table.keys, rows), dim = table.dim;
        const int64_t summed = least((replicas - 1) * table.keys, rows) + keys;
        const int64_t numbers = td_room_of(summed * dim) * (int64_t)sizeof(float);
        answer += keys * table.row_bytes;
        push += keys * (int64_t)(sizeof(int64_t) + (size_t)dim * sizeof(float));
        if (replicas > 1 && table.push_bytes)
            bytes += 2 * (td_room_of(summed) * (int64_t)sizeof(int64_t) + numbers);
        if (plan->offers && numbers > scaled)
            scaled = numbers;
        bytes += td_room_of(summed) * (int64_t)sizeof(int64_t) +
                 (table.hashed ? numbers : 0); /* shard_rows.c: slots, kept */
    }
    push = td_client_push_bytes(1, plan->n_served, push);
    return bytes + scaled + td_buffer_bytes(answer + TD_PIECES_HEAD) +
           (replicas + workers) * (td_room_of(push) + (int64_t)sizeof(td_arrival)) +
           plan->n_served * (int64_t)(2 * sizeof(td_fold) + 2 * sizeof(td_exact));
}

bool td_job_staging(const td_plan *plan, int32_t workers, int32_t servers, int64_t *out_worker_bytes,
                    int64_t *out_server_bytes)
{
    *out_worker_bytes = *out_server_bytes = 0;
    if (!(plan->n_served || plan->in_job) || workers < 1 || servers < 1 ||
        (plan->n_shards && plan->shard_workers != workers))
        return false;
    *out_worker_bytes =
        (plan->n_served ? of_tables(plan, servers) : 0) + (plan->in_job ? of_buckets(plan, workers) : 0);
    *out_server_bytes = plan->n_served ? of_server(plan, workers, servers) : 0;
    return true;
}
