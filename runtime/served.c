/* The ids of a window become keys and places: see served.h. What is asked of other ranks then is in served_ops.c. */
#include "runtime/served.h"

#include <string.h>

#include "base/dedup.h"
#include "base/key.h"
#include "base/memory.h"
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

static td_status *room_for(td_served_window *window, int32_t k, int64_t n)
{
    TD_TRY(td_keep_room(&window->keys[k], &window->keys_capacities[k], n, sizeof(int64_t)));
    TD_TRY(td_keep_room(&window->places[k], &window->places_capacities[k], n, sizeof(int64_t)));
    TD_TRY(td_keep_room(&window->rows, &window->rows_capacity, n, sizeof(int64_t)));
    return td_keep_room(&window->scratch, &window->scratch_bytes, (int64_t)td_dedup_scratch_bytes(n), 1);
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
        TD_TRY(TD_NEW(window->keys_capacities, plan->n_keys + 1));
        TD_TRY(TD_NEW(window->places_capacities, plan->n_keys + 1));
    }
    TD_TRY(td_keep_room(&window->starts, &window->starts_capacity, starts, sizeof *window->starts));
    for (int32_t k = 0; k < plan->n_keys; k++)
        TD_TRY(group(window, k, plan, batches, n));
    return NULL;
}

static int64_t most_ids(const td_plan *plan, const td_plan_keys *keys)
{
    int64_t ids = 0;
    for (int32_t p = 0; p < keys->n_places; p++) {
        td_tensor places;
        const td_value value = td_graph_find(plan->graph, keys->places[p].to);
        if (value.id < 0) /* no lookup of this plan */
            continue;
        td_value_tensor(plan->graph, value.id, NULL, &places);
        ids += ids_of(&places);
    }
    return ids * plan->replicas * plan->most_accumulated;
}

int64_t td_served_bytes(const td_plan *plan)
{
    const int64_t batches = (int64_t)plan->replicas * plan->most_accumulated;
    int64_t most = 0, bytes = 0;
    if (!plan->n_keys)
        return 0;
    for (int32_t k = 0; k < plan->n_keys; k++) {
        const int64_t ids = most_ids(plan, &plan->keys[k]) + 1;
        bytes += 2 * td_room_of(ids) * (int64_t)sizeof(int64_t); /* keys and places */
        most = ids > most ? ids : most;
    }
    bytes += td_room_of(most) * (int64_t)sizeof(int64_t) + td_room_of((int64_t)td_dedup_scratch_bytes(most));
    bytes += (td_room_of(batches * plan->n_keys) + 5 * (plan->n_keys + 1)) * (int64_t)sizeof(int64_t);
    return TD_SERVED_WINDOWS * bytes + td_served_calls_bytes(plan);
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
    td_free(window->keys_capacities);
    td_free(window->places_capacities);
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
    TD_TRY(td_keep_room(&fields->fields, &fields->most, most, sizeof *fields->fields));
    memcpy(fields->fields, batch->fields, (size_t)batch->n_fields * sizeof *batch->fields);
    batch->fields = fields->fields;
    for (int32_t k = 0; k < plan->n_keys; k++)
        put_fields(fields, &plan->keys[k], window->keys[k], window->n_keys[k],
                   window->places[k] + window->starts[at * (int64_t)plan->n_keys + k], batch);
    return NULL;
}
