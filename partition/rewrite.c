/* The sweep of the rules over a graph, and what they share: see rewrite.h. */
#include "partition/rewrite.h"

#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "graph/ops/elements.h"

static const td_rewrite rules[] = {
#define TD_REWRITE(name, level, summary) {#name, level, summary, td_rewrite_##name},
#define TD_REWRITE_PLACED(name, level, summary) {#name, level, summary, NULL},
#include "partition/rewrites/rewrites.def"
#undef TD_REWRITE
#undef TD_REWRITE_PLACED
};
enum { N_RULES = sizeof rules / sizeof *rules };

const td_rewrite *td_rewrites(int32_t *out_n)
{
    *out_n = N_RULES;
    return rules;
}

const td_rewrite *td_rewrite_of(int32_t rule)
{
    static const td_rewrite by_offload = {
        "offloaded_update", TD_O0,
        "an offloaded update widens, sums and clips its gradient and copies its parameter out in one pass", NULL};
    return rule == TD_BY_OFFLOAD ? &by_offload : &rules[rule];
}

/* ---- room ---------------------------------------------------------------------------------------------------------------- */

static td_status *grow(void *array_pointer, int64_t from, int64_t to, size_t size)
{
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    array = td_realloc(array, (size_t)to, size);
    if (!array)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for rewriting a graph");
    memset((char *)array + (size_t)from * size, 0, (size_t)(to - from) * size);
    memcpy(array_pointer, &array, sizeof array);
    return NULL;
}

td_status *td_rewriter_follow(td_rewriter *r)
{
    int64_t values = r->graph->n_values, nodes = r->graph->n_nodes;
    if (values > r->values_room) {
        int64_t room = values + values / 2 + 16;
        TD_TRY(grow(&r->same, r->values_room, room, sizeof *r->same));
        TD_TRY(grow(&r->uses, r->values_room, room, sizeof *r->uses));
        for (int64_t v = r->values_room; v < room; v++)
            r->same[v] = (int32_t)v;
        r->values_room = room;
    }
    if (nodes > r->nodes_room) {
        int64_t room = nodes + nodes / 2 + 16;
        TD_TRY(grow(&r->gone, r->nodes_room, room, sizeof *r->gone));
        TD_TRY(grow(&r->into, r->nodes_room, room, sizeof *r->into));
        for (int64_t n = r->nodes_room; n < room; n++)
            r->into[n] = -1;
        r->nodes_room = room;
    }
    return NULL;
}

/* ---- looking ------------------------------------------------------------------------------------------------------------- */

bool td_rewrite_is(const td_rewriter *r, int32_t node, const char *op)
{
    return strcmp(r->graph->nodes[node].op->name, op) == 0;
}

bool td_rewrite_is_lookup_gradient(const td_rewriter *r, int32_t node)
{
    return td_rewrite_is(r, node, "embedding_gradient") || td_rewrite_is(r, node, "embedding_bag_gradient");
}

void td_rewrite_count_inputs(td_rewriter *r, int32_t node)
{
    const td_node *n = &r->graph->nodes[node];
    for (int32_t i = 0; i < n->n_inputs; i++)
        if (n->inputs[i] >= 0)
            r->uses[n->inputs[i]]++;
}

const td_node *td_rewrite_maker(const td_rewriter *r, int32_t value)
{
    int32_t producer = value < 0 ? -1 : r->graph->values[value].producer;
    return producer < 0 ? NULL : &r->graph->nodes[producer];
}

bool td_rewrite_same_type(const td_rewriter *r, int32_t a, int32_t b)
{
    const td_value_info *x = &r->graph->values[a], *y = &r->graph->values[b];
    return x->kind == y->kind && x->dtype == y->dtype && td_shape_equal(&x->shape, &y->shape) &&
           td_dim_equal(x->entries, y->entries);
}

bool td_rewrite_constant(const td_rewriter *r, int32_t value, float *out_number)
{
    const td_node *maker = td_rewrite_maker(r, value);
    *out_number = 0;
    if (!maker || !td_dtype_is_float(r->graph->values[value].dtype) || r->graph->values[value].dtype == TD_F64)
        return false;
    if (strcmp(maker->op->name, "constant") == 0)
        *out_number = (float)td_attr_float(maker->attrs, maker->n_attrs, "value", 0);
    else if (strcmp(maker->op->name, "ones") == 0)
        *out_number = 1;
    else if (strcmp(maker->op->name, "zeros_like") != 0)
        return false;
    return true;
}

/* What the user says about where a node runs: its target, else the first rule that matches its name (of a backward node: or
 * that of the op it differentiates; of a lookup: or that of its table). */
typedef struct place {
    const char *target;
    const td_option_entry *rule;
} place;

static const td_option_entry *rule_of(const td_rewriter *r, const char *name)
{
    const td_option_list *placements = &r->request->options->placements;
    for (int64_t i = 0; i < placements->n; i++)
        if (td_glob_match(placements->items[i].match, name))
            return &placements->items[i];
    return NULL;
}

static place place_of(const td_rewriter *r, int32_t id)
{
    const td_node *node = &r->graph->nodes[id];
    place p = {node->target, rule_of(r, node->name)};
    if (node->forward >= 0 && !p.rule)
        return place_of(r, node->forward);
    if (!p.target && !p.rule && td_op_is_lookup(node->op))
        p.rule = rule_of(r, r->graph->values[node->inputs[0]].name);
    return p;
}

bool td_rewrite_same_place(const td_rewriter *r, int32_t a, int32_t b)
{
    place x = place_of(r, a), y = place_of(r, b);
    bool same_target = x.target && y.target ? strcmp(x.target, y.target) == 0 : x.target == y.target;
    return same_target && x.rule == y.rule;
}

/* ---- changing ------------------------------------------------------------------------------------------------------------- */

/* `into`: the name of what has its work or its value now. */
static td_status *remove_node(td_rewriter *r, int32_t old, int32_t node, const char *into)
{
    const td_node *o = &r->graph->nodes[old];
    r->gone[old] = true;
    r->into[old] = node;
    for (int32_t i = 0; i < o->n_inputs; i++)
        if (o->inputs[i] >= 0)
            r->uses[o->inputs[i]]--;
    return td_plan_note_rewrite(r->plan, r->rule, o, into);
}

td_status *td_rewrite_replace(td_rewriter *r, int32_t old, int32_t node)
{
    return remove_node(r, old, node, r->graph->nodes[node].name);
}

td_status *td_rewrite_as(td_rewriter *r, int32_t node, int32_t value, bool *out_changed)
{
    td_node *n = &r->graph->nodes[node];
    int32_t output = n->outputs[0];
    if (n->n_outputs != 1 || output == value || !td_rewrite_same_type(r, output, value))
        return NULL;
    r->same[output] = value;
    r->uses[value] += r->uses[output];
    TD_TRY(remove_node(r, node, r->graph->values[value].producer, r->graph->values[value].name));
    *out_changed = true;
    return NULL;
}

static void free_attrs(td_attr *attrs, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        td_attr_deinit(&attrs[i]);
    td_free(attrs);
}

td_status *td_rewrite_turn(td_rewriter *r, int32_t node, const char *op, const int32_t *inputs, int32_t n_inputs,
                           const td_attr *attrs, int32_t n_attrs)
{
    td_node *n = &r->graph->nodes[node];
    int32_t *new_inputs = NULL, copied = 0;
    td_attr *new_attrs = NULL;
    td_status *status = NULL;
    const td_op *turned = td_op_find(op);
    TD_TRY_OR(status, failed, TD_NEW(new_inputs, n_inputs + 1));
    TD_TRY_OR(status, failed, TD_NEW(new_attrs, n_attrs + 1));
    while (copied < n_attrs) {
        TD_TRY_OR(status, failed, td_attr_copy(&new_attrs[copied], &attrs[copied]));
        copied++;
    }
    TD_TRY_OR(status, failed, td_plan_note_rewrite(r->plan, r->rule, n, n->name));
    for (int32_t i = 0; i < n->n_inputs; i++)
        if (n->inputs[i] >= 0)
            r->uses[n->inputs[i]]--;
    for (int32_t i = 0; i < n_inputs; i++) {
        new_inputs[i] = inputs[i];
        if (inputs[i] >= 0)
            r->uses[inputs[i]]++;
    }
    free_attrs(n->attrs, n->n_attrs);
    td_free(n->inputs);
    n->op = turned;
    n->inputs = new_inputs;
    n->n_inputs = n_inputs;
    n->attrs = new_attrs;
    n->n_attrs = n_attrs;
    return NULL;
failed:
    if (new_attrs)
        free_attrs(new_attrs, copied < n_attrs ? copied + 1 : n_attrs);
    td_free(new_inputs);
    return status;
}
