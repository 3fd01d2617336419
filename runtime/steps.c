/* One micro-batch in, one out: admitting it to the lanes, waiting for the oldest, and what its window reports. See steps.h. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/record.h"
#include "base/units.h"
#include "runtime/steps.h"

void td_slot_drop_fields(td_step_slot *slot)
{
    if (slot->has_batch && slot->own_fields) {
        slot->batch.fields = slot->own_fields;
        slot->batch.n_fields = slot->n_own_fields;
    }
    slot->own_fields = NULL;
}

void td_slot_release_batch(td_step_slot *slot)
{
    td_slot_drop_fields(slot);
    if (slot->has_batch && slot->source)
        slot->source->release(slot->source->self, &slot->batch);
    slot->has_batch = false;
}

/* Keys of served tables, of the ids of the slot's window, and places of its batch's own. */
static td_status *fill_served(td_session *session, td_step_slot *slot)
{
    const td_plan *plan = session->plan;
    const td_batch *batch = &slot->batch;
    const bool alone = !batch->n_window;
    if (!plan->n_keys || slot->own_fields)
        return NULL;
    if (alone && slot->micro)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "micro-batches must say what window they are of (td_batch.window), or come together "
                        "(td_session_step_window), in a job and with hash tables");
    session->served_windows += !slot->micro;
    td_served_window *window = &session->served[session->served_windows % TD_STEP_SLOTS];
    if (!slot->micro)
        TD_TRY(td_served_window_fill(window, plan, alone ? batch : batch->window, alone ? 1 : batch->n_window));
    slot->own_fields = batch->fields;
    slot->n_own_fields = batch->n_fields;
    return td_served_extend(&slot->served, window, plan, &slot->batch, alone ? 0 : batch->window_at);
}

td_status *td_session_admit(td_session *session, td_step_slot *slot)
{
    td_step_slot *before = td_slot_of(session, slot->step - 1);
    bool has_before = slot->step > 1 && before->has_batch && before->step == slot->step - 1;
    uint64_t from = td_record_begin();
    td_status *status = fill_served(session, slot);
    if (!status)
        status = td_session_bind_batch(session, slot, has_before ? before : NULL);
    if (!status)
        status = td_session_set_numbers(session, slot);
    if (status) {
        td_slot_release_batch(slot);
        return status;
    }
    td_session_reset_slot(session, slot->step + 1);
    td_store_advance(session->store);
    slot->begin_s = td_session_now();
    session->admitted = slot->step;
    session->mid_window = !slot->ends_window;
    session->windows_ending += slot->ends_window;
    atomic_store_explicit(&session->bound_to, slot->step, memory_order_release);
    td_session_profile_admit(session, slot, from);
    td_session_start_step(session, slot);
    return NULL;
}

/* How many bags were looked up, and how many of them early. */
static void count_early(td_session *session, int32_t parity)
{
    const td_plan *plan = session->plan;
    for (int32_t n = 0; plan->early_lookup && n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        td_tensor ready;
        if (plan->nodes[n].early != TD_EARLY_FIRST)
            continue;
        td_value_tensor(plan->graph, node->outputs[1], session->parity_extents[parity], &ready);
        session->counters.bags_looked_up += td_tensor_elements(&ready);
        session->counters.bags_looked_up_early +=
            *(const int64_t *)td_session_address(session, node->outputs[2], parity, 0);
    }
}

static float loss_of(const td_session *session, int32_t parity)
{
    if (session->plan->loss < 0)
        return 0;
    return *(const float *)td_session_address(session, session->plan->loss, parity, 0);
}

void td_session_drop_batch(td_session *session, const td_batch *batch, double wait_data_s)
{
    td_window_so_far *window = &session->window;
    window->micro_batches = batch->window_batches ? batch->window_batches : window->micro_batches + 1;
    window->samples = batch->window_batches ? batch->window_samples : window->samples + batch->samples;
    window->wait_data_s += wait_data_s;
}

void td_session_count_in_window(td_session *session, const td_step_slot *slot)
{
    td_window_so_far *window = &session->window;
    int64_t before = slot->micro ? td_slot_of(session, slot->step - 1)->counted : 0;
    if (!slot->micro)
        *window = (td_window_so_far){.begin_s = slot->begin_s};
    td_session_drop_batch(session, &slot->batch, slot->wait_data_s);
    if (!slot->batch.window_batches)
        window->loss +=
            (double)loss_of(session, (int32_t)(slot->step % TD_PARITIES)) * (double)(slot->counted - before);
}

/* The mean over the window's samples. */
static float window_loss(const td_session *session, const td_step_slot *slot)
{
    if (!slot->micro || !slot->counted || slot->batch.window_batches) /* alone, or the window's mean already */
        return loss_of(session, (int32_t)(slot->step % TD_PARITIES));
    return (float)(session->window.loss / (double)slot->counted);
}

static void fill_report(td_session *session, const td_step_slot *slot, td_step_report *report)
{
    const td_plan *plan = session->plan;
    int32_t parity = (int32_t)(slot->step % TD_PARITIES);
    const td_window_so_far *window = &session->window;
    double now = td_session_now(),
           since = session->last_report_s > window->begin_s ? session->last_report_s : window->begin_s;
    int64_t step = plan->training ? session->store->steps : session->counters.steps;
    *report = (td_step_report){.step = step,
                               .micro_batches = window->micro_batches,
                               .samples = window->samples,
                               .loss = window_loss(session, slot),
                               .seconds = now - since,
                               .wait_data_s = window->wait_data_s,
                               .batch = &slot->batch,
                               .outputs = session->outputs,
                               .n_outputs = plan->n_outputs - plan->reports_norm - plan->reports_overflow,
                               .loss_scale = plan->has_loss_scale ? session->store->loss_scale.scale : 0,
                               .gradient_norm = NAN};
    for (int32_t i = 0; i < plan->n_outputs; i++) {
        td_value_tensor(plan->graph, plan->outputs[i], session->parity_extents[parity], &session->outputs[i]);
        session->outputs[i].data = td_session_address(session, plan->outputs[i], parity, 0);
    }
    if (plan->reports_norm)
        report->gradient_norm = *(const float *)session->outputs[plan->n_outputs - 1 - plan->reports_overflow].data;
    session->last_report_s = now;
}

static td_outcome outcome_of(td_session *session, const td_step_slot *slot)
{
    if (!td_session_step_is_finite(session, slot->step)) /* where nothing guarded an update */
        td_session_fail_step(session, NULL, slot->step);
    pthread_mutex_lock(&session->mutex);
    bool failed = session->failed_step && slot->step >= session->failed_step;
    bool held = failed && session->held && slot->step == session->failed_step;
    /* in a held step no update is made but that of the window before, which is whole */
    session->broken = session->broken || (failed && !held && atomic_load(&slot->updating));
    pthread_mutex_unlock(&session->mutex);
    return held ? TD_STEP_HELD : failed ? TD_STEP_FAILED : TD_STEP_DONE;
}

td_outcome td_session_complete_oldest(td_session *session, td_step_report *report)
{
    td_step_slot *slot = td_slot_of(session, session->completed + 1);
    td_session_wait_step(session, slot);
    session->completed++;
    session->windows_ending -= slot->ends_window;
    td_session_profile_complete(session, slot);
    td_outcome how = outcome_of(session, slot);
    if (how == TD_STEP_HELD && slot->ends_window)
        session->store->pending.waits = false; /* it was applied, and nothing was left */
    if (slot->ends_window && how != TD_STEP_FAILED)
        td_session_count_speculation(session, slot, how == TD_STEP_HELD);
    if (how != TD_STEP_DONE)
        return how;
    td_session_count_in_window(session, slot);
    session->counters.planned_to_device_bytes +=
        slot->to_device_bytes - (slot->ends_window && !slot->applies.waits ? session->late_bytes : 0);
    session->counters.planned_to_host_bytes += slot->to_host_bytes;
    count_early(session, (int32_t)(slot->step % TD_PARITIES));
    if (!slot->ends_window)
        return TD_STEP_GOES_ON;
    session->store->steps += session->plan->training; /* evaluating is no step of the training */
    session->store->updates += session->plan->training;
    if (session->plan->delayed)
        session->store->pending = slot->leaves;
    if (session->plan->training)
        session->store->last_loss = (double)window_loss(session, slot);
    session->counters.steps++;
    session->skipped_in_row = 0;
    fill_report(session, slot, report);
    if (session->plan->has_loss_scale)
        td_loss_scale_advance(&session->store->loss_scale, &session->plan->loss_scale);
    return TD_STEP_DONE;
}

void td_session_forget_failure(td_session *session)
{
    atomic_store(&session->failed_at, LLONG_MAX);
    session->failed_step = 0;
    session->held = false;
}

/* A training that skips every step gets nowhere: a weight beyond what f16 holds makes each loss infinite, whatever the batch. */
static td_status *end_of_patience(const td_session *session, td_status *why)
{
    td_status *status =
        TD_ERROR(TD_NOT_FINITE, "%s: with it %s in a row would be skipped, which is all that train.most_skipped allows",
                 td_status_message(why), TD_COUNTED(session->skipped_in_row + 1, "step"));
    td_status_destroy(why);
    return status;
}

td_status *td_session_settle_held(td_session *session, const td_step_slot *slot, td_step_report *report)
{
    bool lasting = false, skip = session->plan->on_nan == TD_NAN_SKIP;
    const bool overflow = td_session_loss_is_finite(session, slot->step);
    const double scale = session->store->loss_scale.scale;
    td_status *why = overflow ? td_session_settle_overflow(session, slot->step, &skip)
                              : td_session_explain_nonfinite(session, slot->step, &lasting);
    session->broken = session->broken || lasting;
    if (skip && !session->broken && session->plan->offers) {
        td_status *status = session->plan->remote->forget(session->plan->remote->self);
        if (status) {
            td_status_destroy(why);
            return status;
        }
    }
    if (!skip || session->broken)
        return why;
    if (session->plan->most_skipped && session->skipped_in_row + 1 >= session->plan->most_skipped)
        return end_of_patience(session, why);
    session->skipped_in_row++;
    td_log(TD_LOG_WARNING, "%s: its update is skipped", td_status_message(why));
    td_status_destroy(why);
    td_session_forget_failure(session);
    session->store->steps++;
    session->counters.skipped_steps++;
    fill_report(session, slot, report);
    report->skipped = true;
    report->overflowed = overflow ? td_session_overflowed(session, slot->step) : NULL;
    report->loss_scale = session->plan->has_loss_scale ? scale : 0;
    report->n_outputs = 0;
    return NULL;
}
