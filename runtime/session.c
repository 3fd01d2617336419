/* Sessions: creating them, and the loop that admits steps, waits for the oldest and reports it. See tandem/session.h. */
#include "runtime/session.h"

#include <math.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/record.h"

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
    for (int32_t i = 0; i < TD_STEP_SLOTS; i++)
        td_free(session->slots[i].waiting);
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
        return TD_ERROR(TD_INVALID_ARGUMENT, "scalar \"%s\" has %d numbers, not %d", name, wanted, n);
    if (!session->scalars[value])
        TD_TRY(TD_NEW(session->scalars[value], n));
    memcpy(session->scalars[value], numbers, (size_t)n * sizeof *numbers);
    return NULL;
}

/* ---- one step in, one step out ----------------------------------------------------------------------------------------------------- */

static td_step_slot *slot_of(td_session *session, int64_t step)
{
    return &session->slots[step % TD_STEP_SLOTS];
}

static void release_batch(td_step_slot *slot)
{
    if (slot->has_batch && slot->source)
        slot->source->release(slot->source->self, &slot->batch);
    slot->has_batch = false;
}

/* `slot` has its batch. On failure the step never existed; its batch is released. */
static td_status *admit(td_session *session, td_step_slot *slot)
{
    td_step_slot *before = slot_of(session, slot->step - 1);
    bool has_before = slot->step > 1 && before->has_batch && before->step == slot->step - 1;
    uint64_t from = td_record_begin();
    td_status *status = td_session_bind_batch(session, slot, has_before ? before : NULL);
    if (!status)
        status = td_session_set_numbers(session, slot);
    if (status) {
        release_batch(slot);
        return status;
    }
    td_session_reset_slot(session, slot->step + 1);
    td_store_advance(session->store);
    slot->begin_s = td_session_now();
    session->admitted = slot->step;
    td_session_profile_admit(session, slot, from);
    td_session_start_step(session, slot);
    return NULL;
}

/* The next batch of the source, if there is one. */
static td_status *fetch(td_session *session, td_source *source, td_step_slot **out_slot, bool *out_end)
{
    int64_t step = session->admitted + 1;
    td_step_slot *slot = slot_of(session, step);
    double begin = td_session_now();
    uint64_t from = td_record_begin();
    *out_slot = NULL;
    release_batch(slot); /* of three steps before: kept for early lookups, or released already */
    TD_TRY(source->next(source->self, &slot->batch, out_end));
    if (*out_end)
        return NULL;
    slot->has_batch = true;
    slot->source = source;
    slot->step = step;
    slot->wait_data_s = td_session_now() - begin;
    td_record_end(TD_RECORD_DATA_WAIT, 0, td_session_next_step(session), from, 0);
    *out_slot = slot;
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

static void fill_report(td_session *session, const td_step_slot *slot, td_step_report *report)
{
    const td_plan *plan = session->plan;
    int32_t parity = (int32_t)(slot->step % TD_PARITIES);
    double now = td_session_now(),
           since = session->last_report_s > slot->begin_s ? session->last_report_s : slot->begin_s;
    int64_t step = plan->training ? session->store->steps : session->counters.steps;
    *report = (td_step_report){.step = step,
                               .samples = slot->batch.samples,
                               .loss = loss_of(session, parity),
                               .seconds = now - since,
                               .wait_data_s = slot->wait_data_s,
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

typedef enum outcome {
    STEP_DONE, /* the report describes it */
    STEP_FAILED,
    STEP_HELD /* its loss or a gradient is not finite; no update was made */
} outcome;

static outcome outcome_of(td_session *session, const td_step_slot *slot)
{
    if (!td_session_step_is_finite(session, slot->step)) /* where nothing guarded an update */
        td_session_fail_step(session, NULL, slot->step);
    pthread_mutex_lock(&session->mutex);
    bool failed = session->failed_step && slot->step >= session->failed_step;
    bool held = failed && session->held && slot->step == session->failed_step;
    session->broken = session->broken || (failed && atomic_load(&slot->updating));
    pthread_mutex_unlock(&session->mutex);
    return held ? STEP_HELD : failed ? STEP_FAILED : STEP_DONE;
}

/* Waits for the oldest step in flight. */
static outcome complete_oldest(td_session *session, td_step_report *report)
{
    td_step_slot *slot = slot_of(session, session->completed + 1);
    td_session_wait_step(session, slot);
    session->completed++;
    td_session_profile_complete(session, slot);
    outcome how = outcome_of(session, slot);
    if (how != STEP_DONE)
        return how;
    session->store->steps += session->plan->training; /* evaluating is no step of the training */
    session->store->updates += session->plan->training;
    if (session->plan->training)
        session->store->last_loss = (double)loss_of(session, (int32_t)(slot->step % TD_PARITIES));
    session->counters.steps++;
    session->counters.planned_to_device_bytes += slot->to_device_bytes;
    session->counters.planned_to_host_bytes += slot->to_host_bytes;
    count_early(session, (int32_t)(slot->step % TD_PARITIES));
    fill_report(session, slot, report);
    if (session->plan->has_loss_scale)
        td_loss_scale_advance(&session->store->loss_scale, &session->plan->loss_scale);
    return STEP_DONE;
}

static void forget_failure(td_session *session)
{
    atomic_store(&session->failed_at, LLONG_MAX);
    session->failed_step = 0;
    session->held = false;
}

/* Of a held step, when nothing is in flight: an error, or the report of a step that was skipped. */
static td_status *settle_held(td_session *session, const td_step_slot *slot, td_step_report *report)
{
    bool lasting = false, skip = session->plan->on_nan == TD_NAN_SKIP;
    const bool overflow = td_session_loss_is_finite(session, slot->step);
    const double scale = session->store->loss_scale.scale;
    td_status *why = overflow ? td_session_settle_overflow(session, slot->step, &skip)
                              : td_session_explain_nonfinite(session, slot->step, &lasting);
    session->broken = session->broken || lasting;
    if (!skip || session->broken)
        return why;
    td_log(TD_LOG_WARNING, "%s: its update is skipped", td_status_message(why));
    td_status_destroy(why);
    forget_failure(session);
    session->store->steps++;
    session->counters.skipped_steps++;
    fill_report(session, slot, report);
    report->skipped = true;
    report->overflowed = overflow ? td_session_overflowed(session, slot->step) : NULL;
    report->loss_scale = session->plan->has_loss_scale ? scale : 0;
    report->n_outputs = 0;
    return NULL;
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
        release_batch(&session->slots[i]);
    session->counters.seconds += td_session_now() - begin_s;
    session->counters.exposed_s = session->timeline.exposed_s;
    session->counters.copy_or_host_s = session->timeline.others_s;
    keep_counters(session);
    td_session_profile_rest(session);
    td_store_end_run(session->store);
    atomic_store(&session->stop_requested, false);
    forget_failure(session);
    td_status *error = session->error;
    session->error = NULL;
    if (!error)
        return status;
    td_status_destroy(status);
    return error;
}

typedef struct run_state {
    td_source *source;
    int64_t steps_left; /* to admit; -1: no limit */
    bool more;          /* batches may still be admitted */
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
    if (!status && slot)
        status = admit(session, slot);
    if (run->steps_left > 0)
        run->steps_left--;
    if (status || end || run->steps_left == 0)
        run->more = false;
    return status;
}

/* The step after a held one did no work either; its batch is the next to be trained on. */
static td_status *admit_again(td_session *session, td_step_slot *from)
{
    td_step_slot *slot = slot_of(session, session->admitted + 1);
    release_batch(slot);
    slot->batch = from->batch;
    slot->source = from->source;
    slot->wait_data_s = from->wait_data_s;
    slot->step = session->admitted + 1;
    slot->has_batch = true;
    from->has_batch = false;
    return admit(session, slot);
}

static td_status *go_on_after_held(td_session *session, run_state *run, td_step_report *report)
{
    td_step_slot *held = slot_of(session, session->completed), *next = NULL;
    td_step_report none;
    if (session->admitted > session->completed) {
        next = slot_of(session, session->completed + 1);
        (void)complete_oldest(session, &none);
    }
    td_status *status = session->error ? NULL : settle_held(session, held, report);
    if (status || session->error) {
        run->more = false;
        return status;
    }
    if (!tell(run, report))
        run->more = false;
    release_batch(held);
    return next ? admit_again(session, next) : NULL;
}

td_status *td_session_run(td_session *session, td_source *source, int64_t steps, td_on_step on_step, void *context)
{
    TD_TRY(begin_run(session));
    double begin = td_session_now();
    int64_t most_in_flight = session->plan->pipelined ? 2 : 1;
    run_state run = {
        .source = source, .steps_left = steps > 0 ? steps : -1, .more = true, .on_step = on_step, .context = context};
    td_status *status = NULL;
    while (run.more || session->admitted > session->completed) {
        run.more = run.more && !atomic_load(&session->stop_requested);
        bool sound = atomic_load(&session->failed_at) == LLONG_MAX;
        if (run.more && sound && session->admitted - session->completed < most_in_flight) {
            status = admit_next(session, &run);
            continue;
        }
        if (session->admitted == session->completed)
            break;
        td_step_report report;
        outcome how = complete_oldest(session, &report);
        if (how == STEP_HELD && !status)
            status = go_on_after_held(session, &run, &report);
        else if (how != STEP_DONE || !tell(&run, &report))
            run.more = false;
        if (!session->plan->early_lookup)
            release_batch(slot_of(session, session->completed));
        else if (session->completed > 1)
            release_batch(slot_of(session, session->completed - 1));
    }
    return end_run(session, begin, status);
}

td_status *td_session_step(td_session *session, const td_batch *batch, td_step_report *out_report)
{
    *out_report = (td_step_report){0};
    TD_TRY(begin_run(session));
    double begin = td_session_now();
    td_step_slot *slot = slot_of(session, session->admitted + 1);
    slot->step = session->admitted + 1;
    slot->batch = *batch;
    slot->source = NULL;
    slot->has_batch = true;
    slot->wait_data_s = 0;
    td_status *status = admit(session, slot);
    if (!status && complete_oldest(session, out_report) == STEP_HELD)
        status = settle_held(session, slot, out_report);
    out_report->batch = batch;
    return end_run(session, begin, status);
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
