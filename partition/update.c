/* Pass: the optimizers. For every trained parameter: its group (the first whose pattern matches), its rule's state slots as
 * values "<parameter>/<slot>", and one update node "<parameter>/update" that reads the gradient and the group's coefficients
 * and writes the parameter and its state. Coefficients are scalars computed once a step (optim/rule.h).
 *
 * With offload.delayed an update reads the gradient of the window before, which is a state, and with it that window's coefficients.
 * It waits for nothing of its own window, so the host makes it while the device goes forward; forward and backward read the parameters
 * as they were before it. Row-sparse gradients are applied at once.
 *
 * Where the workers of a job share optimizer state (shard.h), an update is of this worker's stretch: it writes a part of the
 * parameter and has the state of that part; a parameter of which the worker has nothing gets none. */
#include "base/glob.h"
#include <stdio.h>

#include "base/memory.h"
#include "base/rows16.h"
#include "partition/shard.h"

static td_status *resolve_groups(td_plan *plan, const td_option_list *list)
{
    TD_TRY(TD_NEW(plan->groups, list->n + 1));
    for (int64_t i = 0; i < list->n; i++) {
        const td_option_entry *entry = &list->items[i];
        td_plan_group *group = &plan->groups[plan->n_groups++];
        group->coefficients = group->pending = -1;
        group->match = td_strdup(entry->match);
        if (!group->match)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an optimizer group");
        if (!entry->optimizer.name)
            continue;
        group->rule = td_rule_find(entry->optimizer.name);
        if (!group->rule)
            return TD_ERROR(TD_NOT_FOUND,
                            "optimizer group \"%s\": there is no optimizer \"%s\"; did you mean \"%s\"? "
                            "(tandem ops lists them)",
                            entry->match, entry->optimizer.name, td_rule_nearest(entry->optimizer.name));
        td_status *status = td_rule_resolve(group->rule, &entry->optimizer, &group->settings);
        if (!status)
            status = td_schedule_check(&group->settings.schedule);
        if (status)
            return td_status_prefix(status, "optimizer group \"%s\"", entry->match);
    }
    return NULL;
}

static td_plan_group *group_of(td_plan *plan, const char *parameter)
{
    for (int32_t i = 0; i < plan->n_groups; i++)
        if (td_glob_match(plan->groups[i].match, parameter))
            return &plan->groups[i];
    return NULL;
}

/* Of this window's update, or with `late` of the window before. */
static td_status *coefficients_of(td_plan *plan, td_plan_group *group, bool late, td_value *out)
{
    int32_t *scalar = late ? &group->pending : &group->coefficients;
    if (*scalar < 0) {
        char name[64];
        (void)snprintf(name, sizeof name, "group.%d.%s", (int)(group - plan->groups),
                       late ? "pending" : "coefficients");
        *scalar = td_scalar(plan->graph, name, TD_F32, TD_COEFFICIENTS, NULL).id;
    }
    *out = (td_value){plan->graph, *scalar};
    return plan->graph->failed ? td_graph_check(plan->graph) : NULL;
}

/* *out_pending: the state "<parameter>/pending", which the node "<parameter>/pend" makes this window's gradient once the update has
 * read the one of the window before. */
static td_status *add_pending(td_plan *plan, int32_t parameter, int32_t gradient, td_value *out_pending)
{
    td_graph *graph = plan->graph;
    char *name = td_format("%s/pending", graph->values[parameter].name),
         *node = td_format("%s/pend", graph->values[parameter].name);
    if (name && node) {
        *out_pending = td_graph_add_source(graph, TD_CLASS_STATE, TD_DENSE, name, TD_F32,
                                           graph->values[parameter].shape, td_dim_constant(0));
        const td_value inputs[2] = {*out_pending, {graph, gradient}};
        if (!graph->failed)
            td_graph_add(graph, "commit", node, inputs, 2, NULL, 0, NULL, 0);
    }
    td_status *status = name && node ? NULL
                                     : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the delayed update of \"%s\"",
                                                graph->values[parameter].name);
    td_free(name);
    td_free(node);
    if (status || graph->failed)
        return status ? status : td_graph_check(graph);
    graph->values[out_pending->id].parameter = parameter;
    graph->values[out_pending->id].delayed = graph->values[parameter].delayed = true;
    return NULL;
}

static td_initializer initial_of(const td_plan_group *group, const td_slot *slot)
{
    return td_init_constant(slot->from_initial_accumulator ? group->settings.initial_accumulator : 0);
}

static td_status *add_slot(td_plan *plan, int32_t parameter, const td_plan_group *group, const td_slot *slot,
                           td_value *out)
{
    td_graph *graph = plan->graph;
    td_shape shape = graph->values[parameter].shape;
    if (slot->per_row && shape.rank > 1)
        shape.rank = 1;
    char *name = td_format("%s/%s", graph->values[parameter].name, slot->name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the state of \"%s\"", graph->values[parameter].name);
    *out = td_graph_add_source(graph, TD_CLASS_STATE, TD_DENSE, name, TD_F32, shape, td_dim_constant(0));
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    graph->values[out->id].parameter = parameter;
    graph->values[out->id].initial = initial_of(group, slot);
    return NULL;
}

/* ---- a worker's stretch ------------------------------------------------------------------------------------------------------- */

/* A value of which an update writes the stretch alone: a part of it. */
static td_status *narrow(td_plan *plan, const td_plan_shard *shard, td_value *value)
{
    td_graph *graph = plan->graph;
    const int64_t begin = td_shard_begin(plan, shard), size = td_shard_size(plan, shard);
    const td_attr attrs[] = {TD_INT("begin", begin), TD_INT("size", size)};
    char *name = td_format("%s/share", graph->values[value->id].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a share of \"%s\"", graph->values[value->id].name);
    *value = td_graph_add1(graph, "part", name, value, 1, attrs, 2);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    graph->values[value->id].class = TD_CLASS_ACTIVATION;
    graph->values[value->id].parameter = shard->parameter;
    return NULL;
}

/* The parameter and the states among an update's inputs. */
static td_status *narrow_inputs(td_plan *plan, const td_plan_shard *shard, td_value *inputs, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const int32_t whole = inputs[i].id;
        if (i == 1 || i == 2) /* the gradient is one already; the coefficients */
            continue;
        TD_TRY(narrow(plan, shard, &inputs[i]));
        TD_TRY(td_plan_follow(plan));
        if (i) {
            plan->values[whole].first = td_shard_begin(plan, shard);
            plan->values[whole].held = td_shard_size(plan, shard);
        }
    }
    return NULL;
}

/* What the plan says of a shared parameter's states, whoever has them. */
static td_status *note_states(td_plan *plan, td_plan_shard *shard, const td_plan_group *group)
{
    const td_slot *slots = NULL;
    const int32_t n = td_rule_slots(group->rule, &group->settings, &slots);
    for (int32_t i = 0; i < n; i++) {
        td_shape shape = plan->graph->values[shard->parameter].shape;
        if (slots[i].per_row && shape.rank > 1)
            shape.rank = 1;
        char *name = td_format("%s/%s", plan->graph->values[shard->parameter].name, slots[i].name);
        if (!name)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for shared optimizer state");
        td_status *status = td_shard_add_state(shard, name, shape, initial_of(group, &slots[i]));
        td_free(name);
        TD_TRY(status);
    }
    return NULL;
}

/* ---- updates --------------------------------------------------------------------------------------------------------------------- */

static td_status *check_kind(const td_graph *graph, const td_rule *rule, int32_t parameter, int32_t gradient)
{
    bool sparse = graph->values[gradient].kind == TD_ROW_SPARSE;
    const char *reason = sparse ? rule->refuses_row_sparse : rule->refuses_dense;
    if (!sparse && graph->values[parameter].dtype != TD_F32 && !td_rule_is_elementwise(rule))
        return td_status_help(TD_ERROR(TD_UNSUPPORTED,
                                       "optimizer \"%s\" takes the norm of a whole parameter, and \"%s\" is in %s "
                                       "without an f32 master",
                                       rule->name, graph->values[parameter].name,
                                       td_dtype_name(graph->values[parameter].dtype)),
                              "try: offload.master: fp32, or an optimizer that works element by element");
    if (!reason)
        return NULL;
    return TD_ERROR(TD_UNSUPPORTED, "optimizer \"%s\" does not take the %s gradient of \"%s\": %s", rule->name,
                    sparse ? "row-sparse" : "dense", graph->values[parameter].name, reason);
}

/* The key of stochastic rounding, 0 for rounding to nearest. */
static int64_t rounding_of(const td_plan *plan, int32_t parameter)
{
    const td_value_info *info = &plan->graph->values[parameter];
    if (!plan->stochastic_rounding || (info->dtype != TD_BF16 && info->dtype != TD_F16))
        return 0;
    return td_rounding_key_pack(td_philox_key_of(plan->random_seed, "rounding", info->name));
}

/* A served table's owners update it: the group is noted, its coefficients are made. */
static td_status *choose_push(td_plan *plan, int32_t parameter, int32_t gradient, td_plan_group *group)
{
    td_value coefficients;
    TD_TRY(check_kind(plan->graph, group->rule, parameter, gradient));
    for (int32_t t = 0; t < plan->n_served; t++)
        if (plan->served[t].parameter == parameter)
            plan->served[t].group = (int32_t)(group - plan->groups);
    return coefficients_of(plan, group, false, &coefficients);
}

/* One node for all served tables: a window's gradients travel together, or what becomes of those that the owners have. */
static td_status *add_push(td_plan *plan)
{
    enum { MOST_INPUTS = 4 };
    td_graph *graph = plan->graph;
    td_value *inputs = NULL;
    int32_t n = 0;
    TD_TRY(TD_NEW(inputs, MOST_INPUTS * plan->n_served + 1));
    if (plan->offers)
        inputs[n++] = plan->clip_factor < 0 ? TD_NO_VALUE : (td_value){graph, plan->clip_factor};
    for (int32_t t = 0; t < plan->n_served; t++) {
        const td_plan_served *served = &plan->served[t];
        if (served->group < 0)
            continue;
        inputs[n++] = (td_value){graph, served->parameter};
        if (!plan->offers) {
            inputs[n++] = (td_value){graph, plan->gradients[served->parameter]};
            inputs[n++] = (td_value){graph, plan->keys[served->keys].value};
        }
        inputs[n++] = (td_value){graph, plan->groups[served->group].coefficients};
    }
    if (plan->offers)
        td_graph_add(graph, "ps_apply", "ps/apply", inputs, n, NULL, 0, NULL, 0);
    else if (n)
        td_graph_add(graph, "ps_push", "ps/push", inputs, n, NULL, 0, NULL, 0);
    td_free(inputs);
    return graph->failed ? td_graph_check(graph) : NULL;
}

static td_status *add_update(td_plan *plan, int32_t parameter, int32_t gradient)
{
    td_graph *graph = plan->graph;
    td_plan_group *group = group_of(plan, graph->values[parameter].name);
    if (!group)
        return td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT, "no optimizer group matches parameter \"%s\"", graph->values[parameter].name),
            "add a group with match \"*\" at the end, or freeze the parameter");
    if (graph->values[parameter].served)
        return choose_push(plan, parameter, gradient, group);
    td_value inputs[3 + TD_MAX_SLOTS] = {{graph, parameter}, {graph, gradient}};
    const td_slot *slots = NULL;
    TD_TRY(check_kind(graph, group->rule, parameter, gradient));
    td_plan_shard *shard = td_plan_shard_of(plan, parameter);
    if (shard)
        TD_TRY(note_states(plan, shard, group));
    if (shard && !td_shard_size(plan, shard))
        return NULL;
    /* rows of a table are looked up anew in each step: they are updated at once */
    const bool late = plan->delayed && graph->values[gradient].kind == TD_DENSE;
    if (late)
        TD_TRY(add_pending(plan, parameter, gradient, &inputs[1]));
    TD_TRY(coefficients_of(plan, group, late, &inputs[2]));
    int32_t n_slots = td_rule_slots(group->rule, &group->settings, &slots);
    for (int32_t i = 0; i < n_slots; i++)
        TD_TRY(add_slot(plan, parameter, group, &slots[i], &inputs[3 + i]));
    if (shard && td_shard_size(plan, shard) < shard->elements)
        TD_TRY(narrow_inputs(plan, shard, inputs, 3 + n_slots));
    const td_attr rounding = TD_INT("rounding", rounding_of(plan, parameter));
    char *name = td_format("%s/update", graph->values[parameter].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the update of \"%s\"", graph->values[parameter].name);
    td_graph_add(graph, group->rule->name, name, inputs, 3 + n_slots, &rounding, rounding.i != 0, NULL, 0);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    graph->nodes[graph->n_nodes - 1].delayed = late;
    return NULL;
}

td_status *td_pass_update(td_plan *plan, const td_plan_request *request)
{
    if (!plan->training)
        return NULL;
    TD_TRY(resolve_groups(plan, &request->options->groups));
    plan->graph->phase = TD_UPDATE;
    for (int32_t v = 0; v < plan->n_gradients; v++)
        if (plan->gradients[v] >= 0)
            TD_TRY(add_update(plan, v, plan->gradients[v]));
    return add_push(plan);
}
