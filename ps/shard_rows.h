/* A shard's rows, for the files that share them: shard_rows.c and shard_copy.c. See shard.h. */
#ifndef TANDEM_PS_SHARD_ROWS_H
#define TANDEM_PS_SHARD_ROWS_H

#include "base/key.h"
#include "ps/shard.h"

static inline int64_t td_shard_key_of(const td_shard *shard, int64_t id)
{
    return shard->definition.kind == TD_SHARD_HASH ? td_key_of_id(id) : id;
}

static inline int64_t td_shard_id_of(const td_shard *shard, int64_t slot)
{
    if (shard->definition.kind == TD_SHARD_HASH)
        return td_id_of_key(shard->keys.index.keys[slot]);
    return shard->definition.first + slot;
}

static inline char *td_shard_row_of(const td_shard *shard, int32_t a, int64_t slot)
{
    return shard->arrays[a].base + slot * shard->arrays[a].row_bytes;
}

/* *out_slot TD_NO_SLOT: it has not begun. */
td_status *td_shard_find(const td_shard *shard, int64_t key, int64_t *out_slot) TD_MUST_USE;
/* Its slot; the row begins if it has not. */
td_status *td_shard_take(td_shard *shard, int64_t key, int64_t *out_slot) TD_MUST_USE;
/* The row of a slot that was just given out, at its initial values. */
void td_shard_begin_row(td_shard *shard, int64_t slot);
/* The initial values of a row of an array. */
void td_shard_fill_initial(const td_shard *shard, int32_t array, int64_t id, void *out);

#endif
