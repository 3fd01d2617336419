/* The profiler: when to record, and emptying the rings into the file. See tandem/profiler.h.
 *
 * Sessions look in when a step is admitted and when it has ended; that is where recording begins and ends, and where rings are
 * emptied: there is no thread for it. Whatever fails turns the profiler off and is remembered. */
#include "runtime/profiler.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/trace_writer.h"
#include "runtime/profiler_plan.h"

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

static void turn_off(td_profiler *profiler, td_status *status)
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

/* ---- the file ------------------------------------------------------------------------------------------------------------------ */

static td_status *write_text(td_profiler *profiler, trace_chunk_type type, const char *text)
{
    return td_trace_write(profiler->writer, type, text, strlen(text));
}

/* What may stand between quotes. */
static void make_plain(char *text)
{
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '?';
}

static td_status *write_info(td_profiler *profiler)
{
    char host[64] = "", text[1200];
    const td_profiler_options *o = &profiler->options;
    (void)gethostname(host, sizeof host - 1);
    make_plain(host);
    (void)snprintf(text, sizeof text,
                   "{\"host\":\"%s\",\"process\":%ld,\"rank\":%d,\"ranks\":%d,\"role\":\"%.64s\",\"clock\":\"%s\","
                   "\"ring_records\":%d,"
                   "\"event_ns\":%.3f,\"off_ns\":%.3f,"
                   "\"schedule\":{\"skip\":%lld,\"wait\":%lld,\"warm_up\":%lld,\"active\":%lld,\"repeat\":%lld}}",
                   host, (long)getpid(), o->rank, o->ranks, profiler->role ? profiler->role : "", td_ticks_name(),
                   o->ring_records, profiler->event_ns, profiler->off_ns, (long long)o->skip, (long long)o->wait,
                   (long long)o->warm_up, (long long)o->active, (long long)o->repeat);
    return write_text(profiler, TRACE_INFO, text);
}

int32_t td_profiler_next_number(const char *directory)
{
    DIR *entries = opendir(directory);
    long most = 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        long number = strncmp(entry->d_name, "trace-", 6) ? 0 : strtol(entry->d_name + 6, NULL, 10);
        most = number > most && number < INT32_MAX ? number : most;
    }
    if (entries)
        (void)closedir(entries);
    return (int32_t)most + 1;
}

/* trace-0001.tdt, or of another rank trace-0001.rank2.tdt, and so on. */
static td_status *open_file(td_profiler *profiler)
{
    char rank[32] = "";
    TD_TRY(td_directory_create(profiler->directory));
    int32_t number = profiler->options.number ? profiler->options.number : td_profiler_next_number(profiler->directory);
    if (profiler->options.rank)
        (void)snprintf(rank, sizeof rank, ".rank%d", profiler->options.rank);
    td_free(profiler->path);
    profiler->path = td_format("%s/trace-%04d%s.tdt", profiler->directory, number, rank);
    if (!profiler->path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    TD_TRY(td_trace_writer_open(profiler->path, &profiler->writer));
    TD_TRY(write_info(profiler));
    for (int64_t i = 0; i < profiler->n_notes; i++)
        TD_TRY(write_text(profiler, TRACE_INFO, profiler->notes[i]));
    return td_trace_write_clock(profiler->writer);
}

static td_status *drain(td_profiler *profiler)
{
    uint64_t from = td_record_begin(), written = 0;
    td_record_span span;
    TD_TRY(td_trace_write_clock(profiler->writer)); /* before the records: a file that is cut there has their rate */
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span)) {
            TD_TRY(
                td_trace_write_records(profiler->writer, span.thread, span.name, span.records, span.n, span.dropped));
            td_record_consume(i, &span);
            written += span.n;
            profiler->dropped += span.dropped;
        }
    profiler->records += written;
    uint64_t homeless = td_record_homeless();
    profiler->dropped += homeless;
    profiler->homeless += homeless;
    profiler->drained_ns = td_clock_ns();
    td_status *status = td_trace_writer_flush(profiler->writer); /* whatever becomes of this process */
    td_record_end(TD_RECORD_FLUSH, 0, (uint32_t)profiler->completed_step + 1, from, written);
    return status;
}

/* What lies in the rings from before this profiler, or from between two windows. */
static void discard(void)
{
    td_record_span span;
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span))
            td_record_consume(i, &span);
    (void)td_record_homeless();
}

/* ---- what a hook costs -------------------------------------------------------------------------------------------------------------- */

/* Of a pair of hook points with recording on, and off. Nothing else is recording. */
static void measure_hooks(td_profiler *profiler)
{
    enum { TIMES = 2000 };
    int64_t best_on = INT64_MAX, best_off = INT64_MAX;
    for (int round = 0; round < 5; round++) {
        int64_t begin = td_clock_ns();
        for (int i = 0; i < TIMES; i++)
            td_record_end(TD_RECORD_NONE, 0, 0, td_record_begin(), 0);
        int64_t middle = td_clock_ns();
        td_record_switch(true);
        for (int i = 0; i < TIMES; i++)
            td_record_end(TD_RECORD_NONE, 0, 0, td_record_begin(), 0);
        td_record_switch(false);
        int64_t end = td_clock_ns();
        best_off = middle - begin < best_off ? middle - begin : best_off;
        best_on = end - middle < best_on ? end - middle : best_on;
        discard();
    }
    profiler->event_ns = (double)best_on / TIMES;
    profiler->off_ns = (double)best_off / TIMES;
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
        make_plain(profiler->role);
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
    discard();
    if (profiler->writer)
        return NULL;
    measure_hooks(profiler);
    return open_file(profiler);
}

static void begin_window(td_profiler *profiler, int64_t first, int64_t last)
{
    td_status *status = prepare(profiler);
    if (status) {
        turn_off(profiler, status);
        return;
    }
    profiler->recording = true;
    profiler->first_step = first;
    profiler->last_step = last;
    profiler->completed_step = first - 1;
    profiler->window_begin = td_ticks();
    profiler->drained_ns = td_clock_ns();
    td_record_switch(true);
    if (profiler->lost_ns)
        td_record_end(TD_RECORD_RECOVERY, 0, (uint32_t)first, td_record_begin(),
                      (uint64_t)(profiler->drained_ns - profiler->lost_ns) / 1000000);
    profiler->lost_ns = 0;
}

static td_status *write_window(td_profiler *profiler, int64_t last)
{
    trace_window window = {
        .begin = profiler->window_begin, .end = td_ticks(), .first_step = profiler->first_step, .last_step = last};
    char *keys = td_profiler_keys_json(profiler);
    td_status *status = keys ? write_text(profiler, TRACE_INFO, keys) : NULL;
    td_free(keys);
    TD_TRY(status);
    TD_TRY(drain(profiler));
    TD_TRY(td_trace_write_clock(profiler->writer));
    TD_TRY(td_trace_write(profiler->writer, TRACE_WINDOW, &window, sizeof window));
    return td_trace_writer_flush(profiler->writer);
}

static void end_window(td_profiler *profiler)
{
    if (!profiler->recording)
        return;
    td_record_switch(false);
    profiler->recording = false;
    int64_t last = profiler->completed_step < profiler->last_step ? profiler->completed_step : profiler->last_step;
    turn_off(profiler, last >= profiler->first_step ? write_window(profiler, last) : drain(profiler));
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
    begin_window(profiler, first, last);
}

static void look_at_schedule(td_profiler *profiler, int64_t step)
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

/* ---- where sessions look in ------------------------------------------------------------------------------------------------------- */

/* Tells the trace what the session's ids mean, once a profiler. */
static td_status *make_known(td_profiler *profiler, td_session *session)
{
    char *text = NULL;
    if (session->record_known == profiler->generation)
        return NULL;
    TD_TRY(td_profiler_plan_json(session, profiler->first_id, &text));
    td_status *status = write_text(profiler, TRACE_PLAN, text);
    td_free(text);
    session->record_base = profiler->first_id;
    session->record_known = profiler->generation;
    profiler->first_id += (uint32_t)session->plan->graph->n_nodes + (uint32_t)session->plan->n_clusters;
    return status;
}

void td_session_profile_admit(td_session *session, td_step_slot *slot, uint64_t from)
{
    td_profiler *profiler = atomic_load_explicit(&current, memory_order_acquire);
    int64_t window = session->store->steps + session->windows_ending + !slot->ends_window; /* its own end is counted */
    int64_t step = session->plan->training ? window : slot->step;
    slot->record_step = (uint32_t)step;
    slot->record_micro = (uint32_t)slot->micro;
    slot->record_base = session->record_base;
    slot->record_micro_from = 0;
    slot->record_from = slot->micro ? session->slots[(slot->step - 1) % TD_STEP_SLOTS].record_from : 0;
    if (!profiler)
        return;
    pthread_mutex_lock(&profiler->mutex);
    if (session->plan->training && !slot->micro)
        look_at_schedule(profiler, step);
    if (profiler->recording)
        turn_off(profiler, make_known(profiler, session));
    slot->record_base = session->record_base;
    pthread_mutex_unlock(&profiler->mutex);
    slot->record_micro_from = from ? from : td_record_begin();
    if (!slot->record_from)
        slot->record_from = slot->record_micro_from;
    if (from)
        td_record_write(TD_RECORD_ADMIT, 0, slot->record_step, slot->record_micro, from, td_ticks(), 0);
}

static void sample_processor(uint32_t step)
{
    struct timespec used;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0)
        td_record_sample(TD_RECORD_PROCESSOR, 0, step, (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec);
}

static void sample_devices(const td_session *session, const td_step_slot *slot)
{
    for (int32_t s = 0; s < session->plan->n_sites; s++) {
        const td_plan_site *site = &session->plan->sites[s];
        uint64_t now = 0, peak = 0;
        if (site->api->memory_in_use)
            site->api->memory_in_use(site->device, &now, &peak);
        if (site->is_host)
            now += (uint64_t)(session->store->pool.n_held * session->store->pool.page_bytes);
        td_record_sample(TD_RECORD_MEMORY, (uint32_t)s, slot->record_step, now);
    }
    sample_processor(slot->record_step);
}

/* Rings that are filling up are emptied, and all of them once a second. */
static void look_at_rings(td_profiler *profiler)
{
    if (profiler->recording && (td_record_fill() > 0.5 || td_clock_ns() - profiler->drained_ns > 1000000000))
        turn_off(profiler, drain(profiler));
}

void td_session_profile_complete(td_session *session, const td_step_slot *slot)
{
    td_profiler *profiler = atomic_load_explicit(&current, memory_order_acquire);
    if (!profiler || !td_record_on())
        return;
    if ((slot->micro || !slot->ends_window) && slot->record_micro_from)
        td_record_write(TD_RECORD_MICRO_STEP, slot->record_base, slot->record_step, slot->record_micro,
                        slot->record_micro_from, td_ticks(), (uint64_t)slot->batch.samples);
    if (!slot->ends_window)
        return;
    int64_t before = slot->micro ? session->window.samples : 0;
    td_record_end(TD_RECORD_STEP, slot->record_base, slot->record_step, slot->record_from,
                  (uint64_t)(before + slot->batch.samples));
    sample_devices(session, slot);
    if (!session->plan->training)
        return;
    pthread_mutex_lock(&profiler->mutex);
    profiler->completed_step = slot->record_step;
    if (profiler->recording && slot->record_step >= profiler->last_step)
        end_window(profiler);
    else
        look_at_rings(profiler);
    pthread_mutex_unlock(&profiler->mutex);
}

void td_profiler_follow(td_profiler *profiler, int64_t step)
{
    pthread_mutex_lock(&profiler->mutex);
    if (profiler->recording && step) {
        profiler->completed_step = step;
        sample_processor((uint32_t)step);
        look_at_rings(profiler);
    } else if (profiler->recording) {
        end_window(profiler);
    } else if (step && !profiler->off) {
        begin_window(profiler, step + 1, INT64_MAX);
    }
    pthread_mutex_unlock(&profiler->mutex);
}

void td_session_profile_rest(td_session *session)
{
    td_profiler *profiler = atomic_load_explicit(&current, memory_order_acquire);
    (void)session;
    if (!profiler || !td_record_on())
        return;
    pthread_mutex_lock(&profiler->mutex);
    if (profiler->recording)
        turn_off(profiler, drain(profiler));
    if (profiler->writer)
        turn_off(profiler, td_trace_writer_flush(profiler->writer));
    pthread_mutex_unlock(&profiler->mutex);
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
    end_window(profiler);
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
    td_status *status = profiler->writer ? write_text(profiler, TRACE_INFO, json) : keep_note(profiler, json);
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
