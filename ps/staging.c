/* What the messages of served tables take of a rank at most, by the plan: td_job_staging. Each line is the room that one of the
 * allocations here, in runtime/served.c or in ps/ asks for at most; the rows themselves are not in it, nor what reading and writing
 * whole tables (checkpoints) takes in pieces. */
#include "base/memory.h"
#include "ps/comm_state.h"
#include "ps/fold.h"
#include "ps/job_state.h"
#include "runtime/served.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The worker's side: client.c. */
static int64_t of_worker(const td_plan *plan, int32_t servers)
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
        bytes +=
            td_room_of(summed) * (int64_t)sizeof(int64_t) + (table.hashed ? numbers : 0); /* shard.c: slots, kept */
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
    if (!plan->n_served || workers < 1 || servers < 1)
        return false;
    *out_worker_bytes = of_worker(plan, servers);
    *out_server_bytes = of_server(plan, workers, servers);
    return true;
}
