/* Steps whose loss or gradients are no finite numbers: nothing of them reaches parameters or state. Where it is the loss, the op
 * that made the first such number is found; where it is a gradient, the plan has said which.
 *
 * A plan orders every update after the loss (partition/copies.c), so the check is one comparison per update, and a held step can
 * be run again, op by op on one thread, from the very parameters it had. Any order of the clusters that their edges allow is
 * right for the plan's memory too. What is looked at: every floating-point value of forward and backward, as it is made. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "runtime/session.h"

bool td_session_loss_is_finite(const td_session *session, int64_t step)
{
    const float *loss = session->losses[step % TD_PARITIES];
    if (session->plan->in_job && !session->slots[step % TD_STEP_SLOTS].ends_window)
        return true; /* a job's loss is the window's */
    return !loss || isfinite(*loss);
}

bool td_session_step_is_finite(const td_session *session, int64_t step)
{
    const int64_t *first = session->overflows[step % TD_PARITIES];
    bool looked = first && session->slots[step % TD_STEP_SLOTS].ends_window;
    return looked ? *first == 0 : td_session_loss_is_finite(session, step);
}

const char *td_session_overflowed(const td_session *session, int64_t step)
{
    const int64_t *first = session->overflows[step % TD_PARITIES];
    return first && *first > 0 ? session->plan->watched[*first - 1] : NULL;
}

td_status *td_session_settle_overflow(td_session *session, int64_t step, bool *out_skip)
{
    const td_plan *plan = session->plan;
    td_loss_scale *state = &session->store->loss_scale;
    const char *parameter = td_session_overflowed(session, step);
    const int64_t number = session->store->steps + 1;
    const double scale = state->scale;
    *out_skip = plan->has_loss_scale ? td_loss_scale_overflow(state, &plan->loss_scale) : plan->on_nan == TD_NAN_SKIP;
    if (!plan->has_loss_scale)
        return TD_ERROR(TD_NOT_FINITE, "step %" PRId64 ": the loss is finite, but the gradient of \"%s\" is not",
                        number, parameter);
    if (*out_skip)
        return TD_ERROR(TD_NOT_FINITE,
                        "step %" PRId64 ": the gradient of \"%s\" overflows at loss scale %g, the next one is %g",
                        number, parameter, scale, state->scale);
    return TD_ERROR(TD_NOT_FINITE,
                    "step %" PRId64 ": the gradient of \"%s\" overflows at loss scale %g, which cannot be halved: the "
                    "minimum is %g",
                    number, parameter, scale, plan->loss_scale.minimum);
}

/* ---- looking at values ------------------------------------------------------------------------------------------------------- */

typedef struct finding {
    bool found;
    int64_t element;
    double number;
} finding;

static double number_at(td_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TD_F32:
        return (double)((const float *)data)[i];
    case TD_F64:
        return ((const double *)data)[i];
    case TD_F16:
        return (double)td_f16_to_f32(((const uint16_t *)data)[i]);
    case TD_BF16:
        return (double)td_bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return 0;
    }
}

static int64_t elements_in_use(const td_tensor *t, int64_t rows)
{
    int64_t n = t->kind == TD_ROW_SPARSE && t->rank ? rows : 1;
    if (t->kind == TD_RAGGED)
        return t->entries;
    for (int32_t i = t->kind == TD_ROW_SPARSE; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static void scan(const td_tensor *t, const void *data, int64_t n, finding *out)
{
    for (int64_t i = 0; i < n && !out->found; i++) {
        double number = number_at(t->dtype, data, i);
        if (!isfinite(number))
            *out = (finding){true, i, number};
    }
}

static td_lane *lane_of(const td_session *session, int32_t site, td_queue_kind kind)
{
    for (int32_t i = 0; i < session->n_lanes; i++)
        if (session->lanes[i].group->site == site && session->lanes[i].group->kind == kind)
            return &session->lanes[i];
    return NULL;
}

/* Copies `bytes` from a device to `host` through a queue of its own: the plan may have no lane in this direction. */
static td_status *fetch(const td_plan_site *site, void *host, const void *from, size_t bytes)
{
    td_queue_options options = {.struct_size = sizeof options, .kind = TD_QUEUE_TO_HOST};
    td_queue *queue = NULL;
    td_event *event = NULL;
    TD_TRY(site->api->queue_open(site->device, &options, &queue));
    td_status *status = site->api->event_create(site->device, &event);
    if (!status)
        status = site->api->copy_to_host(queue, host, from, bytes);
    if (!status)
        status = site->api->event_record(event, queue);
    if (!status)
        status = site->api->event_wait(event);
    if (event)
        site->api->event_destroy(event);
    site->api->queue_close(queue);
    return status;
}

static td_status *look_on_device(const td_plan_site *site, const td_tensor *t, finding *out)
{
    int64_t rows = 0;
    if (t->kind == TD_ROW_SPARSE)
        TD_TRY(fetch(site, &rows, t->count, sizeof rows));
    int64_t n = elements_in_use(t, rows);
    void *copy = n > 0 ? td_calloc((size_t)n, td_dtype_bytes(t->dtype)) : NULL;
    if (n <= 0)
        return NULL;
    if (!copy)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory to look at a value");
    td_status *status = fetch(site, copy, t->data, (size_t)n * td_dtype_bytes(t->dtype));
    if (!status)
        scan(t, copy, n, out);
    td_free(copy);
    return status;
}

/* The first element of a value that is not finite. */
static td_status *look(const td_session *session, int32_t value, const td_tensor *t, finding *out)
{
    *out = (finding){0};
    bool floats = t->dtype == TD_F32 || t->dtype == TD_F64 || t->dtype == TD_F16 || t->dtype == TD_BF16;
    int32_t device = value < 0 ? -1 : session->plan->values[value].device;
    if (device < 0 || !floats || !t->data)
        return NULL;
    if (!session->plan->sites[device].is_host)
        return look_on_device(&session->plan->sites[device], t, out);
    scan(t, t->data, elements_in_use(t, t->count ? *(const int64_t *)t->count : 0), out);
    return NULL;
}

/* ---- telling ------------------------------------------------------------------------------------------------------------------- */

static const char *number_text(double number)
{
    return isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

static const char *loss_text(const td_session *session, int64_t step)
{
    return number_text((double)*session->losses[step % TD_PARITIES]);
}

/* "row 3, column 2" of a value's element. */
static void place_text(const td_tensor *t, int64_t element, char *buffer, size_t bytes)
{
    int64_t width = 1;
    for (int32_t i = 1; i < t->rank; i++)
        width *= t->dims[i];
    if (t->rank > 1 && width > 0)
        (void)snprintf(buffer, bytes, "row %" PRId64 ", element %" PRId64, element / width, element % width);
    else
        (void)snprintf(buffer, bytes, "element %" PRId64, element);
}

/* What a copy was made of, back to the value that an op made or the step began with. */
static int32_t origin_of(const td_plan *plan, int32_t value)
{
    for (;;) {
        value = td_graph_behind_views(plan->graph, value);
        int32_t producer = plan->graph->values[value].producer;
        if (producer < 0 || plan->nodes[producer].lane == TD_QUEUE_COMPUTE)
            return value;
        value = plan->graph->nodes[producer].inputs[0];
    }
}

/* An input of the instruction that is not finite was not made in this step: everything made before was. */
static td_status *tell_source(const td_session *session, int64_t step, int32_t value, const td_tensor *t,
                              const finding *f, bool *out_lasting)
{
    const td_value_info *info = &session->plan->graph->values[origin_of(session->plan, value)];
    char place[64];
    place_text(t, f->element, place, sizeof place);
    if (info->class == TD_CLASS_REPLICA)
        info = &session->plan->graph->values[info->parameter];
    *out_lasting = info->class == TD_CLASS_PARAMETER || info->class == TD_CLASS_STATE;
    if (!*out_lasting)
        return TD_ERROR(TD_NOT_FINITE, "step %" PRId64 ": the loss is %s: input \"%s\" of its batch has %s (%s)",
                        session->store->steps + 1, loss_text(session, step), info->name, number_text(f->number), place);
    return TD_ERROR(TD_NOT_FINITE,
                    "step %" PRId64 ": the loss is %s: parameter \"%s\" has %s (%s) since an earlier update",
                    session->store->steps + 1, loss_text(session, step), info->name, number_text(f->number), place);
}

static td_status *tell_op(const td_session *session, int64_t step, const td_instruction *in, int32_t value,
                          const td_tensor *t, const finding *f)
{
    const td_plan *plan = session->plan;
    const td_node *node = &plan->graph->nodes[in->node];
    char place[64];
    place_text(t, f->element, place, sizeof place);
    return TD_ERROR(TD_NOT_FINITE,
                    "step %" PRId64 ": the loss is %s: %s \"%s\" on %s is the first op to make such a number: %s in "
                    "\"%s\" (%s)",
                    session->store->steps + 1, loss_text(session, step), node->op->name, node->name,
                    plan->sites[plan->nodes[in->node].device].name, number_text(f->number),
                    plan->graph->values[value].name, place);
}

/* ---- running again ---------------------------------------------------------------------------------------------------------------- */

/* *out_why: what is wrong with what the instruction read or made; NULL: nothing. */
static td_status *inspect(td_session *session, int64_t step, const td_instruction *in, td_status **out_why,
                          bool *out_lasting)
{
    const td_kernel_call *call = &in->call[step % TD_PARITIES];
    const td_tensor *tensors = in->tensors[step % TD_PARITIES];
    finding bad = {0}, f = {0};
    int32_t output = -1;
    for (int32_t i = 0; i < call->n_outputs && !bad.found; i++) {
        output = call->n_inputs + i;
        TD_TRY(look(session, in->values[output], &tensors[output], &bad));
    }
    if (!bad.found)
        return NULL;
    for (int32_t i = 0; i < call->n_inputs && !*out_why; i++) {
        bool in_place = in->values[i] >= 0 && tensors[i].data == tensors[output].data;
        if (in_place)
            continue; /* it holds the output by now */
        TD_TRY(look(session, in->values[i], &tensors[i], &f));
        if (f.found)
            *out_why = tell_source(session, step, in->values[i], &tensors[i], &f, out_lasting);
    }
    if (!*out_why)
        *out_why = tell_op(session, step, in, in->values[output], &tensors[output], &bad);
    return NULL;
}

static td_status *run_cluster(td_session *session, int32_t cluster, int64_t step, td_status **out_why,
                              bool *out_lasting)
{
    const td_plan *plan = session->plan;
    td_bound_cluster *bound = &session->clusters[cluster];
    td_lane *lane = lane_of(session, plan->clusters[cluster].device, plan->clusters[cluster].lane);
    for (int32_t i = 0; i < bound->n_instructions && !*out_why; i++) {
        td_instruction *in = &bound->instructions[i];
        if (in->updates || in->guarded || in->once || in->kind == TD_RUN_NOTHING)
            continue;
        TD_TRY(td_session_run_instruction(lane, in, (int32_t)(step % TD_PARITIES)));
        TD_TRY(td_session_settle_lane(lane));
        if (in->kind == TD_RUN_KERNEL)
            TD_TRY(inspect(session, step, in, out_why, out_lasting));
    }
    return NULL;
}

static td_status *run_again(td_session *session, int64_t step, td_status **out_why, bool *out_lasting)
{
    const td_plan *plan = session->plan;
    int32_t *waiting = NULL, *ready = NULL, n_ready = 0;
    td_status *status = TD_NEW(waiting, plan->n_clusters + 1);
    if (!status)
        status = TD_NEW(ready, plan->n_clusters + 1);
    for (int32_t c = 0; c < plan->n_clusters && !status; c++) {
        waiting[c] = plan->clusters[c].n_before;
        if (!waiting[c])
            ready[n_ready++] = c;
    }
    while (n_ready && !status && !*out_why) {
        int32_t c = ready[--n_ready];
        status = run_cluster(session, c, step, out_why, out_lasting);
        for (int32_t i = 0; i < plan->clusters[c].n_after; i++)
            if (--waiting[plan->clusters[c].after[i]] == 0)
                ready[n_ready++] = plan->clusters[c].after[i];
    }
    td_free(waiting);
    td_free(ready);
    return status;
}

static bool calls_the_user(const td_plan *plan)
{
    for (int64_t n = 0; n < plan->graph->n_nodes; n++)
        if (plan->graph->nodes[n].host_function || plan->graph->nodes[n].op->flags & TD_OP_REMOTE)
            return true;
    return false;
}

td_status *td_session_explain_nonfinite(td_session *session, int64_t step, bool *out_lasting)
{
    td_status *why = NULL;
    char loss[8]; /* running again may change it */
    (void)snprintf(loss, sizeof loss, "%s", loss_text(session, step));
    *out_lasting = false;
    if (calls_the_user(session->plan))
        return TD_ERROR(TD_NOT_FINITE,
                        "step %" PRId64
                        ": the loss is %s (no step with host calls or other ranks is run again to find the op)",
                        session->store->steps + 1, loss);
    td_status *status = run_again(session, step, &why, out_lasting);
    if (!why && !status)
        why =
            TD_ERROR(TD_NOT_FINITE, "step %" PRId64 ": the loss is %s; run again, op by op, all its numbers are finite",
                     session->store->steps + 1, loss);
    if (!why)
        why = TD_ERROR(TD_NOT_FINITE, "step %" PRId64 ": the loss is %s; running it again op by op failed: %s",
                       session->store->steps + 1, loss, td_status_message(status));
    td_status_destroy(status);
    return why;
}
