/* What a shard knows besides its rows: how its ids were used, which wait for admission, how many windows there were, and, from one
 * checkpoint to the next, what changed. See shard.h. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"
#include "ps/shard.h"
#include "ps/slot_bits.h"

enum { MOST_GONE_OF_FEW = 1 << 16 };

int64_t td_shard_array_bytes(const td_shard_definition *d, int32_t array)
{
    switch (array) {
    case TD_SHARD_USED:
    case TD_SHARD_COUNTS:
        return sizeof(uint32_t);
    case TD_SHARD_WAITING:
        return 2 * (int64_t)sizeof(uint32_t);
    case TD_SHARD_GONE:
        return 0;
    case TD_SHARD_WINDOWS:
        return sizeof(int64_t);
    default:
        break;
    }
    if (array < 0 || array > d->n_states)
        return -1;
    if (array == 0)
        return d->dim * (int64_t)td_dtype_bytes((td_dtype)d->dtype);
    return (d->state_per_row[array - 1] ? 1 : d->dim) * (int64_t)sizeof(float);
}

bool td_shard_has_mark(const td_shard *shard, int32_t array)
{
    switch (array) {
    case TD_SHARD_USED:
        return shard->keys.marks.used_bytes > 0;
    case TD_SHARD_COUNTS:
        return shard->keys.marks.count_bytes > 0;
    case TD_SHARD_WAITING:
        return shard->waiting.index.keys != NULL;
    default:
        return shard->definition.kind == TD_SHARD_HASH;
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------- */

static int64_t read_waiting(const td_shard *shard, int64_t *cursor, int64_t most, int64_t *out_ids, uint32_t *out)
{
    const td_key_set *set = &shard->waiting;
    int64_t n = 0, slot = td_key_index_next(&set->index, *cursor);
    for (; slot >= 0 && n < most; slot = td_key_index_next(&set->index, slot + 1), n++) {
        out_ids[n] = td_id_of_key(set->index.keys[slot]);
        out[2 * n] = td_key_marks_used(&set->marks, slot);
        out[2 * n + 1] = td_key_marks_count(&set->marks, slot);
    }
    *cursor = slot;
    return n;
}

static int64_t read_gone(const td_shard *shard, int64_t *cursor, int64_t most, int64_t *out_ids)
{
    const int64_t left = shard->n_gone - *cursor, n = left < most ? left : most;
    if (n)
        memcpy(out_ids, shard->gone + *cursor, (size_t)n * sizeof *out_ids);
    *cursor = *cursor + n < shard->n_gone ? *cursor + n : -1;
    return n;
}

int64_t td_shard_read_mark(const td_shard *shard, int32_t array, bool changed, int64_t *cursor, int64_t most,
                           int64_t *out_ids, void *out_rows)
{
    const td_key_set *set = &shard->keys;
    int64_t n = 0;
    if (*cursor < 0)
        return 0;
    if (array == TD_SHARD_WAITING)
        return read_waiting(shard, cursor, most, out_ids, out_rows);
    if (array == TD_SHARD_GONE)
        return read_gone(shard, cursor, most, out_ids);
    int64_t slot = td_key_index_next(&set->index, *cursor);
    for (; slot >= 0 && n < most; slot = td_key_index_next(&set->index, slot + 1)) {
        if (changed && !td_slot_bit(shard->changed, slot))
            continue;
        out_ids[n] = td_id_of_key(set->index.keys[slot]);
        ((uint32_t *)out_rows)[n++] =
            array == TD_SHARD_USED ? td_key_marks_used(&set->marks, slot) : td_key_marks_count(&set->marks, slot);
    }
    *cursor = slot;
    return n;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

/* A use that is yet to come would move what all uses are counted from: TD_SHARD_WINDOWS has been written before. */
static td_status *check_used(const td_shard *shard, int64_t id, uint32_t window)
{
    if (window <= (shard->windows ? shard->windows : 1))
        return NULL;
    return TD_ERROR(TD_DATA_ERROR, "table \"%s\": id %" PRId64 " was named in window %u, of %u that there were",
                    shard->definition.name, id, window, shard->windows);
}

static td_status *write_use(td_shard *shard, int32_t array, int64_t id, uint32_t mark)
{
    td_key_set *set = &shard->keys;
    if (array == TD_SHARD_USED)
        TD_TRY(check_used(shard, id, mark));
    const int64_t slot = td_key_index_find(&set->index, td_key_of_id(id));
    if (slot < 0)
        return TD_ERROR(TD_DATA_ERROR, "table \"%s\": id %" PRId64 " has no row", shard->definition.name, id);
    const uint32_t used = td_key_marks_used(&set->marks, slot), count = td_key_marks_count(&set->marks, slot);
    td_key_set_mark(set, slot, array == TD_SHARD_USED ? mark : used, array == TD_SHARD_USED ? count : mark);
    return NULL;
}

static td_status *write_waiting(td_shard *shard, int64_t id, const uint32_t *marks)
{
    int64_t slot;
    bool is_new;
    if (!shard->waiting.index.keys)
        return NULL; /* nobody waits in this table any more */
    TD_TRY(check_used(shard, id, marks[0]));
    return td_key_set_put(&shard->waiting, td_key_of_id(id), marks[0], marks[1], &slot, &is_new);
}

td_status *td_shard_write_mark(td_shard *shard, int32_t array, const int64_t *ids, int64_t n, const void *rows)
{
    if (shard->definition.kind != TD_SHARD_HASH)
        return NULL;
    if (array == TD_SHARD_WINDOWS) {
        const int64_t windows = n ? *(const int64_t *)rows : 0;
        if (windows < 0 || windows > TD_MOST_WINDOWS)
            return TD_ERROR(TD_DATA_ERROR, "table \"%s\": %" PRId64 " windows", shard->definition.name, windows);
        shard->windows = (uint32_t)windows;
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        TD_TRY(array == TD_SHARD_WAITING ? write_waiting(shard, ids[i], (const uint32_t *)rows + 2 * i)
                                         : write_use(shard, array, ids[i], ((const uint32_t *)rows)[i]));
    return NULL;
}

/* ---- changes --------------------------------------------------------------------------------------------------------------------- */

td_status *td_shard_track(td_shard *shard)
{
    if (!shard->changed)
        shard->changed = td_reserve(td_slot_bits_bytes(shard->most_slots));
    else
        td_reserve_drop(shard->changed, td_slot_bits_bytes(shard->most_slots));
    if (!shard->changed)
        return TD_ERROR(TD_OUT_OF_MEMORY, "table \"%s\": no address space", shard->definition.name);
    shard->n_gone = 0;
    shard->tracks = true;
    return NULL;
}

void td_shard_note_change(td_shard *shard, int64_t slot)
{
    if (shard->tracks)
        td_slot_bit_set(shard->changed, slot);
}

td_status *td_shard_note_gone(td_shard *shard, int64_t id)
{
    if (!shard->tracks)
        return NULL;
    const bool too_many = shard->n_gone >= MOST_GONE_OF_FEW && shard->n_gone >= shard->n; /* longer than the table */
    td_status *status =
        too_many ? NULL : td_grow(&shard->gone, &shard->gone_capacity, shard->n_gone, sizeof *shard->gone);
    shard->tracks = !too_many && !status;
    if (shard->tracks)
        shard->gone[shard->n_gone++] = id;
    else
        shard->n_gone = 0;
    return status;
}

int64_t td_shard_count_changed(const td_shard *shard)
{
    const bool hashed = shard->definition.kind == TD_SHARD_HASH;
    const uint64_t *there = hashed ? shard->keys.index.taken : shard->begun;
    const int64_t slots = hashed ? shard->keys.index.n_slots : shard->most_slots;
    int64_t all = 0;
    for (int64_t w = 0; w * TD_SLOT_WORD < slots && shard->changed; w++)
        all += __builtin_popcountll(shard->changed[w] & there[w]);
    return all;
}
