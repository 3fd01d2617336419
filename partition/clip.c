/* Pass: clipping by the norm of all gradients together (td_train_options.clip_norm). Each parameter's gradient gets a sum of its
 * squares where it is, "<parameter>/squares"; one node, "clip", makes the factor and the norm of all sums; "<parameter>/clip"
 * scales, and its result is what the update reads. The norm becomes the last of the plan's outputs. Of served tables the owners tell
 * the squares, and they scale (exchange.c, update.c). Where the workers of a job share optimizer state, each has the squares of its
 * stretches, and "workers/squares" makes those of all of it (shard.h). */
#include <string.h>

#include "base/memory.h"
#include "partition/shard.h"

typedef struct clipping {
    td_plan *plan;
    /* of "clip": what gradients are multiplied with, then the sums in the order of the parameters' names */
    td_value *inputs;
    int32_t *parameters;
    int32_t n; /* parameters */
} clipping;

static td_status *add_node(const clipping *c, int32_t parameter, const char *suffix, const char *op,
                           const td_value *inputs, int32_t n_inputs, td_value *out)
{
    td_graph *graph = c->plan->graph;
    char *name = td_format("%s/%s", graph->values[parameter].name, suffix);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for clipping \"%s\"", graph->values[parameter].name);
    *out = td_graph_add1(graph, op, name, inputs, n_inputs, NULL, 0);
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    graph->values[out->id].parameter = parameter;
    return NULL;
}

/* Parameters with a gradient, by name: nothing may depend on the order in which they were made. */
static void list_parameters(clipping *c)
{
    const td_graph *graph = c->plan->graph;
    for (int32_t v = 0; v < c->plan->n_gradients; v++) {
        int32_t at = c->n;
        if (c->plan->gradients[v] < 0)
            continue;
        for (; at > 0 && strcmp(graph->values[c->parameters[at - 1]].name, graph->values[v].name) > 0; at--)
            c->parameters[at] = c->parameters[at - 1];
        c->parameters[at] = v;
        c->n++;
    }
}

/* The squares of each shared parameter's stretch here become those of all of it. */
static td_status *combine(const clipping *c)
{
    td_value **values = NULL;
    int32_t n = 0;
    if (!td_plan_is_sharded(c->plan))
        return NULL;
    TD_TRY(TD_NEW(values, c->n + 1));
    for (int32_t i = 0; i < c->n; i++)
        if (td_plan_shard_of(c->plan, c->parameters[i]))
            values[n++] = &c->inputs[1 + i];
    td_status *status = td_shard_combine(c->plan, "workers/squares", values, n);
    for (int32_t i = 0; i < c->n && !status; i++) {
        td_plan_shard *shard = td_plan_shard_of(c->plan, c->parameters[i]);
        if (shard)
            shard->squares = c->inputs[1 + i].id;
    }
    td_free(values);
    return status;
}

static td_status *clip(clipping *c, double clip_norm)
{
    td_plan *plan = c->plan;
    td_graph *graph = plan->graph;
    td_value outputs[2];
    list_parameters(c);
    if (c->n == 0)
        return NULL;
    c->inputs[0] = (td_value){graph, plan->divisor >= 0 ? plan->divisor : plan->seed};
    for (int32_t i = 0; i < c->n; i++) {
        const td_value gradient = {graph, plan->gradients[c->parameters[i]]};
        const td_plan_served *served = td_plan_served_of(plan, c->parameters[i]);
        if (served && plan->offers)
            c->inputs[1 + i] = (td_value){graph, served->squares};
        else
            TD_TRY(add_node(c, c->parameters[i], "squares", "gradient_squares", &gradient, 1, &c->inputs[1 + i]));
    }
    TD_TRY(combine(c));
    const td_attr attrs[1] = {TD_FLOAT("clip_norm", clip_norm)};
    td_graph_add(graph, "clip_factor", "clip", c->inputs, 1 + c->n, attrs, 1, outputs, 2);
    if (graph->failed)
        return td_graph_check(graph);
    plan->clip_factor = outputs[0].id;
    for (int32_t i = 0; i < c->n; i++) {
        td_value clipped;
        const td_value inputs[2] = {{graph, plan->gradients[c->parameters[i]]}, outputs[0]};
        if (plan->offers && td_plan_served_of(plan, c->parameters[i]))
            continue;
        TD_TRY(add_node(c, c->parameters[i], "clip", "clip_gradient", inputs, 2, &clipped));
        plan->gradients[c->parameters[i]] = clipped.id;
    }
    plan->outputs[plan->n_outputs++] = outputs[1].id;
    plan->reports_norm = true;
    return NULL;
}

td_status *td_pass_clip(td_plan *plan, const td_plan_request *request)
{
    const double clip_norm = request->options->clip_norm;
    if (!plan->training || clip_norm == 0)
        return NULL;
    if (!(clip_norm > 0))
        return TD_ERROR(TD_INVALID_ARGUMENT, "clip_norm is %g; it must be above 0 (0: gradients are not clipped)",
                        clip_norm);
    clipping c = {.plan = plan};
    td_status *status = TD_NEW(c.inputs, plan->n_gradients + 1);
    if (!status)
        status = TD_NEW(c.parameters, plan->n_gradients + 1);
    plan->graph->phase = TD_BACKWARD;
    if (!status)
        status = clip(&c, clip_norm);
    plan->graph->phase = TD_FORWARD;
    td_free(c.inputs);
    td_free(c.parameters);
    return status;
}
