/* A profiler's own structure: see tandem/profiler.h and runtime/profiler.c. */
#ifndef TANDEM_RUNTIME_PROFILER_H
#define TANDEM_RUNTIME_PROFILER_H

#include <pthread.h>

#include "base/trace_writer.h"
#include "partition/plan.h"
#include "runtime/hot_keys.h"
#include "tandem/profiler.h"

/* Ids of the tables that share them. */
typedef struct td_profiler_keys {
    char *tables;
    bool hashed; /* `hot` has keys of ids (base/key.h) */
    td_hot_keys hot;
} td_profiler_keys;

struct td_profiler {
    pthread_mutex_t mutex; /* of all below; sessions take it when a step is admitted and when it has ended */
    td_profiler_options options;
    char *directory, *path, *error, *role;
    char **notes; /* facts that came before there was a file */
    int64_t n_notes, notes_capacity;
    td_profiler_keys *keys; /* by group of tables */
    int64_t n_keys, keys_capacity;
    uint64_t generation; /* unlike any other profiler's of the process */
    uint32_t first_id;   /* of the next plan */
    td_trace_writer *writer;
    bool recording, off, scheduled, asked_to_start;
    atomic_bool requested;
    int64_t first_step, last_step, completed_step; /* of the window that is recorded */
    uint64_t window_begin;
    int64_t window_ns;       /* the same moment on the monotonic clock */
    uint64_t window_records; /* that had been written before */
    int64_t drained_ns;
    uint64_t records, dropped, homeless;
    int64_t lost_ns; /* when a job that goes on lost ranks; 0: it did not, or a window has said so */
    double event_ns, off_ns;
};

/* For a rank that runs no session: step `step` has ended here, and recording goes on from the next one; 0: the workers do not record. */
void td_profiler_follow(td_profiler *profiler, int64_t step);

/* ---- profiler.c: with the mutex held ---- */
/* Takes the status; what is no error is nothing. */
void td_profiler_turn_off(td_profiler *profiler, td_status *status);
/* A training's step is about to begin. */
void td_profiler_look_at_schedule(td_profiler *profiler, int64_t step);
void td_profiler_begin_window(td_profiler *profiler, int64_t first, int64_t last);
void td_profiler_end_window(td_profiler *profiler);

/* ---- profiler_file.c ---- */
td_status *td_profiler_open_file(td_profiler *profiler) TD_MUST_USE;
td_status *td_profiler_write_text(td_profiler *profiler, trace_chunk_type type, const char *text) TD_MUST_USE;
/* Empties the rings into the file. */
td_status *td_profiler_drain(td_profiler *profiler) TD_MUST_USE;
/* What lies in the rings from before this profiler, or from between two windows. */
void td_profiler_discard(void);
/* What a hook costs with recording on and off, into event_ns and off_ns. Nothing else is recording. */
void td_profiler_measure_hooks(td_profiler *profiler);
/* What may stand between quotes. */
void td_profiler_make_plain(char *text);

/* ---- profiler_keys.c ---- */
/* The ids (of hash tables: their keys) of a batch of the plan's key group k, one for each lookup, of which so many are distinct; nothing
 * while nothing is recorded. Never fails: what it has no memory for is left out. */
void td_profiler_count_keys(const td_plan *plan, int32_t k, const int64_t *ids, int64_t n, int64_t distinct);
/* What was counted, as a JSON object for the trace's information; NULL: nothing, or no memory. td_free it. */
char *td_profiler_keys_json(td_profiler *profiler);
void td_profiler_free_keys(td_profiler *profiler);
/* The process's profiler; NULL: it has none. */
td_profiler *td_profiler_current(void);

#endif
