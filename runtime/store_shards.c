/* Optimizer state that the workers of a job share (partition/shard.h): an entry has all of its shape, and memory for this worker's
 * stretch alone. Who writes it from outside a run (a checkpoint, td_store_write) writes what is here; who reads it while a checkpoint is
 * being written gets the others' stretches from them, which lend them meanwhile (td_store_lend). See store.h. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "partition/shard.h"
#include "runtime/store.h"

typedef struct range {
    int64_t first, n;
} range;

/* What of the elements [first, first + n) a worker has. */
static range part_of(const td_store_shard *shard, int32_t worker, int64_t first, int64_t n)
{
    const int64_t begin = first > shard->bounds[worker] ? first : shard->bounds[worker];
    const int64_t end = first + n < shard->bounds[worker + 1] ? first + n : shard->bounds[worker + 1];
    return (range){begin, begin < end ? end - begin : 0};
}

/* ---- entries ------------------------------------------------------------------------------------------------------------------- */

static td_status *add_shard(td_store *store, td_store_entry *entry, const td_plan *plan, const td_plan_shard *from,
                            int64_t elements)
{
    td_store_shard *shard = &store->shards[store->n_shards];
    *shard = (td_store_shard){.index = store->n_shards, .workers = plan->shard_workers, .worker = plan->shard_worker};
    TD_TRY(TD_NEW(shard->bounds, shard->workers + 1));
    store->n_shards++;
    for (int32_t w = 0; w <= shard->workers; w++)
        shard->bounds[w] = td_shard_state_bound(from, elements, w);
    entry->shard = shard;
    return NULL;
}

/* A state of which this worker has nothing: the plan has no value for it. */
static td_status *add_elsewhere(td_store *store, const td_plan *plan, const td_plan_shard_state *state)
{
    td_store_entry *entry = &store->entries[store->n_entries];
    *entry = (td_store_entry){.site = plan->host, .replica = -1, .name = td_strdup(state->name)};
    if (!entry->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a store");
    store->n_entries++;
    entry->tensor = (td_tensor){.kind = TD_DENSE, .dtype = TD_F32, .rank = state->shape.rank};
    for (int32_t i = 0; i < state->shape.rank; i++)
        entry->tensor.dims[i] = state->shape.dims[i].constant;
    entry->initial = td_initial_of(store->seed, entry->name, TD_F32, state->initial);
    return td_name_map_put(&store->names, entry->name, store->n_entries - 1);
}

/* Of the parameters from *from to `end` of which this worker updates nothing, the first; NULL: there is none. */
static const td_plan_shard *first_elsewhere(const td_plan *plan, int32_t from, int32_t end)
{
    const td_plan_shard *first = NULL;
    for (int32_t i = 0; i < plan->n_shards; i++) {
        const td_plan_shard *shard = &plan->shards[i];
        if (!td_shard_size(plan, shard) && shard->parameter >= from && shard->parameter < end &&
            (!first || shard->parameter < first->parameter))
            first = shard;
    }
    return first;
}

td_status *td_store_add_elsewhere(td_store *store, const td_plan *plan, int32_t *from, int32_t end)
{
    for (const td_plan_shard *shard; (shard = first_elsewhere(plan, *from, end)); *from = shard->parameter + 1)
        for (int32_t s = 0; s < shard->n_states; s++)
            TD_TRY(add_elsewhere(store, plan, &shard->states[s]));
    return NULL;
}

td_status *td_store_add_shards(td_store *store, const td_plan *plan)
{
    TD_TRY(TD_NEW(store->shards, (int64_t)plan->n_shards * TD_MAX_SLOTS + 1));
    for (int32_t i = 0; i < plan->n_shards; i++)
        for (int32_t s = 0; s < plan->shards[i].n_states; s++) {
            const td_plan_shard_state *state = &plan->shards[i].states[s];
            const int32_t index = td_store_find(store, state->name);
            if (index < 0)
                return TD_ERROR(TD_INTERNAL, "the store has no \"%s\", which workers share", state->name);
            td_store_entry *entry = &store->entries[index];
            TD_TRY(add_shard(store, entry, plan, &plan->shards[i], td_tensor_elements(&entry->tensor)));
        }
    return NULL;
}

void td_store_drop_shards(td_store *store)
{
    for (int32_t i = 0; i < store->n_shards; i++)
        td_free(store->shards[i].bounds);
    td_free(store->shards);
}

/* ---- reading and writing ------------------------------------------------------------------------------------------------------- */

/* Where element `at` of this worker's stretch is. */
static void *place_of(const td_store_entry *entry, int64_t at)
{
    const td_store_shard *shard = entry->shard;
    return (float *)entry->tensor.data + (at - shard->bounds[shard->worker]);
}

td_status *td_store_write_shard(const td_store_entry *entry, int64_t first, int64_t n, const float *data)
{
    const range mine = part_of(entry->shard, entry->shard->worker, first, n);
    if (mine.n)
        memcpy(place_of(entry, mine.first), data + (mine.first - first), (size_t)mine.n * sizeof *data);
    return NULL;
}

td_status *td_store_read_shard(const td_store *store, const td_store_entry *entry, int64_t first, int64_t n,
                               bool borrow, float *out)
{
    const td_store_shard *shard = entry->shard;
    for (int32_t w = 0; w < shard->workers; w++) {
        const range part = part_of(shard, w, first, n);
        float *to = out + (part.first - first);
        if (!part.n)
            continue;
        if (w == shard->worker)
            memcpy(to, place_of(entry, part.first), (size_t)part.n * sizeof *to);
        else if (!borrow)
            return TD_ERROR(TD_UNSUPPORTED, "\"%s\" is shared by the workers of a job: checkpoints have it",
                            entry->name);
        else
            TD_TRY(store->remote->borrow(store->remote->self, w, shard->index, part.first, part.n, to));
    }
    return NULL;
}

/* Into how many pieces the first worker cuts what is here, as it writes entries (checkpoint_save.c). */
static int64_t pieces_of(const td_store_entry *entry)
{
    const int64_t most = TD_CHECKPOINT_PIECE / (int64_t)sizeof(float), n = td_tensor_elements(&entry->tensor);
    int64_t pieces = 0;
    for (int64_t first = 0; first < n; first += most)
        pieces += part_of(entry->shard, entry->shard->worker, first, n - first < most ? n - first : most).n > 0;
    return pieces;
}

static const td_store_entry *entry_of(const td_store *store, int32_t shard)
{
    for (int32_t i = 0; i < store->n_entries; i++)
        if (store->entries[i].shard && store->entries[i].shard->index == shard)
            return &store->entries[i];
    return NULL;
}

static td_status *lend_piece(const td_store *store)
{
    const td_remote *remote = store->remote;
    int32_t shard = -1;
    int64_t first = 0, n = 0;
    TD_TRY(remote->asked(remote->self, &shard, &first, &n));
    const td_store_entry *entry = entry_of(store, shard);
    if (!entry || first < 0 || n < 1 || part_of(entry->shard, entry->shard->worker, first, n).n != n)
        return TD_ERROR(TD_INTERNAL,
                        "elements %" PRId64 " to %" PRId64 " of shared state %d are asked for, which are not here",
                        first, first + n, shard);
    return remote->lend(remote->self, n, place_of(entry, first));
}

td_status *td_store_lend(const td_store *store)
{
    int64_t pieces = 0;
    if (!store->n_shards || store->remote->leads)
        return NULL;
    for (int32_t i = 0; i < store->n_entries; i++)
        pieces += store->entries[i].shard ? pieces_of(&store->entries[i]) : 0;
    for (; pieces; pieces--)
        TD_TRY(lend_piece(store));
    return NULL;
}
