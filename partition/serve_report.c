/* What a plan says of the tables that servers own: see td_plan_served_table. */
#include "partition/plan.h"

/* An array: a bit that says whether the row has begun. A hash table: its key, 4-byte places of which at least 82.5 % are taken, a bit
 * that says so (ps/key_index.h); where rules need them, 2 or 3 bytes for the last use and one for how often (ps/key_marks.h), and
 * of the rows that go next, up to two 256ths, 16 bytes (ps/victims.h), or, of a bounded table, 184 bytes for as many parts as have 1,024
 * rows each (td_shard_parts). */
static double overhead_of(const td_plan_served *served, int64_t row_and_state_bytes)
{
    enum { COARSE = (1 << 15) - 1, NARROW_BYTES = 8 };
    const td_hash_options *hash = &served->hash;
    const double bit = 1.0 / 8, oldest = 2 * 16.0 / 256, beyond = 184.0 / 1024;
    const bool often = hash->capacity && hash->evict == TD_EVICT_LEAST_OFTEN;
    if (!served->hashed)
        return bit;
    double bytes = 8 + 4 / 0.825 + bit;
    if (hash->capacity || hash->live)
        bytes += often && (hash->live <= COARSE || row_and_state_bytes <= NARROW_BYTES) ? 2 : 3;
    return bytes + often + (hash->live > 0) * oldest + (hash->capacity > 0) * beyond;
}

static int64_t state_of(const td_plan_group *group, int64_t dim)
{
    const td_slot *slots = NULL;
    const int32_t n = td_rule_slots(group->rule, &group->settings, &slots);
    int64_t bytes = 0;
    for (int32_t s = 0; s < n; s++)
        bytes += (slots[s].per_row ? 1 : dim) * (int64_t)sizeof(float);
    return bytes;
}

bool td_plan_served_table(const td_plan *plan, int32_t index, td_plan_served_summary *out_table)
{
    *out_table = (td_plan_served_summary){0};
    if (index < 0 || index >= plan->n_served)
        return false;
    const td_plan_served *served = &plan->served[index];
    const td_value_info *info = &plan->graph->values[td_graph_find(plan->graph, served->name).id];
    const td_value keys = td_graph_find(plan->graph, plan->keys[served->keys].name);
    const int64_t dim = info->shape.dims[1].constant;
    *out_table =
        (td_plan_served_summary){.name = served->name,
                                 .rows = info->shape.dims[0].constant,
                                 .dim = dim,
                                 .row_bytes = dim * (int64_t)td_dtype_bytes(info->dtype),
                                 .keys = keys.id < 0 ? 0 : td_value_dim(keys, 0),
                                 .hashed = served->hashed,
                                 .most_rows = served->hashed ? served->hash.capacity : info->shape.dims[0].constant};
    out_table->pull_bytes = out_table->keys * (out_table->row_bytes + (int64_t)sizeof(int64_t));
    if (served->group >= 0) {
        out_table->state_bytes = state_of(&plan->groups[served->group], dim);
        out_table->push_bytes = out_table->keys * (dim * (int64_t)sizeof(float) + (int64_t)sizeof(int64_t));
    }
    out_table->overhead_bytes = overhead_of(served, out_table->row_bytes + out_table->state_bytes);
    return true;
}
