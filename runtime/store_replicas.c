/* The replicas of a store: see td_store_replica. A replica is made with its parameter's initial values, and whatever is written to the
 * parameter from outside a run (a checkpoint, td_store_write) is written to it as well; within a run the plan's refreshes do that. */
#include <string.h>

#include "base/memory.h"
#include "base/rows16.h"
#include "runtime/store.h"

td_store_entry *td_store_entry_of(const td_store *store, const char *name)
{
    int32_t index = td_name_map_get(&store->names, name);
    if (index >= 0)
        return &store->entries[index];
    index = td_name_map_get(&store->replica_names, name);
    return index < 0 ? NULL : &store->replicas[index].entry;
}

td_status *td_store_add_replica(td_store *store, const td_plan *plan, int32_t value)
{
    const td_value_info *info = &plan->graph->values[value];
    const char *parameter = plan->graph->values[info->parameter].name;
    int32_t original = td_name_map_get(&store->names, parameter);
    td_store_replica *replica = &store->replicas[store->n_replicas];
    if (original < 0)
        return TD_ERROR(TD_INTERNAL, "\"%s\" is a replica of \"%s\", which the plan does not have", info->name,
                        parameter);
    *replica = (td_store_replica){.entry = {.site = plan->values[value].device,
                                            .bytes = plan->values[value].block_bytes,
                                            .first = plan->values[value].first,
                                            .replica = -1},
                                  .next = store->entries[original].replica};
    td_value_tensor(plan->graph, value, NULL, &replica->entry.tensor);
    replica->entry.name = td_strdup(info->name);
    if (!replica->entry.name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a store");
    replica->entry.initial = td_initial_of(store->seed, parameter, info->dtype, info->initial);
    store->entries[original].replica = store->n_replicas++;
    TD_TRY(td_name_map_put(&store->replica_names, replica->entry.name, store->n_replicas - 1));
    return td_store_allocate(store, &replica->entry);
}

void td_store_drop_replicas(td_store *store)
{
    for (int32_t i = 0; i < store->n_replicas; i++) {
        td_store_entry *entry = &store->replicas[i].entry;
        const td_plan_site *site = &store->machine->sites[entry->site];
        if (entry->tensor.data)
            site->api->release(site->device, entry->tensor.data);
        td_free(entry->name);
    }
    td_free(store->replicas);
    td_name_map_deinit(&store->replica_names);
}

static td_status *write_to(const td_store *store, const td_store_entry *entry, int64_t first, int64_t count,
                           const void *data)
{
    size_t size = td_dtype_bytes(entry->tensor.dtype);
    void *to = (void *)((uintptr_t)entry->tensor.data + (uintptr_t)first * size);
    return td_store_transfer(&store->machine->sites[entry->site], true, to, (void *)(uintptr_t)data,
                             (size_t)count * size);
}

/* In pieces of bounded size, rounded to nearest. */
static td_status *write_rounded(const td_store *store, const td_store_entry *entry, int64_t first, int64_t count,
                                const float *data)
{
    enum { PIECE = 1 << 16 };
    uint16_t *piece = NULL;
    TD_TRY(TD_NEW(piece, count < PIECE ? count + 1 : PIECE));
    td_status *status = NULL;
    for (int64_t at = 0; at < count && !status; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        td_narrow_row_to_nearest(data + at, entry->tensor.dtype, n, piece);
        status = write_to(store, entry, first + at, n, piece);
    }
    td_free(piece);
    return status;
}

td_status *td_store_read_rest(const td_store *store, const td_store_entry *entry, int64_t first, int64_t count,
                              void *out)
{
    int32_t at = entry->replica;
    while (at >= 0 && store->replicas[at].entry.first != entry->held)
        at = store->replicas[at].next;
    if (at < 0)
        return TD_ERROR(TD_INTERNAL, "the rest of \"%s\" is nowhere", entry->name);
    const td_store_entry *rest = &store->replicas[at].entry;
    const size_t size = td_dtype_bytes(rest->tensor.dtype);
    void *from = (void *)((uintptr_t)rest->tensor.data + (uintptr_t)(first - rest->first) * size);
    return td_store_transfer(&store->machine->sites[rest->site], false, from, out, (size_t)count * size);
}

/* Of the elements [first, first + count) those that the replica has: all but the first ones, or all. */
static td_status *write_replica(const td_store *store, const td_store_entry *original, const td_store_entry *replica,
                                int64_t first, int64_t count, const void *data)
{
    const int64_t before = first < replica->first ? replica->first - first : 0;
    if (before >= count)
        return NULL;
    const char *from = (const char *)data + before * (int64_t)td_dtype_bytes(original->tensor.dtype);
    const int64_t at = first + before - replica->first;
    if (replica->tensor.dtype == original->tensor.dtype)
        return write_to(store, replica, at, count - before, from);
    return write_rounded(store, replica, at, count - before, (const float *)(const void *)from);
}

td_status *td_store_write_replicas(td_store *store, int32_t index, int64_t first, int64_t count, const void *data)
{
    const td_store_entry *entry = &store->entries[index];
    for (int32_t i = entry->replica; i >= 0; i = store->replicas[i].next)
        TD_TRY(write_replica(store, entry, &store->replicas[i].entry, first, count, data));
    return NULL;
}

bool td_store_replicated(const void *pointer, const char *parameter, int32_t site, td_dtype dtype)
{
    const td_store *store = pointer;
    int32_t index = td_name_map_get(&store->names, parameter);
    for (int32_t i = index < 0 ? -1 : store->entries[index].replica; i >= 0; i = store->replicas[i].next)
        if (!store->replicas[i].entry.first && store->replicas[i].entry.site == site &&
            store->replicas[i].entry.tensor.dtype == dtype)
            return true;
    return false;
}
