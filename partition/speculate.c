/* Pass: updates of offloaded parameters that need not wait for the norm of all gradients (train.clip_norm).
 *
 *     gradient -> squares -> clip -> "<parameter>/update" -> refresh           becomes
 *     gradient -> "<parameter>/early"          (as each gradient lands; keeps a log)
 *              -> squares -> clip -> "<parameter>/update" (settles: next to nothing where no gradient is clipped) -> refresh
 *
 * Most steps of a training that has settled are not clipped, so the host's work overlaps backward instead of following it. What
 * others see of a parameter comes after it is settled: refreshes, casts and the next step's readers wait for the update as ever.
 * Whether a window speculates is decided when it is admitted (runtime/speculation.c); the bits are the same either way. Rules that
 * look at more than one element at a time, and what stays on devices, are clipped first. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/update_part.h"
#include "partition/plan.h"

static bool is_clipped_update(const td_plan *plan, const td_node *node)
{
    return strcmp(node->op->name, "update_mixed") == 0 && node->n_inputs == MIXED_INPUTS &&
           node->inputs[MIXED_FACTOR] >= 0 && !node->delayed &&
           plan->graph->values[node->inputs[MIXED_PARAMETER]].dtype == TD_F32 &&
           plan->values[node->inputs[MIXED_PARAMETER]].offloaded;
}

static td_status *no_memory(const td_plan *plan, int32_t update)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the early part of \"%s\"", plan->graph->nodes[update].name);
}

/* *out_log: its log. The copy that the update has made is made by it. */
static td_status *add_early(td_plan *plan, int32_t update, td_value *out_log)
{
    td_graph *graph = plan->graph;
    const td_node *node = &graph->nodes[update];
    td_value inputs[MIXED_INPUTS], outputs[2] = {TD_NO_VALUE, TD_NO_VALUE};
    const td_attr attrs[3] = {TD_STRING("rule", td_attr_string(node->attrs, node->n_attrs, "rule", "")),
                              TD_STRING("copy", td_attr_string(node->attrs, node->n_attrs, "copy", "")),
                              TD_INT("outputs", node->n_outputs)};
    const int32_t parameter = node->inputs[MIXED_PARAMETER], copies = node->n_outputs;
    for (int32_t i = 0; i < MIXED_INPUTS; i++)
        inputs[i] = (td_value){graph, i == MIXED_FACTOR ? -1 : node->inputs[i]};
    char *name = td_format("%s/early", graph->values[parameter].name);
    if (!name)
        return no_memory(plan, update);
    graph->phase = TD_UPDATE;
    td_graph_add(graph, "early_update", name, inputs, MIXED_INPUTS, attrs, 3, outputs, 1 + copies);
    graph->phase = TD_FORWARD;
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    td_node *early = &graph->nodes[graph->n_nodes - 1];
    early->speculates = true;
    graph->values[outputs[0].id].parameter = parameter;
    if (copies) {
        early->outputs[1] = graph->nodes[update].outputs[0];
        graph->values[early->outputs[1]].producer = (int32_t)graph->n_nodes - 1;
        graph->values[early->outputs[1]].output = 1;
    }
    TD_TRY(td_plan_follow(plan));
    td_plan_node *p = &plan->nodes[graph->n_nodes - 1];
    p->device = plan->values[outputs[0].id].device = plan->nodes[update].device;
    p->cause = td_format("\"%s\" runs there, which it spares work", graph->nodes[update].name);
    *out_log = outputs[0];
    return p->cause ? NULL : no_memory(plan, update);
}

/* Turns the update into what settles it, under its own name. */
static td_status *turn(td_plan *plan, int32_t update, int32_t log)
{
    td_graph *graph = plan->graph;
    td_node *node = &graph->nodes[update];
    const int32_t more[] = {plan->speculate, plan->outputs[plan->n_outputs - 1], log,
                            node->n_outputs ? node->outputs[0] : -1};
    int32_t *inputs = NULL;
    TD_TRY(TD_NEW(inputs, SETTLE_INPUTS));
    memcpy(inputs, node->inputs, MIXED_INPUTS * sizeof *inputs);
    memcpy(inputs + MIXED_INPUTS, more, sizeof more);
    td_free(node->inputs);
    node->op = td_op_find("settle_update"); /* the attributes that it knows are the same */
    node->inputs = inputs;
    node->n_inputs = SETTLE_INPUTS;
    node->n_outputs = 0;
    node->settles = true;
    return NULL;
}

static td_status *speculate(td_plan *plan, int32_t update)
{
    const double no = 0;
    td_value log = TD_NO_VALUE;
    if (plan->speculate < 0) {
        plan->speculate = td_scalar(plan->graph, "step.speculate", TD_F64, 1, &no).id;
        if (plan->graph->failed)
            return td_graph_check(plan->graph);
        TD_TRY(td_plan_follow(plan));
    }
    TD_TRY(add_early(plan, update, &log));
    return turn(plan, update, log.id);
}

/* The values that early steps were given for copies, and gave up for those that there were. */
static td_status *drop_spare(td_plan *plan)
{
    const td_graph *graph = plan->graph;
    bool *keep = NULL, *keep_value = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(keep, graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(keep_value, graph->n_values + 1));
    memset(keep, 1, (size_t)graph->n_nodes);
    for (int32_t v = 0; v < graph->n_values; v++) {
        const td_value_info *info = &graph->values[v];
        keep_value[v] = info->producer < 0 || graph->nodes[info->producer].outputs[info->output] == v;
    }
    status = td_plan_compact(plan, keep, keep_value);
done:
    td_free(keep);
    td_free(keep_value);
    return status;
}

td_status *td_pass_speculate(td_plan *plan, const td_plan_request *request)
{
    const int64_t n = plan->graph->n_nodes;
    if (!plan->training || !plan->reports_norm || !plan->reports_overflow || request->options->no_speculation)
        return NULL;
    for (int32_t id = 0; id < n; id++)
        if (is_clipped_update(plan, &plan->graph->nodes[id]))
            TD_TRY(speculate(plan, id));
    return plan->speculate < 0 ? NULL : drop_spare(plan);
}
