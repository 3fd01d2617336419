/* Pass: sums of gradients over the micro-batches of a window (td_train_options.accumulate, replicas). Each parameter's gradient
 * gets one node "<parameter>/accumulate" where the parameter lives; whoever read the gradient reads the sum: a dense one in f32,
 * or a list of rows with room for those of a whole window. Where no window has more than one micro-batch nothing is added. In a
 * job the sums are a replica's, and the ranks sum the replicas (exchange.c).
 *
 * Backward of a micro-batch of n samples starts from S * n / B (the pass "differentiate"), so a sum holds S/B times the gradient
 * of all samples' losses added up; "step.divisor" is S times the window's samples over B, what makes a mean of it, or S alone
 * where micro-batches' means are to be added. The update divides by it once; so does the norm of clipping. */
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

/* ---- how long windows are ------------------------------------------------------------------------------------------------ */

static td_status *check_number(const char *what, int64_t number)
{
    enum { MOST = 1 << 20 };
    if (number >= 1 && number <= MOST)
        return NULL;
    return TD_ERROR(TD_INVALID_ARGUMENT, "%s is %lld; it must be 1 to %d", what, (long long)number, (int)MOST);
}

static td_status *add_change(td_plan *plan, int64_t from, int32_t accumulate)
{
    TD_TRY(check_number("accumulate", accumulate));
    TD_TRY(td_grow(&plan->changes.items, &plan->changes.capacity, plan->changes.n, sizeof *plan->changes.items));
    plan->changes.items[plan->changes.n++] = (td_accumulate_change){from, accumulate};
    if (accumulate > plan->most_accumulated)
        plan->most_accumulated = accumulate;
    return NULL;
}

td_status *td_plan_settle_windows(td_plan *plan, const td_plan_request *request)
{
    const td_train_options *options = request->options;
    const td_accumulate_changes *changes = &options->accumulate_changes;
    int64_t all = 0;
    if (!plan->training)
        return NULL;
    TD_TRY(check_number("replicas", options->replicas));
    plan->replicas = options->replicas;
    plan->all_replicas = request->replicas ? request->replicas : options->replicas;
    plan->reduction = options->reduction;
    TD_TRY(add_change(plan, 1, options->accumulate));
    for (int64_t i = 0; i < changes->n; i++)
        TD_TRY(add_change(plan, changes->items[i].from, changes->items[i].accumulate));
    (void)td_multiply_checked(plan->all_replicas, plan->most_accumulated, &all);
    return check_number("replicas x accumulate", all);
}

int32_t td_plan_accumulate(const td_plan *plan, int64_t step)
{
    int64_t i = plan->changes.n - 1;
    while (i > 0 && plan->changes.items[i].from > step)
        i--;
    return plan->changes.n ? plan->changes.items[i].accumulate : 1;
}

int64_t td_plan_window(const td_plan *plan, int64_t step)
{
    return (int64_t)plan->all_replicas * td_plan_accumulate(plan, step);
}

/* ---- sums ------------------------------------------------------------------------------------------------------------------ */

static td_status *add_sum(td_plan *plan, int32_t parameter)
{
    enum { MOST_OUTPUTS = 4 };
    td_graph *graph = plan->graph;
    td_value outputs[MOST_OUTPUTS];
    const td_value inputs[2] = {{graph, plan->gradients[parameter]}, {graph, plan->micro}};
    const bool sparse = graph->values[inputs[0].id].kind == TD_ROW_SPARSE;
    /* one of the two folds alone is the other: sums from left to right either way; a job's replicas are summed by its ranks */
    const int32_t here = plan->in_job ? 1 : plan->replicas;
    const bool replicas = here > 1 && plan->most_accumulated > 1;
    const td_attr attrs[2] = {
        TD_INT("micro_batches", replicas ? plan->most_accumulated : (int64_t)plan->most_accumulated * here),
        TD_INT("replicas", here)};
    static const char *const ops[2][2] = {{"accumulate", "accumulate_replicas"},
                                          {"accumulate_rows", "accumulate_replica_rows"}};
    char *name = td_format("%s/accumulate", graph->values[parameter].name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the sum of gradients of \"%s\"",
                        graph->values[parameter].name);
    int32_t n_outputs = (sparse ? 2 : 1) * (replicas ? 2 : 1);
    td_graph_add(graph, ops[sparse][replicas], name, inputs, 2, attrs, sparse ? 1 + replicas : 0, outputs, n_outputs);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    for (int32_t i = 0; i < n_outputs; i++)
        graph->values[outputs[i].id].parameter = parameter;
    plan->gradients[parameter] = outputs[0].id;
    return NULL;
}

static td_status *add_sums(td_plan *plan)
{
    static const double alone[] = {1, 1, 1};
    const bool here = !plan->in_job || plan->most_accumulated > 1;
    plan->micro = td_scalar(plan->graph, "step.micro", TD_F64, 3, alone).id;
    plan->graph->phase = TD_BACKWARD;
    td_status *status = NULL;
    for (int32_t v = 0; here && v < plan->n_gradients && !status; v++)
        if (plan->gradients[v] >= 0)
            status = add_sum(plan, v);
    plan->graph->phase = TD_FORWARD;
    return status;
}

td_status *td_pass_accumulate(td_plan *plan, const td_plan_request *request)
{
    const double one = 1;
    if (!plan->training)
        return NULL;
    (void)request;
    bool several = plan->replicas > 1 || plan->most_accumulated > 1;
    if (several || plan->reduction == TD_REDUCE_SUM || plan->in_job)
        plan->divisor = td_scalar(plan->graph, "step.divisor", TD_F64, 1, &one).id;
    return several ? add_sums(plan) : NULL;
}
