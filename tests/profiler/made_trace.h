/* Traces made by hand, with every time given: a model cut over cpu and accel with a lookup, a copy, a forward, a backward, a copy
 * back and an update, whose durations a test chooses. Ticks are nanoseconds. */
#ifndef TANDEM_TESTS_PROFILER_MADE_TRACE_H
#define TANDEM_TESTS_PROFILER_MADE_TRACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/trace_writer.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        td_status *status_ = (call);                                                                                   \
        if (status_)                                                                                                   \
            fail_msg("%s", td_status_message(status_));                                                                \
    } while (0)

/* Nodes and subgraphs have the same numbers, one op each. */
enum { LOOKUP, TO_ACCEL, BOTTOM, TOP, BACKWARD, TO_CPU, UPDATE, N_SUBGRAPHS };
enum { FIRST_ID = 1, MAIN_THREAD = 1, CPU_LANE, ACCEL_LANE, TO_LANE, FROM_LANE, WORKER };

static const char *const made_plan =
    "{\"first_id\":1,\"training\":true,\"pipelined\":true,\"cores\":4,\"estimated_ms\":5,\"devices\":["
    "{\"name\":\"cpu\",\"backend\":\"cpu\",\"host\":true,\"lanes\":1,\"cores\":3,\"store_bytes\":4000000,"
    "\"arena_bytes\":100000},"
    "{\"name\":\"accel\",\"backend\":\"emulated\",\"host\":false,\"lanes\":1,\"cores\":1,\"memory_bytes\":1000000,"
    "\"store_bytes\":200000,\"arena_bytes\":300000,\"link_bytes_per_s\":1e9,\"link_latency_s\":1e-6}],"
    "\"values\":["
    "{\"name\":\"bag\",\"class\":\"activation\",\"storage\":\"arena\",\"device\":0,\"dtype\":\"f32\","
    "\"shape\":\"[256, 16]\",\"bytes\":16384,\"producer\":0,\"root\":0},"
    "{\"name\":\"bag.accel\",\"class\":\"staging\",\"storage\":\"arena\",\"device\":1,\"dtype\":\"f32\","
    "\"shape\":\"[256, 16]\",\"bytes\":16384,\"producer\":1,\"root\":1},"
    "{\"name\":\"hidden\",\"class\":\"activation\",\"storage\":\"arena\",\"device\":1,\"dtype\":\"f32\","
    "\"shape\":\"[256, 64]\",\"bytes\":65536,\"producer\":2,\"root\":2},"
    "{\"name\":\"loss\",\"class\":\"activation\",\"storage\":\"arena\",\"device\":1,\"dtype\":\"f32\","
    "\"shape\":\"[]\",\"bytes\":4,\"producer\":3,\"root\":3},"
    "{\"name\":\"gradient\",\"class\":\"gradient\",\"storage\":\"arena\",\"device\":1,\"dtype\":\"f32\","
    "\"shape\":\"[256, 16]\",\"bytes\":16384,\"producer\":4,\"root\":4},"
    "{\"name\":\"gradient.cpu\",\"class\":\"staging\",\"storage\":\"arena\",\"device\":0,\"dtype\":\"f32\","
    "\"shape\":\"[256, 16]\",\"bytes\":16384,\"producer\":5,\"root\":5},"
    "{\"name\":\"table\",\"class\":\"parameter\",\"storage\":\"store\",\"device\":0,\"dtype\":\"f32\","
    "\"shape\":\"[1000, 16]\",\"bytes\":64000,\"producer\":-1,\"root\":6}],"
    "\"nodes\":["
    "{\"name\":\"table/bag\",\"op\":\"embedding_bag\",\"subgraph\":0,\"phase\":\"forward\",\"inputs\":[6],"
    "\"outputs\":[0],\"attributes\":\"mode=sum\",\"flops\":4096,\"bytes\":32768,\"estimated_ms\":1.2},"
    "{\"name\":\"bag.accel\",\"op\":\"copy\",\"subgraph\":1,\"phase\":\"forward\",\"inputs\":[0],\"outputs\":[1],"
    "\"flops\":0,\"bytes\":32768,\"estimated_ms\":0.1,\"inserted\":true},"
    "{\"name\":\"bottom/linear\",\"op\":\"linear\",\"subgraph\":2,\"phase\":\"forward\",\"inputs\":[],\"outputs\":[2],"
    "\"attributes\":\"relu=true\",\"flops\":2000000,\"bytes\":100000,\"estimated_ms\":1},"
    "{\"name\":\"top/linear\",\"op\":\"linear\",\"subgraph\":3,\"phase\":\"forward\",\"inputs\":[1,2],\"outputs\":[3],"
    "\"flops\":1000000,\"bytes\":100000,\"estimated_ms\":1},"
    "{\"name\":\"top/linear_gradient\",\"op\":\"linear_gradient\",\"subgraph\":4,\"phase\":\"backward\",\"inputs\":[3],"
    "\"outputs\":[4],\"flops\":2000000,\"bytes\":200000,\"estimated_ms\":1},"
    "{\"name\":\"gradient.cpu\",\"op\":\"copy\",\"subgraph\":5,\"phase\":\"backward\",\"inputs\":[4],\"outputs\":[5],"
    "\"flops\":0,\"bytes\":32768,\"estimated_ms\":0.1,\"inserted\":true},"
    "{\"name\":\"table/update\",\"op\":\"lazy_adam\",\"subgraph\":6,\"phase\":\"update\",\"inputs\":[6,5],"
    "\"outputs\":[],\"flops\":60000,\"bytes\":500000,\"estimated_ms\":1.5}],"
    "\"subgraphs\":["
    "{\"name\":\"lookup\",\"device\":0,\"lane\":\"compute\",\"estimated_ms\":0.1,\"after\":[],\"next_step\":[]},"
    "{\"name\":\"bag -> "
    "accel\",\"device\":1,\"lane\":\"to_device\",\"estimated_ms\":0.1,\"after\":[0],\"next_step\":[]},"
    "{\"name\":\"bottom\",\"device\":1,\"lane\":\"compute\",\"estimated_ms\":1,\"after\":[],\"next_step\":[]},"
    "{\"name\":\"top\",\"device\":1,\"lane\":\"compute\",\"estimated_ms\":1,\"after\":[1,2],\"next_step\":[]},"
    "{\"name\":\"top backward\",\"device\":1,\"lane\":\"compute\",\"estimated_ms\":2,\"after\":[3],\"next_step\":[]},"
    "{\"name\":\"gradient -> cpu\",\"device\":1,\"lane\":\"to_host\",\"estimated_ms\":0.1,\"after\":[4],"
    "\"next_step\":[]},"
    "{\"name\":\"table update\",\"device\":0,\"lane\":\"compute\",\"estimated_ms\":0.5,\"after\":[5],"
    "\"next_step\":[0]}]}";

/* Durations in nanoseconds. */
typedef struct made {
    int64_t data_wait, durations[N_SUBGRAPHS], wake_up, callback;
    int64_t admit; /* binding a step's batch; 0: not recorded */
    int64_t fetch; /* what a worker takes for a batch; 0: no worker is recorded */
    int64_t copied_bytes;
    int32_t queue, queue_most; /* batches that stand ready */
    double cpu_share;          /* of 4 cores */
    int first, steps;
    int64_t unrecorded; /* after each step's callback, nothing that any record has */
    int slow_step;      /* this one has `slow_by` more of its callback */
    int64_t slow_by;
    uint64_t dropped;
    double event_ns;
    int64_t prepare; /* of the forward op there, for making its kernel anew */
    int64_t pull, push, pull_bytes;
    int64_t pull_within; /* so much of the lookup's own time is a pull */
    int64_t late, sum;   /* of a rank of a job: how much later it comes to the sum, and how long that takes it */
    int rank, ranks;
    const char *model;
    int samples;              /* of a step */
    const char *host, *notes; /* notes: one more JSON object of information */
    const char *role;         /* NULL: "worker" and its rank */
    int64_t start_ns;         /* the monotonic clock where ticks are 0 */
    double drift; /* how much faster that clock runs than the first rank's: ticks are the first rank's nanoseconds */
    const char *changes[4][2]; /* text of the plan, and what stands there instead */
} made;

static inline made made_defaults(void)
{
    return (made){.data_wait = 1000,
                  .durations = {1200000, 17000, 1000000, 1000000, 1000000, 17000, 1500000},
                  .wake_up = 2000,
                  .callback = 1000,
                  .copied_bytes = 16384,
                  .cpu_share = 0.5,
                  .first = 6,
                  .steps = 4,
                  .host = "here",
                  .model = "made",
                  .samples = 256,
                  .event_ns = 15};
}

enum { MADE_MOST = 4096 };
typedef struct made_events {
    td_record records[WORKER + 1][MADE_MOST];
    uint32_t n[WORKER + 1];
} made_events;

static inline void made_add(made_events *e, int thread, td_record_kind kind, uint32_t id, int step, int64_t begin,
                            int64_t end, uint64_t amount)
{
    assert_true(e->n[thread] < MADE_MOST);
    e->records[thread][e->n[thread]++] = (td_record){.begin = (uint64_t)begin,
                                                     .end = (uint64_t)end,
                                                     .id = id,
                                                     .step = (uint32_t)step,
                                                     .what = (uint64_t)kind | amount << TD_RECORD_AMOUNT_SHIFT};
}

/* A subgraph and its op or copy; returns when it ended. */
static inline int64_t made_run(made_events *e, const made *m, int which, int step, int64_t begin)
{
    static const int lanes[] = {CPU_LANE, TO_LANE, ACCEL_LANE, ACCEL_LANE, ACCEL_LANE, FROM_LANE, CPU_LANE};
    bool copy = which == TO_ACCEL || which == TO_CPU;
    int64_t end = begin + m->durations[which];
    made_add(e, lanes[which], copy ? TD_RECORD_COPY : TD_RECORD_OP, (uint32_t)(FIRST_ID + which), step, begin, end,
             copy ? (uint64_t)m->copied_bytes : 0);
    made_add(e, lanes[which], TD_RECORD_SUBGRAPH, (uint32_t)(FIRST_ID + N_SUBGRAPHS + which), step, begin, end, 0);
    return end;
}

static inline int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* One step that begins at `at`; returns when it ended. */
static inline int64_t made_step(made_events *e, const made *m, int step, int64_t at)
{
    int64_t w = m->wake_up, callback = m->callback + (step == m->slow_step ? m->slow_by : 0);
    made_add(e, MAIN_THREAD, TD_RECORD_QUEUE, (uint32_t)m->queue_most, step, at, at, (uint64_t)m->queue);
    made_add(e, MAIN_THREAD, TD_RECORD_DATA_WAIT, 0, step, at, at + m->data_wait, 0);
    if (m->fetch)
        made_add(e, WORKER, TD_RECORD_DATA_FETCH, 0, 0, at + m->data_wait - m->fetch, at + m->data_wait, 256);
    at += m->data_wait;
    const int64_t begun = at;
    if (m->admit)
        made_add(e, MAIN_THREAD, TD_RECORD_ADMIT, 0, step, at, at + m->admit, 0);
    at += m->admit;
    if (m->pull)
        made_add(e, CPU_LANE, TD_RECORD_PULL, FIRST_ID + LOOKUP, step, at + w, at + w + m->pull,
                 (uint64_t)m->pull_bytes);
    int64_t looked = made_run(e, m, LOOKUP, step, at + w + m->pull);
    if (m->pull_within)
        made_add(e, CPU_LANE, TD_RECORD_PULL, FIRST_ID + LOOKUP, step, looked - m->durations[LOOKUP],
                 looked - m->durations[LOOKUP] + m->pull_within, (uint64_t)m->pull_bytes);
    int64_t copied = made_run(e, m, TO_ACCEL, step, looked + w);
    int64_t bottom = made_run(e, m, BOTTOM, step, at + w);
    if (m->prepare)
        made_add(e, ACCEL_LANE, TD_RECORD_PREPARE, 0, step, at + w + 100, at + w + 100 + m->prepare, 0);
    int64_t top = made_run(e, m, TOP, step, later(bottom, copied) + w);
    int64_t backward = made_run(e, m, BACKWARD, step, top + w);
    int64_t back = made_run(e, m, TO_CPU, step, backward + w);
    if (m->sum) {
        made_add(e, CPU_LANE, TD_RECORD_ALL_REDUCE, FIRST_ID + TO_CPU, step, back + m->late, back + m->late + m->sum,
                 1000);
        back += m->late + m->sum;
    }
    if (m->push)
        made_add(e, CPU_LANE, TD_RECORD_PUSH, FIRST_ID + UPDATE, step, back, back + m->push, (uint64_t)m->pull_bytes);
    int64_t end = made_run(e, m, UPDATE, step, back + m->push + w);
    made_add(e, MAIN_THREAD, TD_RECORD_STEP, FIRST_ID, step, begun, end, (uint64_t)m->samples);
    made_add(e, MAIN_THREAD, TD_RECORD_MEMORY, 1, step, end, end, 500000);
    made_add(e, MAIN_THREAD, TD_RECORD_PROCESSOR, 0, step, end, end, (uint64_t)(4 * m->cpu_share * (double)(end)));
    made_add(e, MAIN_THREAD, TD_RECORD_CALLBACK, 0, step, end, end + callback, 0);
    return end + callback + m->unrecorded;
}

static inline char *made_plan_with(const made *m)
{
    char *plan = strdup(made_plan);
    for (size_t i = 0; i < sizeof m->changes / sizeof *m->changes && m->changes[i][0]; i++) {
        char *at = strstr(plan, m->changes[i][0]), *changed = malloc(strlen(plan) + strlen(m->changes[i][1]) + 1);
        assert_non_null(at);
        (void)sprintf(changed, "%.*s%s%s", (int)(at - plan), plan, m->changes[i][1], at + strlen(m->changes[i][0]));
        free(plan);
        plan = changed;
    }
    return plan;
}

static inline td_status *made_write(td_trace_writer *writer, const made *m, const made_events *e, int64_t end)
{
    static const char *const names[] = {"",         "main",       "cpu compute 0", "accel compute 0",
                                        "to accel", "from accel", "data worker"};
    char info[256], role[32], *plan = made_plan_with(m);
    (void)snprintf(role, sizeof role, "worker %d", m->rank);
    int length = snprintf(info, sizeof info,
                          "{\"host\":\"%s\",\"rank\":%d,\"ranks\":%d,\"role\":\"%s\",\"clock\":\"monotonic\","
                          "\"model\":\"%s\",\"event_ns\":%g,\"off_ns\":1}",
                          m->host, m->rank, m->ranks, m->role ? m->role : role, m->model, m->event_ns);
    trace_clock clocks[] = {{0, m->start_ns, 1700000000000000000, 20},
                            {1000000000, m->start_ns + (int64_t)(1e9 * (1 + m->drift)), 1700000001000000000, 30}};
    TD_TRY(td_trace_write(writer, TRACE_INFO, info, (uint64_t)length));
    if (m->notes)
        TD_TRY(td_trace_write(writer, TRACE_INFO, m->notes, strlen(m->notes)));
    for (int i = 0; i < 2; i++)
        TD_TRY(td_trace_write(writer, TRACE_CLOCK, &clocks[i], sizeof clocks[i]));
    td_status *status = td_trace_write(writer, TRACE_PLAN, plan, strlen(plan));
    free(plan);
    TD_TRY(status);
    for (uint32_t t = 1; t <= WORKER; t++)
        if (e->n[t])
            TD_TRY(td_trace_write_records(writer, t, names[t], e->records[t], e->n[t], t == 1 ? m->dropped : 0));
    trace_window window = {0, (uint64_t)end, m->first, m->first + m->steps - 1};
    return td_trace_write(writer, TRACE_WINDOW, &window, sizeof window);
}

/* A file with m->steps steps and one before them to warm up. */
static inline void made_file(const char *path, const made *m)
{
    made_events *events = calloc(1, sizeof *events);
    td_trace_writer *writer = NULL;
    int64_t at = 1000000;
    assert_non_null(events);
    for (int s = m->first - 1; s < m->first + m->steps; s++)
        at = made_step(events, m, s, at);
    (void)unlink(path);
    OK(td_trace_writer_open(path, &writer));
    OK(made_write(writer, m, events, at));
    OK(td_trace_writer_close(writer, 0));
    free(events);
}

#endif
