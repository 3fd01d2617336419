/* The program of a fused_elementwise op, from the ops that it stands for: see fuse.h and base/fused.h. */
#include <string.h>

#include "base/fused.h"
#include "base/memory.h"
#include "partition/fuse.h"

static const struct {
    const char *op;
    td_fused_kind kind;
} kinds[] = {
    {"add", TD_FUSED_ADD},         {"sub", TD_FUSED_SUB},
    {"mul", TD_FUSED_MUL},         {"div", TD_FUSED_DIV},
    {"add_n", TD_FUSED_ADD},       {"scale", TD_FUSED_SCALE},
    {"scale_by", TD_FUSED_MUL},    {"cast", TD_FUSED_CAST},
    {"relu", TD_FUSED_RELU},       {"relu_gradient", TD_FUSED_RELU_GRADIENT},
    {"sigmoid", TD_FUSED_SIGMOID}, {"sigmoid_gradient", TD_FUSED_SIGMOID_GRADIENT},
    {"tanh", TD_FUSED_TANH},       {"tanh_gradient", TD_FUSED_TANH_GRADIENT},
    {"gelu", TD_FUSED_GELU_ERF},   {"gelu_gradient", TD_FUSED_GELU_ERF_GRADIENT},
};

static bool find_kind(const td_node *node, td_fused_kind *out_kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(node->op->name, kinds[i].op) != 0)
            continue;
        *out_kind = kinds[i].kind;
        bool tanh_form = strcmp(td_attr_string(node->attrs, node->n_attrs, "form", "erf"), "tanh") == 0;
        if (tanh_form && *out_kind == TD_FUSED_GELU_ERF)
            *out_kind = TD_FUSED_GELU_TANH;
        if (tanh_form && *out_kind == TD_FUSED_GELU_ERF_GRADIENT)
            *out_kind = TD_FUSED_GELU_TANH_GRADIENT;
        return true;
    }
    return false;
}

static bool is_float(const td_value_info *info)
{
    return info->kind == TD_DENSE && (info->dtype == TD_F32 || info->dtype == TD_F16 || info->dtype == TD_BF16);
}

/* As fused_elementwise's shape rule has it. */
static bool is_suitable_input(const td_value_info *in, const td_value_info *out)
{
    if (in->kind == TD_SCALAR)
        return in->dtype == TD_F32 && in->n_scalars == 1;
    int32_t skip = 0;
    while (skip < in->shape.rank && td_dim_is(in->shape.dims[skip], 1))
        skip++;
    int32_t axes = in->shape.rank - skip;
    if (!is_float(in) || axes > out->shape.rank)
        return false;
    for (int32_t i = 0; i < axes; i++)
        if (!td_dim_equal(in->shape.dims[skip + i], out->shape.dims[out->shape.rank - axes + i]))
            return false;
    return true;
}

int32_t td_fuse_instructions(const td_graph *graph, const td_node *node)
{
    td_fused_kind kind;
    if (!find_kind(node, &kind) || node->n_outputs != 1 || !is_float(&graph->values[node->outputs[0]]) ||
        node->n_inputs < 1)
        return 0;
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] < 0 ||
            !is_suitable_input(&graph->values[node->inputs[i]], &graph->values[node->outputs[0]]))
            return 0;
    return node->n_inputs > 2 ? node->n_inputs - 1 : 1; /* add_n: a sum after the other */
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const td_graph *graph;
    int32_t *index; /* of a value: its operand */
    int32_t inputs[TD_FUSED_MOST_INPUTS], n_inputs;
    td_fused_instruction code[TD_FUSED_MOST_INSTRUCTIONS];
    int32_t n;
} writer;

/* Inputs first: their numbers come before those of results. */
static void collect_inputs(writer *w, const int32_t *members, int32_t n)
{
    enum { MADE_INSIDE = -2 };
    for (int32_t m = 0; m < n; m++) {
        const td_node *node = &w->graph->nodes[members[m]];
        for (int32_t i = 0; i < node->n_inputs; i++) {
            int32_t value = node->inputs[i];
            if (w->index[value] != -1)
                continue;
            w->index[value] = w->n_inputs;
            w->inputs[w->n_inputs++] = value;
        }
        w->index[node->outputs[0]] = MADE_INSIDE;
    }
}

static void add_instruction(writer *w, td_fused_kind kind, int32_t a, int32_t b, float number, td_dtype dtype)
{
    w->code[w->n++] = (td_fused_instruction){(int32_t)kind, a, b, number, dtype};
}

static void write_node(writer *w, const td_node *node)
{
    td_fused_kind kind = TD_FUSED_ADD;
    (void)find_kind(node, &kind);
    td_dtype dtype = w->graph->values[node->outputs[0]].dtype;
    float number = (float)td_attr_float(node->attrs, node->n_attrs, "factor", 0);
    int32_t a = w->index[node->inputs[0]];
    if (node->n_inputs == 1 && strcmp(node->op->name, "add_n") == 0)
        kind = TD_FUSED_CAST;
    if (node->n_inputs == 1)
        add_instruction(w, kind, a, a, number, dtype);
    for (int32_t i = 1; i < node->n_inputs; i++) { /* a sum of several rounds once, at its end */
        bool last = i == node->n_inputs - 1;
        add_instruction(w, kind, a, w->index[node->inputs[i]], number, last ? dtype : TD_F32);
        a = w->n_inputs + w->n - 1;
    }
    w->index[node->outputs[0]] = w->n_inputs + w->n - 1;
}

static void forget(const writer *w, const int32_t *members, int32_t n)
{
    for (int32_t i = 0; i < w->n_inputs; i++)
        w->index[w->inputs[i]] = -1;
    for (int32_t m = 0; m < n; m++)
        w->index[w->graph->nodes[members[m]].outputs[0]] = -1;
}

/* The op, inputs and attributes of the fused node, as a node of its own: only these are filled. */
static td_status *make_parts(const writer *w, int32_t output, td_node *out)
{
    int64_t ints[TD_FUSED_MOST_INSTRUCTIONS * TD_FUSED_INTS], numbers[3 * TD_MAX_RANK];
    const td_shape *shape = &w->graph->values[output].shape;
    for (int32_t k = 0; k < w->n; k++)
        td_fused_write(&w->code[k], ints + (ptrdiff_t)k * TD_FUSED_INTS);
    for (int32_t i = 0; i < shape->rank; i++) {
        numbers[3 * i] = shape->dims[i].extent;
        numbers[3 * i + 1] = shape->dims[i].multiple;
        numbers[3 * i + 2] = shape->dims[i].constant;
    }
    const td_attr attrs[] = {TD_INTS("program", ints, w->n * TD_FUSED_INTS),
                             TD_INTS("shape", numbers, 3 * shape->rank)};
    out->op = td_op_find("fused_elementwise");
    TD_TRY(TD_NEW(out->inputs, w->n_inputs + 1));
    memcpy(out->inputs, w->inputs, (size_t)w->n_inputs * sizeof *out->inputs);
    out->n_inputs = w->n_inputs;
    TD_TRY(TD_NEW(out->attrs, 3));
    for (int32_t i = 0; i < 2; i++) {
        out->n_attrs++;
        TD_TRY(td_attr_copy(&out->attrs[i], &attrs[i]));
    }
    return NULL;
}

static void swap_parts(td_node *a, td_node *b)
{
    td_node was = *a;
    a->op = b->op;
    a->inputs = b->inputs;
    a->n_inputs = b->n_inputs;
    a->attrs = b->attrs;
    a->n_attrs = b->n_attrs;
    b->op = was.op;
    b->inputs = was.inputs;
    b->n_inputs = was.n_inputs;
    b->attrs = was.attrs;
    b->n_attrs = was.n_attrs;
}

td_status *td_fuse_members(td_plan *plan, const int32_t *members, int32_t n, int32_t *index, bool *out_fused)
{
    td_graph *graph = plan->graph;
    int32_t root = members[n - 1];
    char reason[160] = "";
    writer w = {.graph = graph, .index = index};
    td_node parts = {0};
    *out_fused = false;
    collect_inputs(&w, members, n);
    for (int32_t m = 0; m < n; m++)
        write_node(&w, &graph->nodes[members[m]]);
    forget(&w, members, n);
    td_status *status = make_parts(&w, graph->nodes[root].outputs[0], &parts);
    if (!status) {
        swap_parts(&graph->nodes[root], &parts);
        status =
            td_plan_supports(graph, &plan->sites[plan->nodes[root].device], root, out_fused, reason, sizeof reason);
        if (status || !*out_fused)
            swap_parts(&graph->nodes[root], &parts);
    }
    td_node_deinit(&parts);
    return status;
}
