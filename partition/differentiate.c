/* Pass: the backward nodes of the loss. Backward starts from the scalar "step.seed" = S * n / B: the loss scale S, times the
 * samples n of this batch over the configured B, so that a short batch weighs what its samples weigh; the update multiplies
 * by B / (S * n) once. */
#include "base/glob.h"

#include "base/memory.h"
#include "partition/plan.h"

/* The extent that counts samples: of the first dimension that the loss op's first input has (through the ops behind it). */
static int32_t sample_extent(const td_graph *graph, int32_t loss)
{
    int32_t producer = graph->values[loss].producer;
    for (int32_t steps = 0; producer >= 0 && steps < 1000; steps++) {
        const td_node *node = &graph->nodes[producer];
        int32_t next = -1;
        for (int32_t i = 0; i < node->n_inputs && next < 0; i++)
            next = node->inputs[i];
        if (next < 0)
            return -1;
        const td_shape *shape = &graph->values[next].shape;
        if (shape->rank && graph->values[next].kind != TD_SCALAR && shape->dims[0].extent >= 0)
            return shape->dims[0].extent;
        producer = graph->values[next].producer;
    }
    return -1;
}

/* Groups that freeze parameters act before differentiation: a frozen parameter needs no gradient. */
static void freeze_by_groups(td_plan *plan, const td_plan_request *request)
{
    const td_option_list *groups = &request->options->groups;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        td_value_info *info = &plan->graph->values[v];
        if (info->class != TD_CLASS_PARAMETER)
            continue;
        for (int64_t g = 0; g < groups->n; g++) {
            if (!td_glob_match(groups->items[g].match, info->name))
                continue;
            info->frozen = info->frozen || !groups->items[g].optimizer.name;
            break;
        }
    }
}

static bool is_reported(const td_option_list *patterns, const char *name)
{
    for (int64_t i = 0; i < patterns->n; i++)
        if (td_glob_match(patterns->items[i].match, name))
            return true;
    return false;
}

/* Before anything else takes the gradients further. */
static td_status *report_gradients(td_plan *plan, const td_option_list *patterns)
{
    for (int32_t v = 0; v < plan->n_gradients; v++) {
        const td_value_info *parameter = &plan->graph->values[v];
        int32_t gradient = plan->gradients[v];
        if (parameter->class != TD_CLASS_PARAMETER || gradient < 0 || !is_reported(patterns, parameter->name))
            continue;
        if (plan->graph->values[gradient].kind != TD_DENSE || plan->graph->values[gradient].dtype != TD_F32)
            continue;
        char *name = td_format("%s:gradient", parameter->name);
        td_status *status =
            name ? td_plan_add_output(plan, gradient, name) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan");
        td_free(name);
        TD_TRY(status);
    }
    return NULL;
}

/* The gradient of a parameter in 16 bit is widened before anybody sums, clips or applies it, like that of a cast. */
static td_status *widen_gradients(td_plan *plan)
{
    td_graph *graph = plan->graph;
    const td_attr attr = TD_STRING("dtype", "f32");
    td_status *status = NULL;
    graph->phase = TD_BACKWARD;
    for (int32_t v = 0; v < plan->n_gradients && !status; v++) {
        const int32_t gradient = plan->gradients[v];
        if (gradient < 0 || graph->values[gradient].kind != TD_DENSE || graph->values[gradient].dtype == TD_F32)
            continue;
        char *name = td_format("%s/gradient", graph->values[v].name);
        if (!name) {
            status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the gradient of \"%s\"", graph->values[v].name);
            break;
        }
        plan->gradients[v] = td_graph_add1(graph, "cast", name, &(td_value){graph, gradient}, 1, &attr, 1).id;
        td_free(name);
        status = graph->failed ? td_graph_check(graph) : NULL;
        if (!status) {
            graph->values[gradient].parameter = -1;
            graph->values[plan->gradients[v]].parameter = v;
        }
    }
    graph->phase = TD_FORWARD;
    return status;
}

td_status *td_pass_differentiate(td_plan *plan, const td_plan_request *request)
{
    if (!plan->training)
        return td_graph_check(plan->graph);
    double one = 1;
    TD_TRY(td_graph_check(plan->graph));
    freeze_by_groups(plan, request);
    plan->sample_extent = sample_extent(plan->graph, plan->loss);
    td_value seed = td_scalar(plan->graph, "step.seed", TD_F64, 1, &one);
    plan->seed = seed.id;
    plan->n_gradients = plan->graph->n_values;
    TD_TRY(td_graph_differentiate(plan->graph, (td_value){plan->graph, plan->loss}, seed, &plan->gradients));
    TD_TRY(widen_gradients(plan));
    return report_gradients(plan, &request->options->report_gradients);
}
