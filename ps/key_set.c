/* See key_set.h. */
#include "ps/key_set.h"

#include <string.h>

#include "base/memory.h"

/* Where both are kept, two bytes do for the last use, unless `live` looks further back to the window. */
static int32_t used_bytes(const td_key_policy *policy)
{
    if (!policy->capacity && !policy->live)
        return 0;
    return policy->by_count && (policy->live <= TD_COARSE_WINDOWS || policy->narrow) ? 2 : 3;
}

/* Windows of no use after which a key goes for certain, whichever of its unit named it. */
static int64_t patience(const td_key_policy *policy, int32_t unit_bits)
{
    return policy->live + (INT64_C(1) << unit_bits) - 1;
}

/* The shortest units of which two bytes tell as many apart as `live` looks back. */
static int32_t unit_bits(const td_key_policy *policy)
{
    int32_t bits = 0;
    while (used_bytes(policy) == 2 && patience(policy, bits) > (int64_t)TD_COARSE_WINDOWS << bits)
        bits++;
    return bits;
}

static td_status *init_rules(td_key_set *set)
{
    const td_key_policy *policy = &set->policy;
    if (policy->live)
        td_victims_init(&set->oldest, 1);
    if (!policy->capacity)
        return NULL;
    td_victims_init(&set->beyond, policy->parts);
    return TD_NEW(set->in_part, policy->parts);
}

td_status *td_key_set_init(td_key_set *set, const td_key_policy *policy, int64_t most_slots)
{
    *set = (td_key_set){.policy = *policy};
    TD_TRY(td_key_index_init(&set->index, most_slots));
    TD_TRY(init_rules(set));
    return td_key_marks_init(&set->marks, used_bytes(policy), unit_bits(policy), policy->most_count, most_slots);
}

void td_key_set_deinit(td_key_set *set)
{
    td_key_marks_deinit(&set->marks);
    if (set->index.places || set->index.keys)
        td_key_index_deinit(&set->index);
    td_victims_deinit(&set->oldest);
    td_victims_deinit(&set->beyond);
    td_free(set->in_part);
    *set = (td_key_set){0};
}

td_status *td_key_set_clear(td_key_set *set)
{
    TD_TRY(td_key_index_clear(&set->index));
    td_key_marks_clear(&set->marks);
    if (set->in_part)
        memset(set->in_part, 0, (size_t)set->policy.parts * sizeof *set->in_part);
    td_victims_forget(&set->oldest);
    td_victims_forget(&set->beyond);
    return NULL;
}

/* ---- use --------------------------------------------------------------------------------------------------------------------- */

static td_victim_view by_use(const td_key_set *set)
{
    return (td_victim_view){.index = &set->index, .marks = &set->marks};
}

static td_victim_view by_rank(const td_key_set *set)
{
    return (td_victim_view){.index = &set->index, .marks = &set->marks, .by_count = set->policy.by_count};
}

static void touch(td_key_set *set, int64_t slot)
{
    const td_victim_view use = by_use(set), rank = by_rank(set);
    if (set->policy.live)
        td_victims_touch(&set->oldest, &use, slot);
    if (set->policy.capacity)
        td_victims_touch(&set->beyond, &rank, slot);
}

static void forget(td_key_set *set)
{
    td_victims_forget(&set->oldest);
    td_victims_forget(&set->beyond);
}

/* Ranks are distances from a base, which moves. */
static void advance(td_key_set *set, uint32_t now)
{
    if (td_key_marks_advance(&set->marks, now, set->index.n_slots))
        forget(set);
}

static td_status *take(td_key_set *set, int64_t key, int64_t *out_slot, bool *out_new)
{
    TD_TRY(td_key_index_take(&set->index, key, out_slot, out_new));
    if (!*out_new)
        return NULL;
    td_key_marks_set_count(&set->marks, *out_slot, 0);
    if (set->in_part)
        set->in_part[td_key_part(key, set->policy.parts)]++;
    return NULL;
}

td_status *td_key_set_name(td_key_set *set, int64_t key, uint32_t now, int64_t *out_slot, bool *out_new)
{
    advance(set, now);
    TD_TRY(take(set, key, out_slot, out_new));
    td_key_marks_set_used(&set->marks, *out_slot, now);
    td_key_marks_set_count(&set->marks, *out_slot, td_key_marks_count(&set->marks, *out_slot) + 1);
    touch(set, *out_slot);
    return NULL;
}

td_status *td_key_set_put(td_key_set *set, int64_t key, uint32_t used, uint32_t count, int64_t *out_slot, bool *out_new)
{
    TD_TRY(take(set, key, out_slot, out_new));
    td_key_set_mark(set, *out_slot, used, count);
    return NULL;
}

void td_key_set_mark(td_key_set *set, int64_t slot, uint32_t used, uint32_t count)
{
    advance(set, used);
    td_key_marks_set_used(&set->marks, slot, used);
    td_key_marks_set_count(&set->marks, slot, count);
    forget(set); /* a past is not what was collected with */
}

bool td_key_set_remove(td_key_set *set, int64_t key)
{
    if (td_key_index_remove(&set->index, key) < 0)
        return false;
    if (set->in_part)
        set->in_part[td_key_part(key, set->policy.parts)]--;
    return true;
}

/* ---- leaving ------------------------------------------------------------------------------------------------------------------- */

/* A part's share of the capacity: all of them together are the whole. */
static int64_t most_in_part(const td_key_policy *policy, int32_t part)
{
    return (int64_t)((__int128)policy->capacity * (part + 1) / policy->parts) -
           (int64_t)((__int128)policy->capacity * part / policy->parts);
}

td_status *td_key_set_leaving(td_key_set *set, uint32_t now, int64_t *out_slot)
{
    const td_key_policy *policy = &set->policy;
    const td_victim_view use = by_use(set), rank = by_rank(set);
    const int64_t last = now - patience(policy, set->marks.unit_bits); /* of which all may go */
    *out_slot = TD_NO_SLOT;
    advance(set, now);
    if (policy->live && last >= 0)
        TD_TRY(td_victims_first(&set->oldest, &use, 0, (uint32_t)(last >> set->marks.unit_bits) - set->marks.base,
                                out_slot));
    for (int32_t p = 0; set->in_part && *out_slot < 0 && p < policy->parts; p++)
        if (set->in_part[p] > most_in_part(policy, p))
            TD_TRY(td_victims_first(&set->beyond, &rank, p, UINT32_MAX, out_slot));
    return NULL;
}

int64_t td_key_set_bytes(const td_key_set *set)
{
    const int64_t marks = set->marks.used_bytes + set->marks.count_bytes;
    return td_key_index_bytes(&set->index) + marks * set->index.n_slots + td_victims_bytes(&set->oldest) +
           td_victims_bytes(&set->beyond) + (set->in_part ? set->policy.parts * (int64_t)sizeof *set->in_part : 0);
}
