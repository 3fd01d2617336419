/* A graph as text: see text.h for the form. */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "graph/op.h"
#include "graph/text.h"

/* ---- words and numbers --------------------------------------------------------------------------------------------------- */

static void print_quoted(td_string *text, const char *name)
{
    td_string_append(text, "\"");
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c == '"' || *c == '\\')
            td_string_format(text, "\\%c", *c);
        else if (*c < ' ' || *c == 0x7f)
            td_string_format(text, "\\x%02x", *c);
        else
            td_string_append_bytes(text, c, 1);
    }
    td_string_append(text, "\"");
}

static void print_name(td_string *text, const char *name)
{
    bool plain = name[0] && !strchr("#+-:", name[0]);
    for (const char *c = name; *c && plain; c++)
        plain = td_text_is_word_byte((unsigned char)*c);
    if (plain)
        td_string_append(text, name);
    else
        print_quoted(text, name);
}

/* An extent in a shape, where * + and digits mean something. */
static void print_extent_name(td_string *text, const char *name)
{
    bool plain = name[0] && !(name[0] >= '0' && name[0] <= '9');
    for (const char *c = name; *c && plain; c++)
        plain = td_text_is_word_byte((unsigned char)*c) && !strchr("+-:#/", *c);
    if (plain)
        td_string_append(text, name);
    else
        print_quoted(text, name);
}

/* The shortest decimal that reads back to the same double. */
static void print_number(td_string *text, double number)
{
    char buffer[40];
    if (number != number) {
        td_string_append(text, "nan");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(buffer, sizeof buffer, "%.*g", digits, number);
        if (strtod(buffer, NULL) == number)
            break;
    }
    td_string_append(text, buffer);
}

/* ---- types ------------------------------------------------------------------------------------------------------------------ */

static void print_dim(td_string *text, const td_graph *graph, td_dim dim)
{
    if (dim.extent < 0) {
        td_string_format(text, "%" PRId64, dim.constant);
        return;
    }
    if (dim.multiple != 1)
        td_string_format(text, "%" PRId64 "*", dim.multiple);
    print_extent_name(text, graph->extents[dim.extent].name);
    if (dim.constant)
        td_string_format(text, "+%" PRId64, dim.constant);
    td_string_format(text, "<=%" PRId64, td_dim_capacity(graph, dim));
}

static void print_shape(td_string *text, const td_graph *graph, const td_shape *shape)
{
    td_string_append(text, "[");
    for (int32_t i = 0; i < shape->rank; i++) {
        td_string_append(text, i ? ", " : "");
        print_dim(text, graph, shape->dims[i]);
    }
    td_string_append(text, "]");
}

static void print_type(td_string *text, const td_graph *graph, const td_value_info *value)
{
    const char *kind = value->kind == TD_RAGGED ? "ragged " : value->kind == TD_ROW_SPARSE ? "row_sparse " : "";
    td_string_format(text, "%s%s ", kind, td_dtype_name(value->dtype));
    print_shape(text, graph, &value->shape);
    if (kind[0]) {
        td_string_append(text, " of ");
        print_dim(text, graph, value->entries);
    }
}

/* ---- sources ------------------------------------------------------------------------------------------------------------------ */

static void print_initializer(td_string *text, const td_initializer *initial)
{
    td_string_format(text, " %s(", td_text_initializers[initial->kind]);
    print_number(text, initial->a);
    if (initial->kind != TD_INIT_CONSTANT) {
        td_string_append(text, ", ");
        print_number(text, initial->b);
    }
    td_string_append(text, ")");
}

static void print_source(td_string *text, const td_graph *graph, const td_value_info *value)
{
    td_string_format(text, "%s ", td_text_classes[value->class]);
    print_name(text, value->name);
    td_string_append(text, " ");
    print_type(text, graph, value);
    if (td_text_has_initializer(value->class))
        print_initializer(text, &value->initial);
    for (int32_t i = 0; i < value->n_scalars; i++) {
        td_string_append(text, i ? ", " : " = ");
        print_number(text, value->scalars[i]);
    }
    td_string_append(text, value->frozen ? " frozen" : "");
    if (value->parameter >= 0) {
        td_string_append(text, " for ");
        print_name(text, graph->values[value->parameter].name);
    }
    td_string_append(text, "\n");
}

/* ---- nodes ----------------------------------------------------------------------------------------------------------------------- */

static void print_ints(td_string *text, const td_graph *graph, const td_attr *attr)
{
    if (strcmp(attr->key, "shape") == 0) { /* graph/ops/rules.h: three numbers per dimension */
        td_shape shape = {.rank = attr->n_ints / 3};
        for (int32_t i = 0; i < shape.rank; i++) {
            const int64_t *n = attr->ints + 3 * i;
            shape.dims[i] = n[0] < 0 ? td_dim_constant(n[2]) : (td_dim){(int32_t)n[0], n[1], n[2]};
        }
        print_shape(text, graph, &shape);
        return;
    }
    td_string_append(text, "[");
    for (int32_t i = 0; i < attr->n_ints; i++)
        td_string_format(text, "%s%" PRId64, i ? ", " : "", attr->ints[i]);
    td_string_append(text, "]");
}

static bool is_default(const td_attr *attr, const td_attr_spec *spec)
{
    switch (attr->type) {
    case TD_ATTR_INT:
    case TD_ATTR_BOOL:
        return attr->i == spec->i;
    case TD_ATTR_FLOAT:
        return memcmp(&attr->f, &spec->f, sizeof attr->f) == 0;
    case TD_ATTR_STRING:
        return spec->s && attr->s && strcmp(attr->s, spec->s) == 0;
    case TD_ATTR_INTS:
        return attr->n_ints == 0;
    }
    return false;
}

static void print_attr(td_string *text, const td_graph *graph, const td_attr *attr)
{
    td_string_format(text, " %s=", attr->key);
    switch (attr->type) {
    case TD_ATTR_INT:
        td_string_format(text, "%" PRId64, attr->i);
        break;
    case TD_ATTR_BOOL:
        td_string_append(text, attr->i ? "true" : "false");
        break;
    case TD_ATTR_FLOAT:
        print_number(text, attr->f);
        break;
    case TD_ATTR_STRING:
        print_quoted(text, attr->s ? attr->s : "");
        break;
    case TD_ATTR_INTS:
        print_ints(text, graph, attr);
        break;
    }
}

static void print_node(td_string *text, const td_graph *graph, const td_node *node)
{
    print_name(text, node->name);
    td_string_format(text, " = %s(", node->op->name);
    for (int32_t i = 0; i < node->n_inputs; i++) {
        td_string_append(text, i ? ", " : "");
        if (node->inputs[i] < 0)
            td_string_append(text, "-");
        else
            print_name(text, graph->values[node->inputs[i]].name);
    }
    td_string_append(text, ")");
    for (const td_attr_spec *spec = node->op->attrs; spec && spec->name; spec++) {
        const td_attr *attr = td_attr_find(node->attrs, node->n_attrs, spec->name);
        if (attr && (spec->required || !is_default(attr, spec)))
            print_attr(text, graph, attr);
    }
    if (node->target) {
        td_string_append(text, " on ");
        print_name(text, node->target);
    }
    td_string_append(text, node->phase == TD_BACKWARD ? " backward" : node->phase == TD_UPDATE ? " update" : "");
    if (node->forward >= 0) {
        td_string_append(text, " of ");
        print_name(text, graph->nodes[node->forward].name);
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        td_string_append(text, i ? ", " : " -> ");
        print_type(text, graph, &graph->values[node->outputs[i]]);
    }
    td_string_append(text, "\n");
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------- */

static void print_marks(td_string *text, const td_graph *graph)
{
    for (int64_t i = 0; i < graph->n_values; i++) {
        const td_value_info *value = &graph->values[i];
        if (value->is_output) {
            td_string_append(text, "output ");
            print_name(text, value->name);
            td_string_append(text, "\n");
        }
        if (value->producer >= 0 && value->parameter >= 0) {
            td_string_append(text, "gradient ");
            print_name(text, value->name);
            td_string_append(text, " of ");
            print_name(text, graph->values[value->parameter].name);
            td_string_append(text, "\n");
        }
    }
}

/* Sources and nodes in the order of value ids. A node without outputs comes as early as its predecessors allow. */
static void print_graph(td_string *text, const td_graph *graph)
{
    int64_t next = 0; /* value to come */
    td_string_append(text, "tdg 1\n");
    for (int64_t i = 0; i < graph->n_extents; i++) {
        td_string_append(text, "extent ");
        print_extent_name(text, graph->extents[i].name);
        td_string_format(text, "<=%" PRId64 "\n", graph->extents[i].capacity);
    }
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        int64_t before = node->n_outputs ? node->outputs[0] : 0;
        for (int32_t i = 0; i < node->n_inputs && !node->n_outputs; i++)
            before = node->inputs[i] >= before ? node->inputs[i] + 1 : before;
        for (; next < before; next++)
            print_source(text, graph, &graph->values[next]);
        print_node(text, graph, node);
        next += node->n_outputs;
    }
    for (; next < graph->n_values; next++)
        print_source(text, graph, &graph->values[next]);
    print_marks(text, graph);
}

td_status *td_graph_print(const td_graph *graph, char **out_text)
{
    td_string text = {0};
    *out_text = NULL;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* decimal points, whatever the program's locale */
    if (plain == (locale_t)0)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a graph's text");
    locale_t before = uselocale(plain);
    print_graph(&text, graph);
    (void)uselocale(before);
    freelocale(plain);
    return td_string_finish(&text, out_text);
}

void td_text_free(char *text)
{
    td_free(text);
}
