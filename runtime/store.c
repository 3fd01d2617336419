/* Stores: parameters, state and counters by name, at their homes. See tandem/session.h and store.h. Reading and writing go
 * through a copy queue of the device, opened for the purpose: this is the slow path. */
#include "runtime/store.h"

#include <math.h>
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/team.h"
#include "base/units.h"

/* ---- moving bytes ----------------------------------------------------------------------------------------------------------- */

td_status *td_store_transfer(const td_plan_site *site, bool to_device, void *device_memory, void *host_memory,
                             size_t bytes)
{
    td_queue *queue = NULL;
    td_event *event = NULL;
    td_status *status = NULL;
    td_queue_options options = {.struct_size = sizeof options,
                                .kind = to_device ? TD_QUEUE_TO_DEVICE : TD_QUEUE_TO_HOST};
    if (bytes == 0)
        return NULL;
    if (site->is_host) {
        memcpy(to_device ? device_memory : host_memory, to_device ? host_memory : device_memory, bytes);
        return NULL;
    }
    TD_TRY_OR(status, done, site->api->queue_open(site->device, &options, &queue));
    TD_TRY_OR(status, done, site->api->event_create(site->device, &event));
    if (to_device)
        TD_TRY_OR(status, done, site->api->copy_to_device(queue, device_memory, host_memory, bytes));
    else
        TD_TRY_OR(status, done, site->api->copy_to_host(queue, host_memory, device_memory, bytes));
    TD_TRY_OR(status, done, site->api->event_record(event, queue));
    TD_TRY_OR(status, done, site->api->event_wait(event));
done:
    if (event)
        site->api->event_destroy(event);
    if (queue)
        site->api->queue_close(queue);
    return status;
}

/* Device addresses are opaque (the emulated device's are not even canonical), so arithmetic on them is on integers. */
static void *at_offset(void *address, int64_t bytes)
{
    return (void *)((uintptr_t)address + (uintptr_t)bytes);
}

static td_status *check_range(const td_store *store, int32_t index, int64_t first, int64_t count)
{
    if (index < 0 || index >= store->n_entries)
        return TD_ERROR(TD_NOT_FOUND, "the store has %s, not one at %d", TD_COUNTED(store->n_entries, "entry"), index);
    int64_t elements = td_tensor_elements(&store->entries[index].tensor);
    if (first < 0 || count < 0 || first > elements - count)
        return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\" has %s, not %" PRId64 " from %" PRId64 " on",
                        store->entries[index].name, TD_COUNTED(elements, "element"), count, first);
    if (atomic_load(&store->in_use))
        return TD_ERROR(TD_INVALID_ARGUMENT, "the store cannot be read or written while a session runs on it");
    return NULL;
}

td_status *td_store_read(const td_store *store, int32_t index, int64_t first, int64_t count, void *out_data)
{
    TD_TRY(check_range(store, index, first, count));
    const td_store_entry *entry = &store->entries[index];
    int64_t size = (int64_t)td_dtype_bytes(entry->tensor.dtype);
    if (entry->table)
        return td_status_prefix(td_paged_table_read_elements(entry->table, entry->array, first, count, out_data),
                                "\"%s\"", entry->name);
    if (entry->is_remote)
        return td_store_read_remote(store, entry, first, count, out_data);
    if (entry->shard)
        return td_store_read_shard(store, entry, first, count, false, out_data);
    const int64_t here = td_store_here(entry, first, count);
    TD_TRY(td_store_transfer(&store->machine->sites[entry->site], false, at_offset(entry->tensor.data, first * size),
                             out_data, (size_t)(here * size)));
    return here == count ? NULL
                         : td_store_read_rest(store, entry, first + here, count - here, (char *)out_data + here * size);
}

td_status *td_store_write(td_store *store, int32_t index, int64_t first, int64_t count, const void *data)
{
    TD_TRY(check_range(store, index, first, count));
    const td_store_entry *entry = &store->entries[index];
    int64_t size = (int64_t)td_dtype_bytes(entry->tensor.dtype);
    if (entry->table)
        return td_status_prefix(td_paged_table_write_elements(entry->table, entry->array, first, count, data), "\"%s\"",
                                entry->name);
    if (entry->is_remote)
        return td_store_write_remote(store, entry, first, count, data);
    if (entry->shard)
        return td_store_write_shard(entry, first, count, data);
    TD_TRY(td_store_transfer(&store->machine->sites[entry->site], true, at_offset(entry->tensor.data, first * size),
                             (void *)(uintptr_t)data, (size_t)(td_store_here(entry, first, count) * size)));
    return td_store_write_replicas(store, index, first, count, data);
}

/* ---- making one --------------------------------------------------------------------------------------------------------------- */

enum { FILL_PIECE = 1 << 18 }; /* elements */

typedef struct host_fill {
    const td_store_entry *entry;
    int64_t n, size; /* elements, and bytes of one */
} host_fill;

static void fill_piece(void *context, int64_t piece, int32_t thread)
{
    (void)thread;
    const host_fill *fill = context;
    int64_t first = piece * FILL_PIECE, count = fill->n - first < FILL_PIECE ? fill->n - first : FILL_PIECE;
    td_initial_fill(&fill->entry->initial, fill->entry->first + first, count,
                    at_offset(fill->entry->tensor.data, first * fill->size));
}

/* Over the host's cores: each touches its pieces first, so their pages lie near it and are cleared side by side. */
static td_status *fill_host(const td_plan_site *site, const host_fill *fill)
{
    td_team *team = NULL;
    int64_t pieces = (fill->n + FILL_PIECE - 1) / FILL_PIECE;
    if (pieces > 3 && site->properties.cores > 1)
        TD_TRY(td_team_create(site->properties.cores, NULL, 0, &team));
    td_team_run_dynamic(team, pieces, fill_piece, (void *)(uintptr_t)fill);
    td_team_destroy(team);
    return NULL;
}

/* Initial values in pieces of bounded size; zeros are there already (allocations are zeroed). */
static td_status *fill(td_store *store, const td_store_entry *entry)
{
    const td_plan_site *site = &store->machine->sites[entry->site];
    int64_t n = td_tensor_elements(&entry->tensor), size = (int64_t)td_dtype_bytes(entry->tensor.dtype);
    n = entry->held && entry->first ? entry->held : td_store_here(entry, 0, n);
    if (td_initial_is_zero(&entry->initial) || n == 0)
        return NULL;
    if (site->is_host)
        return fill_host(site, &(host_fill){entry, n, size});
    float *piece = NULL;
    TD_TRY(TD_NEW(piece, n < FILL_PIECE ? n : FILL_PIECE));
    td_status *status = NULL;
    for (int64_t first = 0; first < n && !status; first += FILL_PIECE) {
        int64_t count = n - first < FILL_PIECE ? n - first : FILL_PIECE;
        td_initial_fill(&entry->initial, entry->first + first, count, piece);
        status =
            td_store_transfer(site, true, at_offset(entry->tensor.data, first * size), piece, (size_t)(count * size));
    }
    td_free(piece);
    return status;
}

td_status *td_store_allocate(td_store *store, td_store_entry *entry)
{
    const td_plan_site *site = &store->machine->sites[entry->site];
    td_status *status = td_initial_check(&entry->initial, entry->name);
    if (!status && !entry->table)
        status = site->api->allocate(site->device, (size_t)entry->bytes, &entry->tensor.data);
    if (!status && !entry->table)
        status = fill(store, entry);
    return td_status_prefix(status, "\"%s\" on %s", entry->name, site->name);
}

static td_status *add_entry(td_store *store, const td_plan *plan, int32_t value)
{
    const td_value_info *info = &plan->graph->values[value];
    td_store_entry *entry = &store->entries[store->n_entries];
    *entry = (td_store_entry){.site = plan->values[value].device,
                              .bytes = plan->values[value].block_bytes,
                              .held = plan->values[value].held,
                              .first = plan->values[value].first,
                              .is_parameter = info->class == TD_CLASS_PARAMETER,
                              .by_rows = plan->values[value].by_rows,
                              .is_pending = info->class == TD_CLASS_STATE && info->delayed,
                              .replica = -1};
    td_value_tensor(plan->graph, value, NULL, &entry->tensor);
    entry->name = td_strdup(info->name);
    if (!entry->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a store");
    store->n_entries++;
    entry->initial = td_initial_of(store->seed, entry->name, info->dtype, info->initial);
    td_store_join_table(store, plan, value, entry);
    TD_TRY(td_name_map_put(&store->names, entry->name, store->n_entries - 1));
    if (info->served)
        return td_status_prefix(td_store_join_remote(store, plan, value, entry), "\"%s\"", info->name);
    return td_store_allocate(store, entry);
}

/* Parameters and states first: a replica joins its parameter. */
static td_status *add_entries(td_store *store, const td_plan *plan)
{
    int32_t from = 0; /* parameters before it have their state */
    for (int pass = 0; pass < 2; pass++)
        for (int32_t v = 0; v < plan->graph->n_values; v++) {
            const td_value_info *info = &plan->graph->values[v];
            const bool replica = info->class == TD_CLASS_REPLICA;
            if (plan->values[v].storage != TD_STORE || replica != (pass == 1))
                continue;
            if (info->class == TD_CLASS_STATE)
                TD_TRY(td_store_add_elsewhere(store, plan, &from, info->parameter));
            TD_TRY(replica ? td_store_add_replica(store, plan, v) : add_entry(store, plan, v));
        }
    TD_TRY(td_store_add_elsewhere(store, plan, &from, INT32_MAX));
    TD_TRY(td_store_add_shards(store, plan));
    return td_store_add_remote_states(store, plan);
}

td_status *td_store_create(td_plan *plan, td_store **out_store)
{
    td_store *store = NULL;
    *out_store = NULL;
    TD_TRY(TD_NEW(store, 1));
    store->references = 1;
    store->machine = td_machine_retain(plan->owner);
    store->seed = plan->random_seed;
    pthread_mutex_init(&store->mutex, NULL);
    store->last_loss = NAN;
    store->remote = plan->remote;
    td_status *status =
        TD_NEW(store->entries, plan->graph->n_values + TD_MAX_SLOTS * (plan->n_served + plan->n_shards) + 1);
    if (!status)
        status = TD_NEW(store->arenas, store->machine->n_sites);
    if (!status)
        status = td_store_add_tables(store, plan);
    if (!status)
        status = TD_NEW(store->replicas, plan->graph->n_values + 1);
    if (!status)
        status = add_entries(store, plan);
    if (status) {
        td_store_release(store);
        return status;
    }
    *out_store = store;
    return NULL;
}

td_store *td_store_retain(td_store *store)
{
    (void)__atomic_add_fetch(&store->references, 1, __ATOMIC_RELAXED);
    return store;
}

void td_store_release(td_store *store)
{
    if (!store || __atomic_sub_fetch(&store->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (int32_t i = 0; i < store->n_entries; i++) {
        const td_plan_site *site = &store->machine->sites[store->entries[i].site];
        if (store->entries[i].tensor.data && !store->entries[i].table && !store->entries[i].is_remote)
            site->api->release(site->device, store->entries[i].tensor.data);
        td_free(store->entries[i].name);
    }
    td_store_drop_tables(store);
    td_store_drop_replicas(store);
    td_store_drop_shards(store);
    td_free(store->entries);
    td_free(store->arenas);
    pthread_mutex_destroy(&store->mutex);
    td_name_map_deinit(&store->names);
    td_machine_release(store->machine);
    td_free(store);
}

/* ---- looking -------------------------------------------------------------------------------------------------------------------- */

int32_t td_store_count(const td_store *store)
{
    return store->n_entries;
}

const char *td_store_name(const td_store *store, int32_t index)
{
    return index >= 0 && index < store->n_entries ? store->entries[index].name : "";
}

int32_t td_store_find(const td_store *store, const char *name)
{
    return td_name_map_get(&store->names, name);
}

int32_t td_store_home(const void *pointer, const char *parameter)
{
    const td_store *store = pointer;
    int32_t index = td_store_find(store, parameter);
    return index < 0 ? -1 : store->entries[index].site;
}

int64_t td_store_held(const void *pointer, int32_t site)
{
    const td_store *store = pointer;
    int64_t bytes = site == store->machine->host ? store->paging_bytes : 0;
    for (int32_t i = 0; i < store->n_entries; i++)
        bytes += store->entries[i].site == site ? store->entries[i].bytes : 0;
    for (int32_t i = 0; i < store->n_replicas; i++)
        bytes += store->replicas[i].entry.site == site ? store->replicas[i].entry.bytes : 0;
    return bytes;
}

td_status *td_store_describe(const td_store *store, int32_t index, td_tensor *out_tensor, bool *out_is_parameter,
                             const char **out_device)
{
    if (index < 0 || index >= store->n_entries)
        return TD_ERROR(TD_NOT_FOUND, "the store has %s, not one at %d", TD_COUNTED(store->n_entries, "entry"), index);
    *out_tensor = store->entries[index].tensor;
    out_tensor->data = NULL; /* an address of the device is of no use to the caller */
    *out_is_parameter = store->entries[index].is_parameter;
    *out_device = store->machine->sites[store->entries[index].site].name;
    return NULL;
}

int64_t td_store_steps(const td_store *store)
{
    return store->steps;
}

int64_t td_store_updates(const td_store *store)
{
    return store->updates;
}

double td_store_loss_scale(const td_store *store)
{
    return store->loss_scale.scale;
}

int64_t td_store_overflows(const td_store *store)
{
    return store->loss_scale.overflows;
}

double td_store_last_loss(const td_store *store)
{
    return store->last_loss;
}
