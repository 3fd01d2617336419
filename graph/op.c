/* The registry of ops, and the small helpers that shape rules, costs and kernels share: see op.h. */
#include "graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/nearest.h"

#define TD_OP(name) extern const td_op td_op_##name;
#include "graph/ops/ops.def"
#undef TD_OP

static const td_op *const ops[] = {
#define TD_OP(name) &td_op_##name,
#include "graph/ops/ops.def"
#undef TD_OP
};

int32_t td_op_count(void)
{
    return (int32_t)(sizeof ops / sizeof *ops);
}

const td_op *td_op_at(int32_t index)
{
    return ops[index];
}

const td_op *td_op_find(const char *name)
{
    for (int32_t i = 0; i < td_op_count(); i++)
        if (strcmp(ops[i]->name, name) == 0)
            return ops[i];
    return NULL;
}

static const char *name_at(const void *context, int32_t index)
{
    (void)context;
    return ops[index]->name;
}

const char *td_op_nearest(const char *name)
{
    return td_nearest(name, td_op_count(), name_at, NULL);
}

td_status *(*td_op_reference(const char *name))(const td_kernel_call *call)
{
    const td_op *op = td_op_find(name);
    return op ? op->reference : NULL;
}

const td_port *td_op_port(const td_op *op, int32_t input)
{
    int32_t n = 0, repeats = op->repeats ? op->repeats : 1;
    while (n < TD_MAX_PORTS && op->inputs[n].name)
        n++;
    return &op->inputs[input < n ? input : n - repeats + (input - n) % repeats];
}

/* ---- cost ------------------------------------------------------------------------------------------------------------- */

int64_t td_tensor_bytes(const td_tensor *t)
{
    int64_t size = (int64_t)td_dtype_bytes(t->dtype);
    switch (t->kind) {
    case TD_DENSE:
        return td_tensor_elements(t) * size;
    case TD_RAGGED:
        return t->entries * size + (t->dims[0] + 1) * 8;
    case TD_ROW_SPARSE: {
        int64_t row = 1;
        for (int32_t i = 1; i < t->rank; i++)
            row *= t->dims[i];
        return t->entries * (row * size + 8) + 8;
    }
    case TD_NONE:
    case TD_SCALAR:
        break;
    }
    return 0;
}

td_cost td_op_cost(const td_op *op, const td_kernel_call *call)
{
    td_cost cost = {0};
    if (op->cost) {
        op->cost(call, &cost);
        return cost;
    }
    for (int32_t i = 0; i < call->n_inputs; i++)
        cost.bytes_read += (double)td_tensor_bytes(&call->inputs[i]);
    for (int32_t i = 0; i < call->n_outputs; i++) {
        cost.bytes_written += (double)td_tensor_bytes(&call->outputs[i]);
        if (call->outputs[i].kind == TD_DENSE)
            cost.flops += (double)td_tensor_elements(&call->outputs[i]);
    }
    return cost;
}

/* ---- attributes --------------------------------------------------------------------------------------------------------- */

td_status *td_attr_copy(td_attr *out, const td_attr *attr)
{
    *out = *attr;
    out->s = NULL;
    out->ints = NULL;
    out->key = td_strdup(attr->key);
    if (attr->s)
        out->s = td_strdup(attr->s);
    if (attr->type == TD_ATTR_INTS) {
        int64_t *ints = td_calloc((size_t)attr->n_ints + 1, sizeof *ints);
        if (ints && attr->n_ints)
            memcpy(ints, attr->ints, (size_t)attr->n_ints * sizeof *ints);
        out->ints = ints;
    }
    if (!out->key || (attr->s && !out->s) || (attr->type == TD_ATTR_INTS && !out->ints))
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for attribute \"%s\"", attr->key);
    return NULL;
}

void td_attr_deinit(td_attr *attr)
{
    td_free((void *)(uintptr_t)attr->key);
    td_free((void *)(uintptr_t)attr->s);
    td_free((void *)(uintptr_t)attr->ints);
}

const td_attr *td_attr_find(const td_attr *attrs, int32_t n, const char *key)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(attrs[i].key, key) == 0)
            return &attrs[i];
    return NULL;
}

int64_t td_attr_int(const td_attr *attrs, int32_t n, const char *key, int64_t fallback)
{
    const td_attr *attr = td_attr_find(attrs, n, key);
    return attr ? attr->i : fallback;
}

double td_attr_float(const td_attr *attrs, int32_t n, const char *key, double fallback)
{
    const td_attr *attr = td_attr_find(attrs, n, key);
    return attr ? attr->f : fallback;
}

const char *td_attr_string(const td_attr *attrs, int32_t n, const char *key, const char *fallback)
{
    const td_attr *attr = td_attr_find(attrs, n, key);
    return attr && attr->s ? attr->s : fallback;
}

/* ---- shapes --------------------------------------------------------------------------------------------------------------- */

td_status *td_infer_error(const td_infer *infer, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = td_vformat(format, arguments);
    va_end(arguments);
    td_status *status = td_status_create(text ? TD_INVALID_ARGUMENT : TD_OUT_OF_MEMORY, file, line, "%s %s: %s",
                                         infer->op, infer->name, text ? text : "out of memory");
    td_free(text);
    return status;
}

bool td_dim_equal(td_dim a, td_dim b)
{
    if (a.extent < 0 && b.extent < 0)
        return a.constant == b.constant;
    return a.extent == b.extent && a.multiple == b.multiple && a.constant == b.constant;
}

bool td_shape_equal(const td_shape *a, const td_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (!td_dim_equal(a->dims[i], b->dims[i]))
            return false;
    return true;
}

bool td_dim_is(td_dim dim, int64_t constant)
{
    return dim.extent < 0 && dim.constant == constant;
}

bool td_dim_add(td_dim a, td_dim b, td_dim *out)
{
    if (a.extent >= 0 && b.extent >= 0 && a.extent != b.extent)
        return false;
    int64_t multiple = 0, constant = 0;
    if (!td_add_checked(a.extent >= 0 ? a.multiple : 0, b.extent >= 0 ? b.multiple : 0, &multiple) ||
        !td_add_checked(a.constant, b.constant, &constant))
        return false;
    *out = (td_dim){a.extent >= 0 ? a.extent : b.extent, multiple, constant};
    return true;
}

bool td_dim_multiply(td_dim a, td_dim b, td_dim *out)
{
    if (a.extent >= 0 && b.extent >= 0)
        return false;
    td_dim open = a.extent >= 0 ? a : b;
    int64_t factor = a.extent >= 0 ? b.constant : a.constant;
    int64_t multiple = open.extent >= 0 ? open.multiple : 0, constant = open.constant;
    if (!td_multiply_checked(multiple, factor, &multiple) || !td_multiply_checked(constant, factor, &constant))
        return false;
    *out = factor == 0 ? td_dim_constant(0) : (td_dim){open.extent, multiple, constant};
    return true;
}

bool td_shape_elements(const td_shape *shape, td_dim *out)
{
    *out = td_dim_constant(1);
    for (int32_t i = 0; i < shape->rank; i++)
        if (!td_dim_multiply(*out, shape->dims[i], out))
            return false;
    return true;
}

bool td_shape_fits(const td_graph *graph, const td_shape *shape)
{
    const int64_t most = INT64_MAX / 16;
    int64_t elements = 1;
    for (int32_t i = 0; i < shape->rank; i++) {
        td_dim dim = shape->dims[i];
        int64_t capacity = 0;
        if (dim.extent >= 0 && !td_multiply_checked(dim.multiple, graph->extents[dim.extent].capacity, &capacity))
            return false;
        if (!td_add_checked(capacity, dim.constant, &capacity) || capacity > most ||
            !td_multiply_checked(elements, capacity, &elements) || elements > most)
            return false;
    }
    return true;
}

static int print_dim(const td_graph *graph, td_dim dim, char *buffer, size_t bytes)
{
    if (dim.extent < 0)
        return snprintf(buffer, bytes, "%" PRId64, dim.constant);
    const td_extent_info *extent = &graph->extents[dim.extent];
    char factor[32] = "", rest[32] = "";
    if (dim.multiple != 1)
        (void)snprintf(factor, sizeof factor, "%" PRId64 "*", dim.multiple);
    if (dim.constant)
        (void)snprintf(rest, sizeof rest, "+%" PRId64, dim.constant);
    return snprintf(buffer, bytes, "%s%s%s<=%" PRId64, factor, extent->name, rest, td_dim_capacity(graph, dim));
}

const char *td_shape_text(const td_graph *graph, const td_shape *shape, char *buffer, size_t bytes)
{
    size_t used = (size_t)snprintf(buffer, bytes, "[");
    for (int32_t i = 0; i < shape->rank && used < bytes; i++) {
        used += (size_t)snprintf(buffer + used, bytes - used, "%s", i ? ", " : "");
        if (used < bytes)
            used += (size_t)print_dim(graph, shape->dims[i], buffer + used, bytes - used);
    }
    if (used < bytes)
        (void)snprintf(buffer + used, bytes - used, "]");
    return buffer;
}

td_status *td_infer_broadcast(td_infer *infer, const td_shape *a, const td_shape *b, td_shape *out)
{
    const td_shape *longer = a->rank >= b->rank ? a : b, *shorter = longer == a ? b : a;
    *out = *longer;
    for (int32_t i = 1; i <= shorter->rank; i++) {
        td_dim *dim = &out->dims[longer->rank - i];
        td_dim other = shorter->dims[shorter->rank - i];
        if (td_dim_equal(*dim, other) || td_dim_is(other, 1))
            continue;
        if (td_dim_is(*dim, 1)) {
            *dim = other;
            continue;
        }
        char left[160], right[160];
        return TD_SHAPE_ERROR(
            infer, "shapes %s and %s do not broadcast; dimensions must be equal or 1, from the last one on",
            td_shape_text(infer->graph, a, left, sizeof left), td_shape_text(infer->graph, b, right, sizeof right));
    }
    return NULL;
}

static bool is_float(td_dtype dtype)
{
    return dtype == TD_F32 || dtype == TD_F16 || dtype == TD_BF16 || dtype == TD_F64;
}

td_status *td_infer_same_float(td_infer *infer)
{
    if (infer->inputs[0].kind != TD_DENSE || !is_float(infer->inputs[0].dtype))
        return TD_SHAPE_ERROR(infer, "needs a dense floating-point input, not %s %s",
                              infer->inputs[0].kind == TD_DENSE ? "dense" : "sparse or ragged",
                              td_dtype_name(infer->inputs[0].dtype));
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

static const char *kind_name(td_kind kind)
{
    static const char *const names[] = {"absent", "dense", "ragged", "row-sparse", "scalar"};
    return names[kind];
}

td_status *td_infer_require(const td_infer *infer, int32_t index, td_kind kind, td_dtype dtype)
{
    const td_type *type = &infer->inputs[index];
    if (type->kind == kind && type->dtype == dtype)
        return NULL;
    const td_op *op = td_op_find(infer->op);
    int32_t port = 0;
    while (op && port < index && port + 1 < TD_MAX_PORTS && op->inputs[port + 1].name)
        port++;
    return TD_SHAPE_ERROR(infer, "input %d (%s) must be %s %s, not %s %s", index, op ? op->inputs[port].name : "?",
                          kind_name(kind), td_dtype_name(dtype), kind_name(type->kind), td_dtype_name(type->dtype));
}
