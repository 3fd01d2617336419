/* See rules.h. */
#include "graph/ops/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"

const char *td_infer_port(const td_infer *infer, int32_t index)
{
    const td_op *op = td_op_find(infer->op);
    int32_t port = 0;
    if (!op)
        return "?";
    while (port < index && port + 1 < TD_MAX_PORTS && op->inputs[port + 1].name)
        port++;
    return op->inputs[port].name;
}

static const char *const kind_names[] = {"absent", "dense", "ragged", "row-sparse", "scalar"};

static const char *dtype_list(unsigned dtypes, char *buffer, size_t bytes)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int dtype = 0; dtype < TD_DTYPE_COUNT; dtype++)
        if ((dtypes >> dtype & 1u) && used < bytes)
            used +=
                (size_t)snprintf(buffer + used, bytes - used, "%s%s", used ? ", " : "", td_dtype_name((td_dtype)dtype));
    return buffer;
}

td_status *td_infer_dense(const td_infer *infer, int32_t index, unsigned dtypes)
{
    const td_type *type = &infer->inputs[index];
    if (type->kind != TD_DENSE)
        return TD_SHAPE_ERROR(infer, "input %d (%s) is %s; it must be dense", index, td_infer_port(infer, index),
                              kind_names[type->kind]);
    char list[96];
    if (!(dtypes >> type->dtype & 1u))
        return TD_SHAPE_ERROR(infer, "input %d (%s) is %s; it must be one of %s: td_cast it", index,
                              td_infer_port(infer, index), td_dtype_name(type->dtype),
                              dtype_list(dtypes, list, sizeof list));
    return NULL;
}

td_status *td_infer_same_dtype(const td_infer *infer, int32_t a, int32_t b)
{
    if (infer->inputs[a].dtype == infer->inputs[b].dtype)
        return NULL;
    return TD_SHAPE_ERROR(infer, "input %d is %s and input %d is %s; they must agree: td_cast one of them", a,
                          td_dtype_name(infer->inputs[a].dtype), b, td_dtype_name(infer->inputs[b].dtype));
}

td_status *td_infer_same_shape(const td_infer *infer, int32_t a, int32_t b)
{
    if (td_shape_equal(&infer->inputs[a].shape, &infer->inputs[b].shape))
        return NULL;
    char left[160], right[160];
    return TD_SHAPE_ERROR(infer, "input %d is %s and input %d is %s; the shapes must be equal", a,
                          td_shape_text(infer->graph, &infer->inputs[a].shape, left, sizeof left), b,
                          td_shape_text(infer->graph, &infer->inputs[b].shape, right, sizeof right));
}

td_status *td_infer_axis(const td_infer *infer, int32_t rank, int32_t *out_axis)
{
    int64_t axis = td_attr_int(infer->attrs, infer->n_attrs, "axis", 0);
    if (axis < 0 || axis >= rank)
        return TD_SHAPE_ERROR(infer, "axis %lld is outside the %s of input 0 (%s)", (long long)axis,
                              TD_COUNTED(rank, "dimension"), td_infer_port(infer, 0));
    *out_axis = (int32_t)axis;
    return NULL;
}

/* One dimension of a shape attribute; NULL when it is sound. */
static const char *dim_problem(const td_graph *graph, const int64_t n[3])
{
    if (n[0] < -1 || n[0] >= graph->n_extents)
        return "names an extent that the graph does not have";
    if (n[1] < 0 || n[2] < 0 || (n[0] >= 0 && n[1] < 1))
        return "has a negative dimension";
    int64_t most = 0;
    if (n[0] >= 0 &&
        (!td_multiply_checked(n[1], graph->extents[n[0]].capacity, &most) || !td_add_checked(most, n[2], &most)))
        return "has a dimension beyond 64 bits";
    return NULL;
}

td_status *td_infer_shape_attr(const td_infer *infer, td_shape *out_shape)
{
    const td_attr *attr = td_attr_find(infer->attrs, infer->n_attrs, "shape");
    if (!attr || attr->type != TD_ATTR_INTS || attr->n_ints % 3 != 0 || attr->n_ints / 3 > TD_MAX_RANK)
        return TD_SHAPE_ERROR(infer, "the attribute \"shape\" must be a shape of at most %d dimensions", TD_MAX_RANK);
    memset(out_shape, 0, sizeof *out_shape);
    out_shape->rank = attr->n_ints / 3;
    int64_t elements = 1;
    for (int32_t i = 0; i < out_shape->rank; i++) {
        const int64_t *n = attr->ints + 3 * i;
        const char *problem = dim_problem(infer->graph, n);
        if (problem)
            return TD_SHAPE_ERROR(infer, "the attribute \"shape\" %s", problem);
        out_shape->dims[i] = n[0] < 0 ? td_dim_constant(n[2]) : (td_dim){(int32_t)n[0], n[1], n[2]};
        if (!td_multiply_checked(elements, td_dim_capacity(infer->graph, out_shape->dims[i]), &elements) ||
            elements > INT64_MAX / 16)
            return TD_SHAPE_ERROR(infer, "the attribute \"shape\" holds more elements than 64 bits can count in bytes");
    }
    return NULL;
}

td_status *td_infer_summed_gradient(const td_infer *infer, int32_t gradient)
{
    enum { MICRO_NUMBERS = 3 };
    const int32_t sum = gradient + 1, micro = gradient + 2;
    const td_kind kinds[] = {sum < infer->n_inputs ? infer->inputs[sum].kind : TD_NONE,
                             micro < infer->n_inputs ? infer->inputs[micro].kind : TD_NONE};
    if ((kinds[0] == TD_NONE) != (kinds[1] == TD_NONE))
        return TD_SHAPE_ERROR(infer, "a sum of micro-batches and how far the window is come together");
    if (kinds[0] == TD_NONE)
        return NULL;
    TD_TRY(td_infer_require(infer, sum, TD_DENSE, TD_F32));
    TD_TRY(td_infer_require(infer, micro, TD_SCALAR, TD_F64));
    if (infer->inputs[gradient].kind != TD_DENSE ||
        !td_shape_equal(&infer->inputs[gradient].shape, &infer->inputs[sum].shape))
        return TD_SHAPE_ERROR(infer, "gradient and sum must be dense and have one shape");
    if (infer->inputs[micro].shape.rank != 1 || !td_dim_is(infer->inputs[micro].shape.dims[0], MICRO_NUMBERS))
        return TD_SHAPE_ERROR(infer, "micro must be %d numbers", (int)MICRO_NUMBERS);
    return NULL;
}

td_status *td_infer_filled(td_infer *infer)
{
    td_type *y = &infer->outputs[0];
    y->kind = TD_DENSE;
    TD_TRY(td_infer_dtype_attr(infer, &y->dtype));
    if (!(TD_FLOATS >> y->dtype & 1))
        return TD_SHAPE_ERROR(infer, "dtype is %s; it must be f32, f16 or bf16", td_dtype_name(y->dtype));
    return td_infer_shape_attr(infer, &y->shape);
}

bool td_dtype_parse(const char *name, td_dtype *out_dtype)
{
    for (int dtype = 0; dtype < TD_DTYPE_COUNT; dtype++)
        if (strcmp(name, td_dtype_name((td_dtype)dtype)) == 0) {
            *out_dtype = (td_dtype)dtype;
            return true;
        }
    return false;
}

td_status *td_infer_dtype_attr(const td_infer *infer, td_dtype *out_dtype)
{
    const char *name = td_attr_string(infer->attrs, infer->n_attrs, "dtype", "");
    char list[96];
    if (!td_dtype_parse(name, out_dtype))
        return TD_SHAPE_ERROR(infer, "\"%s\" is no dtype; there are %s", name,
                              dtype_list(TD_ANY_DTYPE, list, sizeof list));
    return NULL;
}

td_status *td_infer_elementwise(td_infer *infer, unsigned dtypes)
{
    TD_TRY(td_infer_dense(infer, 0, dtypes));
    TD_TRY(td_infer_dense(infer, 1, dtypes));
    TD_TRY(td_infer_same_dtype(infer, 0, 1));
    infer->outputs[0] = infer->inputs[0];
    return td_infer_broadcast(infer, &infer->inputs[0].shape, &infer->inputs[1].shape, &infer->outputs[0].shape);
}

td_status *td_infer_all_same(td_infer *infer)
{
    for (int32_t i = 0; i < infer->n_inputs; i++) {
        TD_TRY(td_infer_dense(infer, i, TD_FLOATS));
        TD_TRY(td_infer_same_dtype(infer, 0, i));
        TD_TRY(td_infer_same_shape(infer, 0, i));
    }
    infer->outputs[0] = infer->inputs[0];
    return NULL;
}

/* ---- shapes --------------------------------------------------------------------------------------------------------- */

bool td_shape_has_extent(const td_shape *shape)
{
    for (int32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i].extent >= 0)
            return true;
    return false;
}

/* A number of elements as factor * product of the open dimensions, each divided by what divides both its numbers. */
typedef struct monomial {
    int64_t factor;
    int32_t n;
    td_dim open[TD_MAX_RANK];
} monomial;

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool dim_before(td_dim a, td_dim b)
{
    if (a.extent != b.extent)
        return a.extent < b.extent;
    return a.multiple != b.multiple ? a.multiple < b.multiple : a.constant < b.constant;
}

static bool factorise(const td_shape *shape, monomial *out)
{
    *out = (monomial){.factor = 1};
    for (int32_t i = 0; i < shape->rank; i++) {
        td_dim dim = shape->dims[i];
        int64_t common = dim.extent < 0 ? dim.constant : greatest_common_divisor(dim.multiple, dim.constant);
        if (!td_multiply_checked(out->factor, common, &out->factor))
            return false;
        if (dim.extent < 0)
            continue;
        td_dim reduced = {dim.extent, dim.multiple / common, dim.constant / common};
        int32_t at = out->n++;
        for (; at > 0 && dim_before(reduced, out->open[at - 1]); at--)
            out->open[at] = out->open[at - 1];
        out->open[at] = reduced;
    }
    return true;
}

bool td_shape_same_elements(const td_shape *a, const td_shape *b)
{
    monomial left, right;
    if (!factorise(a, &left) || !factorise(b, &right) || left.factor != right.factor)
        return false;
    if (left.factor == 0)
        return true;
    if (left.n != right.n)
        return false;
    for (int32_t i = 0; i < left.n; i++)
        if (!td_dim_equal(left.open[i], right.open[i]))
            return false;
    return true;
}

td_attr td_shape_attr(const td_shape *shape, int64_t *numbers)
{
    for (int32_t i = 0; i < shape->rank; i++) {
        td_dim dim = shape->dims[i];
        numbers[3 * i] = dim.extent < 0 ? -1 : dim.extent;
        numbers[3 * i + 1] = dim.extent < 0 ? 0 : dim.multiple;
        numbers[3 * i + 2] = dim.constant;
    }
    return TD_INTS("shape", numbers, 3 * shape->rank);
}

/* ---- builders --------------------------------------------------------------------------------------------------------- */

int32_t td_axis_of(td_value x, int32_t axis)
{
    return axis < 0 ? axis + td_value_shape(x).rank : axis;
}

td_value td_build1(const char *op, const char *name, td_value a, const td_attr *attrs, int32_t n_attrs)
{
    return td_graph_add1(a.graph, op, name, &a, 1, attrs, n_attrs);
}

td_value td_build2(const char *op, const char *name, td_value a, td_value b, const td_attr *attrs, int32_t n_attrs)
{
    return td_graph_add1(a.graph ? a.graph : b.graph, op, name, (td_value[]){a, b}, 2, attrs, n_attrs);
}

void td_cost_bytes(const td_kernel_call *call, td_cost *out_cost)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        out_cost->bytes_read += (double)td_tensor_bytes(&call->inputs[i]);
    for (int32_t i = 0; i < call->n_outputs; i++)
        out_cost->bytes_written += (double)td_tensor_bytes(&call->outputs[i]);
}

td_value td_step_random(td_graph *graph)
{
    static const double evaluation[3] = {0, -1, 0};
    const td_value known = td_graph_find(graph, "step.random");
    return known.id >= 0 ? known : td_scalar(graph, "step.random", TD_I64, 3, evaluation);
}
