/* Which rows of a hash table may begin, and which go again: by count, by chance, by time and by number. See shard.h and
 * td_hash_options.
 *
 * A key without a row waits, with the count of windows that named it, until there are enough; from then on each window that names
 * it draws, from (seed, table, id, window) alone. Keys that wait are bounded by the same rules as rows. */
#include "ps/shard.h"

td_status *td_shard_init_admission(td_shard *shard)
{
    const td_hash_options *hash = &shard->definition.hash;
    shard->draws = td_philox_key_of(shard->definition.seed, "admission", shard->definition.name);
    if (hash->admit_count <= 1)
        return NULL;
    const td_key_policy policy = {.capacity = hash->capacity,
                                  .live = hash->live,
                                  .parts = td_shard_parts(&shard->definition),
                                  .most_count = hash->admit_count > TD_MOST_OFTEN ? UINT32_MAX : TD_MOST_OFTEN};
    return td_key_set_init(&shard->waiting, &policy, shard->most_slots);
}

static bool is_drawn(const td_shard *shard, int64_t key)
{
    const double chance = shard->definition.hash.admit_probability;
    uint32_t bits[4];
    if (chance <= 0 || chance >= 1) /* 0: not given */
        return true;
    td_philox_block(shard->draws, (uint64_t)td_id_of_key(key), shard->windows + 1, bits);
    return td_philox_uniform_double(bits[0], bits[1]) < chance;
}

td_status *td_shard_admit(td_shard *shard, int64_t key, bool *out_admitted)
{
    const int64_t least = shard->definition.hash.admit_count;
    int64_t slot = TD_NO_SLOT;
    bool is_new = false;
    *out_admitted = false;
    if (least > 1) {
        TD_TRY(td_key_set_name(&shard->waiting, key, shard->windows + 1, &slot, &is_new));
        if (td_key_marks_count(&shard->waiting.marks, slot) < least)
            return NULL;
    }
    *out_admitted = is_drawn(shard, key);
    if (*out_admitted && least > 1)
        (void)td_key_set_remove(&shard->waiting, key);
    return NULL;
}

static td_status *drop_keys(td_shard *shard, td_key_set *set, bool have_rows)
{
    for (;;) {
        int64_t slot = TD_NO_SLOT;
        TD_TRY(td_key_set_leaving(set, shard->windows, &slot));
        if (slot < 0)
            return NULL;
        const int64_t key = set->index.keys[slot];
        (void)td_key_set_remove(set, key);
        if (!have_rows)
            continue;
        shard->n--;
        TD_TRY(td_shard_note_gone(shard, td_id_of_key(key)));
    }
}

td_status *td_shard_end_window(td_shard *shard)
{
    if (shard->windows >= TD_MOST_WINDOWS)
        return TD_ERROR(TD_UNSUPPORTED, "table \"%s\": windows of a hash table are counted to %u",
                        shard->definition.name, TD_MOST_WINDOWS);
    shard->windows++;
    if (shard->waiting.index.keys)
        TD_TRY(drop_keys(shard, &shard->waiting, false));
    return drop_keys(shard, &shard->keys, true);
}
