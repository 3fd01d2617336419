/* Rule: an op whose inputs are all fixed by the graph, each one number in every element, is such a number itself. It is found
 * by the op's own reference kernel on single elements, so it is what the op would have computed. */
#include "graph/ops/elements.h"
#include "graph/ops/rules.h"
#include "partition/rewrite.h"

#include <math.h>
#include <string.h>

enum { MOST_INPUTS = 8 };

/* Ops that give equal elements for equal elements; `moves`: they only move them, whatever their shapes. */
static bool is_uniform(const char *op, bool *out_moves)
{
    static const char *const computing[] = {"scale", "relu", "gelu", "sigmoid", "tanh", "add",
                                            "sub",   "mul",  "div",  "add_n",   "cast"};
    static const char *const moving[] = {"reshape", "transpose", "slice", "copy"};
    *out_moves = false;
    for (size_t i = 0; i < sizeof computing / sizeof *computing; i++)
        if (strcmp(op, computing[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof moving / sizeof *moving; i++)
        *out_moves = *out_moves || strcmp(op, moving[i]) == 0;
    return *out_moves;
}

/* One element of each argument. */
typedef struct single {
    td_tensor tensors[MOST_INPUTS + 1];
    double bytes[MOST_INPUTS + 1];
} single;

static td_tensor *element(single *s, int32_t index, td_dtype dtype, float number)
{
    s->tensors[index] = (td_tensor){.kind = TD_DENSE, .dtype = dtype, .rank = 1, .dims = {1}, .data = &s->bytes[index]};
    td_set_f32(&s->tensors[index], 0, number);
    return &s->tensors[index];
}

static td_status *compute(const td_rewriter *r, const td_node *node, const float *numbers, float *out_number)
{
    single s = {0};
    for (int32_t i = 0; i < node->n_inputs; i++)
        (void)element(&s, i, r->graph->values[node->inputs[i]].dtype, numbers[i]);
    td_tensor *output = element(&s, MOST_INPUTS, r->graph->values[node->outputs[0]].dtype, 0);
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = node->op->name,
                           .name = node->name,
                           .attrs = node->attrs,
                           .inputs = s.tensors,
                           .outputs = output,
                           .n_attrs = node->n_attrs,
                           .n_inputs = node->n_inputs,
                           .n_outputs = 1};
    TD_TRY(node->op->reference(&call));
    *out_number = td_get_f32(output, 0);
    return NULL;
}

td_status *td_rewrite_constant_folding(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    float numbers[MOST_INPUTS], number = 0;
    bool moves = false;
    if (n->target || n->n_inputs < 1 || n->n_inputs > MOST_INPUTS || n->n_outputs != 1 ||
        !is_uniform(n->op->name, &moves))
        return NULL;
    for (int32_t i = 0; i < n->n_inputs; i++)
        if (n->inputs[i] < 0 || !td_rewrite_constant(r, n->inputs[i], &numbers[i]))
            return NULL;
    const td_value_info *output = &r->graph->values[n->outputs[0]];
    if (!(TD_FLOATS >> output->dtype & 1))
        return NULL;
    number = numbers[0];
    if (!moves)
        TD_TRY(compute(r, n, numbers, &number));
    if (isnan(number)) /* an attribute holds a number, not the bits of a NaN */
        return NULL;
    int64_t shape[3 * TD_MAX_RANK];
    const td_attr attrs[] = {td_shape_attr(&output->shape, shape), TD_STRING("dtype", td_dtype_name(output->dtype)),
                             TD_FLOAT("value", (double)number)};
    *out_changed = true;
    return td_rewrite_turn(r, node, "constant", NULL, 0, attrs, 3);
}
