/* A trace file in memory: what base/trace_format.h lays down, checked, with times in nanoseconds.
 *
 * Reads files alone, never a live engine. Whatever the bytes, reading ends with a trace or an error: lengths and checksums are
 * looked at before anything is believed. A file that was cut off gives what is before the cut, with `cut` set. */
#ifndef TANDEM_PROFILER_TRACE_H
#define TANDEM_PROFILER_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/trace_format.h"
#include "tandem/status.h"

/* Times come from files: nonsense in them may give nonsense, but no overflow. */
static inline int64_t td_ns_plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t td_ns_minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline void td_ns_add(int64_t *sum, int64_t more)
{
    *sum = td_ns_plus(*sum, more);
}

/* A record with times since the trace's first clock reading. */
typedef struct td_trace_event {
    int64_t begin_ns, end_ns;
    uint32_t id, step;
    uint32_t micro;
    int16_t kind;    /* td_record_kind; those of a later version too */
    uint16_t thread; /* index in the trace's threads */
    uint64_t amount;
} td_trace_event;

typedef struct td_trace_thread {
    uint32_t number;
    char name[32]; /* printable; made up where the thread had none */
    uint64_t dropped;
    int64_t n_events;
    int32_t rank; /* index in the trace's ranks, where it has some */
} td_trace_thread;

/* Of a trace that was made of several ones (profiler/job.h). */
typedef struct td_trace_rank {
    int32_t rank;
    char name[160]; /* "rank 2: worker 2 on node1" */
} td_trace_rank;

typedef struct td_trace_window {
    int64_t begin_ns, end_ns, first_step, last_step;
} td_trace_window;

typedef struct td_trace_device {
    const char *name, *backend, *description;
    bool host;
    int32_t lanes, cores;
    int64_t memory_bytes, store_bytes, parameter_bytes, state_bytes, arena_bytes;
    double link_bytes_per_s, link_latency_s;
    bool copies_as_lists;                   /* a subgraph of copies takes the latency once */
    double flops_per_s, memory_bytes_per_s; /* what the device states; 0: unknown */
} td_trace_device;

typedef struct td_trace_value {
    const char *name, *class, *storage, *dtype, *shape;
    int32_t device, producer, root;
    int64_t bytes;
} td_trace_value;

typedef enum td_trace_phase { TD_TRACE_FORWARD = 0, TD_TRACE_BACKWARD, TD_TRACE_UPDATE } td_trace_phase;

typedef struct td_trace_node {
    const char *name, *op, *attributes, *why;
    int32_t subgraph;
    td_trace_phase phase;
    int32_t *inputs, n_inputs; /* values; -1: absent */
    int32_t *outputs, n_outputs;
    double flops, bytes, estimated_ms;
    bool view, inserted, moved;
} td_trace_node;

typedef enum td_trace_lane { TD_TRACE_COMPUTE = 0, TD_TRACE_TO_DEVICE, TD_TRACE_TO_HOST } td_trace_lane;

typedef struct td_trace_subgraph {
    const char *name;
    int32_t device;
    td_trace_lane lane;
    bool delegated;
    double rank, estimated_ms;
    int32_t *after, n_after; /* subgraphs of the same step that must have ended */
    int32_t *next, n_next;   /* subgraphs of the next step that wait for this one */
} td_trace_subgraph;

/* Ids first_id .. first_id + n_nodes are nodes, from there on subgraphs. */
typedef struct td_trace_plan {
    uint32_t first_id;
    bool training, pipelined;
    int32_t cores;
    int32_t worker; /* of a job, whose it is; -1: nobody said */
    double estimated_ms;
    td_trace_device *devices;
    td_trace_value *values;
    td_trace_node *nodes;
    td_trace_subgraph *subgraphs;
    int32_t n_devices, n_values, n_nodes, n_subgraphs;
    json_t *json; /* owns the texts */
} td_trace_plan;

typedef struct td_trace {
    json_t *info; /* an object */
    td_trace_plan *plans;
    td_trace_thread *threads;
    td_trace_window *windows;
    td_trace_event *events; /* by begin, ties by end (longer first) */
    int64_t n_plans, n_threads, n_windows, n_events;
    int64_t plans_capacity, threads_capacity, windows_capacity, events_capacity;
    uint64_t dropped;                                          /* records */
    int64_t clock_error_ns, start_unix_ns, start_monotonic_ns; /* start: the first clock reading */
    td_trace_rank *ranks;                                      /* NULL: of one process */
    int64_t n_ranks;
    int32_t *plan_order; /* plans by their first ids */
    bool cut;            /* the end is missing: `cut_at` bytes are whole */
    int64_t cut_at;
} td_trace;

td_status *td_trace_read(const char *path, td_trace **out_trace) TD_MUST_USE;
/* The bytes of a file; `name` for messages. */
td_status *td_trace_parse(const void *data, size_t bytes, const char *name, td_trace **out_trace) TD_MUST_USE;
/* The same of bytes that are the trace's now, in memory of `room` bytes: as soon as the events are out of it, it is freed, or has them in
 * order where they fit. Memory that was touched before is worth that: new pages cost more than what is done with them. */
td_status *td_trace_parse_taken(char *data, size_t bytes, size_t room, const char *name,
                                td_trace **out_trace) TD_MUST_USE;
/* Memory beyond a file's bytes with which its events fit: an event has a quarter more than its record. */
static inline size_t td_trace_more_room(size_t bytes)
{
    return bytes / 4 + sizeof(td_trace_event);
}
/* By so many further threads, rather than as many as there are cores for: the trace is the same. */
td_status *td_trace_parse_by(const void *data, size_t bytes, const char *name, int helpers,
                             td_trace **out_trace) TD_MUST_USE;
void td_trace_destroy(td_trace *trace);

/* For who fills in plans: the order that td_trace_find needs. */
td_status *td_trace_index_plans(td_trace *trace) TD_MUST_USE;
/* The plan that an id of a node or subgraph belongs to, and the number there; NULL: none. *out_node or *out_subgraph is -1. */
const td_trace_plan *td_trace_find(const td_trace *trace, uint32_t id, int32_t *out_node, int32_t *out_subgraph);
/* A trace of a folder: `path` itself where it is a file; else the newest trace in it or in its profile/. td_free it. */
td_status *td_trace_locate(const char *path, char **out_file) TD_MUST_USE;

#endif
