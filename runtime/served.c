/* See served.h. */
#include "runtime/served.h"

#include <string.h>

#include "base/dedup.h"
#include "base/key.h"
#include "base/memory.h"
#include "graph/op.h"
#include "runtime/profiler.h"
#include "runtime/row_order.h"

/* ---- keys and places --------------------------------------------------------------------------------------------------------- */

static const td_field *find_field(const td_batch *batch, const char *name)
{
    for (int32_t i = 0; i < batch->n_fields; i++)
        if (strcmp(batch->fields[i].name, name) == 0)
            return &batch->fields[i];
    return NULL;
}

static int64_t ids_of(const td_tensor *ids)
{
    return ids->kind == TD_RAGGED ? ids->entries : td_tensor_elements(ids);
}

static td_status *room_for(td_served_window *window, int32_t k, int64_t n)
{
    if (n > window->capacities[k]) {
        td_free(window->keys[k]);
        td_free(window->places[k]);
        window->keys[k] = window->places[k] = NULL;
        window->capacities[k] = 0;
        TD_TRY(TD_NEW(window->keys[k], n));
        TD_TRY(TD_NEW(window->places[k], n));
        window->capacities[k] = n;
    }
    if (n > window->scratch_ids) {
        td_free(window->scratch);
        td_free(window->rows);
        window->rows = NULL;
        window->scratch_ids = 0;
        window->scratch = td_calloc(1, td_dedup_scratch_bytes(n));
        TD_TRY(TD_NEW(window->rows, n));
        if (!window->scratch)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %lld ids", (long long)n);
        window->scratch_ids = n;
    }
    return NULL;
}

static td_status *check_row(const td_plan_keys *keys, const td_plan_places *places, const td_tensor *ids, int64_t i,
                            int64_t row)
{
    if (row >= 0 && row < keys->rows)
        return NULL;
    return td_status_prefix(td_dedup_bad_id(ids->data, ids->dtype, i, places->offset, keys->rows), "input \"%s\"",
                            places->from);
}

/* Ids of a hash table wrap around. */
static int64_t key_at(const td_tensor *ids, int64_t i, int64_t offset)
{
    return td_key_of_id((int64_t)((uint64_t)td_dedup_row(ids->data, ids->dtype, i, 0) + (uint64_t)offset));
}

/* The rows, or keys, that all lookups of these keys name, one after another. */
static td_status *list_rows(const td_plan_keys *keys, const td_batch *batch, int64_t *rows)
{
    for (int32_t p = 0; p < keys->n_places; p++) {
        const td_plan_places *places = &keys->places[p];
        const td_tensor *ids = &find_field(batch, places->from)->tensor;
        const int64_t n = ids_of(ids);
        for (int64_t i = 0; i < n && keys->hashed; i++)
            rows[i] = key_at(ids, i, places->offset);
        for (int64_t i = 0; i < n && !keys->hashed; i++) {
            rows[i] = td_dedup_row(ids->data, ids->dtype, i, places->offset);
            TD_TRY(check_row(keys, places, ids, i, rows[i]));
        }
        rows += n;
    }
    return NULL;
}

static td_status *count_ids(const td_plan_keys *keys, const td_batch *batch, int64_t *out_n)
{
    *out_n = 0;
    for (int32_t p = 0; p < keys->n_places; p++) {
        const td_field *field = find_field(batch, keys->places[p].from);
        if (!field)
            return TD_ERROR(TD_NOT_FOUND, "the batch has no field \"%s\", an input of the graph", keys->places[p].from);
        if (field->tensor.dtype != TD_I64 && field->tensor.dtype != TD_I32)
            return TD_ERROR(TD_INVALID_ARGUMENT, "input \"%s\": ids must be i64 or i32", field->name);
        *out_n += ids_of(&field->tensor);
    }
    return NULL;
}

/* The distinct ones of what is listed in window->rows, ascending, and where each is among them. */
static void find_keys(td_served_window *window, int32_t k, int64_t ids)
{
    window->n_keys[k] = td_dedup_keys(window->rows, ids, window->scratch, window->keys[k], window->places[k]);
}

/* The same of rows of an array. */
static td_status *find_rows(td_served_window *window, int32_t k, int64_t ids, int64_t table_rows)
{
    td_dedup dedup;
    TD_TRY(td_dedup_group(window->rows, TD_I64, ids, 0, table_rows, window->scratch, &dedup));
    for (int64_t r = 0; r < dedup.n_rows; r++) {
        window->keys[k][r] = dedup.rows[r];
        for (int64_t i = dedup.starts[r]; i < dedup.starts[r + 1]; i++)
            window->places[k][dedup.positions[i]] = r;
    }
    window->n_keys[k] = dedup.n_rows;
    return NULL;
}

static td_status *group(td_served_window *window, int32_t k, const td_plan *plan, const td_batch *batches, int32_t n)
{
    const td_plan_keys *keys = &plan->keys[k];
    int64_t ids = 0;
    for (int32_t b = 0; b < n; b++) {
        int64_t more = 0;
        TD_TRY(count_ids(keys, &batches[b], &more));
        window->starts[b * (int64_t)plan->n_keys + k] = ids;
        ids += more;
    }
    TD_TRY(room_for(window, k, ids + 1));
    for (int32_t b = 0; b < n; b++)
        TD_TRY(list_rows(keys, &batches[b], window->rows + window->starts[b * (int64_t)plan->n_keys + k]));
    if (keys->hashed)
        find_keys(window, k, ids);
    else
        TD_TRY(find_rows(window, k, ids, keys->rows));
    td_profiler_count_keys(plan, k, window->rows, ids, window->n_keys[k]);
    return NULL;
}

td_status *td_served_window_fill(td_served_window *window, const td_plan *plan, const td_batch *batches, int32_t n)
{
    const int64_t starts = (int64_t)n * plan->n_keys;
    if (!window->keys) {
        TD_TRY(TD_NEW(window->keys, plan->n_keys + 1));
        TD_TRY(TD_NEW(window->places, plan->n_keys + 1));
        TD_TRY(TD_NEW(window->n_keys, plan->n_keys + 1));
        TD_TRY(TD_NEW(window->capacities, plan->n_keys + 1));
    }
    if (starts > window->starts_capacity) {
        td_free(window->starts);
        window->starts_capacity = 0;
        TD_TRY(TD_NEW(window->starts, starts));
        window->starts_capacity = starts;
    }
    for (int32_t k = 0; k < plan->n_keys; k++)
        TD_TRY(group(window, k, plan, batches, n));
    return NULL;
}

void td_served_window_deinit(td_served_window *window, const td_plan *plan)
{
    for (int32_t k = 0; window->keys && k < plan->n_keys; k++) {
        td_free(window->keys[k]);
        td_free(window->places ? window->places[k] : NULL);
    }
    td_free(window->keys);
    td_free(window->places);
    td_free(window->n_keys);
    td_free(window->capacities);
    td_free(window->starts);
    td_free(window->rows);
    td_free(window->scratch);
}

static void put_fields(td_served_fields *to, const td_plan_keys *keys, int64_t *names, int64_t n_names, int64_t *places,
                       td_batch *batch)
{
    to->fields[batch->n_fields++] =
        (td_field){keys->name, {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {n_names}, .data = names}};
    for (int32_t p = 0; p < keys->n_places; p++) {
        td_tensor tensor = find_field(batch, keys->places[p].from)->tensor; /* shape, and the offsets of a ragged one */
        const int64_t n = ids_of(&tensor);
        tensor.dtype = TD_I64;
        tensor.data = places;
        to->fields[batch->n_fields++] = (td_field){keys->places[p].to, tensor};
        places += n;
    }
}

td_status *td_served_extend(td_served_fields *fields, const td_served_window *window, const td_plan *plan,
                            td_batch *batch, int32_t at)
{
    int32_t most = batch->n_fields;
    for (int32_t k = 0; k < plan->n_keys; k++)
        most += 1 + plan->keys[k].n_places;
    if (most > fields->most) {
        td_free(fields->fields);
        fields->most = 0;
        TD_TRY(TD_NEW(fields->fields, most));
        fields->most = most;
    }
    memcpy(fields->fields, batch->fields, (size_t)batch->n_fields * sizeof *batch->fields);
    batch->fields = fields->fields;
    for (int32_t k = 0; k < plan->n_keys; k++)
        put_fields(fields, &plan->keys[k], window->keys[k], window->n_keys[k],
                   window->places[k] + window->starts[at * (int64_t)plan->n_keys + k], batch);
    return NULL;
}

/* ---- remote ops -------------------------------------------------------------------------------------------------------------- */

enum { PULL_INPUTS = 2, PUSH_INPUTS = 4, OFFER_INPUTS = 3, APPLY_INPUTS = 2 };

static td_status *pull(const td_plan *plan, const td_kernel_call *call, const int32_t *tables)
{
    td_remote_part *parts = NULL;
    TD_TRY(TD_NEW(parts, call->n_outputs));
    for (int32_t t = 0; t < call->n_outputs; t++)
        parts[t] = (td_remote_part){.table = tables[PULL_INPUTS * t],
                                    .n = call->inputs[PULL_INPUTS * t + 1].dims[0],
                                    .keys = call->inputs[PULL_INPUTS * t + 1].data,
                                    .rows = call->outputs[t].data};
    td_status *status = plan->remote->pull(plan->remote->self, parts, call->n_outputs, plan->training);
    td_free(parts);
    return status;
}

/* What a part's rows in ascending order took; NULLs: they ascended. */
typedef struct ordered {
    int64_t *places;
    float *gradients;
} ordered;

static td_status *put_in_order(td_remote_part *part, const td_tensor *gradient, ordered *out)
{
    const int64_t dim = gradient->dims[1];
    td_row_order order = {0};
    td_status *status = td_row_order_find(&order, part->places, part->n, gradient->dims[0]);
    if (!status && order.at)
        status = TD_NEW(out->places, part->n);
    if (!status && order.at)
        status = TD_NEW(out->gradients, part->n * dim);
    for (int64_t i = 0; i < part->n && !status && order.at; i++) {
        out->places[i] = part->places[order.at[i]];
        memcpy(out->gradients + i * dim, part->gradients + order.at[i] * dim, (size_t)dim * sizeof(float));
    }
    if (!status && order.at) {
        part->places = out->places;
        part->gradients = out->gradients;
    }
    td_row_order_deinit(&order);
    return status;
}

/* Parts of a call that has so many inputs for each table: table, gradient, keys, then perhaps coefficients. */
static td_status *fill_parts(const td_kernel_call *call, int32_t stride, const int32_t *tables,
                             const td_remote_place *place, td_remote_part *parts, ordered *in_order)
{
    static const float none[TD_COEFFICIENTS] = {0};
    for (int32_t t = 0; t < call->n_inputs / stride; t++) {
        const td_tensor *inputs = &call->inputs[stride * t];
        parts[t] = (td_remote_part){.table = tables[stride * t],
                                    .n = place->samples ? *(const int64_t *)inputs[1].count : 0,
                                    .keys = inputs[2].data,
                                    .places = inputs[1].index,
                                    .gradients = inputs[1].data,
                                    .coefficients = stride > OFFER_INPUTS ? inputs[3].data : none};
        TD_TRY(put_in_order(&parts[t], &inputs[1], &in_order[t]));
    }
    return NULL;
}

static td_status *send_parts(const td_plan *plan, const td_kernel_call *call, const td_remote_place *place,
                             const td_remote_part *parts, int32_t n)
{
    td_exact **squares = NULL;
    const td_remote *remote = plan->remote;
    if (!call->n_outputs)
        return remote->push(remote->self, parts, n, place);
    TD_TRY(TD_NEW(squares, n));
    for (int32_t t = 0; t < n; t++)
        squares[t] = call->outputs[t].data;
    td_status *status = remote->offer(remote->self, parts, n, place, squares);
    td_free(squares);
    return status;
}

/* ps_push, ps_offer: a replica's gradients. */
static td_status *push(const td_plan *plan, const td_kernel_call *call, int32_t stride, const int32_t *tables,
                       const td_remote_place *place)
{
    td_remote_part *parts = NULL;
    ordered *in_order = NULL;
    const int32_t n = call->n_inputs / stride;
    if (!place->ends_replica)
        return NULL;
    td_status *status = TD_NEW(parts, n);
    if (!status)
        status = TD_NEW(in_order, n);
    if (!status)
        status = fill_parts(call, stride, tables, place, parts, in_order);
    if (!status)
        status = send_parts(plan, call, place, parts, n);
    for (int32_t t = 0; in_order && t < n; t++) {
        td_free(in_order[t].places);
        td_free(in_order[t].gradients);
    }
    td_free(in_order);
    td_free(parts);
    return status;
}

static td_status *apply(const td_plan *plan, const td_kernel_call *call, const int32_t *tables)
{
    td_remote_part *parts = NULL;
    const int32_t n = call->n_inputs / APPLY_INPUTS;
    const float *factor = call->inputs[0].kind == TD_NONE ? NULL : call->inputs[0].data;
    TD_TRY(TD_NEW(parts, n));
    for (int32_t t = 0; t < n; t++)
        parts[t] = (td_remote_part){.table = tables[1 + APPLY_INPUTS * t],
                                    .coefficients = call->inputs[2 + APPLY_INPUTS * t].data};
    td_status *status = plan->remote->apply(plan->remote->self, parts, n, factor ? *factor : 1);
    td_free(parts);
    return status;
}

/* rank_send, rank_sum: see graph/ops/rank_sum.c. */
static td_status *send_bucket(const td_plan *plan, const td_kernel_call *call, const td_remote_place *place)
{
    const td_remote_bucket bucket = {.index = (int32_t)td_attr_int(call->attrs, call->n_attrs, "bucket", 0),
                                     .n = call->n_inputs - 1,
                                     .rows_bytes = td_attr_int(call->attrs, call->n_attrs, "rows_bytes", 0)};
    *(float *)call->outputs[0].data = 0;
    return plan->remote->send(plan->remote->self, &bucket, call->inputs + 1, place);
}

static td_status *sum_bucket(const td_plan *plan, const td_kernel_call *call, const td_remote_place *place)
{
    const td_remote_bucket bucket = {.index = (int32_t)td_attr_int(call->attrs, call->n_attrs, "bucket", 0),
                                     .n = call->n_outputs};
    return plan->remote->sum(plan->remote->self, &bucket, call->inputs + call->n_inputs - call->n_outputs,
                             (td_tensor *)(uintptr_t)call->outputs, place);
}

td_status *td_served_run(const td_plan *plan, const td_kernel_call *call, const int32_t *tables,
                         const td_remote_place *place)
{
    if (strcmp(call->op, "ps_pull") == 0)
        return pull(plan, call, tables);
    if (strcmp(call->op, "ps_push") == 0)
        return push(plan, call, PUSH_INPUTS, tables, place);
    if (strcmp(call->op, "ps_offer") == 0)
        return push(plan, call, OFFER_INPUTS, tables, place);
    if (strcmp(call->op, "ps_apply") == 0)
        return apply(plan, call, tables);
    return strcmp(call->op, "rank_send") == 0 ? send_bucket(plan, call, place) : sum_bucket(plan, call, place);
}
