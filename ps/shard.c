/* See shard.h. */
#include "ps/shard.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "graph/op.h"

enum { PREFETCH_PLACES = 16, PREFETCH_ROWS = 8, LEAST_SLOTS = 1 << 16 };

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

static td_status *reserve_arrays(td_shard *shard)
{
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        int64_t bytes;
        if (td_multiply_checked(shard->most_slots, shard->arrays[a].row_bytes, &bytes))
            shard->arrays[a].base = td_reserve((size_t)(bytes ? bytes : 1));
        if (!shard->arrays[a].base)
            return TD_ERROR(TD_OUT_OF_MEMORY,
                            "table \"%s\": no address space for %" PRId64 " rows of %" PRId64 " bytes",
                            shard->definition.name, shard->most_slots, shard->arrays[a].row_bytes);
    }
    if (shard->definition.kind == TD_SHARD_HASH)
        return td_key_index_init(&shard->index, shard->most_slots);
    shard->begun = td_reserve((size_t)(shard->most_slots / 64 + 1) * sizeof *shard->begun);
    return shard->begun ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "table \"%s\": no address space", shard->definition.name);
}

static void release_arrays(td_shard *shard)
{
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        int64_t bytes = shard->most_slots * shard->arrays[a].row_bytes;
        td_unreserve(shard->arrays[a].base, (size_t)(bytes ? bytes : 1));
        shard->arrays[a].base = NULL;
    }
    if (shard->begun)
        td_unreserve(shard->begun, (size_t)(shard->most_slots / 64 + 1) * sizeof *shard->begun);
    shard->begun = NULL;
    if (shard->index.places)
        td_key_index_deinit(&shard->index);
}

/* A hash shard takes as much address space as there is, up to what was asked for. */
static td_status *reserve(td_shard *shard)
{
    const td_shard_definition *d = &shard->definition;
    shard->most_slots = d->rows;
    if (d->kind == TD_SHARD_HASH && (d->rows == 0 || d->rows > UINT32_MAX - 1))
        shard->most_slots = UINT32_MAX - 1;
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
    td_free(shard->slots);
    td_free(shard);
}

void td_shard_clear(td_shard *shard)
{
    for (int32_t a = 0; a < shard->n_arrays; a++)
        td_reserve_drop(shard->arrays[a].base, (size_t)(shard->most_slots * shard->arrays[a].row_bytes));
    if (shard->begun)
        td_reserve_drop(shard->begun, (size_t)(shard->most_slots / 64 + 1) * sizeof *shard->begun);
    for (int64_t i = 0; shard->index.places && i < shard->index.n_places; i++)
        shard->index.places[i] = 0;
    shard->index.n = shard->index.n_slots = shard->index.n_freed = 0;
    shard->n = 0;
}

/* ---- finding rows ---------------------------------------------------------------------------------------------------------- */

static bool is_begun(const td_shard *shard, int64_t slot)
{
    return shard->begun[slot / 64] >> (slot % 64) & 1;
}

static td_status *outside(const td_shard *shard, int64_t id)
{
    const td_shard_definition *d = &shard->definition;
    return TD_ERROR(TD_DATA_ERROR,
                    "table \"%s\": id %" PRId64 " is not one of [%" PRId64 ", %" PRId64 "), which this rank owns",
                    d->name, id, d->first, d->first + d->rows);
}

/* The element that a row of an array begins with, in the sequence of initial values. Keys beyond what can be multiplied take the
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

static char *row_of(const td_shard *shard, int32_t a, int64_t slot)
{
    return shard->arrays[a].base + slot * shard->arrays[a].row_bytes;
}

/* *out_slot -1: it has not begun. */
static td_status *find(const td_shard *shard, int64_t id, int64_t *out_slot)
{
    const td_shard_definition *d = &shard->definition;
    if (d->kind == TD_SHARD_HASH) {
        *out_slot = td_key_index_find(&shard->index, (uint64_t)id);
        return NULL;
    }
    if (id < d->first || id >= d->first + d->rows)
        return outside(shard, id);
    *out_slot = is_begun(shard, id - d->first) ? id - d->first : TD_NO_SLOT;
    return NULL;
}

static td_status *take(td_shard *shard, int64_t id, int64_t *out_slot)
{
    bool is_new = false;
    TD_TRY(find(shard, id, out_slot));
    if (*out_slot >= 0)
        return NULL;
    if (shard->definition.kind == TD_SHARD_HASH) {
        TD_TRY(td_status_prefix(td_key_index_take(&shard->index, (uint64_t)id, out_slot, &is_new), "\"%s\"",
                                shard->definition.name));
    } else {
        *out_slot = id - shard->definition.first;
        shard->begun[*out_slot / 64] |= UINT64_C(1) << (*out_slot % 64);
    }
    shard->n++;
    for (int32_t a = 0; a < shard->n_arrays; a++)
        fill_initial(shard, a, id, row_of(shard, a, *out_slot));
    return NULL;
}

/* ---- pull and push ----------------------------------------------------------------------------------------------------------- */

static td_status *slots_for(td_shard *shard, int64_t n)
{
    if (n <= shard->slots_capacity)
        return NULL;
    int64_t *slots = td_realloc(shard->slots, (size_t)n, sizeof *slots);
    if (!slots)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %" PRId64 " rows of \"%s\"", n, shard->definition.name);
    shard->slots = slots;
    shard->slots_capacity = n;
    return NULL;
}

/* Slots of all ids first: the index and the rows are both far away in memory, and are asked for ahead of use. */
static td_status *find_all(td_shard *shard, const int64_t *ids, int64_t n, bool begin)
{
    const bool hashed = shard->definition.kind == TD_SHARD_HASH;
    TD_TRY(slots_for(shard, n));
    for (int64_t i = 0; i < n; i++) {
        if (hashed && i + PREFETCH_PLACES < n)
            td_key_index_prefetch(&shard->index, (uint64_t)ids[i + PREFETCH_PLACES]);
        TD_TRY(begin ? take(shard, ids[i], &shard->slots[i]) : find(shard, ids[i], &shard->slots[i]));
    }
    return NULL;
}

td_status *td_shard_pull(td_shard *shard, const int64_t *ids, int64_t n, bool begin, void *out_rows)
{
    const int64_t bytes = shard->arrays[0].row_bytes;
    TD_TRY(find_all(shard, ids, n, begin));
    for (int64_t i = 0; i < n; i++) {
        char *out = (char *)out_rows + i * bytes;
        if (i + PREFETCH_ROWS < n && shard->slots[i + PREFETCH_ROWS] >= 0)
            __builtin_prefetch(row_of(shard, 0, shard->slots[i + PREFETCH_ROWS]));
        if (shard->slots[i] >= 0)
            memcpy(out, row_of(shard, 0, shard->slots[i]), (size_t)bytes);
        else
            fill_initial(shard, 0, ids[i], out);
    }
    return NULL;
}

td_status *td_shard_push(td_shard *shard, const int64_t *ids, int64_t n, const float *gradients,
                         const float coefficients[TD_COEFFICIENTS])
{
    if (!shard->updater)
        return TD_ERROR(TD_INVALID_ARGUMENT, "table \"%s\" has no optimizer, and takes no gradients",
                        shard->definition.name);
    TD_TRY(find_all(shard, ids, n, true));
    return n ? td_updater_run(shard->updater, shard->slots, n, gradients, coefficients) : NULL;
}

td_status *td_shard_remove(td_shard *shard, const int64_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = TD_NO_SLOT;
        bool was_there = false;
        TD_TRY(find(shard, ids[i], &slot));
        if (slot < 0)
            continue;
        if (shard->definition.kind == TD_SHARD_HASH)
            TD_TRY(td_key_index_remove(&shard->index, (uint64_t)ids[i], &was_there));
        else
            shard->begun[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
        shard->n--;
    }
    return NULL;
}

/* ---- rows in and out --------------------------------------------------------------------------------------------------------- */

/* The first begun slot from `slot` on, or -1. */
static int64_t next_begun(const td_shard *shard, int64_t slot)
{
    if (shard->definition.kind == TD_SHARD_HASH) {
        while (slot < shard->index.n_slots && !td_key_index_holds(&shard->index, slot))
            slot++;
        return slot < shard->index.n_slots ? slot : -1;
    }
    while (slot < shard->most_slots) {
        uint64_t word = shard->begun[slot / 64] >> (slot % 64);
        if (word) {
            slot += __builtin_ctzll(word);
            return slot < shard->most_slots ? slot : -1;
        }
        slot = (slot / 64 + 1) * 64;
    }
    return -1;
}

int64_t td_shard_read(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                      void *out_rows)
{
    const int64_t bytes = shard->arrays[array].row_bytes;
    int64_t n = 0, slot = *cursor < 0 ? -1 : next_begun(shard, *cursor);
    for (; slot >= 0 && n < most; slot = next_begun(shard, slot + 1), n++) {
        out_ids[n] =
            shard->definition.kind == TD_SHARD_HASH ? (int64_t)shard->index.keys[slot] : shard->definition.first + slot;
        memcpy((char *)out_rows + n * bytes, row_of(shard, array, slot), (size_t)bytes);
    }
    *cursor = slot;
    return n;
}

td_status *td_shard_write(td_shard *shard, int32_t array, const int64_t *ids, int64_t n, const void *rows)
{
    const int64_t bytes = shard->arrays[array].row_bytes;
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = TD_NO_SLOT;
        TD_TRY(take(shard, ids[i], &slot));
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
        int64_t id =
            shard->definition.kind == TD_SHARD_HASH ? (int64_t)shard->index.keys[slot] : shard->definition.first + slot;
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
    *out_overhead_bytes =
        shard->definition.kind == TD_SHARD_HASH ? td_key_index_bytes(&shard->index) : shard->most_slots / 8;
}
