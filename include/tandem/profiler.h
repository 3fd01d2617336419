/* The profiler: records what happens when in training runs, and tells what a recording shows.
 *
 *     td_profiler_options options = td_profiler_defaults();
 *     options.directory = "runs/x/profile";
 *     options.active = 10;                                         // steps 6 to 15
 *     td_profiler *profiler = NULL;
 *     TD_TRY(td_profiler_create(&options, &profiler));
 *     TD_TRY(td_session_run(session, source, steps, on_step, context));
 *     td_profiler_stop(profiler);
 *     char *text = NULL;
 *     TD_TRY(td_profiler_analyse(td_profiler_trace(profiler), TD_PROFILER_LAST_WINDOW, &text));   // JSON; td_text_free(text)
 *     td_profiler_destroy(profiler);
 *
 * One profiler at a time in a process; it records every session that trains, whichever thread it runs on, and the threads that
 * work for it. Recording never changes a result and never ends a run: where something fails (a full disk, say) the profiler
 * turns itself off, and td_profiler_error says why. Memory is fixed: records for which there is no room are dropped and
 * counted. Calls are safe from any thread, td_profiler_request from a signal handler too. */
#ifndef TANDEM_PROFILER_H
#define TANDEM_PROFILER_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_profiler td_profiler;

/* A schedule in steps of the training, counted from 1: `skip` steps are left alone, once; then `wait` steps are left alone,
 * `warm_up` steps recorded and not analysed, `active` steps recorded, and that `repeat` times (0: until the run ends). */
typedef struct td_profiler_options {
    const char *directory; /* for trace files, made when the first is written; borrowed for the call */
    int64_t skip, wait, warm_up, active, repeat;
    bool start;           /* follow the schedule from the beginning; false: wait for td_profiler_start or _request */
    int32_t ring_records; /* of each thread, rounded up to a power of two, at most 65,536; a record has 32 bytes */
    int32_t rank;         /* of a job of several processes: part of the file's name */
    int32_t ranks;        /* how many the job has; 0: it is no job */
    const char *role;     /* in it: "worker 1"; borrowed for the call; NULL: none */
    int32_t number;       /* of the file, the same for all ranks; 0: the next that is free */
} td_profiler_options;

/* skip 4, warm_up 1, active 10, repeat 1: steps 6 to 15. */
td_profiler_options td_profiler_defaults(void);

td_status *td_profiler_create(const td_profiler_options *options, td_profiler **out_profiler) TD_MUST_USE;
/* Stops, and ends the file. NULL is fine. No session may be running. */
void td_profiler_destroy(td_profiler *profiler);
/* Records from the next step on, until td_profiler_stop, whatever the schedule. */
void td_profiler_start(td_profiler *profiler);
/* Ends recording, and the schedule; what was recorded is in the file when it returns. While a session runs, steps in flight are
 * left out. */
void td_profiler_stop(td_profiler *profiler);
/* Asks for one more window of warm_up and active steps from the next step on. Safe in a signal handler. */
void td_profiler_request(td_profiler *profiler);
bool td_profiler_is_recording(const td_profiler *profiler);
/* The number of the next recording in a folder: one more than the largest of any rank's. */
int32_t td_profiler_next_number(const char *directory);
/* The file; NULL while nothing was recorded. It lives as long as the profiler. */
const char *td_profiler_trace(const td_profiler *profiler);
/* Why the profiler turned itself off; NULL: it did not. */
const char *td_profiler_error(const td_profiler *profiler);
/* Records written and dropped so far. */
void td_profiler_counts(const td_profiler *profiler, uint64_t *out_records, uint64_t *out_dropped);
/* Adds facts to the trace: a JSON object whose keys join those of "info". Before anything was recorded it is kept until then. */
td_status *td_profiler_note(td_profiler *profiler, const char *json) TD_MUST_USE;

/* The job goes on without ranks that it lost, as was known here at that moment of the monotonic clock: its next window begins with a
 * mark. */
void td_profiler_mark_recovery(td_profiler *profiler, int64_t lost_ns);

enum { TD_PROFILER_LAST_WINDOW = -1 };
/* What a trace shows, as JSON (docs/profiler.md explains every name): step trace, operators, memory, data, advice. `trace`: a
 * file. `window`: which of its recorded windows, from 0. The text is the caller's: td_text_free. */
td_status *td_profiler_analyse(const char *trace, int32_t window, char **out_json) TD_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
