/* See served.h. */
#include "runtime/served.h"

#include <string.h>

#include "base/dedup.h"
#include "base/key.h"
#include "base/memory.h"
#include "graph/op.h"
#include "runtime/profiler.h"

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

static td_status *room_for(td_served_batch *served, int32_t k, int64_t n)
{
    if (n > served->capacities[k]) {
        td_free(served->keys[k]);
        td_free(served->places[k]);
        served->keys[k] = served->places[k] = NULL;
        served->capacities[k] = 0;
        TD_TRY(TD_NEW(served->keys[k], n));
        TD_TRY(TD_NEW(served->places[k], n));
        served->capacities[k] = n;
    }
    if (n > served->scratch_ids) {
        td_free(served->scratch);
        td_free(served->rows);
        served->rows = NULL;
        served->scratch_ids = 0;
        served->scratch = td_calloc(1, td_dedup_scratch_bytes(n));
        TD_TRY(TD_NEW(served->rows, n));
        if (!served->scratch)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %lld ids", (long long)n);
        served->scratch_ids = n;
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

static td_status *group(td_served_batch *served, int32_t k, const td_plan *plan, const td_batch *batch,
                        int64_t *out_n_keys)
{
    const td_plan_keys *keys = &plan->keys[k];
    int64_t n = 0;
    td_dedup dedup;
    TD_TRY(count_ids(keys, batch, &n));
    TD_TRY(room_for(served, k, n + 1));
    TD_TRY(list_rows(keys, batch, served->rows));
    if (keys->hashed) {
        *out_n_keys = td_dedup_keys(served->rows, n, served->scratch, served->keys[k], served->places[k]);
        return NULL;
    }
    TD_TRY(td_dedup_group(served->rows, TD_I64, n, 0, keys->rows, served->scratch, &dedup));
    for (int64_t r = 0; r < dedup.n_rows; r++) {
        served->keys[k][r] = dedup.rows[r];
        for (int64_t i = dedup.starts[r]; i < dedup.starts[r + 1]; i++)
            served->places[k][dedup.positions[i]] = r;
    }
    td_profiler_count_keys(plan, k, served->rows, n, dedup.n_rows);
    *out_n_keys = dedup.n_rows;
    return NULL;
}

static void put_fields(td_served_batch *served, int32_t k, const td_plan_keys *keys, int64_t n_keys, td_batch *batch)
{
    int64_t *places = served->places[k];
    served->fields[batch->n_fields++] = (td_field){
        keys->name, {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {n_keys}, .data = served->keys[k]}};
    for (int32_t p = 0; p < keys->n_places; p++) {
        td_tensor tensor = find_field(batch, keys->places[p].from)->tensor; /* shape, and the offsets of a ragged one */
        const int64_t n = ids_of(&tensor);
        tensor.dtype = TD_I64;
        tensor.data = places;
        served->fields[batch->n_fields++] = (td_field){keys->places[p].to, tensor};
        places += n;
    }
}

static td_status *room_for_fields(td_served_batch *served, const td_plan *plan, const td_batch *batch)
{
    int32_t most = batch->n_fields;
    for (int32_t k = 0; k < plan->n_keys; k++)
        most += 1 + plan->keys[k].n_places;
    if (!served->keys) {
        TD_TRY(TD_NEW(served->keys, plan->n_keys + 1));
        TD_TRY(TD_NEW(served->places, plan->n_keys + 1));
        TD_TRY(TD_NEW(served->capacities, plan->n_keys + 1));
    }
    if (most <= served->most_fields)
        return NULL;
    td_free(served->fields);
    served->most_fields = 0;
    TD_TRY(TD_NEW(served->fields, most));
    served->most_fields = most;
    return NULL;
}

td_status *td_served_batch_fill(td_served_batch *served, const td_plan *plan, td_batch *batch)
{
    TD_TRY(room_for_fields(served, plan, batch));
    memcpy(served->fields, batch->fields, (size_t)batch->n_fields * sizeof *batch->fields);
    batch->fields = served->fields;
    for (int32_t k = 0; k < plan->n_keys; k++) {
        int64_t n_keys = 0;
        TD_TRY(group(served, k, plan, batch, &n_keys));
        put_fields(served, k, &plan->keys[k], n_keys, batch);
    }
    return NULL;
}

void td_served_batch_deinit(td_served_batch *served, const td_plan *plan)
{
    for (int32_t k = 0; served->keys && k < plan->n_keys; k++) {
        td_free(served->keys[k]);
        td_free(served->places ? served->places[k] : NULL);
    }
    td_free(served->keys);
    td_free(served->places);
    td_free(served->capacities);
    td_free(served->rows);
    td_free(served->scratch);
    td_free(served->fields);
}

/* ---- remote ops -------------------------------------------------------------------------------------------------------------- */

enum { PULL_INPUTS = 2, PUSH_INPUTS = 4 };

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

static td_status *push(const td_plan *plan, const td_kernel_call *call, const int32_t *tables, int64_t samples)
{
    td_remote_part *parts = NULL;
    const int32_t n = call->n_inputs / PUSH_INPUTS;
    TD_TRY(TD_NEW(parts, n));
    for (int32_t t = 0; t < n; t++) {
        const td_tensor *inputs = &call->inputs[PUSH_INPUTS * t];
        parts[t] = (td_remote_part){.table = tables[PUSH_INPUTS * t],
                                    .n = samples ? *(const int64_t *)inputs[1].count : 0,
                                    .keys = inputs[2].data,
                                    .places = inputs[1].index,
                                    .gradients = inputs[1].data,
                                    .coefficients = inputs[3].data};
    }
    td_status *status = plan->remote->push(plan->remote->self, parts, n);
    td_free(parts);
    return status;
}

td_status *td_served_run(const td_plan *plan, const td_kernel_call *call, const int32_t *tables, int64_t samples)
{
    if (strcmp(call->op, "ps_pull") == 0)
        return pull(plan, call, tables);
    if (strcmp(call->op, "ps_push") == 0)
        return push(plan, call, tables, samples);
    return plan->remote->sum(plan->remote->self, call->inputs, (td_tensor *)(uintptr_t)call->outputs, call->n_inputs,
                             samples);
}
