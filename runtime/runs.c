/* Which micro-batches a session trains on: pulling them from a source, their windows, what comes after a loss that is not finite.
 * See steps.h. */
#include <inttypes.h>
#include <limits.h>

#include "base/record.h"
#include "runtime/steps.h"

/* ---- the next micro-batch -------------------------------------------------------------------------------------------------- */

/* Pulls a batch of the source to `ahead`, where there is none yet: that of micro-step `micro`, if its window goes on till then. */
static td_status *look_ahead(td_session *session, td_source *source, int64_t micro)
{
    td_batch_ahead *ahead = &session->ahead;
    double begin = td_session_now();
    uint64_t from = td_record_begin();
    if (ahead->has_batch || ahead->at_end)
        return NULL;
    TD_TRY(source->next(source->self, &ahead->batch, &ahead->at_end));
    ahead->has_batch = !ahead->at_end;
    ahead->wait_data_s = td_session_now() - begin;
    if (ahead->has_batch && from)
        td_record_write(TD_RECORD_DATA_WAIT, 0, td_session_next_step(session), (uint32_t)micro, from, td_ticks(), 0);
    return NULL;
}

/* A batch that was only looked at is the source's next one again. */
static void release_ahead(td_session *session, td_source *source)
{
    session->ahead.batch.unused = true;
    if (session->ahead.has_batch)
        source->release(source->self, &session->ahead.batch);
    session->ahead = (td_batch_ahead){0};
}

/* Which micro-batch of which window the slot's is. A window ends when it is full, and with the data or the epoch; batches of which a
 * whole window must be known before it begins say it themselves. */
static td_status *place_in_window(td_session *session, td_source *source, td_step_slot *slot)
{
    int64_t window = session->store->steps + session->windows_ending + 1;
    const td_batch *batch = &slot->batch;
    if (batch->n_window) {
        slot->micro = batch->window_at;
        slot->accumulate = session->plan->in_job ? 1 : td_plan_accumulate(session->plan, window);
        slot->ends_window = batch->window_at + 1 == batch->n_window;
        return NULL;
    }
    slot->micro = session->mid_window ? td_slot_of(session, slot->step - 1)->micro + 1 : 0;
    slot->accumulate = session->plan->training ? td_plan_accumulate(session->plan, window) : 1;
    slot->ends_window = slot->micro + 1 >= slot->accumulate * session->plan->replicas;
    if (slot->ends_window)
        return NULL;
    TD_TRY(look_ahead(session, source, slot->micro + 1));
    slot->ends_window = session->ahead.at_end || session->ahead.batch.epoch != slot->batch.epoch;
    return NULL;
}

/* The next batch of the source, if there is one. */
static td_status *fetch(td_session *session, td_source *source, td_step_slot **out_slot, bool *out_end)
{
    int64_t step = session->admitted + 1;
    td_step_slot *slot = td_slot_of(session, step);
    *out_slot = NULL;
    td_slot_release_batch(slot); /* of three steps before: kept for early lookups, or released already */
    TD_TRY(look_ahead(session, source, session->mid_window ? td_slot_of(session, step - 1)->micro + 1 : 0));
    *out_end = session->ahead.at_end;
    if (*out_end)
        return NULL;
    slot->batch = session->ahead.batch;
    slot->wait_data_s = session->ahead.wait_data_s;
    slot->has_batch = true;
    slot->source = source;
    slot->step = step;
    session->ahead = (td_batch_ahead){0};
    td_status *status = place_in_window(session, source, slot);
    if (status)
        td_slot_release_batch(slot);
    else
        *out_slot = slot;
    return status;
}

/* ---- runs ----------------------------------------------------------------------------------------------------------------------------- */

static td_status *begin_run(td_session *session)
{
    if (session->broken)
        return TD_ERROR(
            TD_INVALID_ARGUMENT,
            "an earlier error spoilt parameters (it struck in the middle of an update, or they are no finite "
            "numbers): load a checkpoint into a new store");
    TD_TRY(td_store_begin_run(session->store, session->plan));
    td_session_follow_arenas(session);
    session->last_report_s = 0;
    return NULL;
}

/* Lanes rest: what they counted is read here, and only here. */
static void keep_counters(td_session *session)
{
    session->ended_counters = session->counters;
    for (int32_t i = 0; i < session->n_lanes; i++) {
        td_lane *lane = &session->lanes[i];
        lane->ended_busy_s = lane->busy_s;
        lane->ended_kernels = lane->kernels;
        lane->ended_copied_bytes = lane->copied_bytes;
    }
}

/* Ends a run: everything in flight has ended. Batches go back; the first error comes out. */
static td_status *end_run(td_session *session, double begin_s, td_status *status)
{
    for (int32_t i = 0; i < TD_STEP_SLOTS; i++)
        td_slot_release_batch(&session->slots[i]);
    session->mid_window = false; /* after an error: nothing of that window was applied */
    session->counters.seconds += td_session_now() - begin_s;
    session->counters.exposed_s = session->timeline.exposed_s;
    session->counters.copy_or_host_s = session->timeline.others_s;
    keep_counters(session);
    td_session_profile_rest(session);
    td_store_end_run(session->store);
    atomic_store(&session->stop_requested, false);
    td_session_forget_failure(session);
    td_status *error = session->error;
    session->error = NULL;
    if (!error)
        return status;
    td_status_destroy(status);
    return error;
}

typedef struct run_state {
    td_source *source;
    int64_t steps_left; /* windows to begin; -1: no limit */
    bool more;          /* windows may still begin */
    bool failed;        /* not even the window that has begun goes on */
    td_on_step on_step;
    void *context;
} run_state;

/* The caller's own code after a step: whether to go on. */
static bool tell(const run_state *run, const td_step_report *report)
{
    uint64_t from = td_record_begin();
    bool more = !run->on_step || run->on_step(run->context, report);
    td_record_end(TD_RECORD_CALLBACK, 0, (uint32_t)report->step, from, 0);
    return more;
}

static td_status *admit_next(td_session *session, run_state *run)
{
    td_step_slot *slot = NULL;
    bool end = false;
    td_status *status = fetch(session, run->source, &slot, &end);
    bool begins = slot && !slot->micro;
    if (!status && slot)
        status = td_session_admit(session, slot);
    if (begins && run->steps_left > 0)
        run->steps_left--;
    if (status || end || run->steps_left == 0)
        run->more = false;
    run->failed = run->failed || status;
    return status;
}

/* The micro-batch after a held one did no work either; its batch, of the next window, is the next to be trained on. */
static td_status *admit_again(td_session *session, td_step_slot *from)
{
    td_step_slot *slot = td_slot_of(session, session->admitted + 1);
    td_slot_release_batch(slot);
    td_slot_drop_fields(from);
    slot->batch = from->batch;
    slot->source = from->source;
    slot->wait_data_s = from->wait_data_s;
    slot->micro = from->micro;
    slot->accumulate = from->accumulate;
    slot->ends_window = from->ends_window;
    slot->step = session->admitted + 1;
    slot->has_batch = true;
    from->has_batch = false;
    session->rest += from->rests; /* it did not rest after all */
    return td_session_admit(session, slot);
}

/* What comes after `last` in its window: counted and given back. */
static td_status *drop_rest(td_session *session, td_source *source, const td_step_slot *last)
{
    td_batch_ahead *ahead = &session->ahead;
    int64_t micro = last->micro, window = last->accumulate * session->plan->replicas;
    for (bool ends = last->ends_window; !ends;) {
        TD_TRY(look_ahead(session, source, micro + 1)); /* unless somebody has, to know that the window goes on */
        const td_batch *batch = &ahead->batch;
        const bool says_end = batch->n_window && batch->window_at + 1 == batch->n_window;
        td_session_drop_batch(session, batch, ahead->wait_data_s);
        source->release(source->self, &ahead->batch);
        *ahead = (td_batch_ahead){0};
        ends = ++micro + 1 >= window || says_end;
        if (!ends)
            TD_TRY(look_ahead(session, source, micro + 1));
        ends = ends || ahead->at_end || ahead->batch.epoch != last->batch.epoch;
    }
    session->mid_window = false;
    return NULL;
}

/* The held micro-batch's window. One more micro-batch may be in flight, which does no work: of the same window, it is dropped
 * with the rest; of the next, it is *out_next. */
static td_status *drop_window(td_session *session, td_source *source, td_step_slot *held, td_step_slot **out_next)
{
    const td_step_slot *last = held;
    td_step_report none;
    *out_next = NULL;
    td_session_count_in_window(session, held);
    if (session->admitted > session->completed) {
        td_step_slot *next = td_slot_of(session, session->completed + 1);
        (void)td_session_complete_oldest(session, &none);
        *out_next = held->ends_window ? next : NULL;
        if (!*out_next) {
            td_session_drop_batch(session, &next->batch, next->wait_data_s);
            last = next;
        }
    }
    return session->error || session->plan->on_nan != TD_NAN_SKIP ? NULL : drop_rest(session, source, last);
}

static td_status *go_on_after_held(td_session *session, run_state *run, td_step_report *report)
{
    td_step_slot *held = td_slot_of(session, session->completed), *next = NULL;
    td_status *status = drop_window(session, run->source, held, &next);
    if (!status && !session->error)
        status = td_session_settle_held(session, held, report);
    if (status || session->error) {
        run->more = false;
        run->failed = true;
        return status;
    }
    if (!tell(run, report))
        run->more = false;
    td_slot_release_batch(held);
    return next ? admit_again(session, next) : NULL;
}

static void release_done(td_session *session)
{
    if (!session->plan->early_lookup)
        td_slot_release_batch(td_slot_of(session, session->completed));
    else if (session->completed > 1)
        td_slot_release_batch(td_slot_of(session, session->completed - 1));
}

/* What the oldest micro-batch, which has ended, means for the run. */
static td_status *go_on(td_session *session, run_state *run, td_outcome how, td_step_report *report)
{
    td_status *status = NULL;
    if (how == TD_STEP_HELD && !run->failed)
        status = go_on_after_held(session, run, report);
    else if (how == TD_STEP_HELD || how == TD_STEP_FAILED)
        run->failed = true;
    else if (how == TD_STEP_DONE && !tell(run, report))
        run->more = false;
    release_done(session);
    return status;
}

static td_status *run_steps(td_session *session, run_state *run)
{
    int64_t most_in_flight = session->plan->pipelined ? 2 : 1;
    td_status *status = NULL, *first = NULL;
    for (;;) {
        run->more = run->more && !atomic_load(&session->stop_requested);
        bool sound = atomic_load(&session->failed_at) == LLONG_MAX && !run->failed;
        bool wanted = run->more || session->mid_window;
        td_step_report report;
        if (wanted && sound && session->admitted - session->completed < most_in_flight)
            status = admit_next(session, run);
        else if (session->admitted > session->completed)
            status = go_on(session, run, td_session_complete_oldest(session, &report), &report);
        else
            return first;
        if (first)
            td_status_destroy(status);
        else
            first = status;
    }
}

td_status *td_session_run(td_session *session, td_source *source, int64_t steps, td_on_step on_step, void *context)
{
    TD_TRY(begin_run(session));
    double begin = td_session_now();
    run_state run = {
        .source = source, .steps_left = steps > 0 ? steps : -1, .more = true, .on_step = on_step, .context = context};
    td_status *status = run_steps(session, &run);
    release_ahead(session, source);
    return end_run(session, begin, status);
}

/* ---- steps on batches in hand ------------------------------------------------------------------------------------------------ */

/* Micro-batch `micro` of a window of n. */
static td_status *admit_in_hand(td_session *session, const td_batch *batches, int64_t micro, int64_t n)
{
    const td_batch *batch = &batches[micro];
    td_step_slot *slot = td_slot_of(session, session->admitted + 1);
    td_slot_release_batch(slot); /* of three micro-batches before: its keys and places */
    slot->step = session->admitted + 1;
    slot->batch = *batch;
    slot->source = NULL;
    slot->has_batch = true;
    slot->wait_data_s = 0;
    slot->micro = micro;
    slot->accumulate = session->plan->training ? td_plan_accumulate(session->plan, session->store->steps + 1) : 1;
    slot->ends_window = micro + 1 == n;
    if (!batch->n_window && !session->plan->in_job) {
        slot->batch.window = batches;
        slot->batch.window_at = (int32_t)micro;
        slot->batch.n_window = (int32_t)n;
    }
    return td_session_admit(session, slot);
}

/* *out_slot: the micro-batch that ended last, *out_how: how. */
static td_status *run_window(td_session *session, const td_batch *batches, int64_t n, td_step_report *report,
                             td_step_slot **out_slot, td_outcome *out_how)
{
    int64_t most_in_flight = session->plan->pipelined ? 2 : 1, micro = 0;
    td_status *status = NULL;
    td_step_report none;
    *out_how = TD_STEP_GOES_ON;
    while (!status && *out_how == TD_STEP_GOES_ON) {
        if (micro < n && session->admitted - session->completed < most_in_flight) {
            status = admit_in_hand(session, batches, micro, n);
            micro++;
            continue;
        }
        *out_slot = td_slot_of(session, session->completed + 1);
        *out_how = td_session_complete_oldest(session, report);
    }
    while (session->admitted > session->completed)
        (void)td_session_complete_oldest(session, &none);
    return status;
}

td_status *td_session_step_window(td_session *session, const td_batch *batches, int64_t n, td_step_report *out_report)
{
    td_step_slot *slot = NULL;
    td_outcome how;
    const td_plan *plan = session->plan;
    int64_t step = session->store->steps + 1,
            most = plan->training ? (int64_t)plan->replicas * td_plan_accumulate(plan, step) : 1;
    *out_report = (td_step_report){0};
    if (n < 1 || n > most)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "step %" PRId64 " takes 1 to %" PRId64 " micro-batches (replicas x accumulate), not %" PRId64,
                        step, most, n);
    TD_TRY(begin_run(session));
    double begin = td_session_now();
    td_status *status = run_window(session, batches, n, out_report, &slot, &how);
    if (!status && how == TD_STEP_HELD && !session->error) {
        td_session_count_in_window(session, slot);
        for (int64_t i = slot->micro + 1; i < n; i++)
            td_session_drop_batch(session, &batches[i], 0);
        status = td_session_settle_held(session, slot, out_report);
    }
    out_report->batch = &batches[n - 1];
    return end_run(session, begin, status);
}

td_status *td_session_step(td_session *session, const td_batch *batch, td_step_report *out_report)
{
    return td_session_step_window(session, batch, 1, out_report);
}
