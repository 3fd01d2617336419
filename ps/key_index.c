/* See key_index.h. */
#include "ps/key_index.h"

#include "base/memory.h"
#include "ps/slot_bits.h"

enum { LEAST_PLACES = 64, FEW_PLACES = 4096 };

static size_t key_bytes(const td_key_index *index)
{
    return (size_t)index->most_slots * sizeof *index->keys;
}

td_status *td_key_index_init(td_key_index *index, int64_t most_slots)
{
    *index = (td_key_index){.n_places = LEAST_PLACES, .most_slots = most_slots, .freed = TD_NO_SLOT};
    TD_TRY(TD_NEW(index->places, LEAST_PLACES));
    index->keys = td_reserve(key_bytes(index));
    index->taken = td_reserve(td_slot_bits_bytes(index->most_slots));
    if (index->keys && index->taken)
        return NULL;
    return TD_ERROR(TD_OUT_OF_MEMORY, "no address space for %lld keys", (long long)most_slots);
}

void td_key_index_deinit(td_key_index *index)
{
    td_free(index->places);
    td_unreserve(index->keys, key_bytes(index));
    td_unreserve(index->taken, td_slot_bits_bytes(index->most_slots));
    *index = (td_key_index){0};
}

td_status *td_key_index_clear(td_key_index *index)
{
    uint32_t *places = NULL;
    TD_TRY(TD_NEW(places, LEAST_PLACES));
    td_free(index->places);
    index->places = places;
    td_reserve_drop(index->keys, key_bytes(index));
    td_reserve_drop(index->taken, td_slot_bits_bytes(index->most_slots));
    index->n_places = LEAST_PLACES;
    index->n = index->n_slots = 0;
    index->freed = TD_NO_SLOT;
    return NULL;
}

/* ---- places ------------------------------------------------------------------------------------------------------------------ */

/* Keys are spread already, but an owner's are a stretch of them. */
static int64_t home(const td_key_index *index, int64_t key)
{
    return (int64_t)(((unsigned __int128)td_key_mix((uint64_t)key) * (uint64_t)index->n_places) >> 64);
}

static int64_t after(const td_key_index *index, int64_t place)
{
    return place + 1 == index->n_places ? 0 : place + 1;
}

/* The place of a key, or the free one where it would be put. */
static int64_t place_of(const td_key_index *index, int64_t key)
{
    int64_t place = home(index, key);
    while (index->places[place] && index->keys[index->places[place] - 1] != key)
        place = after(index, place);
    return place;
}

int64_t td_key_index_find(const td_key_index *index, int64_t key)
{
    return (int64_t)index->places[place_of(index, key)] - 1;
}

void td_key_index_prefetch(const td_key_index *index, int64_t key)
{
    __builtin_prefetch(&index->places[home(index, key)]);
}

int64_t td_key_index_next(const td_key_index *index, int64_t slot)
{
    return td_slot_bits_next(index->taken, slot, index->n_slots);
}

/* ---- in and out ---------------------------------------------------------------------------------------------------------------- */

/* All keys put anew among more places: twice as many while there are few, then an eighth more, so that few stay empty. A key's
 * place follows from the same mix, so this goes through memory in order but for the keys. */
static td_status *grow(td_key_index *index)
{
    td_key_index wider = *index;
    wider.n_places = index->n_places < FEW_PLACES ? 2 * index->n_places : index->n_places + index->n_places / 8;
    TD_TRY(TD_NEW(wider.places, wider.n_places));
    for (int64_t i = 0; i < index->n_places; i++)
        if (index->places[i])
            wider.places[place_of(&wider, index->keys[index->places[i] - 1])] = index->places[i];
    td_free(index->places);
    *index = wider;
    return NULL;
}

static td_status *take_slot(td_key_index *index, int64_t key, int64_t *out_slot)
{
    if (index->freed == TD_NO_SLOT && index->n_slots == index->most_slots)
        return TD_ERROR(TD_DOES_NOT_FIT, "a table has address space for %lld rows on this rank, and all are taken",
                        (long long)index->most_slots);
    const int64_t slot = index->freed == TD_NO_SLOT ? index->n_slots++ : index->freed;
    if (slot == index->freed)
        index->freed = index->keys[slot];
    index->keys[slot] = key;
    td_slot_bit_set(index->taken, slot);
    index->n++;
    *out_slot = slot;
    return NULL;
}

td_status *td_key_index_take(td_key_index *index, int64_t key, int64_t *out_slot, bool *out_new)
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
    TD_TRY(take_slot(index, key, out_slot));
    index->places[place] = (uint32_t)(*out_slot + 1);
    return NULL;
}

/* Whether the key at `from` may move back to the free place `to`: its home does not lie between them. */
static bool may_move(const td_key_index *index, int64_t from, int64_t to)
{
    int64_t at = home(index, index->keys[index->places[from] - 1]);
    return to <= from ? at <= to || at > from : at <= to && at > from;
}

int64_t td_key_index_remove(td_key_index *index, int64_t key)
{
    int64_t place = place_of(index, key);
    const int64_t slot = (int64_t)index->places[place] - 1;
    if (slot < 0)
        return TD_NO_SLOT;
    index->places[place] = 0;
    for (int64_t next = after(index, place); index->places[next]; next = after(index, next))
        if (may_move(index, next, place)) {
            index->places[place] = index->places[next];
            index->places[next] = 0;
            place = next;
        }
    index->keys[slot] = index->freed;
    index->freed = slot;
    td_slot_bit_clear(index->taken, slot);
    index->n--;
    return slot;
}

int64_t td_key_index_bytes(const td_key_index *index)
{
    return index->n_places * (int64_t)sizeof *index->places + index->n_slots * (int64_t)sizeof *index->keys +
           index->n_slots / 8;
}
