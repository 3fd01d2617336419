/* See key_index.h. */
#include "ps/key_index.h"

#include "base/large_pages.h"
#include "base/memory.h"
#include "ps/slot_bits.h"

enum { LEAST_PLACES = 64, FEW_PLACES = 4096, PLACE_BITS = 32, AHEAD = 24 /* places whose keys are asked for */ };

/* Slots below the number of places are numbered from 1 on. */
static int32_t bits_for(int64_t n_places)
{
    const int32_t bits = 64 - __builtin_clzll((uint64_t)n_places);
    return bits < PLACE_BITS ? bits : PLACE_BITS;
}

static size_t key_bytes(const td_key_index *index)
{
    return (size_t)index->most_slots * sizeof *index->keys;
}

td_status *td_key_index_init(td_key_index *index, int64_t most_slots)
{
    *index = (td_key_index){
        .n_places = LEAST_PLACES, .slot_bits = bits_for(LEAST_PLACES), .most_slots = most_slots, .freed = TD_NO_SLOT};
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
    index->slot_bits = bits_for(LEAST_PLACES);
    index->n = index->n_slots = 0;
    index->freed = TD_NO_SLOT;
    return NULL;
}

/* ---- places ------------------------------------------------------------------------------------------------------------------ */

/* Of a place that is taken. */
static int64_t slot_in(const td_key_index *index, uint32_t held)
{
    return (int64_t)(held & (uint32_t)((UINT64_C(1) << index->slot_bits) - 1)) - 1;
}

/* The most that fits above the slot: so far from its home, or farther. */
static int64_t farthest(const td_key_index *index)
{
    return (int64_t)(UINT32_MAX >> 1 >> (index->slot_bits - 1));
}

static int64_t distance_in(const td_key_index *index, uint32_t held)
{
    return (int64_t)((uint64_t)held >> index->slot_bits);
}

/* Keys are spread already, but an owner's are a stretch of them. */
static int64_t home_of(const td_key_index *index, int64_t key)
{
    return (int64_t)(((unsigned __int128)td_key_mix((uint64_t)key) * (uint64_t)index->n_places) >> 64);
}

static int64_t after(const td_key_index *index, int64_t place)
{
    return place + 1 == index->n_places ? 0 : place + 1;
}

/* The place of a key, or the free one where it would be put. Only a key whose home is the same is as far from it. */
static int64_t place_of(const td_key_index *index, int64_t key)
{
    const int64_t most = farthest(index);
    int64_t place = home_of(index, key), distance = 0;
    for (uint32_t held; (held = index->places[place]) != 0; place = after(index, place), distance += distance < most)
        if (distance_in(index, held) == distance && index->keys[slot_in(index, held)] == key)
            break;
    return place;
}

static void put(const td_key_index *index, int64_t place, int64_t slot, int64_t home)
{
    const int64_t beyond = place >= home ? place - home : place - home + index->n_places, most = farthest(index);
    const uint64_t distance = (uint64_t)(beyond < most ? beyond : most);
    index->places[place] = (uint32_t)(distance << index->slot_bits) | (uint32_t)(slot + 1);
}

/* Of the key in a place, without a look at the key if it is near. */
static int64_t home_at(const td_key_index *index, int64_t place)
{
    const uint32_t held = index->places[place];
    const int64_t distance = distance_in(index, held);
    if (distance == farthest(index))
        return home_of(index, index->keys[slot_in(index, held)]);
    return place >= distance ? place - distance : place - distance + index->n_places;
}

int64_t td_key_index_find(const td_key_index *index, int64_t key)
{
    return slot_in(index, index->places[place_of(index, key)]);
}

void td_key_index_prefetch(const td_key_index *index, int64_t key)
{
    __builtin_prefetch(&index->places[home_of(index, key)]);
}

int64_t td_key_index_next(const td_key_index *index, int64_t slot)
{
    return td_slot_bits_next(index->taken, slot, index->n_slots);
}

/* ---- in and out ---------------------------------------------------------------------------------------------------------------- */

/* Whoever goes through all places needs all keys, which lie anywhere: they are asked for ahead. */
static void ask_ahead(const td_key_index *index, int64_t place)
{
    if (place + AHEAD < index->n_places && index->places[place + AHEAD])
        __builtin_prefetch(&index->keys[slot_in(index, index->places[place + AHEAD])]);
}

/* All keys put anew among more places: twice as many while there are few, then an eighth more, so that few stay empty. A key's
 * place follows from the same mix, so this goes through memory in order but for the keys. */
static td_status *grow(td_key_index *index)
{
    td_key_index wider = *index;
    wider.n_places = index->n_places < FEW_PLACES ? 2 * index->n_places : index->n_places + index->n_places / 8;
    wider.slot_bits = bits_for(wider.n_places);
    TD_TRY(TD_NEW(wider.places, wider.n_places));
    for (int64_t i = 0; i < index->n_places; i++) {
        ask_ahead(index, i);
        if (!index->places[i])
            continue;
        const int64_t slot = slot_in(index, index->places[i]), key = index->keys[slot];
        put(&wider, place_of(&wider, key), slot, home_of(&wider, key));
    }
    td_free(index->places);
    *index = wider;
    return NULL;
}

/* Keys are read at random, and lie one after another: what is full of them is held in large pages. */
static void hold_full_page(const td_key_index *index)
{
    char *end = (char *)(index->keys + index->n_slots), *page = end - TD_LARGE_PAGE_BYTES;
    if ((uintptr_t)end % TD_LARGE_PAGE_BYTES == 0 && page >= (char *)index->keys)
        td_large_page_hold(page);
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
    if (slot + 1 == index->n_slots)
        hold_full_page(index);
    td_slot_bit_set(index->taken, slot);
    index->n++;
    *out_slot = slot;
    return NULL;
}

td_status *td_key_index_take(td_key_index *index, int64_t key, int64_t *out_slot, bool *out_new)
{
    int64_t place = place_of(index, key);
    *out_new = !index->places[place];
    *out_slot = slot_in(index, index->places[place]);
    if (!*out_new)
        return NULL;
    if ((index->n + 1) * 14 > index->n_places * 13) {
        TD_TRY(grow(index));
        place = place_of(index, key);
    }
    TD_TRY(take_slot(index, key, out_slot));
    put(index, place, *out_slot, home_of(index, key));
    return NULL;
}

/* Whether the key at `from`, whose home that is, may move back to the free place `to`: its home does not lie between them. */
static bool may_move(int64_t from, int64_t home, int64_t to)
{
    return to <= from ? home <= to || home > from : home <= to && home > from;
}

int64_t td_key_index_remove(td_key_index *index, int64_t key)
{
    int64_t place = place_of(index, key);
    const int64_t slot = slot_in(index, index->places[place]);
    if (slot < 0)
        return TD_NO_SLOT;
    index->places[place] = 0;
    for (int64_t next = after(index, place); index->places[next]; next = after(index, next)) {
        const int64_t home = home_at(index, next);
        if (!may_move(next, home, place))
            continue;
        put(index, place, slot_in(index, index->places[next]), home);
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
