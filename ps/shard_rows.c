/* A shard's rows: finding them, beginning them, pull and push. See shard.h. */
#include "ps/shard_rows.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/prefetch.h"
#include "graph/op.h"
#include "ps/slot_bits.h"

enum {
    PREFETCH_PLACES = 16,
    BLOCK_ROWS = 96 /* on their way at a time: of 64 bytes they take a fifth of the first cache */
};

/* ---- finding rows ---------------------------------------------------------------------------------------------------------- */

static td_status *outside(const td_shard *shard, int64_t id)
{
    const td_shard_definition *d = &shard->definition;
    return TD_ERROR(TD_DATA_ERROR,
                    "table \"%s\": id %" PRId64 " is not one of [%" PRId64 ", %" PRId64 "), which this rank owns",
                    d->name, id, d->first, d->first + d->rows);
}

/* An id as find and take want it, and back. */
/* The element that a row of an array begins with, in the sequence of initial values. Ids beyond what can be multiplied take the
 * place of their hash. */
static int64_t first_element(const td_shard_array *array, int64_t id)
{
    int64_t first;
    if (id >= 0 && td_multiply_checked(id, array->row_elements, &first))
        return first;
    return (int64_t)(td_key_mix((uint64_t)id) >> 2) / array->row_elements * array->row_elements;
}

static void fill_initial(const td_shard *shard, int32_t a, int64_t id, void *out)
{
    const td_shard_array *array = &shard->arrays[a];
    td_initial_fill(&array->initial, first_element(array, id), array->row_elements, out);
}

/* The same of a row, to where f32 rows need not be aligned: in a message they may follow an odd number of 16-bit ones. */
static void fill_in_message(const td_shard *shard, int64_t id, char *out)
{
    enum { PIECE = 64 };
    const td_shard_array *array = &shard->arrays[0];
    if (array->initial.dtype != TD_F32 || (uintptr_t)out % sizeof(float) == 0) {
        fill_initial(shard, 0, id, out);
        return;
    }
    const int64_t first = first_element(array, id);
    for (int64_t done = 0; done < array->row_elements; done += PIECE) {
        float piece[PIECE];
        const int64_t left = array->row_elements - done, n = left < PIECE ? left : PIECE;
        td_initial_fill(&array->initial, first + done, n, piece);
        memcpy(out + done * (int64_t)sizeof *piece, piece, (size_t)n * sizeof *piece);
    }
}

/* *out_slot TD_NO_SLOT: it has not begun. */
static td_status *find(const td_shard *shard, int64_t key, int64_t *out_slot)
{
    const td_shard_definition *d = &shard->definition;
    if (d->kind == TD_SHARD_HASH) {
        *out_slot = td_key_index_find(&shard->keys.index, key);
        return NULL;
    }
    if (key < d->first || key >= d->first + d->rows)
        return outside(shard, key);
    *out_slot = td_slot_bit(shard->begun, key - d->first) ? key - d->first : TD_NO_SLOT;
    return NULL;
}

static void begin_row(td_shard *shard, int64_t slot)
{
    shard->n++;
    td_shard_note_change(shard, slot);
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        fill_initial(shard, a, td_shard_id_of(shard, slot), td_shard_row_of(shard, a, slot));
        td_shard_pages_count(&shard->arrays[a].pages, td_shard_row_of(shard, a, slot));
    }
}

static td_status *take(td_shard *shard, int64_t key, int64_t *out_slot)
{
    bool is_new = false;
    if (shard->definition.kind == TD_SHARD_HASH) {
        TD_TRY(td_status_prefix(td_key_set_name(&shard->keys, key, shard->windows + 1, out_slot, &is_new), "\"%s\"",
                                shard->definition.name));
    } else {
        TD_TRY(find(shard, key, out_slot));
        is_new = *out_slot < 0;
        if (is_new) {
            *out_slot = key - shard->definition.first;
            td_slot_bit_set(shard->begun, *out_slot);
        }
    }
    if (is_new)
        begin_row(shard, *out_slot);
    return NULL;
}

/* ---- pull and push ----------------------------------------------------------------------------------------------------------- */

static td_status *slots_for(td_shard *shard, int64_t n)
{
    return td_keep_room(&shard->slots, &shard->slots_capacity, n, sizeof *shard->slots);
}

static void ask_ahead(const td_shard *shard, const int64_t *keys, int64_t i, int64_t n)
{
    if (i + PREFETCH_PLACES < n && shard->definition.kind == TD_SHARD_HASH)
        td_key_index_prefetch(&shard->keys.index, keys[i + PREFETCH_PLACES]);
}

/* Of an array's row that has begun, as nearly all have that are named; else TD_NO_SLOT, and find or take says more. */
static inline int64_t slot_of_begun(const td_shard *shard, int64_t key)
{
    const td_shard_definition *d = &shard->definition;
    const uint64_t slot = (uint64_t)key - (uint64_t)d->first;
    const bool begun =
        d->kind == TD_SHARD_ARRAY && slot < (uint64_t)d->rows && td_slot_bit(shard->begun, (int64_t)slot);
    return begun ? (int64_t)slot : TD_NO_SLOT;
}

/* Slots of all keys first: the index and the rows are both far away in memory, and are asked for ahead of use. */
static td_status *take_all(td_shard *shard, const int64_t *keys, int64_t n)
{
    TD_TRY(slots_for(shard, n));
    for (int64_t i = 0; i < n; i++) {
        ask_ahead(shard, keys, i, n);
        shard->slots[i] = slot_of_begun(shard, keys[i]);
        if (shard->slots[i] < 0)
            TD_TRY(take(shard, keys[i], &shard->slots[i]));
    }
    return NULL;
}

/* Sizes that occur, as moves of that many bytes. */
static inline void copy_row(char *restrict out, const char *restrict row, int64_t bytes)
{
    switch (bytes) {
    case 32:
        memcpy(out, row, 32);
        return;
    case 64:
        memcpy(out, row, 64);
        return;
    case 128:
        memcpy(out, row, 128);
        return;
    default:
        memcpy(out, row, (size_t)bytes);
    }
}

/* Rows of a block are asked for as they are found, and copied once the last was: as many as the processor can are then under way
 * at once. */
td_status *td_shard_pull(td_shard *shard, const int64_t *keys, int64_t n, bool begin, void *out_rows)
{
    const int64_t bytes = shard->arrays[0].row_bytes;
    const bool hashed = shard->definition.kind == TD_SHARD_HASH;
    char *out = out_rows;
    int64_t slots[BLOCK_ROWS];
    for (int64_t first = 0; first < n; first += BLOCK_ROWS) {
        const int64_t end = first + BLOCK_ROWS < n ? first + BLOCK_ROWS : n;
        for (int64_t i = first; i < end; i++) {
            int64_t *slot = &slots[i - first];
            ask_ahead(shard, keys, i, n);
            *slot = slot_of_begun(shard, keys[i]);
            if (*slot < 0)
                TD_TRY(begin && !hashed ? take(shard, keys[i], slot) : find(shard, keys[i], slot));
            if (*slot >= 0)
                td_prefetch_row(td_shard_row_of(shard, 0, *slot), bytes);
        }
        for (int64_t i = first; i < end; i++, out += bytes) {
            if (slots[i - first] >= 0)
                copy_row(out, td_shard_row_of(shard, 0, slots[i - first]), bytes);
            else
                fill_in_message(shard, hashed ? td_id_of_key(keys[i]) : keys[i], out);
        }
    }
    return NULL;
}

static td_status *room_for_kept(td_shard *shard, int64_t n)
{
    return td_keep_room(&shard->kept, &shard->kept_capacity, n * shard->definition.dim, sizeof *shard->kept);
}

/* Slots of those that have begun or begin now; *gradients becomes theirs, and *n their number. */
static td_status *admit_all(td_shard *shard, const int64_t *keys, int64_t *n, const float **gradients)
{
    const int64_t all = *n, dim = shard->definition.dim;
    int64_t kept = 0;
    TD_TRY(slots_for(shard, all));
    TD_TRY(room_for_kept(shard, all));
    for (int64_t i = 0; i < all; i++) {
        bool admitted = true;
        ask_ahead(shard, keys, i, all);
        if (td_key_index_find(&shard->keys.index, keys[i]) < 0)
            TD_TRY(td_shard_admit(shard, keys[i], &admitted));
        if (!admitted)
            continue;
        TD_TRY(take(shard, keys[i], &shard->slots[kept]));
        memcpy(shard->kept + kept++ * dim, *gradients + i * dim, (size_t)dim * sizeof **gradients);
    }
    *n = kept;
    *gradients = shard->kept;
    return NULL;
}

td_status *td_shard_push(td_shard *shard, const int64_t *keys, int64_t n, const float *gradients,
                         const float coefficients[TD_COEFFICIENTS])
{
    if (!shard->updater)
        return TD_ERROR(TD_INVALID_ARGUMENT, "table \"%s\" has no optimizer, and takes no gradients",
                        shard->definition.name);
    if (shard->definition.kind == TD_SHARD_HASH && td_hash_admits_some(&shard->definition.hash))
        TD_TRY(admit_all(shard, keys, &n, &gradients));
    else
        TD_TRY(take_all(shard, keys, n));
    for (int64_t i = 0; i < n && shard->tracks; i++)
        td_shard_note_change(shard, shard->slots[i]);
    if (n)
        TD_TRY(td_updater_run(shard->updater, shard->slots, n, gradients, coefficients));
    return shard->definition.kind == TD_SHARD_HASH ? td_shard_end_window(shard) : NULL;
}

td_status *td_shard_remove(td_shard *shard, const int64_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = TD_NO_SLOT;
        TD_TRY(find(shard, td_shard_key_of(shard, ids[i]), &slot));
        if (slot < 0)
            continue;
        if (shard->definition.kind == TD_SHARD_HASH)
            (void)td_key_set_remove(&shard->keys, td_key_of_id(ids[i]));
        else
            td_slot_bit_clear(shard->begun, slot);
        shard->n--;
        TD_TRY(td_shard_note_gone(shard, ids[i]));
    }
    return NULL;
}

/* ---- for checkpoints --------------------------------------------------------------------------------------------------------- */

td_status *td_shard_find(const td_shard *shard, int64_t key, int64_t *out_slot)
{
    return find(shard, key, out_slot);
}

td_status *td_shard_take(td_shard *shard, int64_t key, int64_t *out_slot)
{
    return take(shard, key, out_slot);
}

void td_shard_begin_row(td_shard *shard, int64_t slot)
{
    begin_row(shard, slot);
}

void td_shard_fill_initial(const td_shard *shard, int32_t array, int64_t id, void *out)
{
    fill_initial(shard, array, id, out);
}
