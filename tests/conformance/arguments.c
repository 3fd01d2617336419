/* Arguments of a call in host memory: numbers for inputs, garbage for outputs, and how results are compared. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "optim/rule.h"
#include "tests/conformance/conformance.h"

enum { GARBAGE = 0x5a };

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

/* A number in [0, 1) that depends on where it goes alone (the finaliser of SplitMix64). */
static double number_at(const built_case *built, int32_t input, int64_t index)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(index + 1) + 0xbf58476d1ce4e5b9u * (uint64_t)(input + 1);
    for (const char *c = built->source->op; *c; c++)
        x = (x ^ (uint64_t)(unsigned char)*c) * 0x100000001b3u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static double float_at(const built_case *built, int32_t input, int64_t index)
{
    const double u = number_at(built, input, index);
    switch (built->fills[input]) {
    case FILL_POSITIVE:
        return 0.1 + u;
    case FILL_UNIT:
        return u;
    case FILL_ABOVE:
        return 1 + u;
    case FILL_WIDE:
        return 120 * u - 60;
    default:
        return u < 0.5 ? -0.1 - 2 * u : 0.1 + (2 * u - 1);
    }
}

static void store(const td_tensor *t, int64_t i, double value)
{
    switch (t->dtype) {
    case TD_F32:
        ((float *)t->data)[i] = (float)value;
        return;
    case TD_F64:
        ((double *)t->data)[i] = value;
        return;
    case TD_F16:
        ((uint16_t *)t->data)[i] = td_f32_to_f16((float)value);
        return;
    case TD_BF16:
        ((uint16_t *)t->data)[i] = td_f32_to_bf16((float)value);
        return;
    case TD_I32:
        ((int32_t *)t->data)[i] = (int32_t)value;
        return;
    case TD_I64:
        ((int64_t *)t->data)[i] = (int64_t)value;
        return;
    default:
        ((uint8_t *)t->data)[i] = (uint8_t)value;
    }
}

static double load(const td_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case TD_F32:
        return (double)((const float *)t->data)[i];
    case TD_F64:
        return ((const double *)t->data)[i];
    case TD_F16:
        return (double)td_f16_to_f32(((const uint16_t *)t->data)[i]);
    case TD_BF16:
        return (double)td_bf16_to_f32(((const uint16_t *)t->data)[i]);
    case TD_I32:
        return ((const int32_t *)t->data)[i];
    case TD_I64:
        return (double)((const int64_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

static bool is_float(td_dtype dtype)
{
    return dtype == TD_F32 || dtype == TD_F16 || dtype == TD_BF16 || dtype == TD_F64;
}

/* ---- filling --------------------------------------------------------------------------------------------------------------- */

static void fill_elements(const built_case *built, int32_t input, const td_tensor *t, int64_t n)
{
    const int64_t limit = built->limits[input] ? built->limits[input] : t->dtype == TD_BOOL ? 2 : 100;
    for (int64_t i = 0; i < n; i++)
        store(t, i, is_float(t->dtype) ? float_at(built, input, i) : floor((double)limit * number_at(built, input, i)));
    if (built->fills[input] == FILL_BAD && n)
        store(t, n / 2, (double)limit);
}

/* Bags of random sizes, some empty. */
static void fill_offsets(const built_case *built, int32_t input, const td_tensor *t)
{
    int64_t *offsets = t->index, bags = t->dims[0];
    for (int64_t i = 0; i <= bags; i++)
        offsets[i] = i == 0      ? 0
                     : i == bags ? t->entries
                                 : (int64_t)(number_at(built, input + 100, i) * (double)(t->entries + 1));
    for (int64_t i = 1; i < bags; i++)
        for (int64_t k = i; k > 1 && offsets[k] < offsets[k - 1]; k--) {
            const int64_t other = offsets[k];
            offsets[k] = offsets[k - 1];
            offsets[k - 1] = other;
        }
}

/* About three quarters of the room, ascending and distinct. */
static void fill_rows(const built_case *built, int32_t input, const td_tensor *t)
{
    const int64_t rows = t->dims[0], room = t->entries < rows ? t->entries : rows, wanted = (3 * room + 3) / 4;
    int64_t *index = t->index, count = 0;
    for (int64_t row = 0; row < rows && count < wanted; row++)
        if (number_at(built, input + 100, row) * (double)(rows - row) < (double)(wanted - count))
            index[count++] = row;
    *(int64_t *)t->count = count;
    int64_t elements = 1;
    for (int32_t axis = 1; axis < t->rank; axis++)
        elements *= t->dims[axis];
    fill_elements(built, input, t, count * elements);
}

static void fill_scalar(const built_case *built, int32_t input, const td_tensor *t)
{
    float coefficients[TD_COEFFICIENTS] = {0};
    const td_rule *rule = td_rule_find(built->source->op);
    if (built->fills[input] == FILL_COEFFICIENTS && rule) {
        td_optimizer settings;
        td_status *status = td_rule_resolve(rule, &(td_optimizer){.name = rule->name, .lr = 0.05}, &settings);
        if (!status)
            rule->coefficients(&settings, 0.05, 3, 0.5, coefficients);
        td_status_destroy(status);
    }
    for (int64_t i = 0; i < t->dims[0]; i++)
        store(t, i,
              built->fills[input] == FILL_COEFFICIENTS ? (double)coefficients[i % TD_COEFFICIENTS]
                                                       : built->given[input][i < 8 ? i : 7]);
}

void argument_fill(const built_case *built, int32_t input, argument *a)
{
    const td_tensor *t = &a->tensor;
    switch (t->kind) {
    case TD_DENSE:
        fill_elements(built, input, t, td_tensor_elements(t));
        return;
    case TD_RAGGED:
        fill_offsets(built, input, t);
        fill_elements(built, input, t, t->entries);
        return;
    case TD_ROW_SPARSE:
        fill_rows(built, input, t);
        return;
    case TD_SCALAR:
        fill_scalar(built, input, t);
        return;
    case TD_NONE:
        return;
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------------------- */

static td_status *argument_allocate(argument *a)
{
    void **pointers[3] = {&a->tensor.data, &a->tensor.index, &a->tensor.count};
    for (int k = 0; k < 3; k++) {
        *pointers[k] = td_calloc_aligned((size_t)a->bytes[k] + 64);
        if (!*pointers[k])
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an argument");
        memset(*pointers[k], GARBAGE, (size_t)a->bytes[k] + 64);
    }
    return NULL;
}

static td_status *argument_init(const built_case *built, int32_t value, const int64_t *extents, argument *a)
{
    if (value < 0)
        return NULL;
    td_value_tensor(built->graph, value, extents, &a->tensor);
    td_value_bytes(built->graph, value, NULL, a->bytes);
    if (a->tensor.kind == TD_SCALAR)
        a->bytes[0] = a->tensor.dims[0] * (int64_t)td_dtype_bytes(a->tensor.dtype);
    return argument_allocate(a);
}

td_status *arguments_init(const built_case *built, const int64_t *extents, arguments *out)
{
    const td_node *node = &built->graph->nodes[built->node];
    td_status *status = NULL;
    *out = (arguments){.n_inputs = node->n_inputs, .n_outputs = node->n_outputs};
    for (int32_t i = 0; i < node->n_inputs; i++) {
        TD_TRY_OR(status, failed, argument_init(built, node->inputs[i], extents, &out->inputs[i]));
        argument_fill(built, i, &out->inputs[i]);
        out->inputs[i].written = td_node_writes(node, i);
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        TD_TRY_OR(status, failed, argument_init(built, node->outputs[i], extents, &out->outputs[i]));
        out->outputs[i].written = true;
    }
    return NULL;
failed:
    arguments_deinit(out);
    return status;
}

static td_status *argument_clone(const argument *from, argument *out)
{
    *out = *from;
    out->tensor.data = out->tensor.index = out->tensor.count = NULL;
    if (from->tensor.kind == TD_NONE)
        return NULL;
    TD_TRY(argument_allocate(out));
    memcpy(out->tensor.data, from->tensor.data, (size_t)from->bytes[0]);
    memcpy(out->tensor.index, from->tensor.index, (size_t)from->bytes[1]);
    memcpy(out->tensor.count, from->tensor.count, (size_t)from->bytes[2]);
    return NULL;
}

td_status *arguments_clone(const arguments *from, arguments *out)
{
    td_status *status = NULL;
    *out = (arguments){.n_inputs = from->n_inputs, .n_outputs = from->n_outputs};
    for (int32_t i = 0; i < from->n_inputs; i++)
        TD_TRY_OR(status, failed, argument_clone(&from->inputs[i], &out->inputs[i]));
    for (int32_t i = 0; i < from->n_outputs; i++)
        TD_TRY_OR(status, failed, argument_clone(&from->outputs[i], &out->outputs[i]));
    return NULL;
failed:
    arguments_deinit(out);
    return status;
}

static void argument_deinit(argument *a)
{
    td_free(a->tensor.data);
    td_free(a->tensor.index);
    td_free(a->tensor.count);
    *a = (argument){0};
}

void arguments_deinit(arguments *a)
{
    for (int32_t i = 0; i < a->n_inputs; i++)
        argument_deinit(&a->inputs[i]);
    for (int32_t i = 0; i < a->n_outputs; i++)
        argument_deinit(&a->outputs[i]);
    *a = (arguments){0};
}

td_kernel_call arguments_call(const built_case *built, const arguments *a, td_tensor tensors[2 * MAX_ARGUMENTS])
{
    const td_node *node = &built->graph->nodes[built->node];
    for (int32_t i = 0; i < a->n_inputs; i++)
        tensors[i] = a->inputs[i].tensor;
    for (int32_t i = 0; i < a->n_outputs; i++)
        tensors[MAX_ARGUMENTS + i] = a->outputs[i].tensor;
    return (td_kernel_call){.struct_size = sizeof(td_kernel_call),
                            .op = node->op->name,
                            .name = node->name,
                            .attrs = node->attrs,
                            .inputs = tensors,
                            .outputs = tensors + MAX_ARGUMENTS,
                            .n_attrs = node->n_attrs,
                            .n_inputs = a->n_inputs,
                            .n_outputs = a->n_outputs};
}

/* ---- comparing --------------------------------------------------------------------------------------------------------------- */

static td_status *compare_elements(const td_tensor *a, const td_tensor *b, int64_t n, double tolerance)
{
    const size_t size = td_dtype_bytes(a->dtype);
    for (int64_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * size;
        const double x = load(a, i), y = load(b, i);
        if (memcmp((const char *)a->data + at, (const char *)b->data + at, size) == 0 || (isnan(x) && isnan(y)))
            continue;
        if (tolerance > 0 && is_float(a->dtype) && fabs(x - y) <= tolerance * (1 + fabs(y)))
            continue;
        return TD_ERROR(TD_INTERNAL, "element %" PRId64 " of %" PRId64 " is %.9g (%a), expected %.9g (%a)", i, n, x, x,
                        y, y);
    }
    return NULL;
}

/* Bytes [from, to) of both still hold the garbage they began with. */
static td_status *compare_tail(const argument *a, int64_t from)
{
    const unsigned char *bytes = a->tensor.data;
    for (int64_t i = from; i < a->bytes[0] + 64; i++)
        if (bytes[i] != GARBAGE)
            return TD_ERROR(TD_INTERNAL, "byte %" PRId64 " was written, but the output ends at %" PRId64, i, from);
    return NULL;
}

static td_status *compare_one(const argument *a, const argument *b, double tolerance, bool output)
{
    const td_tensor *x = &a->tensor, *y = &b->tensor;
    int64_t n = td_tensor_elements(x), room = n;
    if (x->kind == TD_ROW_SPARSE) {
        const int64_t have = *(int64_t *)x->count, want = *(int64_t *)y->count;
        if (have != want)
            return TD_ERROR(TD_INTERNAL, "it has %" PRId64 " rows, expected %" PRId64, have, want);
        for (int64_t i = 0; i < have; i++)
            if (((int64_t *)x->index)[i] != ((int64_t *)y->index)[i])
                return TD_ERROR(TD_INTERNAL, "entry %" PRId64 " is row %" PRId64 ", expected %" PRId64, i,
                                ((int64_t *)x->index)[i], ((int64_t *)y->index)[i]);
        const int64_t row = x->dims[0] ? n / x->dims[0] : 0;
        n = have * row;
        room = x->entries * row;
    }
    if (x->kind == TD_RAGGED) {
        if (memcmp(x->index, y->index, (size_t)(x->dims[0] + 1) * 8) != 0)
            return TD_ERROR(TD_INTERNAL, "offsets differ");
        n = room = x->entries;
    }
    TD_TRY(compare_elements(x, y, n, tolerance));
    return output ? compare_tail(a, room * (int64_t)td_dtype_bytes(x->dtype)) : NULL;
}

td_status *arguments_compare(const arguments *actual, const arguments *expected, double tolerance)
{
    td_status *status = NULL;
    for (int32_t i = 0; i < actual->n_outputs && !status; i++)
        status =
            td_status_prefix(compare_one(&actual->outputs[i], &expected->outputs[i], tolerance, true), "output %d", i);
    for (int32_t i = 0; i < actual->n_inputs && !status; i++)
        if (actual->inputs[i].written)
            status = td_status_prefix(compare_one(&actual->inputs[i], &expected->inputs[i], tolerance, false),
                                      "input %d", i);
    return status;
}
