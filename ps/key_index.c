/* See key_index.h. */
#include "ps/key_index.h"

#include <string.h>

#include "base/memory.h"

enum { LEAST_PLACES = 64 };

td_status *td_key_index_init(td_key_index *index, int64_t most_slots)
{
    *index = (td_key_index){.n_places = LEAST_PLACES, .most_slots = most_slots};
    TD_TRY(TD_NEW(index->places, LEAST_PLACES));
    index->keys = td_reserve((size_t)most_slots * sizeof *index->keys);
    return index->keys ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "no address space for %lld keys", (long long)most_slots);
}

void td_key_index_deinit(td_key_index *index)
{
    td_free(index->places);
    td_free(index->freed);
    td_unreserve(index->keys, (size_t)index->most_slots * sizeof *index->keys);
    *index = (td_key_index){0};
}

static int64_t home(const td_key_index *index, uint64_t key)
{
    return (int64_t)(((unsigned __int128)td_key_mix(key) * (uint64_t)index->n_places) >> 64);
}

static int64_t after(const td_key_index *index, int64_t place)
{
    return place + 1 == index->n_places ? 0 : place + 1;
}

/* The place of a key, or the free one where it would be put. */
static int64_t place_of(const td_key_index *index, uint64_t key)
{
    int64_t place = home(index, key);
    while (index->places[place] && index->keys[index->places[place] - 1] != key)
        place = after(index, place);
    return place;
}

int64_t td_key_index_find(const td_key_index *index, uint64_t key)
{
    return (int64_t)index->places[place_of(index, key)] - 1;
}

void td_key_index_prefetch(const td_key_index *index, uint64_t key)
{
    __builtin_prefetch(&index->places[home(index, key)]);
}

static bool is_freed(const td_key_index *index, int64_t slot)
{
    return index->keys[slot] == UINT64_MAX &&
           td_key_index_find(index, UINT64_MAX) != slot; /* the key 2^64 - 1 itself may be there */
}

bool td_key_index_holds(const td_key_index *index, int64_t slot)
{
    return !is_freed(index, slot);
}

/* Twice as many places, all keys put anew. */
static td_status *grow(td_key_index *index)
{
    td_key_index wider = *index;
    wider.n_places = 2 * index->n_places;
    TD_TRY(TD_NEW(wider.places, wider.n_places));
    for (int64_t i = 0; i < index->n_places; i++)
        if (index->places[i])
            wider.places[place_of(&wider, index->keys[index->places[i] - 1])] = index->places[i];
    td_free(index->places);
    *index = wider;
    return NULL;
}

td_status *td_key_index_take(td_key_index *index, uint64_t key, int64_t *out_slot, bool *out_new)
{
    int64_t place = place_of(index, key);
    *out_new = !index->places[place];
    *out_slot = (int64_t)index->places[place] - 1;
    if (!*out_new)
        return NULL;
    if ((index->n + 1) * 5 > index->n_places * 4) {
        TD_TRY(grow(index));
        place = place_of(index, key);
    }
    if (!index->n_freed && index->n_slots == index->most_slots)
        return TD_ERROR(TD_DOES_NOT_FIT, "a table has address space for %lld rows on this rank, and all are taken",
                        (long long)index->most_slots);
    int64_t slot = index->n_freed ? index->freed[--index->n_freed] : index->n_slots++;
    index->keys[slot] = key;
    index->places[place] = (uint32_t)(slot + 1);
    index->n++;
    *out_slot = slot;
    return NULL;
}

/* Whether the key at `from` may move back to the free place `to`: its home does not lie between them. */
static bool may_move(const td_key_index *index, int64_t from, int64_t to)
{
    int64_t at = home(index, index->keys[index->places[from] - 1]);
    return to <= from ? at <= to || at > from : at <= to && at > from;
}

td_status *td_key_index_remove(td_key_index *index, uint64_t key, bool *out_was_there)
{
    int64_t place = place_of(index, key);
    *out_was_there = index->places[place] != 0;
    if (!*out_was_there)
        return NULL;
    uint32_t slot = index->places[place] - 1;
    TD_TRY(td_grow(&index->freed, &index->freed_capacity, index->n_freed, sizeof *index->freed));
    index->freed[index->n_freed++] = slot;
    index->places[place] = 0;
    for (int64_t next = after(index, place); index->places[next]; next = after(index, next))
        if (may_move(index, next, place)) {
            index->places[place] = index->places[next];
            index->places[next] = 0;
            place = next;
        }
    index->keys[slot] = UINT64_MAX;
    index->n--;
    return NULL;
}

int64_t td_key_index_bytes(const td_key_index *index)
{
    return index->n_places * (int64_t)sizeof *index->places + index->n_slots * (int64_t)sizeof *index->keys +
           index->freed_capacity * (int64_t)sizeof *index->freed;
}
