/* What the shape rules and builders of several ops share: dtype sets, axes, and shapes and dtypes as attributes.
 *
 * A shape travels in an integer-list attribute called "shape", three numbers per dimension (extent, multiple, constant);
 * the text format prints such a list as a shape. A dtype travels as its name. */
#ifndef TANDEM_GRAPH_OPS_RULES_H
#define TANDEM_GRAPH_OPS_RULES_H

#include "graph/op.h"

enum {
    TD_FLOATS = 1 << TD_F32 | 1 << TD_F16 | 1 << TD_BF16, /* what kernels compute in */
    TD_INTEGERS = 1 << TD_I32 | 1 << TD_I64,
    TD_NUMERIC = TD_FLOATS | TD_INTEGERS,
    TD_ANY_DTYPE = (1 << TD_DTYPE_COUNT) - 1
};

/* Input `index` must be dense, of one of these dtypes (bits 1 << dtype). */
td_status *td_infer_dense(const td_infer *infer, int32_t index, unsigned dtypes) TD_MUST_USE;
/* Inputs `a` and `b` must have one dtype. */
td_status *td_infer_same_dtype(const td_infer *infer, int32_t a, int32_t b) TD_MUST_USE;
/* Inputs `a` and `b` must have one shape. */
td_status *td_infer_same_shape(const td_infer *infer, int32_t a, int32_t b) TD_MUST_USE;
/* The attribute "axis", which must be in [0, rank). */
td_status *td_infer_axis(const td_infer *infer, int32_t rank, int32_t *out_axis) TD_MUST_USE;
/* The attribute "shape". */
td_status *td_infer_shape_attr(const td_infer *infer, td_shape *out_shape) TD_MUST_USE;
/* One output of the attributes "shape" and "dtype", a dense value of floats. */
td_status *td_infer_filled(td_infer *infer) TD_MUST_USE;
/* The attribute "dtype". */
td_status *td_infer_dtype_attr(const td_infer *infer, td_dtype *out_dtype) TD_MUST_USE;
/* Inputs `gradient`, and after it `sum` of a window's earlier micro-batches and `micro` (graph/ops/accumulate.c), both or neither: of an
 * op that sees sum + gradient, as an update does that adds the last micro-batch's by itself (graph/ops/update_mixed.c). */
td_status *td_infer_summed_gradient(const td_infer *infer, int32_t gradient) TD_MUST_USE;
/* The name of a port of the op, by argument number. */
const char *td_infer_port(const td_infer *infer, int32_t index);

/* Elementwise ops of two inputs with broadcasting, of these dtypes. */
td_status *td_infer_elementwise(td_infer *infer, unsigned dtypes) TD_MUST_USE;
/* Gradients of elementwise ops: all inputs of one shape and float dtype, which is the output's too. */
td_status *td_infer_all_same(td_infer *infer) TD_MUST_USE;

/* False when the name is no dtype's. */
bool td_dtype_parse(const char *name, td_dtype *out_dtype);
/* True only when both hold equally many elements at every size of their extents. */
bool td_shape_same_elements(const td_shape *a, const td_shape *b);
bool td_shape_has_extent(const td_shape *shape);

/* `numbers` has room for 3 * TD_MAX_RANK; they live as long as the attribute is used. */
td_attr td_shape_attr(const td_shape *shape, int64_t *numbers);
/* Counts from the end when negative. */
int32_t td_axis_of(td_value x, int32_t axis);
td_value td_build1(const char *op, const char *name, td_value a, const td_attr *attrs, int32_t n_attrs);
td_value td_build2(const char *op, const char *name, td_value a, td_value b, const td_attr *attrs, int32_t n_attrs);
/* The gradient of an elementwise op's input: `gradient` summed over what broadcasting repeated. */
td_value td_reduce_to(td_value gradient, td_value input);

/* The graph's scalar "step.random", i64[3]: {seed, update, index of the batch's first sample}; an update below 0, which is how
 * it starts, means evaluation. */
td_value td_step_random(td_graph *graph);

/* Bytes of all arguments, for cost functions. */
void td_cost_bytes(const td_kernel_call *call, td_cost *out_cost);

#endif
