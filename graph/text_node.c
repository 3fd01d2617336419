/* See text_node.h. The node is collected as a draft, added to the graph in one call, then compared with what the line says
 * about its outputs. */
#include "graph/text_node.h"

#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "graph/ops/rules.h"
#include "graph/text.h"
#include "graph/text_types.h"

enum { MOST_ATTRS = 64, MOST_INTS = 4096, MOST_OUTPUTS = 1 << 16 };

/* What the line says. */
typedef struct draft {
    const td_op *op;
    td_value *inputs;
    int64_t n_inputs, inputs_capacity;
    td_attr attrs[MOST_ATTRS]; /* keys are the schema's; strings and integers owned */
    int32_t n_attrs;
    char *target;
    td_phase phase;
    int32_t forward;
    td_type *types; /* stated after -> */
    int64_t n_types, types_capacity;
    size_t types_begin;
} draft;

static void draft_deinit(draft *d)
{
    for (int32_t i = 0; i < d->n_attrs; i++) {
        td_free((void *)(uintptr_t)d->attrs[i].s);
        td_free((void *)(uintptr_t)d->attrs[i].ints);
    }
    td_free(d->inputs);
    td_free(d->target);
    td_free(d->types);
}

/* ---- op and inputs ----------------------------------------------------------------------------------------------------- */

static td_status *parse_op(td_scanner *s, draft *d)
{
    char name[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_name(s, "an op", name, &begin));
    d->op = td_op_find(name);
    if (!d->op)
        return td_scan_error(s, begin, "there is no op \"%s\"; did you mean \"%s\"? (tandem ops lists them)", name,
                             td_op_nearest(name));
    if (strcmp(name, "host_call") == 0)
        return td_scan_error(s, begin, "a host_call cannot be loaded from text: its function is part of a program");
    return NULL;
}

static td_status *parse_inputs(td_scanner *s, td_graph *graph, draft *d)
{
    char name[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_expect(s, "("));
    if (td_scan_accept(s, ")"))
        return NULL;
    do {
        TD_TRY(td_scan_name(s, "a value's name, or - for none", name, &begin));
        td_value value = {graph, -1};
        if (strcmp(name, "-") != 0 || s->text[begin] == '"') {
            value = td_graph_find(graph, name);
            if (value.id < 0)
                return td_text_missing_value(s, begin, name);
        }
        TD_TRY(td_grow(&d->inputs, &d->inputs_capacity, d->n_inputs, sizeof *d->inputs));
        d->inputs[d->n_inputs++] = value;
    } while (td_scan_accept(s, ","));
    return td_scan_expect(s, ")");
}

/* ---- attributes ----------------------------------------------------------------------------------------------------------- */

static td_status *parse_flag(td_scanner *s, int64_t *out)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_name(s, "true or false", word, &begin));
    *out = strcmp(word, "true") == 0;
    return *out || strcmp(word, "false") == 0 ? NULL
                                              : td_scan_error(s, begin, "\"%s\" is neither true nor false", word);
}

static td_status *parse_string(td_scanner *s, td_attr *attr)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_name(s, "a string", word, &begin));
    attr->s = td_strdup(word);
    return attr->s ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an attribute");
}

static td_status *parse_ints(td_scanner *s, td_attr *attr)
{
    int64_t *ints = NULL, capacity = 0, n = 0;
    td_status *status = NULL;
    TD_TRY(td_scan_expect(s, "["));
    bool more = !td_scan_accept(s, "]");
    while (more && !status) {
        if (n == MOST_INTS)
            status = td_scan_error(s, s->at, "a list has at most %d numbers", MOST_INTS);
        if (!status)
            status = td_grow(&ints, &capacity, n, sizeof *ints);
        if (!status)
            status = td_scan_integer(s, &ints[n++]);
        more = !status && td_scan_accept(s, ",");
        if (!status && !more)
            status = td_scan_expect(s, "]");
    }
    attr->ints = ints;
    attr->n_ints = (int32_t)n;
    return status;
}

static td_status *parse_shape_attr(td_scanner *s, td_graph *graph, td_attr *attr)
{
    td_shape shape;
    int64_t *numbers = NULL;
    TD_TRY(td_parse_shape(s, graph, &shape));
    TD_TRY(TD_NEW(numbers, 3 * TD_MAX_RANK));
    const char *key = attr->key;
    *attr = td_shape_attr(&shape, numbers);
    attr->key = key;
    return NULL;
}

static td_status *parse_attr(td_scanner *s, td_graph *graph, draft *d, const char *key, size_t begin)
{
    const td_attr_spec *spec = d->op->attrs;
    while (spec && spec->name && strcmp(spec->name, key) != 0)
        spec++;
    if (!spec || !spec->name)
        return td_scan_error(s, begin, "%s has no attribute \"%s\" (tandem ops %s lists them)", d->op->name, key,
                             d->op->name);
    if (d->n_attrs == MOST_ATTRS)
        return td_scan_error(s, begin, "a node has at most %d attributes", MOST_ATTRS);
    td_attr *attr = &d->attrs[d->n_attrs++];
    *attr = (td_attr){.key = spec->name, .type = spec->type};
    switch (spec->type) {
    case TD_ATTR_INT:
        return td_scan_integer(s, &attr->i);
    case TD_ATTR_BOOL:
        return parse_flag(s, &attr->i);
    case TD_ATTR_FLOAT:
        return td_scan_real(s, &attr->f);
    case TD_ATTR_STRING:
        return parse_string(s, attr);
    case TD_ATTR_INTS:
        return strcmp(key, "shape") == 0 ? parse_shape_attr(s, graph, attr) : parse_ints(s, attr);
    }
    return NULL;
}

/* ---- what follows the attributes -------------------------------------------------------------------------------------------- */

static td_status *parse_target(td_scanner *s, draft *d)
{
    char name[TD_SCAN_NAME_BYTES];
    TD_TRY(td_scan_name(s, "a device", name, NULL));
    td_free(d->target);
    d->target = td_strdup(name);
    return d->target ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a target");
}

static td_status *parse_forward(td_scanner *s, const td_graph *graph, draft *d)
{
    char name[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_name(s, "an op's name", name, &begin));
    d->forward = td_name_map_get(&graph->node_names, name);
    return d->forward >= 0 ? NULL : td_scan_error(s, begin, "there is no op \"%s\" above this line", name);
}

static td_status *parse_mark(td_scanner *s, const td_graph *graph, draft *d, const char *word, size_t begin)
{
    if (strcmp(word, "on") == 0)
        return parse_target(s, d);
    if (strcmp(word, "of") == 0)
        return parse_forward(s, graph, d);
    if (strcmp(word, "backward") == 0)
        d->phase = TD_BACKWARD;
    else if (strcmp(word, "update") == 0)
        d->phase = TD_UPDATE;
    else
        return td_scan_error(
            s, begin, "found \"%s\", expected an attribute (key=value), \"on\", \"backward\", \"update\" or ->", word);
    return NULL;
}

static td_status *parse_types(td_scanner *s, td_graph *graph, draft *d)
{
    d->types_begin = s->at;
    do {
        TD_TRY(td_grow(&d->types, &d->types_capacity, d->n_types, sizeof *d->types));
        TD_TRY(td_parse_type(s, graph, &d->types[d->n_types]));
        d->n_types++;
    } while (td_scan_accept(s, ","));
    return NULL;
}

static td_status *parse_rest(td_scanner *s, td_graph *graph, draft *d)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    while (!td_scan_line_ended(s)) {
        if (td_scan_accept(s, "->"))
            return parse_types(s, graph, d);
        TD_TRY(td_scan_name(s, "an attribute or ->", word, &begin));
        if (td_scan_accept(s, "="))
            TD_TRY(parse_attr(s, graph, d, word, begin));
        else
            TD_TRY(parse_mark(s, graph, d, word, begin));
    }
    return NULL;
}

/* ---- adding -------------------------------------------------------------------------------------------------------------------- */

/* How many outputs the schema wants; the stated types must be as many. */
static td_status *count_outputs(td_scanner *s, const draft *d, size_t begin, int32_t *out)
{
    int64_t n = 0;
    while (n < 4 && d->op->outputs[n].name)
        n++;
    if (n && d->op->outputs[n - 1].flags & TD_PORT_VARIADIC) {
        const td_attr *outputs = td_attr_find(d->attrs, d->n_attrs, "outputs");
        n = outputs ? outputs->i : d->n_types;
    }
    if (n < 0 || n > MOST_OUTPUTS || (d->n_types && d->n_types != n))
        return td_scan_error(s, d->n_types ? d->types_begin : begin, "%s has %s here, and %s %s stated", d->op->name,
                             TD_COUNTED(n, "output"), TD_COUNTED(d->n_types, "type"), d->n_types == 1 ? "is" : "are");
    *out = (int32_t)n;
    return NULL;
}

static bool types_equal(const td_type *a, const td_value_info *b)
{
    bool counted = a->kind == TD_RAGGED || a->kind == TD_ROW_SPARSE;
    return a->kind == b->kind && a->dtype == b->dtype && td_shape_equal(&a->shape, &b->shape) &&
           (!counted || td_dim_equal(a->entries, b->entries));
}

static td_status *compare_types(td_scanner *s, const td_graph *graph, const draft *d, const td_node *node)
{
    for (int64_t i = 0; i < d->n_types; i++) {
        const td_value_info *value = &graph->values[node->outputs[i]];
        char stated[200], inferred[200];
        if (!types_equal(&d->types[i], value))
            return td_scan_error(
                s, d->types_begin, "output %lld of %s is %s %s, not %s %s", (long long)i, node->name,
                td_dtype_name(value->dtype), td_shape_text(graph, &value->shape, inferred, sizeof inferred),
                td_dtype_name(d->types[i].dtype), td_shape_text(graph, &d->types[i].shape, stated, sizeof stated));
    }
    return NULL;
}

static td_status *check_name(td_scanner *s, const td_graph *graph, const char *name, size_t begin)
{
    if (!name[0])
        return td_scan_error(s, begin, "an op needs a name that is not empty");
    if (td_name_map_get(&graph->node_names, name) >= 0 || td_name_map_get(&graph->value_names, name) >= 0)
        return td_scan_error(s, begin, "\"%s\" exists already: names are unique in a graph", name);
    return NULL;
}

static td_status *add_node(td_scanner *s, td_graph *graph, draft *d, const char *name, size_t begin)
{
    td_value *outputs = NULL;
    int32_t n_outputs = 0;
    TD_TRY(count_outputs(s, d, begin, &n_outputs));
    TD_TRY(check_name(s, graph, name, begin));
    TD_TRY(TD_NEW(outputs, n_outputs + 1));
    graph->phase = d->phase;
    graph->differentiating = d->forward;
    td_graph_add(graph, d->op->name, name, d->inputs, (int32_t)d->n_inputs, d->attrs, d->n_attrs, outputs, n_outputs);
    graph->phase = TD_FORWARD;
    graph->differentiating = -1;
    td_free(outputs);
    TD_TRY(td_parse_graph_error(s, graph, begin));
    td_node *node = &graph->nodes[graph->n_nodes - 1];
    node->target = d->target;
    d->target = NULL;
    return compare_types(s, graph, d, node);
}

td_status *td_parse_node(td_scanner *s, td_graph *graph, const char *name, size_t begin)
{
    draft d = {.forward = -1};
    td_status *status = NULL;
    TD_TRY_OR(status, done, parse_op(s, &d));
    TD_TRY_OR(status, done, parse_inputs(s, graph, &d));
    TD_TRY_OR(status, done, parse_rest(s, graph, &d));
    status = add_node(s, graph, &d, name, begin);
done:
    draft_deinit(&d);
    return status;
}
