/* Where sessions look in at the profiler: when a step is admitted, when it has ended, and when a run has. See runtime/profiler.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/profiler.h"
#include "runtime/profiler_plan.h"

/* Tells the trace what the session's ids mean, once a profiler. */
static td_status *make_known(td_profiler *profiler, td_session *session)
{
    char *text = NULL;
    if (session->record_known == profiler->generation)
        return NULL;
    TD_TRY(td_profiler_plan_json(session, profiler->first_id, &text));
    td_status *status = td_profiler_write_text(profiler, TRACE_PLAN, text);
    td_free(text);
    session->record_base = profiler->first_id;
    session->record_known = profiler->generation;
    profiler->first_id += (uint32_t)session->plan->graph->n_nodes + (uint32_t)session->plan->n_clusters;
    return status;
}

void td_session_profile_admit(td_session *session, td_step_slot *slot, uint64_t from)
{
    td_profiler *profiler = td_profiler_current();
    int64_t window = session->store->steps + session->windows_ending + !slot->ends_window; /* its own end is counted */
    int64_t step = session->plan->training ? window : slot->step;
    slot->record_step = (uint32_t)step;
    slot->record_micro = (uint32_t)slot->micro;
    slot->record_base = session->record_base;
    slot->record_micro_from = from; /* 0: recording was off */
    slot->record_from = slot->micro ? session->slots[(slot->step - 1) % TD_STEP_SLOTS].record_from : 0;
    slot->record_from = slot->record_from ? slot->record_from : from;
    if (!profiler) /* who records by himself, to see what it costs */
        return;
    pthread_mutex_lock(&profiler->mutex);
    if (session->plan->training && !slot->micro)
        td_profiler_look_at_schedule(profiler, step);
    if (profiler->recording)
        td_profiler_turn_off(profiler, make_known(profiler, session));
    slot->record_base = session->record_base;
    pthread_mutex_unlock(&profiler->mutex);
    slot->record_micro_from = from ? from : td_record_begin(); /* it may have begun here */
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
        td_profiler_turn_off(profiler, td_profiler_drain(profiler));
}

void td_session_profile_complete(td_session *session, const td_step_slot *slot)
{
    td_profiler *profiler = td_profiler_current();
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
        td_profiler_end_window(profiler);
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
        td_profiler_end_window(profiler);
    } else if (step && !profiler->off) {
        td_profiler_begin_window(profiler, step + 1, INT64_MAX);
    }
    pthread_mutex_unlock(&profiler->mutex);
}

void td_session_profile_rest(td_session *session)
{
    td_profiler *profiler = td_profiler_current();
    (void)session;
    if (!profiler || !td_record_on())
        return;
    pthread_mutex_lock(&profiler->mutex);
    if (profiler->recording)
        td_profiler_turn_off(profiler, td_profiler_drain(profiler));
    if (profiler->writer)
        td_profiler_turn_off(profiler, td_trace_writer_flush(profiler->writer));
    pthread_mutex_unlock(&profiler->mutex);
}
