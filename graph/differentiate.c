/* Reverse-mode differentiation inside the graph: adds, for every node between a trainable parameter and the loss, the
 * nodes of its gradient. Where a value has several consumers, their contributions are summed in the order of the
 * consumers' names, so the result does not depend on the order in which the user built the graph. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"
#include "tandem/ops.h"

typedef struct contribution {
    int32_t value;    /* of which value this is a gradient */
    int32_t consumer; /* node it came from */
    int32_t input;
    int32_t gradient; /* value id */
    int32_t next;     /* of the same value, or -1 */
} contribution;

typedef struct tape {
    td_graph *graph;
    int32_t n_values, n_nodes; /* of the forward graph */
    bool *depends;             /* value depends on a trainable parameter */
    int32_t *head;             /* contributions of a value, or -1 */
    contribution *items;
    int64_t n_items, capacity;
    int32_t *gradient; /* of a value, once summed; -1 */
} tape;

static bool is_differentiable(const td_value_info *info)
{
    bool real = info->dtype == TD_F32 || info->dtype == TD_F16 || info->dtype == TD_BF16 || info->dtype == TD_F64;
    return real && info->kind != TD_SCALAR;
}

static bool is_trainable(const td_value_info *info)
{
    return info->class == TD_CLASS_PARAMETER && !info->frozen;
}

static bool carries(const tape *t, const td_node *node, int32_t input)
{
    int32_t value = node->inputs[input];
    return value >= 0 && !(td_node_port(node, input)->flags & TD_PORT_NO_GRADIENT) && t->depends[value];
}

/* ---- which values matter ---------------------------------------------------------------------------------------------------- */

static void mark(tape *t, const int32_t *order)
{
    const td_graph *graph = t->graph;
    for (int32_t v = 0; v < t->n_values; v++)
        t->depends[v] = is_trainable(&graph->values[v]);
    for (int32_t k = 0; k < t->n_nodes; k++) {
        const td_node *node = &graph->nodes[order[k]];
        bool any = false;
        for (int32_t i = 0; i < node->n_inputs; i++)
            any = any || carries(t, node, i);
        for (int32_t i = 0; i < node->n_outputs; i++)
            t->depends[node->outputs[i]] = any && is_differentiable(&graph->values[node->outputs[i]]);
    }
}

/* ---- summing ------------------------------------------------------------------------------------------------------------------ */

static td_status *contribute(tape *t, int32_t value, int32_t consumer, int32_t input, int32_t gradient)
{
    TD_TRY(td_grow(&t->items, &t->capacity, t->n_items, sizeof *t->items));
    t->items[t->n_items] = (contribution){value, consumer, input, gradient, t->head[value]};
    t->head[value] = (int32_t)t->n_items++;
    return NULL;
}

static int compare_consumers(const void *a, const void *b, void *context)
{
    const tape *t = context;
    const contribution *x = &t->items[*(const int32_t *)a], *y = &t->items[*(const int32_t *)b];
    int order = strcmp(t->graph->nodes[x->consumer].name, t->graph->nodes[y->consumer].name);
    return order ? order : (x->input > y->input) - (x->input < y->input);
}

/* Gradients of a 16-bit value, of which some are f32: all in f32. Their sum is rounded once, by whoever asked for it. */
static void widen_terms(td_value *terms, int32_t n, bool always)
{
    bool differ = always;
    for (int32_t i = 1; i < n; i++)
        differ = differ || td_value_dtype(terms[i]) != td_value_dtype(terms[0]);
    for (int32_t i = 0; differ && i < n; i++)
        if (td_value_dtype(terms[i]) != TD_F32)
            terms[i] = td_cast(terms[i], TD_F32);
}

/* Dense ones first in one sum, then row-sparse ones are folded, then both are put together. `terms` in consumer order. */
static td_value sum_terms(tape *t, const char *name, const td_value *terms, int32_t n, td_value *dense)
{
    td_graph *graph = t->graph;
    int32_t n_dense = 0;
    td_value sparse = {graph, -1}, pair[2];
    for (int32_t i = 0; i < n; i++) {
        if (td_value_kind(terms[i]) != TD_ROW_SPARSE) {
            dense[n_dense++] = terms[i];
        } else if (sparse.id < 0) {
            sparse = terms[i];
        } else {
            pair[0] = sparse;
            pair[1] = terms[i];
            sparse = td_graph_add1(graph, "row_sparse_add", NULL, pair, 2, NULL, 0);
        }
    }
    if (!n_dense)
        return sparse;
    widen_terms(dense, n_dense, sparse.id >= 0);
    td_value sum = n_dense > 1 ? td_graph_add1(graph, "add_n", name, dense, n_dense, NULL, 0) : dense[0];
    if (sparse.id < 0)
        return sum;
    pair[0] = sum;
    pair[1] = sparse;
    return td_graph_add1(graph, "row_sparse_add_dense", NULL, pair, 2, NULL, 0);
}

/* A dense gradient in f32 of a 16-bit value becomes its dtype. */
static td_value rounded_to(td_value gradient, td_dtype dtype)
{
    const td_dtype found = td_value_dtype(gradient);
    const bool narrows = found == TD_F32 && (dtype == TD_BF16 || dtype == TD_F16);
    return narrows && td_value_kind(gradient) == TD_DENSE ? td_cast(gradient, dtype) : gradient;
}

/* The gradient of a value from its contributions: *out is its id, -1 when nothing flows into it. */
static td_status *resolve(tape *t, int32_t value, int32_t *out)
{
    int32_t n = 0, *items = NULL;
    td_value *terms = NULL;
    td_status *status = NULL;
    *out = -1;
    for (int32_t i = t->head[value]; i >= 0; i = t->items[i].next)
        n++;
    if (n == 0)
        return NULL;
    TD_TRY_OR(status, done, TD_NEW(items, n));
    TD_TRY_OR(status, done, TD_NEW(terms, 2 * n));
    n = 0;
    for (int32_t i = t->head[value]; i >= 0; i = t->items[i].next)
        items[n++] = i;
    qsort_r(items, (size_t)n, sizeof *items, compare_consumers, t);
    for (int32_t i = 0; i < n; i++)
        terms[i] = (td_value){t->graph, t->items[items[i]].gradient};
    char *name = td_format("%s/gradient_sum", t->graph->values[value].name);
    if (!name)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a gradient's name");
    else
        *out = rounded_to(sum_terms(t, name, terms, n, terms + n), td_value_dtype((td_value){t->graph, value})).id;
    td_free(name);
done:
    td_free(items);
    td_free(terms);
    return status;
}

/* ---- one node --------------------------------------------------------------------------------------------------------------------- */

static td_status *refuse(const td_node *node)
{
    return TD_ERROR(TD_UNSUPPORTED,
                    "%s \"%s\" has no gradient (%s), but the loss depends on trained parameters through it; "
                    "freeze them or take another op",
                    node->op->name, node->name, node->op->no_gradient ? node->op->no_gradient : "none is defined");
}

/* Storage for one call of op.gradient. */
typedef struct call {
    td_value *inputs, *outputs, *output_gradients, *input_gradients;
    bool *wanted;
} call;

static td_status *fill_call(tape *t, int32_t id, call *c, bool *out_any)
{
    const td_node *node = &t->graph->nodes[id];
    for (int32_t i = 0; i < node->n_outputs; i++) {
        int32_t value = node->outputs[i];
        c->outputs[i] = (td_value){t->graph, value};
        int32_t gradient = t->gradient[value];
        if (gradient < 0)
            TD_TRY(resolve(t, value, &gradient));
        t->gradient[value] = gradient;
        c->output_gradients[i] = (td_value){t->graph, gradient};
        *out_any = *out_any || gradient >= 0;
        node = &t->graph->nodes[id]; /* adding nodes moves the array */
    }
    bool wants = false;
    for (int32_t i = 0; i < node->n_inputs; i++) {
        c->inputs[i] = (td_value){t->graph, node->inputs[i]};
        c->input_gradients[i] = (td_value){t->graph, -1};
        c->wanted[i] = carries(t, node, i);
        wants = wants || c->wanted[i];
    }
    *out_any = *out_any && wants;
    return NULL;
}

static td_status *run_gradient(tape *t, int32_t id, call *c)
{
    bool any = false;
    TD_TRY(fill_call(t, id, c, &any));
    const td_node node = t->graph->nodes[id];
    if (!any || t->graph->failed)
        return NULL;
    if (!node.op->gradient)
        return refuse(&node);
    td_differentiate d = {.graph = t->graph,
                          .node = id,
                          .name = node.name,
                          .attrs = node.attrs,
                          .inputs = c->inputs,
                          .outputs = c->outputs,
                          .output_gradients = c->output_gradients,
                          .input_gradients = c->input_gradients,
                          .wanted = c->wanted,
                          .n_attrs = node.n_attrs,
                          .n_inputs = node.n_inputs,
                          .n_outputs = node.n_outputs};
    TD_TRY(node.op->gradient(&d));
    for (int32_t i = 0; i < node.n_inputs; i++)
        if (c->wanted[i] && c->input_gradients[i].id >= 0)
            TD_TRY(contribute(t, node.inputs[i], id, i, c->input_gradients[i].id));
    return NULL;
}

static td_status *differentiate_node(tape *t, int32_t id)
{
    td_graph *graph = t->graph;
    int32_t n_in = graph->nodes[id].n_inputs + 1, n_out = graph->nodes[id].n_outputs + 1;
    call c = {0};
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(c.inputs, n_in));
    TD_TRY_OR(status, done, TD_NEW(c.input_gradients, n_in));
    TD_TRY_OR(status, done, TD_NEW(c.wanted, n_in));
    TD_TRY_OR(status, done, TD_NEW(c.outputs, n_out));
    TD_TRY_OR(status, done, TD_NEW(c.output_gradients, n_out));
    graph->differentiating = id;
    status = run_gradient(t, id, &c);
done:
    td_free(c.inputs);
    td_free(c.input_gradients);
    td_free(c.wanted);
    td_free(c.outputs);
    td_free(c.output_gradients);
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------------- */

static td_status *check_loss(const td_graph *graph, td_value loss)
{
    if (loss.id < 0 || loss.graph != graph)
        return TD_ERROR(TD_INVALID_ARGUMENT, "the loss is not a value of this graph");
    const td_value_info *info = &graph->values[loss.id];
    td_dim elements;
    if (info->kind != TD_DENSE || info->dtype != TD_F32 || !td_shape_elements(&info->shape, &elements) ||
        !td_dim_is(elements, 1))
        return TD_ERROR(TD_INVALID_ARGUMENT, "the loss \"%s\" must be one f32 number", info->name);
    return NULL;
}

static td_status *parameter_gradients(tape *t, td_value loss, int32_t *gradients)
{
    td_graph *graph = t->graph;
    for (int32_t v = 0; v < t->n_values && !graph->failed; v++) {
        gradients[v] = -1;
        if (!is_trainable(&graph->values[v]))
            continue;
        TD_TRY(resolve(t, v, &gradients[v]));
        if (graph->failed)
            break;
        if (gradients[v] < 0)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "parameter \"%s\" has no gradient path to the loss \"%s\": use it, or "
                            "freeze it (td_freeze, or frozen: true in its optimizer group)",
                            graph->values[v].name, graph->values[loss.id].name);
        graph->values[gradients[v]].parameter = v;
    }
    return NULL;
}

/* The seed, as the op that makes the loss takes it: itself, or a dense value of the scalar it is. */
static td_value loss_gradient(td_graph *graph, td_value loss, td_value seed)
{
    int32_t producer = graph->values[loss.id].producer;
    if (producer < 0 || td_value_kind(seed) != TD_SCALAR || graph->nodes[producer].op->flags & TD_OP_LOSS)
        return seed;
    td_attr rank = TD_INT("rank", graph->values[loss.id].shape.rank);
    graph->differentiating = producer;
    return td_graph_add1(graph, "from_scalar", NULL, &seed, 1, &rank, 1);
}

static td_status *run_tape(tape *t, td_value loss, td_value seed, const int32_t *order, int32_t *gradients)
{
    td_graph *graph = t->graph;
    mark(t, order);
    t->gradient[loss.id] = loss_gradient(graph, loss, seed).id;
    for (int32_t k = t->n_nodes - 1; k >= 0 && !graph->failed; k--)
        TD_TRY(differentiate_node(t, order[k]));
    graph->differentiating = -1;
    TD_TRY(parameter_gradients(t, loss, gradients));
    return graph->failed ? td_graph_check(graph) : NULL;
}

td_status *td_graph_differentiate(td_graph *graph, td_value loss, td_value seed, int32_t **out_gradients)
{
    td_status *status = NULL;
    int32_t *order = NULL, *gradients = NULL;
    *out_gradients = NULL;
    TD_TRY(td_graph_check(graph));
    TD_TRY(check_loss(graph, loss));
    tape t = {.graph = graph, .n_values = (int32_t)graph->n_values, .n_nodes = (int32_t)graph->n_nodes};
    TD_TRY_OR(status, done, td_graph_order(graph, &order));
    TD_TRY_OR(status, done, TD_NEW(gradients, t.n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(t.depends, t.n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(t.head, t.n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(t.gradient, t.n_values + 1));
    memset(t.head, 0xff, (size_t)t.n_values * sizeof *t.head);
    memset(t.gradient, 0xff, (size_t)t.n_values * sizeof *t.gradient);
    graph->phase = TD_BACKWARD;
    status = run_tape(&t, loss, seed, order, gradients);
    graph->phase = TD_FORWARD;
    graph->differentiating = -1;
    if (!status) {
        *out_gradients = gradients;
        gradients = NULL;
    }
done:
    td_free(order);
    td_free(gradients);
    td_free(t.depends);
    td_free(t.head);
    td_free(t.gradient);
    td_free(t.items);
    return status;
}
