/* Pass: 16-bit parameters and activations (train.precision), before differentiation, so that every cast is an op that placement,
 * memory and gradients see, and moving an op changes no rounding.
 *
 *   x, W, b in f32 -> cast, cast, cast -> linear in 16 bit -> gelu in 16 bit -> .. -> cast -> a loss in f32
 *
 * Some ops begin (makes_narrow): products, convolutions, attention. Others go on in 16 bit where a value that is computed
 * comes to them so (keeps_narrow); what they read besides, parameters too, is cast. Rows that lookups fetch are cast where they
 * were fetched, so half the bytes cross a link; the table itself stays f32, unless a product reads it too (tied weights): then
 * lookups read the product's copy. All else is f32: losses, softmax, reductions, running statistics, and the ops whose name a
 * pattern of train.keep_fp32 matches.
 *
 * Parameters are f32 and stay so, with their optimizer: their casts are what the device computes with. Without masters
 * (td_train_options.no_master) those that casts alone read are in 16 bit themselves, and ops read them as they are. The casts' gradients,
 * built like all others, hand each optimizer its gradient, rounded to 16 bit once by the op that made it. What an op keeps for
 * its gradient beside its result (mean, log-sum) is f32. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "graph/ops/elements.h"
#include "partition/plan.h"

/* For each value of the graph as it was: whether it is in 16 bit now; whether it is f32 that everybody reads through its cast
 * (rows); its cast to 16 bit, and the one to f32 of what is 16 bit or read so, or -1 while nobody needs them; of a parameter,
 * whether a product reads it. */
typedef struct casts {
    td_graph *graph;
    td_dtype dtype;
    bool *is_narrow, *is_rounded, *is_multiplied;
    int32_t *narrow, *wide;
} casts;

static bool is_among(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

static bool makes_narrow(const td_node *node)
{
    static const char *const ops[] = {"linear", "matmul", "conv2d", "causal_attention", NULL};
    return is_among(node->op->name, ops);
}

static bool keeps_narrow(const td_node *node)
{
    static const char *const ops[] = {"relu",       "gelu",       "tanh",       "sigmoid", "add",
                                      "sub",        "mul",        "dropout",    "scale",   "layer_norm",
                                      "batch_norm", "max_pool2d", "avg_pool2d", "reshape", "transpose",
                                      "slice",      "concat",     "split",      NULL};
    return is_among(node->op->name, ops);
}

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

/* *io in 16 bit. */
static td_status *narrow(casts *c, int32_t *io)
{
    int32_t value = *io;
    if (value < 0 || c->is_narrow[value] || c->graph->values[value].dtype != TD_F32 ||
        c->graph->values[value].kind != TD_DENSE)
        return NULL;
    if (c->narrow[value] < 0)
        TD_TRY(add_cast(c->graph, value, c->dtype, &c->narrow[value]));
    *io = c->narrow[value];
    return NULL;
}

/* *io in f32. */
static td_status *widen(casts *c, int32_t *io)
{
    int32_t value = *io;
    if (value < 0 || !(c->is_narrow[value] || c->is_rounded[value]))
        return NULL;
    if (c->wide[value] < 0) {
        bool was_output = c->graph->values[value].is_output;
        c->graph->values[value].is_output = false;
        TD_TRY(add_cast(c->graph, c->is_narrow[value] ? value : c->narrow[value], TD_F32, &c->wide[value]));
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

/* Values that a graph has in another width already are left to whoever built it. */
static bool is_in_f32(const casts *c, const td_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t value = node->inputs[i];
        if (value >= 0 && !c->is_narrow[value] && td_dtype_is_float(c->graph->values[value].dtype) &&
            c->graph->values[value].kind == TD_DENSE && c->graph->values[value].dtype != TD_F32)
            return false;
    }
    return td_dtype_is_float(c->graph->values[node->outputs[0]].dtype);
}

static bool reads_narrow(const casts *c, const td_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && (c->is_narrow[node->inputs[i]] || c->is_rounded[node->inputs[i]]))
            return true;
    return false;
}

static bool becomes_narrow(const casts *c, const td_plan_request *request, const td_node *node)
{
    const bool does = makes_narrow(node) || (keeps_narrow(node) && reads_narrow(c, node));
    return does && is_in_f32(c, node) && !is_kept(request, node->name);
}

/* A lookup in a table that products read as well reads their copy of it; its rows, exact in f32, are cast like all rows. */
static td_status *visit_lookup(casts *c, const td_plan_request *request, int32_t id)
{
    const td_node *node = &c->graph->nodes[id];
    int32_t rows = node->outputs[0], narrowed = rows, table = node->inputs[0];
    if (!is_in_f32(c, node) || is_kept(request, node->name))
        return NULL;
    if (c->is_multiplied[table]) {
        TD_TRY(narrow(c, &table));
        c->graph->nodes[id].inputs[0] = table; /* adding moved the nodes */
    }
    c->is_rounded[rows] = true;
    return narrow(c, &narrowed);
}

static td_status *visit(casts *c, const td_plan_request *request, int32_t id)
{
    const td_node *node = &c->graph->nodes[id];
    if (td_op_is_lookup(node->op))
        return visit_lookup(c, request, id);
    const bool narrows = becomes_narrow(c, request, node), all = strcmp(node->op->name, "split") == 0;
    const int32_t n_inputs = node->n_inputs, n_outputs = !narrows ? 0 : all ? node->n_outputs : 1;
    for (int32_t i = 0; i < n_inputs; i++) {
        int32_t value = c->graph->nodes[id].inputs[i];
        const bool is_state = td_node_writes(&c->graph->nodes[id], i);
        TD_TRY(narrows && !is_state ? narrow(c, &value) : widen(c, &value));
        c->graph->nodes[id].inputs[i] = value; /* adding moved the nodes */
    }
    for (int32_t i = 0; i < n_outputs; i++) {
        int32_t output = c->graph->nodes[id].outputs[i];
        c->graph->values[output].dtype = c->dtype;
        c->is_narrow[output] = true;
    }
    return NULL;
}

/* Which parameters products read. */
static void find_multiplied(casts *c, const td_plan_request *request)
{
    for (int32_t n = 0; n < c->graph->n_nodes; n++) {
        const td_node *node = &c->graph->nodes[n];
        if (!makes_narrow(node) || is_kept(request, node->name))
            continue;
        for (int32_t i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                c->is_multiplied[node->inputs[i]] = true;
    }
}

/* What leaves the plan is f32: the loss, what was asked for, and what the graph calls an output. */
static td_status *widen_results(casts *c, td_plan *plan, int64_t n_values)
{
    for (int32_t v = 0; v < n_values; v++) {
        int32_t value = v;
        if (c->graph->values[v].is_output)
            TD_TRY(widen(c, &value));
    }
    for (int32_t i = 0; i < plan->n_outputs; i++)
        TD_TRY(widen(c, &plan->outputs[i]));
    return plan->loss < 0 ? NULL : widen(c, &plan->loss);
}

/* ---- without masters --------------------------------------------------------------------------------------------------------- */

/* only[v]: casts to 16 bit alone read parameter v. */
static void find_only_narrow(const casts *c, const td_plan *plan, bool *only)
{
    const td_graph *graph = c->graph;
    for (int32_t v = 0; v < graph->n_values; v++)
        only[v] = graph->values[v].class == TD_CLASS_PARAMETER && graph->values[v].dtype == TD_F32 &&
                  !graph->values[v].is_output;
    for (int32_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++) {
            const td_node *node = &graph->nodes[n];
            bool narrows = strcmp(node->op->name, "cast") == 0 && graph->values[node->outputs[0]].dtype == c->dtype;
            if (node->inputs[i] >= 0 && !narrows)
                only[node->inputs[i]] = false;
        }
    for (int32_t i = 0; i < plan->n_outputs; i++)
        only[plan->outputs[i]] = false;
}

/* Such parameters are in 16 bit, and whoever reads a cast of one reads the parameter. The casts are left to the pass optimize, which
 * drops what nobody reads. */
static td_status *drop_masters(casts *c, td_plan *plan)
{
    td_graph *graph = c->graph;
    bool *only = NULL;
    TD_TRY(TD_NEW(only, graph->n_values + 1));
    find_only_narrow(c, plan, only);
    for (int32_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++) {
            int32_t value = graph->nodes[n].inputs[i], maker = value < 0 ? -1 : graph->values[value].producer;
            const td_node *cast = maker < 0 ? NULL : &graph->nodes[maker];
            if (cast && strcmp(cast->op->name, "cast") == 0 && only[cast->inputs[0]])
                graph->nodes[n].inputs[i] = cast->inputs[0];
        }
    for (int32_t v = 0; v < graph->n_values; v++)
        if (only[v])
            graph->values[v].dtype = c->dtype;
    td_free(only);
    return NULL;
}

static td_status *allocate(casts *c, int64_t n_values)
{
    TD_TRY(TD_NEW(c->is_narrow, n_values + 1));
    TD_TRY(TD_NEW(c->is_rounded, n_values + 1));
    TD_TRY(TD_NEW(c->is_multiplied, n_values + 1));
    TD_TRY(TD_NEW(c->narrow, n_values + 1));
    TD_TRY(TD_NEW(c->wide, n_values + 1));
    memset(c->narrow, 0xff, (size_t)n_values * sizeof *c->narrow);
    memset(c->wide, 0xff, (size_t)n_values * sizeof *c->wide);
    return NULL;
}

td_status *td_pass_precision(td_plan *plan, const td_plan_request *request)
{
    if (request->options->precision == TD_FP32)
        return !request->options->no_master
                   ? NULL
                   : td_status_help(TD_ERROR(TD_INVALID_ARGUMENT,
                                             "offload.master: none is for parameters that are read "
                                             "in 16 bit, and train.precision is fp32"),
                                    "try: train.precision: bf16");
    td_status *status = NULL;
    int32_t *order = NULL;
    casts c = {.graph = plan->graph, .dtype = request->options->precision == TD_MIXED_BF16 ? TD_BF16 : TD_F16};
    int64_t n_nodes = plan->graph->n_nodes, n_values = plan->graph->n_values;
    TD_TRY(td_graph_check(plan->graph));
    TD_TRY_OR(status, done, allocate(&c, n_values));
    TD_TRY_OR(status, done, td_graph_order(plan->graph, &order));
    find_multiplied(&c, request);
    for (int64_t k = 0; k < n_nodes; k++)
        TD_TRY_OR(status, done, visit(&c, request, order[k]));
    TD_TRY_OR(status, done, widen_results(&c, plan, n_values));
    if (request->options->no_master)
        status = drop_masters(&c, plan);
done:
    td_free(order);
    td_free(c.is_narrow);
    td_free(c.is_rounded);
    td_free(c.is_multiplied);
    td_free(c.narrow);
    td_free(c.wide);
    return status;
}
