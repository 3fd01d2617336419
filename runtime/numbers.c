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

/* Samples of this step over the configured ones. */
static double sample_share(const td_session *session)
{
    int32_t extent = session->plan->sample_extent;
    if (extent < 0 || session->plan->graph->extents[extent].capacity == 0)
        return 1;
    return (double)session->extents[extent] / (double)session->plan->graph->extents[extent].capacity;
}

/* The loss scale of the step being admitted, if the steps in flight make their updates; if one does not, those after it are
 * admitted again. 1 where there is none. */
static double loss_scale(const td_session *session)
{
    td_loss_scale state = session->store->loss_scale;
    if (!session->plan->has_loss_scale)
        return 1;
    for (int64_t step = session->completed; step < session->admitted; step++)
        td_loss_scale_advance(&state, &session->plan->loss_scale);
    return state.scale;
}

/* `seed`: what backward begins with; gradients are divided by it. */
static void set_coefficients(const td_session *session, int32_t parity, int64_t update, double seed)
{
    const td_plan *plan = session->plan;
    for (int32_t g = 0; g < plan->n_groups; g++) {
        const td_plan_group *group = &plan->groups[g];
        if (group->coefficients < 0)
            continue;
        double lr = group->settings.lr * td_schedule_factor(&group->settings.schedule, update);
        group->rule->coefficients(&group->settings, lr, update, seed > 0 ? 1 / seed : 1,
                                  session->numbers[parity][group->coefficients]);
        td_set_update(session->numbers[parity][group->coefficients], update);
    }
}

td_status *td_session_set_numbers(td_session *session, td_step_slot *slot)
{
    const td_plan *plan = session->plan;
    int32_t parity = (int32_t)(slot->step % TD_PARITIES);
    int64_t update = session->store->updates + (session->admitted - session->completed) + 1;
    for (int32_t k = 0; k < session->n_scalar_values; k++) {
        int32_t v = session->scalar_values[k];
        const td_value_info *info = &plan->graph->values[v];
        const double *numbers = session->scalars[v] ? session->scalars[v] : info->scalars;
        for (int32_t i = 0; i < info->n_scalars; i++)
            store_number(info->dtype, session->numbers[parity][v], i, numbers[i]);
    }
    const double seed = sample_share(session) * loss_scale(session);
    if (plan->seed >= 0)
        store_number(TD_F64, session->numbers[parity][plan->seed], 0, seed);
    if (plan->random >= 0) {
        int64_t *random = session->numbers[parity][plan->random];
        random[0] = (int64_t)plan->random_seed;
        random[1] = plan->training ? update : -1;
        random[2] = 0; /* the first sample of this batch within its window */
    }
    set_coefficients(session, parity, update, seed);
    return NULL;
}
