/* Entries of a store whose rows other ranks of a job have: the table is made known to its owners once, with how its rows and
 * their state begin; rows travel when somebody reads or writes them. See store.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "base/memory.h"
#include "runtime/store.h"

static const td_plan_served *served_called(const td_plan *plan, const char *name)
{
    for (int32_t t = 0; t < plan->n_served; t++)
        if (strcmp(plan->served[t].name, name) == 0)
            return &plan->served[t];
    return NULL;
}

/* The optimizer of a served table; NULL: this plan does not train it. */
static const td_plan_group *group_of(const td_plan *plan, const td_plan_served *served)
{
    return served->group < 0 ? NULL : &plan->groups[served->group];
}

td_status *td_store_join_remote(td_store *store, const td_plan *plan, int32_t value, td_store_entry *entry)
{
    const td_value_info *info = &plan->graph->values[value];
    const td_plan_served *served = served_called(plan, info->name);
    const td_plan_group *group = group_of(plan, served);
    const td_slot *slots = NULL;
    td_remote_table table = {.name = info->name,
                             .rows = info->shape.dims[0].constant,
                             .dim = info->shape.dims[1].constant,
                             .dtype = info->dtype,
                             .seed = store->seed,
                             .initial = info->initial,
                             .rule = group ? group->rule->name : NULL,
                             .hashed = served->hashed,
                             .hash = served->hash};
    table.n_states = group ? td_rule_slots(group->rule, &group->settings, &slots) : 0;
    for (int32_t s = 0; s < table.n_states; s++) {
        table.state_names[s] = slots[s].name;
        table.state_per_row[s] = slots[s].per_row;
        table.state_initial[s] = slots[s].from_initial_accumulator ? group->settings.initial_accumulator : 0;
    }
    entry->is_remote = entry->by_rows = true;
    entry->is_hashed = served->hashed;
    return store->remote->add_table(store->remote->self, &table, &entry->remote_table);
}

static td_status *add_state(td_store *store, const td_store_entry *parameter, const td_slot *slot, int32_t array,
                            const td_plan_group *group)
{
    td_store_entry *entry = &store->entries[store->n_entries];
    *entry = *parameter;
    entry->name = td_format("%s/%s", parameter->name, slot->name);
    if (!entry->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a store");
    store->n_entries++;
    entry->is_parameter = false;
    entry->array = array;
    entry->tensor.dtype = TD_F32;
    if (slot->per_row)
        entry->tensor.rank = 1;
    entry->initial =
        td_initial_of(store->seed, entry->name, TD_F32,
                      td_init_constant(slot->from_initial_accumulator ? group->settings.initial_accumulator : 0));
    return td_name_map_put(&store->names, entry->name, store->n_entries - 1);
}

td_status *td_store_add_remote_states(td_store *store, const td_plan *plan)
{
    for (int32_t t = 0; t < plan->n_served; t++) {
        const td_plan_group *group = group_of(plan, &plan->served[t]);
        const int32_t parameter = td_store_find(store, plan->served[t].name);
        const td_slot *slots = NULL;
        int32_t n = group ? td_rule_slots(group->rule, &group->settings, &slots) : 0;
        for (int32_t s = 0; s < n; s++)
            TD_TRY(add_state(store, &store->entries[parameter], &slots[s], 1 + s, group));
    }
    return NULL;
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

td_status *td_store_whole_rows(const td_store_entry *entry, int64_t *elements)
{
    const int64_t rows = entry->is_remote ? entry->tensor.dims[0] : 0;
    const int64_t width = rows ? td_tensor_elements(&entry->tensor) / rows : 1;
    if (width > *elements)
        return TD_ERROR(TD_UNSUPPORTED, "\"%s\" is served: its rows of %" PRId64 " elements are longer than %" PRId64,
                        entry->name, width, *elements);
    *elements -= *elements % width;
    return NULL;
}

static td_status *whole_rows(const td_store_entry *entry, int64_t first, int64_t n, int64_t *out_row, int64_t *out_rows)
{
    const int64_t rows = entry->tensor.dims[0];
    const int64_t width = rows ? td_tensor_elements(&entry->tensor) / rows : 1;
    *out_row = first / width;
    *out_rows = n / width;
    if (first % width == 0 && n % width == 0)
        return NULL;
    return TD_ERROR(TD_UNSUPPORTED, "\"%s\" is served: it is read and written by whole rows of %" PRId64 " elements",
                    entry->name, width);
}

static td_status *ids_of(int64_t row, int64_t rows, int64_t **out_keys)
{
    TD_TRY(TD_NEW(*out_keys, rows + 1));
    for (int64_t i = 0; i < rows; i++)
        (*out_keys)[i] = row + i;
    return NULL;
}

static int compare_keys(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Rows of a hash table come in the order of their keys. */
static td_status *pull_in_order(const td_store *store, const td_store_entry *entry, int64_t row, int64_t rows,
                                int64_t *keys, char *pulled, char *out)
{
    const int64_t row_bytes =
        td_tensor_elements(&entry->tensor) / entry->tensor.dims[0] * (int64_t)td_dtype_bytes(entry->tensor.dtype);
    for (int64_t i = 0; i < rows; i++)
        keys[i] = td_key_of_id(row + i);
    qsort(keys, (size_t)rows, sizeof *keys, compare_keys);
    const td_remote_part part = {.table = entry->remote_table, .n = rows, .keys = keys, .rows = pulled};
    TD_TRY(store->remote->pull(store->remote->self, &part, 1, false));
    for (int64_t i = 0; i < rows; i++)
        memcpy(out + (td_id_of_key(keys[i]) - row) * row_bytes, pulled + i * row_bytes, (size_t)row_bytes);
    return NULL;
}

static td_status *read_hashed(const td_store *store, const td_store_entry *entry, int64_t row, int64_t rows, void *out)
{
    int64_t *keys = NULL;
    const int64_t elements = td_tensor_elements(&entry->tensor) / entry->tensor.dims[0] * rows;
    char *pulled = td_calloc((size_t)elements + 1, td_dtype_bytes(entry->tensor.dtype));
    td_status *status =
        pulled ? TD_NEW(keys, rows + 1) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for rows of \"%s\"", entry->name);
    if (!status)
        status = pull_in_order(store, entry, row, rows, keys, pulled, out);
    td_free(keys);
    td_free(pulled);
    return status;
}

td_status *td_store_read_remote(const td_store *store, const td_store_entry *entry, int64_t first, int64_t n, void *out)
{
    int64_t row, rows, *keys = NULL;
    TD_TRY(whole_rows(entry, first, n, &row, &rows));
    if (!entry->is_parameter)
        return TD_ERROR(TD_UNSUPPORTED, "\"%s\" is the state of a served table: checkpoints have it", entry->name);
    if (entry->is_hashed)
        return read_hashed(store, entry, row, rows, out);
    TD_TRY(ids_of(row, rows, &keys));
    const td_remote_part part = {.table = entry->remote_table, .n = rows, .keys = keys, .rows = out};
    td_status *status = store->remote->pull(store->remote->self, &part, 1, false);
    td_free(keys);
    return status;
}

td_status *td_store_write_remote(td_store *store, const td_store_entry *entry, int64_t first, int64_t n,
                                 const void *data)
{
    int64_t row, rows, *keys = NULL;
    TD_TRY(whole_rows(entry, first, n, &row, &rows));
    TD_TRY(ids_of(row, rows, &keys));
    td_status *status = store->remote->write(store->remote->self, entry->remote_table, entry->array, keys, rows, data);
    td_free(keys);
    return status;
}

td_status *td_store_clear_remote(td_store *store)
{
    if (store->remote && store->remote->forget_rows)
        store->remote->forget_rows(store->remote->self);
    if (store->remote && !store->remote->leads)
        return NULL; /* the first worker loads for all */
    for (int32_t i = 0; i < store->n_entries; i++)
        if (store->entries[i].is_remote && store->entries[i].is_parameter)
            TD_TRY(store->remote->clear(store->remote->self, store->entries[i].remote_table));
    return NULL;
}
