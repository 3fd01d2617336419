/* usage: make_trace FILE EVENTS
 * A trace of so many events, for measuring what long ones cost: eight lanes whose steps hold subgraphs and ops, one nanosecond a
 * tick, each lane's events in the order in which they end, as a training leaves them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/record.h"
#include "base/trace_writer.h"

enum { LANES = 8, OPS = 20, SUBGRAPHS = 5, A_STEP = SUBGRAPHS * (OPS + 1) };

/* What one lane has gathered for its next chunk. */
typedef struct lane {
    td_record records[TRACE_MOST_RECORDS];
    uint32_t n;
    uint64_t now;
    uint32_t step;
    int at; /* of the step's events */
    uint64_t began;
} lane;

static td_status *add(td_trace_writer *writer, lane *l, uint32_t number, td_record_kind kind, uint32_t id,
                      uint64_t begin)
{
    char name[32];
    l->records[l->n++] = (td_record){.begin = begin, .end = l->now, .id = id, .step = l->step, .what = (uint64_t)kind};
    if (l->n < TRACE_MOST_RECORDS)
        return NULL;
    (void)snprintf(name, sizeof name, "lane %u", number);
    l->n = 0;
    return td_trace_write_records(writer, number, name, l->records, TRACE_MOST_RECORDS, 0);
}

/* The next event of a lane; ops take from 200 to 1,200 ns and have gaps of up to 100. */
static td_status *advance(td_trace_writer *writer, lane *l, uint32_t number)
{
    uint64_t random = td_hash_number(l->now, number);
    int in_subgraph = l->at % (OPS + 1);
    l->began = in_subgraph ? l->began : l->now;
    l->at = (l->at + 1) % A_STEP;
    l->step += l->at == 0;
    if (in_subgraph == OPS)
        return add(writer, l, number, TD_RECORD_SUBGRAPH, 1000 + (uint32_t)(l->at / (OPS + 1)), l->began);
    uint64_t begin = l->now + random % 100;
    l->now = begin + 200 + (random >> 8) % 1000;
    return add(writer, l, number, TD_RECORD_OP, (uint32_t)in_subgraph, begin);
}

static td_status *make(const char *path, long long events)
{
    static lane lanes[LANES];
    td_trace_writer *writer = NULL;
    static const char info[] = "{\"program\": \"make_trace\"}";
    const trace_clock clocks[] = {{0, 0, 1700000000000000000, 20}, {1000000000, 1000000000, 1700000001000000000, 20}};
    TD_TRY(td_trace_writer_open(path, &writer));
    td_status *status = td_trace_write(writer, TRACE_INFO, info, sizeof info - 1);
    for (int i = 0; !status && i < 2; i++)
        status = td_trace_write(writer, TRACE_CLOCK, &clocks[i], sizeof clocks[i]);
    for (long long i = 0; !status && i < events; i++)
        status = advance(writer, &lanes[i % LANES], 1 + (uint32_t)(i % LANES));
    for (uint32_t i = 0; !status && i < LANES; i++)
        if (lanes[i].n)
            status = td_trace_write_records(writer, 1 + i, "lane", lanes[i].records, lanes[i].n, 0);
    if (!status)
        return td_trace_writer_close(writer, 0);
    td_trace_writer_abandon(writer);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3 || atoll(argv[2]) < 1) {
        fputs("usage: make_trace FILE EVENTS\n", stderr);
        return 2;
    }
    td_status *status = make(argv[1], atoll(argv[2]));
    if (status)
        fprintf(stderr, "make_trace: %s\n", td_status_message(status));
    td_status_destroy(status);
    return status != NULL;
}
