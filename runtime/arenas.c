/* The arenas of a store: one per device, lent to whichever session of the store runs. See store.h.
 *
 * Nothing lives in an arena between runs: a run ends when all its steps have, and what they looked up ahead is dropped. So an
 * arena grows by giving the old one back first, and a device never holds more than the store and the largest plan. */
#include <inttypes.h>

#include "base/memory.h"
#include "base/units.h"
#include "runtime/store.h"

static void give_back(td_store *store, int32_t site)
{
    const td_plan_site *s = &store->machine->sites[site];
    td_store_arena *arena = &store->arenas[site];
    if (arena->memory)
        s->api->release(s->device, arena->memory);
    *arena = (td_store_arena){0};
}

/* A plan that was made without the store does not know what the store holds. */
static td_status *check_fits(const td_plan_site *site, int64_t held, int64_t bytes)
{
    char has[TD_UNIT_TEXT], stored[TD_UNIT_TEXT], needs[TD_UNIT_TEXT];
    int64_t capacity = (int64_t)site->properties.memory_bytes;
    if (!capacity || held + bytes <= capacity)
        return NULL;
    return td_status_help(TD_ERROR(TD_DOES_NOT_FIT,
                                   "does not fit: %s has %s, the store holds %s there and the plan's arena needs %s",
                                   site->name, td_format_bytes(has, (double)capacity),
                                   td_format_bytes(stored, (double)held), td_format_bytes(needs, (double)bytes)),
                          "plan against the store (td_plan_evaluate), which counts what it holds");
}

/* With the mutex held and no run under way. */
static td_status *grow(td_store *store, const td_plan *plan)
{
    for (int32_t s = 0; s < plan->n_sites; s++) {
        const td_plan_site *site = &store->machine->sites[s];
        int64_t bytes = plan->arenas[s].bytes;
        if (bytes <= store->arenas[s].bytes)
            continue;
        TD_TRY(check_fits(site, td_store_held(store, s), bytes));
        give_back(store, s);
        td_status *status = site->api->allocate(site->device, (size_t)bytes, &store->arenas[s].memory);
        if (status)
            return td_status_prefix(status, "arena on %s", site->name);
        store->arenas[s].bytes = bytes;
    }
    return NULL;
}

td_status *td_store_join(td_store *store, const td_plan *plan)
{
    pthread_mutex_lock(&store->mutex);
    td_status *status = atomic_load(&store->in_use) ? NULL : grow(store, plan);
    store->n_sessions++;
    pthread_mutex_unlock(&store->mutex);
    return status;
}

void td_store_leave(td_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->n_sessions--;
    for (int32_t s = 0; s < store->machine->n_sites && !store->n_sessions; s++)
        give_back(store, s);
    pthread_mutex_unlock(&store->mutex);
}

td_status *td_store_begin_run(td_store *store, const td_plan *plan)
{
    pthread_mutex_lock(&store->mutex);
    td_status *status =
        atomic_load(&store->in_use)
            ? td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "another session runs on this store"),
                             "the sessions of a store share its parameters and its arenas: let that run "
                             "end first, or give this session a store of its own")
            : grow(store, plan);
    if (!status)
        atomic_store(&store->in_use, true);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

void td_store_end_run(td_store *store)
{
    pthread_mutex_lock(&store->mutex);
    atomic_store(&store->in_use, false);
    pthread_mutex_unlock(&store->mutex);
}
