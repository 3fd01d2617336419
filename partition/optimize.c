/* Pass: the graph made smaller without changing a bit of what it computes.
 *
 * An embedding's row-sparse gradient that only its update reads is never made: gradient and update become one
 * "embedding_update", which sums duplicates and updates each touched row in one pass. So it is with the sum of several
 * lookups' gradients of one table, which becomes one "embedding_updates". Relu and its gradient become part of the products
 * before them (fuse_linear.c). Then whatever neither a loss, an
 * output, an update nor a host function needs is dropped. */
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "partition/plan.h"

/* ---- fusing ------------------------------------------------------------------------------------------------------------------ */

static td_status *count_uses(const td_graph *graph, int32_t **out_uses)
{
    int32_t *uses = NULL;
    TD_TRY(TD_NEW(uses, graph->n_values + 1));
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] >= 0)
                uses[graph->nodes[n].inputs[i]]++;
    *out_uses = uses;
    return NULL;
}

static bool is_lookup_gradient(const td_node *node)
{
    return strcmp(node->op->name, "embedding_gradient") == 0 || strcmp(node->op->name, "embedding_bag_gradient") == 0;
}

/* Adds the fused node in the place of `update` and the gradient op before it. */
static td_status *fuse(td_plan *plan, int32_t update, int32_t gradient)
{
    td_graph *graph = plan->graph;
    const td_node *u = &graph->nodes[update], *g = &graph->nodes[gradient];
    enum { TABLE, OUTPUT_GRADIENT, IDS, WEIGHTS, COEFFICIENTS, SLOTS };
    td_value inputs[SLOTS + TD_MAX_SLOTS];
    int32_t n_slots = u->n_inputs - 3;
    inputs[TABLE] = (td_value){graph, u->inputs[0]};
    inputs[OUTPUT_GRADIENT] = (td_value){graph, g->inputs[1]};
    inputs[IDS] = (td_value){graph, g->inputs[0]};
    inputs[WEIGHTS] = (td_value){graph, g->n_inputs > 2 ? g->inputs[2] : -1};
    inputs[COEFFICIENTS] = (td_value){graph, u->inputs[2]};
    for (int32_t i = 0; i < n_slots; i++)
        inputs[SLOTS + i] = (td_value){graph, u->inputs[3 + i]};
    const td_attr attrs[] = {TD_STRING("rule", u->op->name),
                             TD_STRING("pooling", td_attr_string(g->attrs, g->n_attrs, "pooling", "none")),
                             TD_INT("offset", td_attr_int(g->attrs, g->n_attrs, "offset", 0)),
                             TD_INT("rounding", td_attr_int(u->attrs, u->n_attrs, "rounding", 0))};
    char *name = td_format("%s_rows", u->name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a fused update");
    td_graph_add(graph, "embedding_update", name, inputs, SLOTS + n_slots, attrs, 4, NULL, 0);
    td_free(name);
    return graph->failed ? td_graph_check(graph) : NULL;
}

/* ---- tables that several lookups share --------------------------------------------------------------------------------------- */

/* The gradients that `value`, a sum of row-sparse gradients from left to right, is made of, in order; and the nodes of the
 * sum. Returns how many gradients, 0 where one of them has another reader or another maker. */
static int32_t terms_of(const td_graph *graph, const int32_t *uses, int32_t value, int32_t *terms, int32_t *sums)
{
    int32_t n = 0, n_sums = 0;
    for (;;) {
        int32_t producer = graph->values[value].producer;
        const td_node *node = producer >= 0 ? &graph->nodes[producer] : NULL;
        if (!node || uses[value] != 1)
            return 0;
        if (is_lookup_gradient(node)) {
            terms[n++] = producer;
            break;
        }
        int32_t right = strcmp(node->op->name, "row_sparse_add") == 0 ? node->inputs[1] : -1;
        int32_t maker = right >= 0 ? graph->values[right].producer : -1;
        if (maker < 0 || uses[right] != 1 || !is_lookup_gradient(&graph->nodes[maker]))
            return 0;
        terms[n++] = maker;
        sums[n_sums++] = producer;
        value = node->inputs[0];
    }
    for (int32_t i = 0; i < n / 2; i++) { /* found from the last to the first */
        int32_t other = terms[i];
        terms[i] = terms[n - 1 - i];
        terms[n - 1 - i] = other;
    }
    sums[n_sums] = -1;
    return n;
}

enum { PART_TABLE, PART_GRADIENT, PART_IDS, PART_WEIGHTS, PART_COEFFICIENTS, PART_STATES };
enum { PART_INPUTS = PART_STATES + TD_MAX_SLOTS };

/* The arrays of an embedding_updates node in the making, in one allocation each. */
typedef struct shared_update {
    td_value *inputs;
    int64_t *numbers; /* pooling, offset, column, table, rounding */
    td_string names;
    char *name, *text;
} shared_update;

static td_status *fill_shared(const td_graph *graph, const td_node *u, const int32_t *terms, int32_t n,
                              shared_update *out)
{
    TD_TRY(TD_NEW(out->inputs, n * PART_INPUTS));
    TD_TRY(TD_NEW(out->numbers, 5 * n));
    for (int32_t i = 0; i < n; i++) {
        const td_node *g = &graph->nodes[terms[i]];
        const char *pooling = td_attr_string(g->attrs, g->n_attrs, "pooling", "none");
        td_value *inputs = &out->inputs[i * PART_INPUTS];
        for (int32_t k = 0; k < PART_INPUTS; k++)
            inputs[k] = (td_value){(td_graph *)(uintptr_t)graph, -1};
        inputs[PART_TABLE].id = u->inputs[0];
        inputs[PART_GRADIENT].id = g->inputs[1];
        inputs[PART_IDS].id = g->inputs[0];
        inputs[PART_WEIGHTS].id = g->n_inputs > 2 ? g->inputs[2] : -1;
        inputs[PART_COEFFICIENTS].id = u->inputs[2];
        for (int32_t s = 3; s < u->n_inputs; s++)
            inputs[PART_STATES + s - 3].id = u->inputs[s];
        out->numbers[i] = strcmp(pooling, "none") == 0 ? 0 : strcmp(pooling, "mean") == 0 ? 2 : 1;
        out->numbers[n + i] = td_attr_int(g->attrs, g->n_attrs, "offset", 0);
        out->numbers[4 * n + i] = td_attr_int(u->attrs, u->n_attrs, "rounding", 0);
        td_string_format(&out->names, "%s%s", i ? " " : "", g->forward >= 0 ? graph->nodes[g->forward].name : g->name);
    }
    TD_TRY(td_string_finish(&out->names, &out->text));
    out->name = td_format("%s_rows", u->name);
    return out->name ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a fused update");
}

static td_status *fuse_shared(td_plan *plan, int32_t update, const int32_t *terms, int32_t n)
{
    td_graph *graph = plan->graph;
    shared_update s = {0};
    td_status *status = fill_shared(graph, &graph->nodes[update], terms, n, &s);
    if (!status) {
        const td_attr attrs[] = {TD_STRING("rule", graph->nodes[update].op->name),
                                 TD_INTS("pooling", s.numbers, n),
                                 TD_INTS("offset", s.numbers + n, n),
                                 TD_INTS("column", s.numbers + 2 * n, n),
                                 TD_INTS("table", s.numbers + 3 * n, n),
                                 TD_INTS("rounding", s.numbers + 4 * n, n),
                                 TD_STRING("names", s.text)};
        td_graph_add(graph, "embedding_updates", s.name, s.inputs, n * PART_INPUTS, attrs, 7, NULL, 0);
        status = graph->failed ? td_graph_check(graph) : NULL;
    }
    td_string_deinit(&s.names);
    td_free(s.inputs);
    td_free(s.numbers);
    td_free(s.name);
    td_free(s.text);
    return status;
}

/* `work`: room for two lists of nodes. */
static td_status *fuse_sum(td_plan *plan, const int32_t *uses, int32_t update, bool *replaced, int32_t *work,
                           int64_t n_nodes)
{
    int32_t *terms = work, *sums = work + n_nodes + 1;
    int32_t n = terms_of(plan->graph, uses, plan->graph->nodes[update].inputs[1], terms, sums);
    if (n < 2)
        return NULL;
    TD_TRY(fuse_shared(plan, update, terms, n));
    replaced[update] = true;
    for (int32_t i = 0; i < n; i++)
        replaced[terms[i]] = true;
    for (int32_t i = 0; sums[i] >= 0; i++)
        replaced[sums[i]] = true;
    return NULL;
}

static td_status *fuse_all(td_plan *plan, const td_plan_request *request, bool *replaced, int64_t n_nodes)
{
    int32_t *uses = NULL, *work = NULL;
    TD_TRY(count_uses(plan->graph, &uses));
    td_fuse_linear(plan, request, uses, replaced);
    td_status *status = TD_NEW(work, 2 * (n_nodes + 1));
    for (int32_t n = 0; n < n_nodes && !status; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (node->phase != TD_UPDATE || node->n_inputs < 3 || node->inputs[1] < 0)
            continue;
        int32_t gradient = plan->graph->values[node->inputs[1]].producer;
        if (gradient < 0 || uses[node->inputs[1]] != 1)
            continue;
        if (!is_lookup_gradient(&plan->graph->nodes[gradient])) {
            status = fuse_sum(plan, uses, n, replaced, work, n_nodes);
            continue;
        }
        status = fuse(plan, n, gradient);
        replaced[n] = replaced[gradient] = true;
    }
    td_free(work);
    td_free(uses);
    return status;
}

/* ---- dropping ------------------------------------------------------------------------------------------------------------------ */

static bool is_root(const td_plan *plan, const td_node *node)
{
    for (int32_t i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] == plan->loss)
            return true;
        for (int32_t k = 0; k < plan->n_outputs; k++)
            if (plan->outputs[k] == node->outputs[i])
                return true;
    }
    return node->phase == TD_UPDATE || (plan->training && node->host_function);
}

static td_status *mark_needed(const td_plan *plan, const bool *replaced, bool *keep, bool *keep_value)
{
    const td_graph *graph = plan->graph;
    int32_t *order = NULL;
    for (int32_t i = 0; i < plan->n_outputs; i++)
        keep_value[plan->outputs[i]] = true;
    for (int64_t v = 0; v < graph->n_values; v++)
        keep_value[v] = keep_value[v] || v == plan->seed || v == plan->random;
    TD_TRY(TD_NEW(order, graph->n_nodes + 1));
    int64_t n_stack = 0;
    for (int32_t n = 0; n < graph->n_nodes; n++)
        if (!replaced[n] && is_root(plan, &graph->nodes[n])) {
            keep[n] = true;
            order[n_stack++] = n;
        }
    while (n_stack) {
        const td_node *node = &graph->nodes[order[--n_stack]];
        for (int32_t i = 0; i < node->n_outputs; i++)
            keep_value[node->outputs[i]] = true;
        for (int32_t i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i] < 0)
                continue;
            keep_value[node->inputs[i]] = true;
            int32_t producer = graph->values[node->inputs[i]].producer;
            if (producer >= 0 && !keep[producer]) {
                keep[producer] = true;
                order[n_stack++] = producer;
            }
        }
    }
    td_free(order);
    return NULL;
}

td_status *td_pass_optimize(td_plan *plan, const td_plan_request *request)
{
    td_graph *graph = plan->graph;
    td_status *status = NULL;
    bool *replaced = NULL, *keep = NULL, *keep_value = NULL;
    int32_t *map = NULL;
    int64_t n_nodes = graph->n_nodes;
    plan->random = td_graph_find(graph, "step.random").id;
    graph->phase = TD_UPDATE;
    TD_TRY_OR(status, done, TD_NEW(replaced, 2 * n_nodes + 1)); /* every node may get one fused successor */
    TD_TRY_OR(status, done, fuse_all(plan, request, replaced, n_nodes));
    TD_TRY_OR(status, done, TD_NEW(keep, graph->n_nodes + 1));
    TD_TRY_OR(status, done, TD_NEW(keep_value, graph->n_values + 1));
    TD_TRY_OR(status, done, mark_needed(plan, replaced, keep, keep_value));
    TD_TRY_OR(status, done, td_graph_prune(graph, keep, keep_value, &map));
    td_plan_renumber(plan, map);
    td_free(plan->gradients); /* by old numbers; nothing after this pass asks */
    plan->gradients = NULL;
    plan->n_gradients = 0;
done:
    td_free(replaced);
    td_free(keep);
    td_free(keep_value);
    td_free(map);
    return status;
}
