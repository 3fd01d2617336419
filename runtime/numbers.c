/* What the host computes once a step: the seed of backward, the optimizers' coefficients, the key of random ops, and the
 * scalars that the caller set. */
#include <string.h>

#include "base/rows16.h"
#include "runtime/session.h"

static void store_number(td_dtype dtype, void *to, int32_t i, double number)
{
    if (dtype == TD_F32)
        ((float *)to)[i] = (float)number;
    else if (dtype == TD_I64)
        ((int64_t *)to)[i] = (int64_t)number;
    else
        ((double *)to)[i] = number;
}

/* The configured samples of a micro-batch; where no extent counts samples, a micro-batch is one. */
static int64_t configured(const td_plan *plan)
{
    int64_t capacity = plan->sample_extent < 0 ? 1 : plan->graph->extents[plan->sample_extent].capacity;
    return capacity ? capacity : 1;
}

/* The loss scale of the window being admitted, if those in flight make their updates; if one does not, those after it are
 * admitted again. 1 where there is none. */
static double loss_scale(const td_session *session)
{
    td_loss_scale state = session->store->loss_scale;
    if (!session->plan->has_loss_scale)
        return 1;
    for (int64_t window = 0; window < session->windows_ending; window++)
        td_loss_scale_advance(&state, &session->plan->loss_scale);
    return state.scale;
}

/* Samples of this micro-batch. */
static int64_t counted(const td_session *session)
{
    int32_t extent = session->plan->sample_extent;
    bool counts = extent >= 0 && session->plan->graph->extents[extent].capacity > 0;
    return counts ? session->extents[extent] : 1;
}

/* The same of all workers' batches of a window, which gradients are summed over. */
static int64_t counted_by_all(const td_session *session, const td_batch *batch)
{
    int32_t extent = session->plan->sample_extent;
    bool counts = extent >= 0 && session->plan->graph->extents[extent].capacity > 0;
    return counts ? batch->window_samples : batch->window_batches;
}

/* What the window's sums of gradients are to be divided by: the loss scale, and for a mean its samples over those of a
 * micro-batch. */
static double divisor(const td_session *session, const td_step_slot *slot)
{
    const td_plan *plan = session->plan;
    double share = plan->reduction == TD_REDUCE_SUM ? 1 : (double)slot->counted / (double)configured(plan);
    return share * loss_scale(session);
}

/* How far the window is: see graph/ops/accumulate.c. Where no replica has several micro-batches their fold is the replicas', which
 * begins once (partition/accumulate.c). */
static void set_micro(const td_plan *plan, const td_step_slot *slot, double micro[3])
{
    if (plan->in_job && slot->batch.n_window) { /* others sum the replicas */
        micro[0] = slot->batch.micro == 0;
        micro[1] = slot->batch.window_at == slot->batch.micro;
        micro[2] = slot->batch.ends_replica;
        return;
    }
    micro[0] = plan->most_accumulated == 1 ? slot->micro == 0 : slot->micro % slot->accumulate == 0;
    micro[1] = slot->micro < slot->accumulate;
    micro[2] = slot->ends_window || (slot->micro + 1) % slot->accumulate == 0;
}

/* A batch of no window that is known of is one of its own, of this rank's first replica. Who is alone has summed up a whole window
 * when it pushes, as one replica. */
static void set_place(td_session *session, const td_step_slot *slot, int32_t parity)
{
    const td_batch *batch = &slot->batch;
    if (!session->plan->in_job) {
        session->places[parity] = (td_remote_place){.micro = (int32_t)slot->micro,
                                                    .ends_replica = slot->ends_window,
                                                    .ends_window = slot->ends_window,
                                                    .samples = slot->counted};
        return;
    }
    session->places[parity] =
        (td_remote_place){.replica = batch->n_window ? batch->replica : session->plan->remote->first,
                          .micro = batch->micro,
                          .most_micro = session->plan->most_accumulated,
                          .ends_replica = !batch->n_window || batch->ends_replica,
                          .ends_window = slot->ends_window,
                          .samples = batch->samples,
                          .weight = batch->samples ? counted(session) : 0,
                          .window_weight = slot->counted};
}

/* Gradients are divided by `by`. */
static void set_group(const td_plan_group *group, int64_t update, double by, float *out)
{
    double lr = group->settings.lr * td_schedule_factor(&group->settings.schedule, update);
    group->rule->coefficients(&group->settings, lr, update, by > 0 ? 1 / by : 1, out);
    td_set_update(out, update);
}

static void set_coefficients(const td_session *session, int32_t parity, int64_t update, double by, td_pending pending)
{
    const td_plan *plan = session->plan;
    for (int32_t g = 0; g < plan->n_groups; g++) {
        const td_plan_group *group = &plan->groups[g];
        if (group->coefficients >= 0)
            set_group(group, update, by, session->numbers[parity][group->coefficients]);
        if (group->pending >= 0 && pending.waits)
            set_group(group, pending.update, pending.divisor, session->numbers[parity][group->pending]);
    }
}

/* What the window before leaves to be applied: it is in flight, and taken to succeed (if not, this one is admitted again), or has
 * ended. */
static td_pending pending_before(const td_session *session, const td_step_slot *slot)
{
    const td_step_slot *before = &session->slots[(slot->step - 1) % TD_STEP_SLOTS];
    const bool in_flight = slot->step - 1 > session->completed && before->ends_window;
    return in_flight ? before->leaves : session->store->pending;
}

td_status *td_session_set_numbers(td_session *session, td_step_slot *slot)
{
    const td_plan *plan = session->plan;
    int32_t parity = (int32_t)(slot->step % TD_PARITIES);
    int64_t update = session->store->updates + session->windows_ending + 1;
    int64_t before = slot->micro ? session->slots[(slot->step - 1) % TD_STEP_SLOTS].counted : 0;
    slot->counted = slot->batch.window_batches ? counted_by_all(session, &slot->batch) : before + counted(session);
    for (int32_t k = 0; k < session->n_scalar_values; k++) {
        int32_t v = session->scalar_values[k];
        const td_value_info *info = &plan->graph->values[v];
        const double *numbers = session->scalars[v] ? session->scalars[v] : info->scalars;
        for (int32_t i = 0; i < info->n_scalars; i++)
            store_number(info->dtype, session->numbers[parity][v], i, numbers[i]);
    }
    if (plan->seed >= 0)
        store_number(TD_F64, session->numbers[parity][plan->seed], 0,
                     (double)counted(session) / (double)configured(plan) * loss_scale(session));
    if (plan->divisor >= 0)
        store_number(TD_F64, session->numbers[parity][plan->divisor], 0, divisor(session, slot));
    if (plan->micro >= 0)
        set_micro(plan, slot, session->numbers[parity][plan->micro]);
    if (plan->random >= 0) {
        int64_t *random = session->numbers[parity][plan->random];
        random[0] = (int64_t)plan->random_seed;
        random[1] = plan->training ? update : -1;
        random[2] =
            slot->batch.window_batches ? slot->batch.window_before : before; /* the batch's first in its window */
    }
    td_session_choose_speculation(session, slot);
    if (plan->speculate >= 0)
        store_number(TD_F64, session->numbers[parity][plan->speculate], 0, slot->speculates);
    slot->applies = slot->leaves = (td_pending){0};
    if (plan->delayed && slot->ends_window) {
        slot->applies = pending_before(session, slot);
        slot->leaves = (td_pending){true, update, divisor(session, slot)};
    }
    set_coefficients(session, parity, update, divisor(session, slot), slot->applies);
    if (plan->remote)
        set_place(session, slot, parity);
    return NULL;
}
