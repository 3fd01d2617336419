/* Pass: the dense part in bf16 (train.precision: bf16), before differentiation, so that every cast is an op that placement,
 * memory and gradients see, and moving an op changes no rounding.
 *
 *   x, W, b in f32 -> cast, cast, cast -> linear in bf16 -> (relu in bf16) -> cast -> whoever reads it in f32
 *
 * Layers are the ops "linear" whose name no pattern of train.keep_fp32 matches, and the relus right after them; from one
 * layer to the next values stay in bf16. Parameters are f32 and stay so: the casts' gradients, built like all others, hand
 * each optimizer its gradient in f32, rounded to bf16 once by the product that made it. Lookups, interactions,
 * normalisations and losses stay f32. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "partition/plan.h"

/* For each value of the graph as it was: whether a layer makes it in bf16; its cast to the other width, or -1 while nobody
 * needs it. */
typedef struct casts {
    td_graph *graph;
    bool *is_bf16;
    int32_t *narrow, *wide;
} casts;

static td_status *add_cast(td_graph *graph, int32_t value, td_dtype dtype, int32_t *out)
{
    const td_attr attr = TD_STRING("dtype", td_dtype_name(dtype));
    char *name = td_format("%s/%s", graph->values[value].name, td_dtype_name(dtype));
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a cast's name");
    *out = td_graph_add1(graph, "cast", name, &(td_value){graph, value}, 1, &attr, 1).id;
    td_free(name);
    return graph->failed ? td_graph_check(graph) : NULL;
}

/* A layer's input in bf16. */
static td_status *narrow_input(casts *c, int32_t node, int32_t input)
{
    int32_t value = c->graph->nodes[node].inputs[input];
    if (value < 0 || c->is_bf16[value])
        return NULL;
    if (c->narrow[value] < 0)
        TD_TRY(add_cast(c->graph, value, TD_BF16, &c->narrow[value]));
    c->graph->nodes[node].inputs[input] = c->narrow[value]; /* adding moved the nodes */
    return NULL;
}

/* In f32, for whoever is no layer: *io is the value. */
static td_status *widen(casts *c, int32_t *io)
{
    int32_t value = *io;
    if (value < 0 || !c->is_bf16[value])
        return NULL;
    if (c->wide[value] < 0) {
        bool was_output = c->graph->values[value].is_output;
        c->graph->values[value].is_output = false;
        TD_TRY(add_cast(c->graph, value, TD_F32, &c->wide[value]));
        c->graph->values[c->wide[value]].is_output = was_output;
    }
    *io = c->wide[value];
    return NULL;
}

static bool is_kept(const td_plan_request *request, const char *name)
{
    const td_option_list *kept = &request->options->keep_fp32;
    for (int64_t i = 0; i < kept->n; i++)
        if (td_glob_match(kept->items[i].match, name))
            return true;
    return false;
}

static bool is_layer(const casts *c, const td_plan_request *request, const td_node *node)
{
    const td_graph *graph = c->graph;
    if (strcmp(node->op->name, "relu") == 0)
        return c->is_bf16[node->inputs[0]];
    return strcmp(node->op->name, "linear") == 0 && graph->values[node->inputs[0]].dtype != TD_F16 &&
           graph->values[node->inputs[1]].dtype == TD_F32 && !is_kept(request, node->name);
}

static td_status *visit(casts *c, const td_plan_request *request, int32_t node)
{
    int32_t n_inputs = c->graph->nodes[node].n_inputs, output = c->graph->nodes[node].outputs[0];
    if (is_layer(c, request, &c->graph->nodes[node])) {
        for (int32_t i = 0; i < n_inputs; i++)
            TD_TRY(narrow_input(c, node, i));
        c->graph->values[output].dtype = TD_BF16;
        c->is_bf16[output] = true;
        return NULL;
    }
    for (int32_t i = 0; i < n_inputs; i++) {
        int32_t value = c->graph->nodes[node].inputs[i];
        TD_TRY(widen(c, &value));
        c->graph->nodes[node].inputs[i] = value; /* adding moved the nodes */
    }
    return NULL;
}

/* What leaves the plan is f32: the loss, what was asked for, and what the graph calls an output. */
static td_status *widen_results(casts *c, td_plan *plan, int64_t n_values)
{
    for (int32_t v = 0; v < n_values; v++) {
        int32_t value = v;
        if (c->is_bf16[v] && c->graph->values[v].is_output)
            TD_TRY(widen(c, &value));
    }
    for (int32_t i = 0; i < plan->n_outputs; i++)
        TD_TRY(widen(c, &plan->outputs[i]));
    return NULL;
}

td_status *td_pass_precision(td_plan *plan, const td_plan_request *request)
{
    if (request->options->precision != TD_DENSE_BF16)
        return NULL;
    td_status *status = NULL;
    casts c = {.graph = plan->graph};
    int64_t n_nodes = plan->graph->n_nodes, n_values = plan->graph->n_values;
    TD_TRY(td_graph_check(plan->graph));
    TD_TRY_OR(status, done, TD_NEW(c.is_bf16, n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(c.narrow, n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(c.wide, n_values + 1));
    memset(c.narrow, 0xff, (size_t)n_values * sizeof *c.narrow);
    memset(c.wide, 0xff, (size_t)n_values * sizeof *c.wide);
    for (int32_t n = 0; n < n_nodes; n++)
        TD_TRY_OR(status, done, visit(&c, request, n));
    status = widen_results(&c, plan, n_values);
done:
    td_free(c.is_bf16);
    td_free(c.narrow);
    td_free(c.wide);
    return status;
}
