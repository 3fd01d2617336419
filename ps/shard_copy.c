/* What checkpoints read and write of a shard, its checksum, and what it takes. See shard.h. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ps/shard_rows.h"
#include "ps/slot_bits.h"

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
        out_ids[n] = td_shard_id_of(shard, slot);
        memcpy((char *)out_rows + n * bytes, td_shard_row_of(shard, array, slot), (size_t)bytes);
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
    TD_TRY(td_shard_find(shard, td_shard_key_of(shard, id), out_slot));
    if (*out_slot >= 0) {
        td_shard_note_change(shard, *out_slot);
        return NULL;
    }
    if (shard->definition.kind != TD_SHARD_HASH)
        return td_shard_take(shard, id, out_slot);
    TD_TRY(td_key_set_put(&shard->keys, td_key_of_id(id), shard->windows ? shard->windows : 1, 1, out_slot, &is_new));
    td_shard_begin_row(shard, *out_slot);
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
        memcpy(td_shard_row_of(shard, array, slot), (const char *)rows + i * bytes, (size_t)bytes);
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
        const int64_t id = td_shard_id_of(shard, slot);
        const char *row = td_shard_row_of(shard, 0, slot);
        td_shard_fill_initial(shard, 0, id, initial);
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
