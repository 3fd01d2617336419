/* Reads a case's text into a graph of its sources and one node. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/conformance/conformance.h"

/* One input's text in the making. */
typedef struct reader {
    const char *text, *at;
    td_graph *graph;
    td_dim extents[N_EXTENTS];
} reader;

static td_status *bad_text(const reader *r, const char *wanted)
{
    return TD_ERROR(TD_INTERNAL, "case \"%s\": expected %s at \"%s\"", r->text, wanted, r->at);
}

static td_status *read_dtype(reader *r, td_dtype *out)
{
    for (int d = 0; d < TD_DTYPE_COUNT; d++) {
        const char *name = td_dtype_name((td_dtype)d);
        if (strncmp(r->at, name, strlen(name)) != 0)
            continue;
        r->at += strlen(name);
        *out = (td_dtype)d;
        return NULL;
    }
    return bad_text(r, "a dtype");
}

/* "13", "B", "2N" */
static td_status *read_dim(reader *r, td_dim *out)
{
    int64_t number = 1;
    bool any = isdigit((unsigned char)*r->at);
    if (any)
        number = strtoll(r->at, (char **)(uintptr_t)&r->at, 10);
    if (*r->at == 'B' || *r->at == 'N') {
        *out = r->extents[*r->at++ == 'N'];
        out->multiple *= number;
        out->constant *= number;
        return NULL;
    }
    *out = td_dim_constant(number);
    return any ? NULL : bad_text(r, "a dimension");
}

static td_status *read_shape(reader *r, td_shape *out)
{
    *out = (td_shape){0};
    r->at++;
    while (*r->at != ']') {
        if (out->rank == TD_MAX_RANK)
            return bad_text(r, "fewer dimensions");
        TD_TRY(read_dim(r, &out->dims[out->rank++]));
        r->at += *r->at == ',';
    }
    r->at++;
    return NULL;
}

static td_status *read_numbers(reader *r, int32_t most, double *out)
{
    for (int32_t i = 0; i < most; i++) {
        out[i] = strtod(r->at, (char **)(uintptr_t)&r->at);
        if (*r->at != ',')
            break;
        r->at++;
    }
    return NULL;
}

static td_status *read_fill(reader *r, int64_t *limit, fill_kind *fill, double *given)
{
    static const struct {
        const char *name;
        fill_kind fill;
    } fills[] = {{":positive", FILL_POSITIVE}, {":unit", FILL_UNIT}, {":above", FILL_ABOVE},
                 {":wide", FILL_WIDE},         {":bad", FILL_BAD},   {":coefficients", FILL_COEFFICIENTS}};
    if (*r->at == '<')
        *limit = strtoll(r->at + 1, (char **)(uintptr_t)&r->at, 10);
    if (*r->at == '=') {
        r->at++;
        *fill = FILL_GIVEN;
        TD_TRY(read_numbers(r, 8, given));
    }
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        if (strncmp(r->at, fills[i].name, strlen(fills[i].name)) != 0)
            continue;
        *fill = fills[i].fill;
        r->at += strlen(fills[i].name);
    }
    return *r->at && *r->at != ' ' ? bad_text(r, "the next input") : NULL;
}

/* The source value for one input: a parameter where the op writes it or a gradient is wanted. */
static td_value add_source(reader *r, const td_op *op, int32_t input, td_dtype dtype, td_shape shape, td_kind kind,
                           td_dim entries, bool differentiable)
{
    char name[16];
    const unsigned flags = td_op_port(op, input)->flags;
    snprintf(name, sizeof name, "input%d", input);
    if (kind != TD_DENSE)
        return td_graph_add_source(r->graph, TD_CLASS_INPUT, kind, name, dtype, shape, entries);
    const bool trained = differentiable && dtype == TD_F32 && !(flags & TD_PORT_NO_GRADIENT);
    if (trained || flags & TD_PORT_WRITES) {
        const td_value parameter = td_parameter(r->graph, name, dtype, shape, td_init_constant(0));
        return flags & TD_PORT_NO_GRADIENT ? td_freeze(parameter) : parameter;
    }
    return td_input(r->graph, name, dtype, shape);
}

static td_status *read_input(reader *r, const td_op *op, bool differentiable, built_case *out, td_value *out_value)
{
    const int32_t input = out->n_inputs++;
    *out_value = TD_NO_VALUE;
    if (*r->at == '-') {
        r->at++;
        return NULL;
    }
    td_dtype dtype = TD_F32;
    TD_TRY(read_dtype(r, &dtype));
    if (*r->at == '*') {
        const int32_t n = (int32_t)strtol(r->at + 1, (char **)(uintptr_t)&r->at, 10);
        char name[16];
        snprintf(name, sizeof name, "input%d", input);
        *out_value = td_scalar(r->graph, name, dtype, n, NULL);
        return read_fill(r, &out->limits[input], &out->fills[input], out->given[input]);
    }
    td_shape shape;
    td_kind kind = TD_DENSE;
    td_dim entries = td_dim_constant(0);
    TD_TRY(read_shape(r, &shape));
    if (*r->at == '{') {
        r->at++;
        kind = dtype == TD_I64 || dtype == TD_I32 ? TD_RAGGED : TD_ROW_SPARSE;
        TD_TRY(read_dim(r, &entries));
        r->at++;
    }
    *out_value = add_source(r, op, input, dtype, shape, kind, entries, differentiable);
    return read_fill(r, &out->limits[input], &out->fills[input], out->given[input]);
}

/* ---- attributes ------------------------------------------------------------------------------------------------------------ */

enum { MAX_ATTRS = 8, MAX_INTS = 80 };

typedef struct attributes {
    td_attr attrs[MAX_ATTRS];
    int64_t ints[MAX_ATTRS][MAX_INTS];
    char text[256];
    int32_t n;
} attributes;

static td_status *read_value(const td_attr_spec *spec, char *value, attributes *out)
{
    td_attr *attr = &out->attrs[out->n];
    int64_t *ints = out->ints[out->n++];
    *attr = (td_attr){.key = spec->name, .type = spec->type};
    if (spec->type == TD_ATTR_INT)
        attr->i = strtoll(value, NULL, 10);
    else if (spec->type == TD_ATTR_BOOL)
        attr->i = strcmp(value, "true") == 0;
    else if (spec->type == TD_ATTR_FLOAT)
        attr->f = strtod(value, NULL);
    else if (spec->type == TD_ATTR_STRING)
        attr->s = value;
    else
        for (attr->ints = ints; *value && attr->n_ints < MAX_INTS; value += *value == ',')
            ints[attr->n_ints++] = strtoll(value, &value, 10);
    return NULL;
}

static td_status *read_attributes(const td_op *op, const char *text, attributes *out)
{
    out->n = 0;
    snprintf(out->text, sizeof out->text, "%s", text ? text : "");
    char *rest = NULL;
    for (char *word = strtok_r(out->text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        const td_attr_spec *spec = op->attrs;
        if (!value || !spec || out->n == MAX_ATTRS)
            return TD_ERROR(TD_INTERNAL, "case of %s: cannot read attribute \"%s\"", op->name, word);
        *value++ = 0;
        while (spec->name && strcmp(spec->name, word) != 0)
            spec++;
        if (!spec->name)
            return TD_ERROR(TD_INTERNAL, "case of %s: it has no attribute \"%s\"", op->name, word);
        TD_TRY(read_value(spec, value, out));
    }
    return NULL;
}

/* ---- the case ---------------------------------------------------------------------------------------------------------------- */

static int32_t output_count(const td_op *op, const attributes *a)
{
    int32_t n = 0;
    while (n < 4 && op->outputs[n].name)
        n++;
    if (n && op->outputs[n - 1].flags & TD_PORT_VARIADIC)
        n += (int32_t)td_attr_int(a->attrs, a->n, "outputs", 1) - 1;
    return n;
}

static td_status *build(const conformance_case *source, const int64_t *constants, built_case *out)
{
    const td_op *op = td_op_find(source->op);
    if (!op)
        return TD_ERROR(TD_NOT_FOUND, "there is no op \"%s\"", source->op);
    TD_TRY(td_graph_create(&out->graph));
    reader r = {.text = source->inputs, .at = source->inputs, .graph = out->graph};
    r.extents[0] = constants ? td_dim_constant(constants[0]) : td_extent(out->graph, "B", source->batch);
    r.extents[1] = constants ? td_dim_constant(constants[1]) : td_extent(out->graph, "N", source->entries);
    td_value inputs[MAX_ARGUMENTS], outputs[MAX_ARGUMENTS];
    while (*r.at) {
        if (out->n_inputs == MAX_ARGUMENTS)
            return bad_text(&r, "fewer inputs");
        TD_TRY(read_input(&r, op, constants != NULL, out, &inputs[out->n_inputs]));
        r.at += *r.at == ' ';
    }
    attributes a;
    TD_TRY(read_attributes(op, source->attrs, &a));
    td_graph_add(out->graph, source->op, "node", inputs, out->n_inputs, a.attrs, a.n, outputs, output_count(op, &a));
    out->node = (int32_t)out->graph->n_nodes - 1;
    return td_graph_check(out->graph);
}

td_status *case_build(const conformance_case *source, const int64_t *constants, built_case *out)
{
    *out = (built_case){.source = source};
    td_status *status = build(source, constants, out);
    if (status) {
        case_deinit(out);
        status = td_status_prefix(status, "%s \"%s\"", source->op, source->inputs);
    }
    return status;
}

void case_deinit(built_case *built)
{
    td_graph_destroy(built->graph);
    built->graph = NULL;
}

int32_t case_extents(const conformance_case *source, int64_t out[MAX_RUNS][N_EXTENTS])
{
    const int64_t batch = source->batch, entries = source->entries;
    const int64_t runs[MAX_RUNS][N_EXTENTS] = {{batch, entries},
                                               {batch > 2 ? batch - 2 : 1, entries / 2 + 1},
                                               {1, entries < 3 ? entries : 3},
                                               {1, entries ? 1 : 0},
                                               {batch, 0},
                                               {0, 0}};
    const bool varies = strpbrk(source->inputs, "BN") != NULL;
    memcpy(out, runs, sizeof runs);
    return varies ? MAX_RUNS : 1;
}
