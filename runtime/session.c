/* Sessions: creating them, their scalars, and what they count. Their steps: steps.c and runs.c. See tandem/session.h. */
#include "runtime/session.h"

#include <limits.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "base/units.h"

/* ---- life ----------------------------------------------------------------------------------------------------------------------- */

static td_status *create_slots(td_session *session)
{
    for (int32_t i = 0; i < TD_STEP_SLOTS; i++)
        TD_TRY(TD_NEW(session->slots[i].waiting, session->plan->n_clusters + 1));
    td_session_reset_slot(session, 1);
    return NULL;
}

td_status *td_session_create(td_plan *plan, td_store *store, td_session **out_session)
{
    td_session *session = NULL;
    *out_session = NULL;
    if (plan->owner != store->machine)
        return TD_ERROR(TD_INVALID_ARGUMENT, "plan and store belong to different options: their devices differ");
    TD_TRY(TD_NEW(session, 1));
    session->plan = td_plan_retain(plan);
    session->store = td_store_retain(store);
    session->machine = store->machine;
    atomic_store(&session->failed_at, LLONG_MAX);
    pthread_mutex_init(&session->mutex, NULL);
    pthread_cond_init(&session->step_done, NULL);
    pthread_mutex_init(&session->timeline.mutex, NULL);
    if (plan->has_loss_scale && store->loss_scale.scale == 0)
        td_loss_scale_start(&store->loss_scale, &plan->loss_scale);
    td_status *status = td_store_join(store, plan);
    if (!status)
        status = td_session_bind(session);
    if (!status)
        status = create_slots(session);
    if (!status)
        status = td_session_open_lanes(session);
    if (status) {
        td_session_destroy(session);
        return status;
    }
    *out_session = session;
    return NULL;
}

void td_session_destroy(td_session *session)
{
    if (!session)
        return;
    td_session_close_lanes(session);
    td_session_unbind(session);
    for (int32_t i = 0; i < TD_STEP_SLOTS; i++) {
        td_free(session->slots[i].waiting);
        td_free(session->slots[i].served.fields);
        td_served_window_deinit(&session->served[i], session->plan);
    }
    td_served_calls_deinit(&session->served_calls);
    td_status_destroy(session->error);
    pthread_mutex_destroy(&session->mutex);
    pthread_cond_destroy(&session->step_done);
    pthread_mutex_destroy(&session->timeline.mutex);
    td_store_leave(session->store);
    td_store_release(session->store);
    td_plan_release(session->plan);
    td_free(session);
}

bool td_session_is_usable(const td_session *session)
{
    return !session->broken;
}

void td_session_stop(td_session *session)
{
    atomic_store(&session->stop_requested, true);
}

td_status *td_session_set_scalar(td_session *session, const char *name, const double *numbers, int32_t n)
{
    int32_t value = td_graph_find(session->plan->graph, name).id;
    if (value < 0 || session->plan->graph->values[value].class != TD_CLASS_SCALAR)
        return TD_ERROR(TD_NOT_FOUND, "the plan has no scalar \"%s\"", name);
    int32_t wanted = session->plan->graph->values[value].n_scalars;
    if (n != wanted)
        return TD_ERROR(TD_INVALID_ARGUMENT, "scalar \"%s\" has %s, not %d", name, TD_COUNTED(wanted, "number"), n);
    if (!session->scalars[value])
        TD_TRY(TD_NEW(session->scalars[value], n));
    memcpy(session->scalars[value], numbers, (size_t)n * sizeof *numbers);
    return NULL;
}

/* ---- counters --------------------------------------------------------------------------------------------------------------------------- */

td_session_counters td_session_read_counters(const td_session *session)
{
    td_session_counters counters = session->ended_counters;
    for (int32_t i = 0; i < session->n_lanes; i++) {
        const td_lane *lane = &session->lanes[i];
        if (lane->group->kind == TD_QUEUE_COMPUTE)
            continue;
        counters.copy_s += lane->ended_busy_s;
        *(lane->group->kind == TD_QUEUE_TO_DEVICE ? &counters.to_device_bytes : &counters.to_host_bytes) +=
            lane->ended_copied_bytes;
    }
    return counters;
}

int32_t td_session_devices(const td_session *session)
{
    return session->plan->n_sites;
}

td_device_counters td_session_device(const td_session *session, int32_t index)
{
    const td_plan_site *site = &session->plan->sites[index];
    td_device_counters counters = {
        .name = site->name,
        .capacity_bytes = site->properties.memory_bytes,
        .planned_peak_bytes = (uint64_t)(td_store_held(session->store, index) + session->store->arenas[index].bytes)};
    if (site->api->memory_in_use)
        site->api->memory_in_use(site->device, &counters.now_bytes, &counters.peak_bytes);
    if (index == session->plan->host) {
        const td_page_pool *pool = &session->store->pool;
        counters.now_bytes += (uint64_t)(pool->n_held * pool->page_bytes);
        counters.peak_bytes += (uint64_t)(pool->peak_held * pool->page_bytes);
    }
    for (int32_t i = 0; i < session->n_lanes; i++)
        if (session->lanes[i].group->site == index && session->lanes[i].group->kind == TD_QUEUE_COMPUTE) {
            counters.busy_s += session->lanes[i].ended_busy_s;
            counters.kernels += session->lanes[i].ended_kernels;
        }
    return counters;
}

/* ---- times of ops ----------------------------------------------------------------------------------------------------------------- */

void td_session_time_ops(td_session *session, bool on)
{
    session->time_ops = on;
}

int32_t td_session_op_times(const td_session *session, int32_t most, td_op_time *out_times)
{
    const td_plan *plan = session->plan;
    int32_t n = 0;
    for (int32_t c = 0; c < plan->n_clusters; c++)
        for (int32_t i = 0; i < session->clusters[c].n_instructions; i++) {
            const td_instruction *in = &session->clusters[c].instructions[i];
            const td_node *node = &plan->graph->nodes[in->node];
            const td_cost *cost = &plan->nodes[in->node].cost;
            if (in->kind == TD_RUN_NOTHING)
                continue;
            if (n < most)
                out_times[n] = (td_op_time){.name = node->name,
                                            .op = node->op->name,
                                            .device = plan->sites[plan->clusters[c].device].name,
                                            .runs = in->timed_runs[0] + in->timed_runs[1],
                                            .seconds = 1e-9 * (double)(in->timed_ns[0] + in->timed_ns[1]),
                                            .flops = cost->flops,
                                            .bytes = cost->bytes_read + cost->bytes_written};
            n++;
        }
    return n;
}
