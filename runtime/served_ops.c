/* Ops of other ranks, run through the job: their inputs and outputs become parts of td_remote's functions. See served.h. */
#include <string.h>

#include "base/dedup.h"
#include "base/memory.h"
#include "graph/op.h"
#include "runtime/served.h"

enum { PULL_INPUTS = 2, PUSH_INPUTS = 4, OFFER_INPUTS = 3, APPLY_INPUTS = 2 };

/* ---- what is kept ------------------------------------------------------------------------------------------------------------ */

static void deinit(td_served_call *kept)
{
    for (int32_t t = 0; kept->orders && t < kept->most; t++) {
        td_row_order_deinit(&kept->orders[t].order);
        td_free(kept->orders[t].places);
        td_free(kept->orders[t].gradients);
    }
    td_free(kept->parts);
    td_free(kept->orders);
    td_free(kept->squares);
    *kept = (td_served_call){0};
}

void td_served_calls_deinit(td_served_calls *calls)
{
    deinit(&calls->pull);
    deinit(&calls->ahead);
    deinit(&calls->push);
    deinit(&calls->apply);
}

int64_t td_served_calls_bytes(const td_plan *plan)
{
    enum { CALLS = 4 };
    int64_t bytes =
        CALLS * plan->n_served * (int64_t)(sizeof(td_remote_part) + sizeof(td_served_order) + sizeof(td_exact *));
    td_plan_served_summary table;
    for (int32_t t = 0; plan->most_accumulated > 1 && td_plan_served_table(plan, t, &table); t++) {
        bytes += (int64_t)td_dedup_scratch_bytes(table.keys) + td_room_of(table.keys) * (int64_t)sizeof(int64_t) +
                 td_room_of(table.keys * table.dim) * (int64_t)sizeof(float);
    }
    return bytes;
}

/* Room for n parts. The first call knows how many: they are the plan's. */
static td_status *room_for(td_served_call *kept, int32_t n)
{
    if (n <= kept->most)
        return NULL;
    deinit(kept);
    kept->most = n;
    td_status *status = TD_NEW(kept->parts, n);
    if (!status)
        status = TD_NEW(kept->orders, n);
    if (!status)
        status = TD_NEW(kept->squares, n);
    if (status)
        deinit(kept);
    return status;
}

/* ---- the ops ----------------------------------------------------------------------------------------------------------------- */

static td_status *fill_pull(const td_kernel_call *call, const int32_t *tables, bool ahead, td_served_call *kept)
{
    TD_TRY(room_for(kept, call->n_outputs));
    for (int32_t t = 0; t < call->n_outputs; t++)
        kept->parts[t] = (td_remote_part){.table = tables[PULL_INPUTS * t],
                                          .n = call->inputs[PULL_INPUTS * t + 1].dims[0],
                                          .keys = call->inputs[PULL_INPUTS * t + 1].data,
                                          .rows = ahead ? NULL : call->outputs[t].data};
    return NULL;
}

static td_status *pull(const td_plan *plan, const td_kernel_call *call, const int32_t *tables, td_served_call *kept)
{
    TD_TRY(fill_pull(call, tables, false, kept));
    return plan->remote->pull(plan->remote->self, kept->parts, call->n_outputs, plan->training);
}

td_status *td_served_ask_ahead(const td_plan *plan, const td_kernel_call *call, const int32_t *tables,
                               td_served_calls *calls)
{
    TD_TRY(fill_pull(call, tables, true, &calls->ahead));
    return plan->remote->ask_ahead(plan->remote->self, calls->ahead.parts, call->n_outputs);
}

/* The part's rows ascend then: as they are, or copied. */
static td_status *put_in_order(td_remote_part *part, const td_tensor *gradient, td_served_order *kept)
{
    const int64_t dim = gradient->dims[1];
    TD_TRY(td_row_order_find(&kept->order, part->places, part->n, gradient->dims[0]));
    if (!kept->order.at)
        return NULL;
    TD_TRY(td_keep_room(&kept->places, &kept->places_capacity, part->n, sizeof *kept->places));
    TD_TRY(td_keep_room(&kept->gradients, &kept->gradients_capacity, part->n * dim, sizeof *kept->gradients));
    for (int64_t i = 0; i < part->n; i++) {
        const int64_t from = kept->order.at[i];
        kept->places[i] = part->places[from];
        memcpy(kept->gradients + i * dim, part->gradients + from * dim, (size_t)dim * sizeof(float));
    }
    part->places = kept->places;
    part->gradients = kept->gradients;
    return NULL;
}

/* Parts of a call that has so many inputs for each table: table, gradient, keys, then perhaps coefficients. */
static td_status *fill_parts(const td_kernel_call *call, int32_t stride, const int32_t *tables,
                             const td_remote_place *place, td_served_call *kept)
{
    static const float none[TD_COEFFICIENTS] = {0};
    for (int32_t t = 0; t < call->n_inputs / stride; t++) {
        const td_tensor *inputs = &call->inputs[stride * t];
        kept->parts[t] = (td_remote_part){.table = tables[stride * t],
                                          .n = place->samples ? *(const int64_t *)inputs[1].count : 0,
                                          .keys = inputs[2].data,
                                          .places = inputs[1].index,
                                          .gradients = inputs[1].data,
                                          .coefficients = stride > OFFER_INPUTS ? inputs[3].data : none};
        TD_TRY(put_in_order(&kept->parts[t], &inputs[1], &kept->orders[t]));
    }
    return NULL;
}

/* ps_push, ps_offer: a replica's gradients. */
static td_status *push(const td_plan *plan, const td_kernel_call *call, int32_t stride, const int32_t *tables,
                       const td_remote_place *place, td_served_call *kept)
{
    const int32_t n = call->n_inputs / stride;
    const td_remote *remote = plan->remote;
    if (!place->ends_replica)
        return NULL;
    TD_TRY(room_for(kept, n));
    TD_TRY(fill_parts(call, stride, tables, place, kept));
    if (!call->n_outputs)
        return remote->push(remote->self, kept->parts, n, place);
    for (int32_t t = 0; t < n; t++)
        kept->squares[t] = call->outputs[t].data;
    return remote->offer(remote->self, kept->parts, n, place, kept->squares);
}

static td_status *apply(const td_plan *plan, const td_kernel_call *call, const int32_t *tables, td_served_call *kept)
{
    const int32_t n = call->n_inputs / APPLY_INPUTS;
    const float *factor = call->inputs[0].kind == TD_NONE ? NULL : call->inputs[0].data;
    TD_TRY(room_for(kept, n));
    for (int32_t t = 0; t < n; t++)
        kept->parts[t] = (td_remote_part){.table = tables[1 + APPLY_INPUTS * t],
                                          .coefficients = call->inputs[2 + APPLY_INPUTS * t].data};
    return plan->remote->apply(plan->remote->self, kept->parts, n, factor ? *factor : 1);
}

static const int64_t *bounds_of(const td_kernel_call *call)
{
    const td_attr *bounds = td_attr_find(call->attrs, call->n_attrs, "bounds");
    return bounds && bounds->n_ints ? bounds->ints : NULL;
}

/* rank_send, rank_sum: see graph/ops/rank_sum.c. */
static td_status *send_bucket(const td_plan *plan, const td_kernel_call *call, const td_remote_place *place)
{
    const td_remote_bucket bucket = {.index = (int32_t)td_attr_int(call->attrs, call->n_attrs, "bucket", 0),
                                     .n = call->n_inputs - 1,
                                     .rows_bytes = td_attr_int(call->attrs, call->n_attrs, "rows_bytes", 0),
                                     .bounds = bounds_of(call)};
    *(float *)call->outputs[0].data = 0;
    return plan->remote->send(plan->remote->self, &bucket, call->inputs + 1, place);
}

static td_status *sum_bucket(const td_plan *plan, const td_kernel_call *call, const td_remote_place *place)
{
    const td_remote_bucket bucket = {.index = (int32_t)td_attr_int(call->attrs, call->n_attrs, "bucket", 0),
                                     .n = call->n_outputs,
                                     .bounds = bounds_of(call)};
    return plan->remote->sum(plan->remote->self, &bucket, call->inputs + call->n_inputs - call->n_outputs,
                             (td_tensor *)(uintptr_t)call->outputs, place);
}

/* rank_combine, rank_gather: see graph/ops/rank_shard.c. */
static td_status *combine(const td_plan *plan, const td_kernel_call *call)
{
    return plan->remote->combine(plan->remote->self, call->inputs, (td_tensor *)(uintptr_t)call->outputs,
                                 call->n_outputs);
}

static td_status *gather(const td_plan *plan, const td_kernel_call *call)
{
    const td_remote_bucket bucket = {.index = (int32_t)td_attr_int(call->attrs, call->n_attrs, "bucket", 0),
                                     .n = call->n_inputs - 1,
                                     .bounds = bounds_of(call)};
    *(float *)call->outputs[0].data = 0;
    return plan->remote->gather(plan->remote->self, &bucket, call->inputs + 1);
}

td_status *td_served_run(const td_plan *plan, const td_kernel_call *call, const int32_t *tables,
                         const td_remote_place *place, td_served_calls *calls)
{
    if (strcmp(call->op, "ps_pull") == 0)
        return pull(plan, call, tables, &calls->pull);
    if (strcmp(call->op, "ps_push") == 0)
        return push(plan, call, PUSH_INPUTS, tables, place, &calls->push);
    if (strcmp(call->op, "ps_offer") == 0)
        return push(plan, call, OFFER_INPUTS, tables, place, &calls->push);
    if (strcmp(call->op, "ps_apply") == 0)
        return apply(plan, call, tables, &calls->apply);
    if (strcmp(call->op, "rank_combine") == 0)
        return combine(plan, call);
    if (strcmp(call->op, "rank_gather") == 0)
        return gather(plan, call);
    return strcmp(call->op, "rank_send") == 0 ? send_bucket(plan, call, place) : sum_bucket(plan, call, place);
}
