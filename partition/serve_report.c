/* What a plan says of the tables that servers own: see td_plan_served_table. */
#include "partition/plan.h"

bool td_plan_served_table(const td_plan *plan, int32_t index, td_plan_served_summary *out_table)
{
    *out_table = (td_plan_served_summary){0};
    if (index < 0 || index >= plan->n_served)
        return false;
    const td_plan_served *served = &plan->served[index];
    const td_value_info *info = &plan->graph->values[td_graph_find(plan->graph, served->name).id];
    const td_value keys = td_graph_find(plan->graph, plan->keys[served->keys].name);
    const int64_t dim = info->shape.dims[1].constant;
    *out_table = (td_plan_served_summary){.name = served->name,
                                          .rows = info->shape.dims[0].constant,
                                          .row_bytes = dim * (int64_t)td_dtype_bytes(info->dtype),
                                          .keys = keys.id < 0 ? 0 : td_value_dim(keys, 0)};
    out_table->pull_bytes = out_table->keys * (out_table->row_bytes + (int64_t)sizeof(int64_t));
    if (served->group < 0)
        return true;
    const td_plan_group *group = &plan->groups[served->group];
    const td_slot *slots = NULL;
    const int32_t n = td_rule_slots(group->rule, &group->settings, &slots);
    for (int32_t s = 0; s < n; s++)
        out_table->state_bytes += (slots[s].per_row ? 1 : dim) * (int64_t)sizeof(float);
    out_table->push_bytes = out_table->keys * (dim * (int64_t)sizeof(float) + (int64_t)sizeof(int64_t));
    return true;
}
