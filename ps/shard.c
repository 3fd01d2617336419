/* See shard.h. */
#include "ps/shard.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/prefetch.h"
#include "graph/op.h"
#include "ps/slot_bits.h"

enum {
    PREFETCH_PLACES = 16,
    BLOCK_ROWS = 96, /* on their way at a time: of 64 bytes they take a fifth of the first cache */
    LEAST_SLOTS = 1 << 16,
    MOST_NEW = 1 << 24
};

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static td_status *describe_arrays(td_shard *shard)
{
    const td_shard_definition *d = &shard->definition;
    if (d->dim < 1 || d->n_states > TD_MAX_SLOTS || d->rows < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "table \"%s\": rows of %" PRId64 " numbers, %d states", d->name, d->dim,
                        d->n_states);
    shard->n_arrays = 1 + d->n_states;
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        td_shard_array *array = &shard->arrays[a];
        const td_dtype dtype = a ? TD_F32 : (td_dtype)d->dtype;
        char *name = a ? td_format("%s/%s", d->name, d->state_names[a - 1]) : td_strdup(d->name);
        if (!name)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for table \"%s\"", d->name);
        array->row_elements = a && d->state_per_row[a - 1] ? 1 : d->dim;
        array->row_bytes = array->row_elements * (int64_t)td_dtype_bytes(dtype);
        array->initial =
            td_initial_of(d->seed, name, dtype, a ? td_init_constant(d->state_initial[a - 1]) : d->initial);
        td_status *status = td_initial_check(&array->initial, name);
        td_free(name);
        TD_TRY(status);
    }
    return NULL;
}

int32_t td_shard_parts(const td_shard_definition *d)
{
    enum { MOST_PARTS = 1024, LEAST_KEYS = 64 };
    int32_t parts = MOST_PARTS;
    while (d->hash.capacity && parts > 1 && d->hash.capacity / parts < LEAST_KEYS)
        parts /= 2;
    return parts;
}

static td_status *reserve_keys(td_shard *shard)
{
    const td_hash_options *hash = &shard->definition.hash;
    const bool often = hash->capacity && hash->evict == TD_EVICT_LEAST_OFTEN;
    const td_key_policy policy = {.capacity = hash->capacity,
                                  .live = hash->live,
                                  .parts = td_shard_parts(&shard->definition),
                                  .most_count = often ? TD_MOST_OFTEN : 0,
                                  .by_count = often};
    return td_key_set_init(&shard->keys, &policy, shard->most_slots);
}

static td_status *reserve_arrays(td_shard *shard)
{
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        int64_t bytes;
        if (td_multiply_checked(shard->most_slots, shard->arrays[a].row_bytes, &bytes))
            shard->arrays[a].base = td_reserve((size_t)bytes);
        if (!shard->arrays[a].base)
            return TD_ERROR(TD_OUT_OF_MEMORY,
                            "table \"%s\": no address space for %" PRId64 " rows of %" PRId64 " bytes",
                            shard->definition.name, shard->most_slots, shard->arrays[a].row_bytes);
        TD_TRY(td_shard_pages_init(&shard->arrays[a].pages, shard->arrays[a].base, bytes, shard->arrays[a].row_bytes));
    }
    if (shard->definition.kind == TD_SHARD_HASH)
        return reserve_keys(shard);
    shard->begun = td_reserve(td_slot_bits_bytes(shard->most_slots));
    return shard->begun ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "table \"%s\": no address space", shard->definition.name);
}

/* Of an array that was reserved: others may have more bytes than can be counted. */
static size_t array_bytes(const td_shard *shard, int32_t a)
{
    return (size_t)(shard->most_slots * shard->arrays[a].row_bytes);
}

static void release_arrays(td_shard *shard)
{
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        if (shard->arrays[a].base)
            td_unreserve(shard->arrays[a].base, array_bytes(shard, a));
        shard->arrays[a].base = NULL;
        td_shard_pages_deinit(&shard->arrays[a].pages);
    }
    td_unreserve(shard->begun, td_slot_bits_bytes(shard->most_slots));
    td_unreserve(shard->changed, td_slot_bits_bytes(shard->most_slots));
    shard->begun = shard->changed = NULL;
    td_key_set_deinit(&shard->keys);
}

/* A hash shard takes as much address space as there is, up to what was asked for. */
static td_status *reserve(td_shard *shard)
{
    const td_shard_definition *d = &shard->definition;
    shard->most_slots = d->kind == TD_SHARD_HASH ? UINT32_MAX - 1 : d->rows;
    if (d->hash.capacity && d->hash.capacity < (shard->most_slots - MOST_NEW) / 2)
        shard->most_slots = 2 * d->hash.capacity + MOST_NEW; /* and what a window adds before others go */
    td_status *status = reserve_arrays(shard);
    while (status && d->kind == TD_SHARD_HASH && shard->most_slots > LEAST_SLOTS) {
        td_status_destroy(status);
        release_arrays(shard);
        shard->most_slots /= 2;
        status = reserve_arrays(shard);
    }
    return status;
}

td_status *td_shard_create(const td_shard_definition *definition, td_shard **out_shard)
{
    td_shard *shard = NULL;
    *out_shard = NULL;
    TD_TRY(TD_NEW(shard, 1));
    memcpy(&shard->definition, definition, sizeof *definition); /* bytes between its fields too */
    td_status *status = describe_arrays(shard);
    if (!status)
        status = reserve(shard);
    if (!status && definition->kind == TD_SHARD_HASH)
        status = td_shard_init_admission(shard);
    if (!status && definition->rule[0])
        status = td_updater_create(shard, &shard->updater);
    if (status) {
        td_shard_destroy(shard);
        return status;
    }
    *out_shard = shard;
    return NULL;
}

void td_shard_destroy(td_shard *shard)
{
    if (!shard)
        return;
    td_updater_destroy(shard->updater);
    release_arrays(shard);
    td_key_set_deinit(&shard->waiting);
    td_free(shard->slots);
    td_free(shard->kept);
    td_free(shard->gone);
    td_free(shard);
}

td_status *td_shard_clear(td_shard *shard)
{
    /* First what may fail. */
    if (shard->waiting.index.keys)
        TD_TRY(td_key_set_clear(&shard->waiting));
    if (shard->definition.kind == TD_SHARD_HASH)
        TD_TRY(td_key_set_clear(&shard->keys));
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        td_reserve_drop(shard->arrays[a].base, array_bytes(shard, a));
        td_shard_pages_clear(&shard->arrays[a].pages);
    }
    if (shard->begun)
        td_reserve_drop(shard->begun, td_slot_bits_bytes(shard->most_slots));
    shard->n = shard->n_gone = 0;
    shard->windows = 0;
    shard->tracks = false;
    return NULL;
}

/* ---- finding rows ---------------------------------------------------------------------------------------------------------- */

static td_status *outside(const td_shard *shard, int64_t id)
{
    const td_shard_definition *d = &shard->definition;
    return TD_ERROR(TD_DATA_ERROR,
                    "table \"%s\": id %" PRId64 " is not one of [%" PRId64 ", %" PRId64 "), which this rank owns",
                    d->name, id, d->first, d->first + d->rows);
}

/* An id as find and take want it, and back. */
static int64_t key_of(const td_shard *shard, int64_t id)
{
    return shard->definition.kind == TD_SHARD_HASH ? td_key_of_id(id) : id;
}

static int64_t id_of(const td_shard *shard, int64_t slot)
{
    if (shard->definition.kind == TD_SHARD_HASH)
        return td_id_of_key(shard->keys.index.keys[slot]);
    return shard->definition.first + slot;
}

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

static char *row_of(const td_shard *shard, int32_t a, int64_t slot)
{
    return shard->arrays[a].base + slot * shard->arrays[a].row_bytes;
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
        fill_initial(shard, a, id_of(shard, slot), row_of(shard, a, slot));
        td_shard_pages_count(&shard->arrays[a].pages, row_of(shard, a, slot));
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
                td_prefetch_row(row_of(shard, 0, *slot), bytes);
        }
        for (int64_t i = first; i < end; i++, out += bytes) {
            if (slots[i - first] >= 0)
                copy_row(out, row_of(shard, 0, slots[i - first]), bytes);
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
        TD_TRY(find(shard, key_of(shard, ids[i]), &slot));
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

/* ---- rows in and out --------------------------------------------------------------------------------------------------------- */

/* The first begun slot from `slot` on, or -1. */
static int64_t next_begun(const td_shard *shard, int64_t slot)
{
    if (shard->definition.kind == TD_SHARD_HASH)
        return td_key_index_next(&shard->keys.index, slot);
    return td_slot_bits_next(shard->begun, slot, shard->most_slots);
}

static int64_t next_wanted(const td_shard *shard, int64_t slot, bool changed)
{
    slot = next_begun(shard, slot);
    while (changed && slot >= 0 && !td_slot_bit(shard->changed, slot))
        slot = next_begun(shard, slot + 1);
    return slot;
}

static int64_t read_some(const td_shard *shard, int32_t array, bool changed, int64_t *cursor, int64_t most,
                         int64_t *out_ids, void *out_rows)
{
    if (array < 0)
        return td_shard_read_mark(shard, array, changed, cursor, most, out_ids, out_rows);
    const int64_t bytes = shard->arrays[array].row_bytes;
    int64_t n = 0, slot = *cursor < 0 ? -1 : next_wanted(shard, *cursor, changed);
    for (; slot >= 0 && n < most; slot = next_wanted(shard, slot + 1, changed), n++) {
        out_ids[n] = id_of(shard, slot);
        memcpy((char *)out_rows + n * bytes, row_of(shard, array, slot), (size_t)bytes);
    }
    *cursor = slot;
    return n;
}

int64_t td_shard_read(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                      void *out_rows)
{
    return read_some(shard, array, false, cursor, most, out_ids, out_rows);
}

int64_t td_shard_read_changed(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                              void *out_rows)
{
    return read_some(shard, array, true, cursor, most, out_ids, out_rows);
}

/* A row of a hash table that is written before its marks was last used in the last window. */
static td_status *slot_to_write(td_shard *shard, int64_t id, int64_t *out_slot)
{
    bool is_new = false;
    TD_TRY(find(shard, key_of(shard, id), out_slot));
    if (*out_slot >= 0) {
        td_shard_note_change(shard, *out_slot);
        return NULL;
    }
    if (shard->definition.kind != TD_SHARD_HASH)
        return take(shard, id, out_slot);
    TD_TRY(td_key_set_put(&shard->keys, td_key_of_id(id), shard->windows ? shard->windows : 1, 1, out_slot, &is_new));
    begin_row(shard, *out_slot);
    return NULL;
}

td_status *td_shard_write(td_shard *shard, int32_t array, const int64_t *ids, int64_t n, const void *rows)
{
    if (array == TD_SHARD_GONE)
        return td_shard_remove(shard, ids, n);
    if (array < 0)
        return td_shard_write_mark(shard, array, ids, n, rows);
    const int64_t bytes = shard->arrays[array].row_bytes;
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = TD_NO_SLOT;
        TD_TRY(slot_to_write(shard, ids[i], &slot));
        memcpy(row_of(shard, array, slot), (const char *)rows + i * bytes, (size_t)bytes);
    }
    return NULL;
}

td_status *td_shard_checksum(const td_shard *shard, uint64_t *out_sum)
{
    const td_shard_array *array = &shard->arrays[0];
    const uint64_t name = td_hash_string(shard->definition.name, 0);
    char *initial = td_calloc((size_t)array->row_elements, 8);
    if (!initial)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checksum");
    *out_sum = 0;
    for (int64_t slot = next_begun(shard, 0); slot >= 0; slot = next_begun(shard, slot + 1)) {
        const int64_t id = id_of(shard, slot);
        const char *row = row_of(shard, 0, slot);
        fill_initial(shard, 0, id, initial);
        if (memcmp(row, initial, (size_t)array->row_bytes) != 0)
            *out_sum += td_hash_bytes(row, (size_t)array->row_bytes, td_hash_number((uint64_t)id, name));
    }
    td_free(initial);
    return NULL;
}

void td_shard_bytes(const td_shard *shard, int64_t *out_row_bytes, int64_t *out_overhead_bytes)
{
    *out_row_bytes = 0;
    for (int32_t a = 0; a < shard->n_arrays; a++)
        *out_row_bytes += shard->n * shard->arrays[a].row_bytes;
    *out_overhead_bytes = shard->definition.kind == TD_SHARD_HASH
                              ? td_key_set_bytes(&shard->keys) + td_key_set_bytes(&shard->waiting)
                              : shard->most_slots / 8;
}
