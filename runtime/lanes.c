/* Lanes: the threads that run clusters. How clusters become ready is in ready.c. See session.h. */
#include <string.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/record.h"
#include "base/thread.h"
#include "runtime/session.h"

/* ---- running ----------------------------------------------------------------------------------------------------------------------- */

/* Copies that a device takes as a list are gathered, and submitted when the lane settles. */
static td_status *run_copy(td_lane *lane, const td_plan_site *site, const td_instruction *in, int32_t parity)
{
    const td_tensor *from = &in->tensors[parity][0], *to = &in->tensors[parity][1];
    void *const sources[] = {from->data, from->index, from->count}, *const targets[] = {to->data, to->index, to->count};
    for (int32_t i = 0; i < TD_BUFFERS; i++) {
        size_t bytes = (size_t)in->copy_bytes[parity][i];
        if (!bytes)
            continue;
        if (lane->ranges)
            lane->ranges[lane->n_ranges++] = (td_copy_range){targets[i], sources[i], bytes};
        else if (lane->group->kind == TD_QUEUE_TO_DEVICE)
            TD_TRY(site->api->copy_to_device(lane->queue, targets[i], sources[i], bytes));
        else
            TD_TRY(site->api->copy_to_host(lane->queue, targets[i], sources[i], bytes));
        lane->copied_bytes += (int64_t)bytes;
    }
    return NULL;
}

/* A window's gradients have left for the owners of its rows: those of the next window are asked for, if it is known, so that they come
 * while this one is updated, and the lane need not wait for them. */
static td_status *ask_ahead(td_session *session, int32_t parity)
{
    const int64_t bound_to = atomic_load_explicit(&session->bound_to, memory_order_acquire);
    const int32_t next = (int32_t)(bound_to % TD_PARITIES);
    if (!session->pull || !session->places[parity].ends_window || next == parity)
        return NULL;
    return td_served_ask_ahead(session->plan, &session->pull->call[next], session->pull->remote_tables,
                               &session->served_calls);
}

td_status *td_session_run_instruction(td_lane *lane, td_instruction *in, int32_t parity)
{
    const td_plan_site *site = &lane->session->plan->sites[lane->group->site];
    const td_node *node = &lane->session->plan->graph->nodes[in->node];
    td_kernel_call *call = &in->call[parity];
    switch (in->kind) {
    case TD_RUN_NOTHING:
        return NULL;
    case TD_RUN_COPY:
        return run_copy(lane, site, in, parity);
    case TD_RUN_HOST_CALL:
        return node->host_function(node->host_context, call->inputs, call->n_inputs,
                                   &in->tensors[parity][call->n_inputs]);
    case TD_RUN_REMOTE:
        TD_TRY(td_served_run(lane->session->plan, call, in->remote_tables, &lane->session->places[parity],
                             &lane->session->served_calls));
        return in->asks_ahead ? ask_ahead(lane->session, parity) : NULL;
    case TD_RUN_KERNEL:
        break;
    }
    if (in->table)
        TD_TRY(td_paged_table_touch(in->table, &in->tensors[parity][in->table_ids], in->table_offset, in->table_write));
    call->scratch = lane->scratch;
    call->scratch_bytes = lane->session->plan->nodes[in->node].scratch_bytes;
    lane->kernels++;
    return site->api->kernel_run(lane->queue, in->kernel, call);
}

td_status *td_session_settle_lane(td_lane *lane)
{
    const td_plan_site *site = &lane->session->plan->sites[lane->group->site];
    if (!lane->event)
        return NULL;
    if (lane->n_ranges) {
        const int32_t n = lane->n_ranges;
        lane->n_ranges = 0;
        TD_TRY(site->api->copy_ranges(lane->queue, lane->ranges, n));
    }
    TD_TRY(site->api->event_record(lane->event, lane->queue));
    return site->api->event_wait(lane->event);
}

/* Less the least that waiting itself takes, which is seen right afterwards, when nothing is left to wait for. */
static td_status *time_instruction(td_lane *lane, td_instruction *in, int32_t parity)
{
    int64_t begin = td_clock_ns();
    TD_TRY(td_session_run_instruction(lane, in, parity));
    TD_TRY(td_session_settle_lane(lane));
    const int64_t end = td_clock_ns();
    TD_TRY(td_session_settle_lane(lane));
    const int64_t waiting = td_clock_ns() - end;
    lane->least_wait_ns = lane->least_wait_ns && lane->least_wait_ns < waiting ? lane->least_wait_ns : waiting;
    in->timed_ns[parity] += end - begin > lane->least_wait_ns ? end - begin - lane->least_wait_ns : 0;
    in->timed_runs[parity]++;
    return NULL;
}

/* Of an op that has ended, where the lane waits for each; a device with a queue of its own records them there. Returns when the
 * next one begins. */
static uint64_t record_op(const td_lane *lane, const td_instruction *in, const td_step_slot *slot, uint64_t from)
{
    uint64_t now = td_ticks();
    if (!lane->event && in->kind != TD_RUN_NOTHING)
        td_record_write(TD_RECORD_OP, slot->record_base + (uint32_t)in->node, slot->record_step, slot->record_micro,
                        from, now, 0);
    return now;
}

/* Of a cluster that has ended. */
static void record_cluster(const td_lane *lane, int32_t index, const td_step_slot *slot, uint64_t from, int64_t bytes)
{
    const td_session *session = lane->session;
    uint32_t nodes = (uint32_t)session->plan->graph->n_nodes, id = slot->record_base + nodes + (uint32_t)index;
    uint64_t now = td_ticks();
    if (lane->group->kind != TD_QUEUE_COMPUTE)
        td_record_write(TD_RECORD_COPY, slot->record_base + (uint32_t)session->clusters[index].instructions[0].node,
                        slot->record_step, slot->record_micro, from, now, (uint64_t)bytes);
    td_record_write(TD_RECORD_SUBGRAPH, id, slot->record_step, slot->record_micro, from, now, 0);
}

/* Sums over micro-batches wait for the loss alone: what else is looked at is made of them. */
static bool may_run(const td_session *session, const td_instruction *in, int64_t step)
{
    return in->updates ? td_session_step_is_finite(session, step) : td_session_loss_is_finite(session, step);
}

/* How much of a step is still done. */
typedef enum run_mode {
    RUN_ALL,
    RUN_LATE, /* it is held: what belongs to the window before, and undoing what was done early */
    RUN_UNDO, /* an error struck, or a step before it comes to nothing: undoing alone */
    RUN_NONE
} run_mode;

static bool is_left_out(const td_session *session, const td_instruction *in, const td_step_slot *slot, run_mode mode)
{
    if ((slot->ends_window ? in->before_last : in->once) || (in->first && slot->micro))
        return true;
    if (in->speculates)
        return mode != RUN_ALL || !slot->speculates;
    if (in->early)
        return mode != RUN_ALL && in->early->ran != slot->step;
    if (!in->delayed)
        return mode != RUN_ALL;
    /* the micro-batch before has ended well where steps do not overlap, and its loss is gone */
    bool lost = session->plan->pipelined && slot->micro > 0 && !td_session_loss_is_finite(session, slot->step - 1);
    return mode == RUN_UNDO || lost || !slot->applies.waits; /* no update has made what a replica is refreshed with */
}

/* What is done of a cluster in a step that is over, whatever remains of it. */
static run_mode mode_after(td_session *session, const td_bound_cluster *cluster, int64_t step)
{
    if (!cluster->delayed && !cluster->settles)
        return RUN_NONE;
    pthread_mutex_lock(&session->mutex);
    bool held = session->held && session->failed_step == step;
    pthread_mutex_unlock(&session->mutex);
    return held ? RUN_LATE : RUN_UNDO;
}

/* Whether the instruction has something to wait for that did not come: then the step is held from here on. */
static bool is_stopped(const td_session *session, const td_instruction *in, int64_t step, run_mode mode)
{
    if (mode != RUN_ALL)
        return false;
    return in->early ? !td_session_step_is_finite(session, step) : in->guarded && !may_run(session, in, step);
}

static td_status *run_one(td_lane *lane, td_instruction *in, int64_t step, run_mode mode)
{
    const int32_t parity = (int32_t)(step % TD_PARITIES);
    if (in->speculates)
        in->ran = step; /* even where it then fails: the log comes first */
    if (in->early && mode != RUN_ALL)
        return td_session_undo(lane, in, parity);
    return lane->session->time_ops ? time_instruction(lane, in, parity) : td_session_run_instruction(lane, in, parity);
}

static td_status *run_cluster(td_lane *lane, int32_t index, int64_t step, run_mode mode)
{
    td_session *session = lane->session;
    td_bound_cluster *bound = &session->clusters[index];
    const td_plan_site *site = &session->plan->sites[lane->group->site];
    const td_step_slot *slot = &session->slots[step % TD_STEP_SLOTS];
    uint64_t begin = slot->record_from ? td_record_begin() : 0, from = begin; /* of older steps nobody knows the ids */
    int64_t copied = lane->copied_bytes;
    td_status *status = NULL;
    for (int32_t i = 0; i < bound->n_instructions && !status; i++) {
        td_instruction *in = &bound->instructions[i];
        if (is_left_out(session, in, slot, mode))
            continue;
        if (is_stopped(session, in, step, mode)) {
            td_session_fail_step(session, NULL, step);
            mode = RUN_LATE;
            if (is_left_out(session, in, slot, mode))
                continue;
        }
        if (in->updates && slot->ends_window && !in->speculates && !(in->early && mode != RUN_ALL))
            atomic_store_explicit(&session->slots[step % TD_STEP_SLOTS].updating, true, memory_order_relaxed);
        if (begin)
            td_record_current = (td_record_tag){.id = slot->record_base + (uint32_t)in->node,
                                                .step = slot->record_step,
                                                .micro = slot->record_micro,
                                                .set = 1};
        status = run_one(lane, in, step, mode);
        if (begin)
            from = record_op(lane, in, slot, from);
        if (status) {
            const td_node *node = &session->plan->graph->nodes[bound->instructions[i].node];
            status = strstr(td_status_message(status), node->name)
                         ? status
                         : td_status_prefix(status, "%s \"%s\" on %s", node->op->name, node->name, site->name);
        }
    }
    td_status *late = td_session_settle_lane(lane);
    if (begin) {
        td_record_current = (td_record_tag){0};
        record_cluster(lane, index, slot, begin, lane->copied_bytes - copied);
    }
    if (!status)
        return late;
    td_status_destroy(late);
    return status;
}

void td_session_fail_step(td_session *session, td_status *status, int64_t step)
{
    pthread_mutex_lock(&session->mutex);
    bool known = session->failed_step && session->failed_step <= step;
    if (known && (!status || !session->held || session->failed_step < step)) { /* an error counts more than a hold */
        td_status_destroy(status);
    } else {
        td_status_destroy(session->error);
        session->error = status;
        session->held = !status;
        session->failed_step = step;
        atomic_store(&session->failed_at, step);
    }
    pthread_mutex_unlock(&session->mutex);
}

static void run_ready(td_lane *lane, td_ready item)
{
    td_session *session = lane->session;
    const td_plan_site *site = &session->plan->sites[lane->group->site];
    td_step_slot *slot = &session->slots[item.step % TD_STEP_SLOTS];
    bool accelerator = lane->group->kind == TD_QUEUE_COMPUTE && !site->is_host;
    run_mode mode = item.step < atomic_load(&session->failed_at)
                        ? RUN_ALL
                        : mode_after(session, &session->clusters[item.cluster], item.step);
    if (mode != RUN_NONE) {
        double begin = td_session_now();
        /* what an asynchronous device has begun by the time its error is known, nobody can say */
        const td_bound_cluster *cluster = &session->clusters[item.cluster];
        bool waited = cluster->guarded || cluster->settles; /* for the loss; it is not there yet otherwise */
        if (lane->event && slot->ends_window && cluster->updates && mode == RUN_ALL &&
            (!waited || td_session_step_is_finite(session, item.step)))
            atomic_store(&slot->updating, true);
        td_timeline_enter(&session->timeline, accelerator);
        td_status *status = run_cluster(lane, item.cluster, item.step, mode);
        td_timeline_leave(&session->timeline, accelerator);
        lane->busy_s += td_session_now() - begin;
        if (status)
            td_session_fail_step(session, status, item.step);
    }
    td_session_finish_cluster(session, item.cluster, item.step);
}

/* The next ready cluster; false when the session closes. With `block` false also when nothing is ready. */
static bool take(td_lane *lane, td_ready *out, bool block)
{
    td_lane_group *group = lane->group;
    uint64_t from = 0;
    pthread_mutex_lock(&group->mutex);
    while (block && !group->n_ready && !atomic_load(&lane->session->closing)) {
        from = from ? from : td_record_begin();
        pthread_cond_wait(&group->wake, &group->mutex);
    }
    bool found = group->n_ready > 0;
    if (found)
        *out = td_session_pop_ready(lane->session, group);
    pthread_mutex_unlock(&group->mutex);
    if (found && from) {
        const td_step_slot *slot = &lane->session->slots[out->step % TD_STEP_SLOTS];
        if (slot->record_from)
            td_record_write(TD_RECORD_WAIT,
                            slot->record_base + (uint32_t)(lane->session->plan->graph->n_nodes + out->cluster),
                            slot->record_step, slot->record_micro, from, td_ticks(), 0);
    }
    return found;
}

/* A host lane's own thread is thread 0 of its team: it belongs on the first of the lane's cores, or on all of them where lanes
 * share. A refusal costs speed only. */
static void bind_lane(const td_lane *lane)
{
    const td_machine *machine = lane->session->machine;
    const td_plan_site *site = &lane->session->plan->sites[lane->group->site];
    if (lane->group->kind != TD_QUEUE_COMPUTE || !site->is_host)
        return;
    const td_lane_cores *cores = &machine->lane_cores[machine->first_lane[lane->group->site] + lane->index];
    td_core_set set = {{0}};
    for (int32_t i = 0; i < cores->n_cores && (i == 0 || machine->lanes_share_cores); i++)
        td_core_set_add(&set, cores->cores[i]);
    td_status_destroy(td_cores_bind_self(&set));
}

static void *lane_main(void *argument)
{
    td_lane *lane = argument;
    static const char *const kinds[] = {"compute", "to device", "to host"};
    td_ready item;
    td_record_name_thread("%.14s %s %d", lane->session->plan->sites[lane->group->site].name, kinds[lane->group->kind],
                          lane->index);
    bind_lane(lane);
    if (lane->event &&
        (lane->group->kind != TD_QUEUE_COMPUTE || !lane->session->plan->sites[lane->group->site].properties.cores))
        td_thread_run_soon(); /* the device works by itself, and this thread waits */
    while (take(lane, &item, true))
        run_ready(lane, item);
    return NULL;
}

void td_session_wait_step(td_session *session, td_step_slot *slot)
{
    td_ready item;
    while (session->inline_lane && atomic_load(&slot->clusters_left) && take(&session->lanes[0], &item, false))
        run_ready(&session->lanes[0], item);
    pthread_mutex_lock(&session->mutex);
    while (atomic_load_explicit(&slot->clusters_left, memory_order_acquire))
        pthread_cond_wait(&session->step_done, &session->mutex);
    pthread_mutex_unlock(&session->mutex);
}

/* ---- opening and closing --------------------------------------------------------------------------------------------------------------- */

static td_lane_group *group_for(td_session *session, int32_t site, td_queue_kind kind)
{
    for (int32_t g = 0; g < session->n_groups; g++)
        if (session->groups[g].site == site && session->groups[g].kind == kind)
            return &session->groups[g];
    td_lane_group *group = &session->groups[session->n_groups++];
    group->site = site;
    group->kind = kind;
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->wake, NULL);
    return group;
}

static td_status *open_groups(td_session *session)
{
    const td_plan *plan = session->plan;
    TD_TRY(TD_NEW(session->groups, 3 * plan->n_sites));
    TD_TRY(TD_NEW(session->group_of, plan->n_clusters + 1));
    for (int32_t c = 0; c < plan->n_clusters; c++)
        session->group_of[c] = group_for(session, plan->clusters[c].device, plan->clusters[c].lane);
    for (int32_t g = 0; g < session->n_groups; g++) {
        TD_TRY(TD_NEW(session->groups[g].ready, 2 * plan->n_clusters + 1));
        session->n_lanes +=
            session->groups[g].kind == TD_QUEUE_COMPUTE ? plan->sites[session->groups[g].site].lanes : 1;
    }
    return NULL;
}

/* Of one cluster of the lane. */
static int32_t most_ranges(const td_lane *lane)
{
    const td_session *session = lane->session;
    int32_t most = 0;
    for (int32_t c = 0; c < session->plan->n_clusters; c++)
        if (session->group_of[c] == lane->group && session->clusters[c].n_instructions > most)
            most = session->clusters[c].n_instructions;
    return TD_BUFFERS * most;
}

static td_status *open_lane(td_session *session, td_lane *lane)
{
    const td_machine *machine = session->machine;
    const td_plan_site *site = &session->plan->sites[lane->group->site];
    td_queue_options options = {
        .struct_size = sizeof options, .kind = lane->group->kind, .flags = TD_QUEUE_SUBMITTER_WAITS};
    if (lane->group->kind == TD_QUEUE_COMPUTE) {
        const td_lane_cores *cores = &machine->lane_cores[machine->first_lane[lane->group->site] + lane->index];
        int32_t threads = site->properties.cores / site->lanes;
        options.threads = threads > 0 ? threads : 1;
        options.cores = cores->cores;
        options.n_cores = cores->n_cores;
        options.flags |= machine->lanes_share_cores ? TD_QUEUE_SHARES_CORES : 0;
    }
    TD_TRY(site->api->queue_open(site->device, &options, &lane->queue));
    if (!site->is_host)
        TD_TRY(site->api->event_create(site->device, &lane->event));
    if (lane->group->kind != TD_QUEUE_COMPUTE && site->api->copy_ranges)
        TD_TRY(TD_NEW(lane->ranges, most_ranges(lane)));
    return NULL;
}

static td_status *start_lane(td_lane *lane)
{
    if (td_thread_create(&lane->thread, lane_main, lane) != 0)
        return TD_ERROR(TD_IO, "no thread for a lane of %s", lane->session->plan->sites[lane->group->site].name);
    lane->started = true;
    return NULL;
}

td_status *td_session_open_lanes(td_session *session)
{
    TD_TRY(open_groups(session));
    TD_TRY(TD_NEW(session->lanes, session->n_lanes + 1));
    int32_t n = 0;
    for (int32_t g = 0; g < session->n_groups; g++) {
        td_lane_group *group = &session->groups[g];
        int32_t lanes = group->kind == TD_QUEUE_COMPUTE ? session->plan->sites[group->site].lanes : 1;
        for (int32_t i = 0; i < lanes; i++, n++) {
            session->lanes[n].session = session;
            session->lanes[n].group = group;
            session->lanes[n].index = i;
            TD_TRY(open_lane(session, &session->lanes[n]));
        }
    }
    session->inline_lane = session->n_lanes == 1 && session->plan->sites[session->groups[0].site].is_host;
    for (int32_t i = 0; !session->inline_lane && i < session->n_lanes; i++)
        TD_TRY(start_lane(&session->lanes[i]));
    return NULL;
}

void td_session_close_lanes(td_session *session)
{
    atomic_store(&session->closing, true);
    for (int32_t g = 0; g < session->n_groups; g++) {
        pthread_mutex_lock(&session->groups[g].mutex);
        pthread_cond_broadcast(&session->groups[g].wake);
        pthread_mutex_unlock(&session->groups[g].mutex);
    }
    for (int32_t i = 0; session->lanes && i < session->n_lanes; i++) {
        td_lane *lane = &session->lanes[i];
        if (lane->started)
            pthread_join(lane->thread, NULL);
        if (!lane->group)
            continue;
        const td_plan_site *site = &session->plan->sites[lane->group->site];
        if (lane->event)
            site->api->event_destroy(lane->event);
        if (lane->queue)
            site->api->queue_close(lane->queue);
        td_free(lane->ranges);
    }
    for (int32_t g = 0; g < session->n_groups; g++) {
        pthread_mutex_destroy(&session->groups[g].mutex);
        pthread_cond_destroy(&session->groups[g].wake);
        td_free(session->groups[g].ready);
    }
    td_free(session->groups);
    td_free(session->group_of);
    td_free(session->lanes);
}
