/* The profiler: when to record. See tandem/profiler.h. Its file: profiler_file.c.
 *
 * Sessions look in when a step is admitted and when it has ended (profiler_session.c); that is where recording begins and ends, and
 * where rings are emptied: there is no thread for it. Whatever fails turns the profiler off and is remembered. */
#include "runtime/profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/trace_writer.h"

static _Atomic(td_profiler *) current;
static atomic_ullong generations;

td_profiler *td_profiler_current(void)
{
    return atomic_load_explicit(&current, memory_order_acquire);
}

td_profiler_options td_profiler_defaults(void)
{
    return (td_profiler_options){
        .skip = 4, .warm_up = 1, .active = 10, .repeat = 1, .start = true, .ring_records = TD_RECORD_MOST_PER_RING};
}

/* ---- failing: the run goes on ------------------------------------------------------------------------------------------------- */

void td_profiler_turn_off(td_profiler *profiler, td_status *status)
{
    if (!status)
        return;
    td_record_switch(false);
    profiler->recording = false;
    profiler->off = true;
    td_trace_writer_abandon(profiler->writer);
    profiler->writer = NULL;
    td_log(TD_LOG_WARNING, "the profiler is off: %s; training goes on", td_status_message(status));
    profiler->error = td_strdup(td_status_message(status));
    td_status_destroy(status);
}

/* ---- life ----------------------------------------------------------------------------------------------------------------------- */

static td_status *check(const td_profiler_options *o)
{
    if (o->skip < 0 || o->wait < 0 || o->warm_up < 0 || o->active < 1 || o->repeat < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "a profiler's schedule: skip, wait, warm_up and repeat are at least 0, active at least 1; not "
                        "%lld, %lld, %lld, %lld, %lld",
                        (long long)o->skip, (long long)o->wait, (long long)o->warm_up, (long long)o->repeat,
                        (long long)o->active);
    if (o->ring_records < 1 || o->ring_records > TD_RECORD_MOST_PER_RING)
        return TD_ERROR(TD_INVALID_ARGUMENT, "a profiler's ring_records is %d; it must be from 1 to %d",
                        o->ring_records, TD_RECORD_MOST_PER_RING);
    if (!o->directory)
        return TD_ERROR(TD_INVALID_ARGUMENT, "a profiler needs a directory for its traces");
    return NULL;
}

static uint32_t power_of_two(int32_t least)
{
    uint32_t n = 1;
    while (n < (uint32_t)least)
        n *= 2;
    return n;
}

td_status *td_profiler_create(const td_profiler_options *options, td_profiler **out_profiler)
{
    td_profiler *profiler = NULL, *none = NULL;
    *out_profiler = NULL;
    TD_TRY(check(options));
    TD_TRY(TD_NEW(profiler, 1));
    profiler->options = *options;
    profiler->directory = td_strdup(options->directory);
    profiler->role = options->role ? td_strdup(options->role) : NULL;
    profiler->options.directory = profiler->options.role = NULL;
    profiler->generation = atomic_fetch_add(&generations, 1) + 1;
    profiler->first_id = 1;
    profiler->scheduled = options->start;
    pthread_mutex_init(&profiler->mutex, NULL);
    td_status *status = NULL;
    if (profiler->role)
        td_profiler_make_plain(profiler->role);
    if (!profiler->directory || (options->role && !profiler->role))
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a profiler");
    else if (!atomic_compare_exchange_strong(&current, &none, profiler))
        status = TD_ERROR(TD_INVALID_ARGUMENT, "this process has a profiler already; it can have one at a time");
    if (status) {
        pthread_mutex_destroy(&profiler->mutex);
        td_free(profiler->directory);
        td_free(profiler->role);
        td_free(profiler);
        return status;
    }
    *out_profiler = profiler;
    return NULL;
}

/* ---- windows --------------------------------------------------------------------------------------------------------------------- */

/* Rings, clock and file are made ready at the first window, so that a profiler that is never asked costs nothing. */
static td_status *prepare(td_profiler *profiler)
{
    if (!td_record_open(power_of_two(profiler->options.ring_records)))
        return TD_ERROR(TD_OUT_OF_MEMORY, "no address space for the rings of records");
    td_profiler_discard();
    if (profiler->writer)
        return NULL;
    td_profiler_measure_hooks(profiler);
    return td_profiler_open_file(profiler);
}

void td_profiler_begin_window(td_profiler *profiler, int64_t first, int64_t last)
{
    td_status *status = prepare(profiler);
    if (status) {
        td_profiler_turn_off(profiler, status);
        return;
    }
    profiler->recording = true;
    profiler->first_step = first;
    profiler->last_step = last;
    profiler->completed_step = first - 1;
    profiler->window_begin = td_ticks();
    profiler->drained_ns = profiler->window_ns = td_clock_ns();
    profiler->window_records = profiler->records;
    td_record_switch(true);
    if (profiler->lost_ns)
        td_record_end(TD_RECORD_RECOVERY, 0, (uint32_t)first, td_record_begin(),
                      (uint64_t)(profiler->drained_ns - profiler->lost_ns) / 1000000);
    profiler->lost_ns = 0;
}

/* What recording took of the window's time, by what a hook costs here. */
static td_status *write_share(td_profiler *profiler, int64_t ns)
{
    char text[64];
    double share =
        ns > 0 ? profiler->event_ns * (double)(profiler->records - profiler->window_records) / (double)ns : 0;
    (void)snprintf(text, sizeof text, "{\"step_share\":%.9f}", share);
    return td_profiler_write_text(profiler, TRACE_INFO, text);
}

static td_status *write_window(td_profiler *profiler, int64_t last)
{
    const int64_t ns = td_clock_ns() - profiler->window_ns;
    trace_window window = {
        .begin = profiler->window_begin, .end = td_ticks(), .first_step = profiler->first_step, .last_step = last};
    char *keys = td_profiler_keys_json(profiler);
    td_status *status = keys ? td_profiler_write_text(profiler, TRACE_INFO, keys) : NULL;
    td_free(keys);
    TD_TRY(status);
    TD_TRY(td_profiler_drain(profiler));
    TD_TRY(td_trace_write_clock(profiler->writer));
    TD_TRY(td_trace_write(profiler->writer, TRACE_WINDOW, &window, sizeof window));
    TD_TRY(write_share(profiler, ns));
    return td_trace_writer_flush(profiler->writer);
}

void td_profiler_end_window(td_profiler *profiler)
{
    if (!profiler->recording)
        return;
    td_record_switch(false);
    profiler->recording = false;
    int64_t last = profiler->completed_step < profiler->last_step ? profiler->completed_step : profiler->last_step;
    td_profiler_turn_off(profiler,
                         last >= profiler->first_step ? write_window(profiler, last) : td_profiler_drain(profiler));
}

/* Whether the schedule has a window that goes on at `step`; the first and last step that are to be analysed. A run that is resumed
 * in the middle of a window has the rest of it. */
static bool is_scheduled(const td_profiler_options *o, int64_t step, int64_t *out_first, int64_t *out_last)
{
    int64_t length = o->wait + o->warm_up + o->active;
    int64_t which = (step - o->skip - 1) / length, within = (step - o->skip - 1) % length;
    if (step <= o->skip || (o->repeat && which >= o->repeat) || within < o->wait)
        return false;
    *out_first = o->skip + which * length + o->wait + o->warm_up + 1;
    *out_last = *out_first + o->active - 1;
    *out_first = *out_first > step ? *out_first : step;
    return true;
}

/* On the run's thread. Its name comes first: the ring that it takes has the name of then. */
static void begin_here(td_profiler *profiler, int64_t first, int64_t last)
{
    td_record_name_thread("run");
    td_profiler_begin_window(profiler, first, last);
}

void td_profiler_look_at_schedule(td_profiler *profiler, int64_t step)
{
    const td_profiler_options *o = &profiler->options;
    int64_t first = 0, last = 0;
    if (profiler->recording || profiler->off)
        return;
    if (profiler->asked_to_start) {
        profiler->asked_to_start = false;
        begin_here(profiler, step + o->warm_up, INT64_MAX);
    } else if (atomic_exchange(&profiler->requested, false)) {
        begin_here(profiler, step + o->warm_up, step + o->warm_up + o->active - 1);
    } else if (profiler->scheduled && is_scheduled(o, step, &first, &last) && last > profiler->completed_step) {
        begin_here(profiler, first, last);
    }
}

/* ---- what a user calls -------------------------------------------------------------------------------------------------------------- */

void td_profiler_start(td_profiler *profiler)
{
    pthread_mutex_lock(&profiler->mutex);
    profiler->asked_to_start = !profiler->recording;
    if (profiler->recording)
        profiler->last_step = INT64_MAX;
    pthread_mutex_unlock(&profiler->mutex);
}

void td_profiler_stop(td_profiler *profiler)
{
    pthread_mutex_lock(&profiler->mutex);
    td_profiler_end_window(profiler);
    profiler->scheduled = profiler->asked_to_start = false;
    atomic_store(&profiler->requested, false);
    pthread_mutex_unlock(&profiler->mutex);
}

void td_profiler_request(td_profiler *profiler)
{
    atomic_store(&profiler->requested, true);
}

bool td_profiler_is_recording(const td_profiler *profiler)
{
    (void)profiler;
    return td_record_on();
}

const char *td_profiler_trace(const td_profiler *profiler)
{
    return profiler->path;
}

const char *td_profiler_error(const td_profiler *profiler)
{
    return profiler->error;
}

void td_profiler_counts(const td_profiler *profiler, uint64_t *out_records, uint64_t *out_dropped)
{
    *out_records = profiler->records;
    *out_dropped = profiler->dropped;
}

static td_status *keep_note(td_profiler *profiler, const char *json)
{
    TD_TRY(td_grow(&profiler->notes, &profiler->notes_capacity, profiler->n_notes, sizeof *profiler->notes));
    profiler->notes[profiler->n_notes] = td_strdup(json);
    if (!profiler->notes[profiler->n_notes])
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for what a trace says of itself");
    profiler->n_notes++;
    return NULL;
}

td_status *td_profiler_note(td_profiler *profiler, const char *json)
{
    pthread_mutex_lock(&profiler->mutex);
    td_status *status =
        profiler->writer ? td_profiler_write_text(profiler, TRACE_INFO, json) : keep_note(profiler, json);
    if (!status && profiler->writer)
        status = td_trace_writer_flush(profiler->writer);
    pthread_mutex_unlock(&profiler->mutex);
    return status;
}

void td_profiler_mark_recovery(td_profiler *profiler, int64_t lost_ns)
{
    pthread_mutex_lock(&profiler->mutex);
    profiler->lost_ns = lost_ns;
    pthread_mutex_unlock(&profiler->mutex);
}

void td_profiler_destroy(td_profiler *profiler)
{
    if (!profiler)
        return;
    td_profiler_stop(profiler);
    atomic_store(&current, NULL);
    if (profiler->writer)
        td_status_destroy(td_trace_writer_close(profiler->writer, profiler->homeless));
    pthread_mutex_destroy(&profiler->mutex);
    for (int64_t i = 0; i < profiler->n_notes; i++)
        td_free(profiler->notes[i]);
    td_free(profiler->notes);
    td_profiler_free_keys(profiler);
    td_free(profiler->role);
    td_free(profiler->directory);
    td_free(profiler->path);
    td_free(profiler->error);
    td_free(profiler);
}
