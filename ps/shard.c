/* See shard.h: a shard's life. Its rows are in shard_rows.c, what checkpoints read and write of it in shard_copy.c. */
#include "ps/shard.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"
#include "ps/slot_bits.h"

enum {
    LEAST_SLOTS = 1 << 16,
    MOST_NEW = 1 << 24,
    NARROW_BYTES = 8 /* of row and state: a byte more is beyond 16 and 15 % */
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
    enum { MOST_PARTS = 1024, FEW_PARTS = 8, LEAST_KEYS = 64, ENOUGH_KEYS = 1024 };
    int32_t parts = MOST_PARTS;
    if (!d->hash.capacity)
        return parts;
    while (parts > 1 && d->hash.capacity / parts < (parts > FEW_PARTS ? ENOUGH_KEYS : LEAST_KEYS))
        parts /= 2;
    return parts;
}

static int64_t bytes_per_row(const td_shard *shard)
{
    int64_t bytes = 0;
    for (int32_t a = 0; a < shard->n_arrays; a++)
        bytes += shard->arrays[a].row_bytes;
    return bytes;
}

static td_status *reserve_keys(td_shard *shard)
{
    const td_hash_options *hash = &shard->definition.hash;
    const bool often = hash->capacity && hash->evict == TD_EVICT_LEAST_OFTEN;
    const td_key_policy policy = {.capacity = hash->capacity,
                                  .live = hash->live,
                                  .parts = td_shard_parts(&shard->definition),
                                  .most_count = often ? TD_MOST_OFTEN : 0,
                                  .by_count = often,
                                  .narrow = bytes_per_row(shard) <= NARROW_BYTES};
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
