/* What an op is: its schema, shape rule, gradient, cost and reference kernel, as one constant table per op.
 *
 * One file in graph/ops/ defines an op and, where it has them, the ops of its gradient. Every table is listed once in
 * graph/ops/ops.def; docs and `tandem ops` come from there. Copy graph/ops/_template.c to add one. */
#ifndef TANDEM_GRAPH_OP_H
#define TANDEM_GRAPH_OP_H

#include "graph/graph.h"

enum { TD_MAX_PORTS = 14 };

typedef enum td_port_flags {
    TD_PORT_OPTIONAL = 1,    /* may be absent (kind TD_NONE) */
    TD_PORT_VARIADIC = 2,    /* the last port may repeat, at least once unless optional */
    TD_PORT_WRITES = 4,      /* state: the op reads and writes it in place */
    TD_PORT_NO_GRADIENT = 8, /* never differentiated (ids, labels, scalars) */
    TD_PORT_AFTER = 16       /* state: read as this step's writer leaves it, not as the step before did */
} td_port_flags;

/* An argument of an op. An empty name ends the list. */
typedef struct td_port {
    const char *name;
    unsigned flags;
} td_port;

/* An attribute that an op knows. A NULL name ends the list. Defaults apply where it is left out. */
typedef struct td_attr_spec {
    const char *name;
    td_attr_type type;
    bool required;
    int64_t i; /* defaults */
    double f;
    const char *s;
    const char *help;
} td_attr_spec;

typedef enum td_op_flags {
    TD_OP_VIEW = 1,      /* the output is the first input's memory under another shape */
    TD_OP_HOST_ONLY = 2, /* runs on the host whatever the default device */
    TD_OP_INTERNAL = 4,  /* made by the engine, not by users (gradients, copies) */
    TD_OP_LOSS = 8,      /* the output's gradient may be a scalar, passed by value */
    TD_OP_NAMED = 16,    /* the result depends on the node's name (dropout's mask): equal nodes are not the same */
    TD_OP_KEEPS = 32,    /* its outputs keep what they held: the op reads them too (accumulate) */
    TD_OP_HOLDS =
        128, /* the same, but it belongs to forward: it waits for nothing and runs in every micro-batch (hold) */
    TD_OP_REMOTE = 64 /* the other ranks of a job take part (runtime/remote.h): there is no kernel and no reference */
} td_op_flags;

/* The type of a value as inference sees it. */
typedef struct td_type {
    td_kind kind;
    td_dtype dtype;
    td_shape shape; /* ragged: [bags]; row-sparse: of the table */
    td_dim entries; /* ragged, row-sparse */
} td_type;

/* Inference: fill outputs[0..n_outputs) from inputs (absent ones have kind TD_NONE) and attributes. */
typedef struct td_infer {
    td_graph *graph; /* for extents' names and capacities in messages */
    const char *op, *name;
    const td_attr *attrs;
    const td_type *inputs;
    td_type *outputs;
    int32_t n_attrs, n_inputs, n_outputs;
} td_infer;

/* Differentiation of one node: for each wanted input, build ops and store its gradient in input_gradients (TD_NO_VALUE:
 * zero). output_gradients[i].id < 0: nothing flows into that output. Names: td_graph_add_auto gives backward nodes theirs. */
typedef struct td_differentiate {
    td_graph *graph;
    int32_t node;
    const char *name;
    const td_attr *attrs;
    const td_value *inputs, *outputs, *output_gradients;
    td_value *input_gradients;
    const bool *wanted;
    int32_t n_attrs, n_inputs, n_outputs;
} td_differentiate;

typedef struct td_cost {
    double flops, bytes_read, bytes_written;
} td_cost;

typedef struct td_op {
    const char *name;
    const char *summary; /* one line for `tandem ops` */
    td_port inputs[TD_MAX_PORTS];
    int8_t repeats;     /* a VARIADIC last input: how many of the last ports repeat together; 0 means 1 */
    td_port outputs[4]; /* a VARIADIC last one: as many as the attribute "outputs" says */
    const td_attr_spec *attrs;
    unsigned flags;
    td_status *(*infer)(td_infer *infer);
    td_status *(*gradient)(td_differentiate *differentiate); /* NULL: has none, for the reason below */
    const char *no_gradient;
    /* At the call's extents. NULL: one flop per output element, every argument read or written once. */
    void (*cost)(const td_kernel_call *call, td_cost *out_cost);
    /* Pairs of (output, input) + 1 whose memory may be shared when nobody needs that input afterwards; {0, 0} ends. */
    struct {
        int8_t output, input;
    } in_place[3];
    /* Plain C, one thread, host memory, any extents; its only virtue is being obviously right. */
    td_status *(*reference)(const td_kernel_call *call);
} td_op;

/* All ops, in the order of ops.def. */
int32_t td_op_count(void);
const td_op *td_op_at(int32_t index);
/* NULL when there is none. */
const td_op *td_op_find(const char *name);
/* The closest known name, for "did you mean". */
const char *td_op_nearest(const char *name);
/* For td_host_services. NULL when there is none. */
td_status *(*td_op_reference(const char *name))(const td_kernel_call *call);

/* The port that input `input` belongs to. */
const td_port *td_op_port(const td_op *op, int32_t input);
/* Runs the cost function or its default. */
td_cost td_op_cost(const td_op *op, const td_kernel_call *call);

/* ---- helpers for shape rules ------------------------------------------------------------------------------------------ */

/* An error that starts with the op and the node: "linear bottom.0/linear: ...". */
#define TD_SHAPE_ERROR(infer, ...) td_infer_error((infer), __FILE__, __LINE__, __VA_ARGS__)
td_status *td_infer_error(const td_infer *infer, const char *file, int line, const char *format, ...)
    TD_PRINTF(4, 5) TD_MUST_USE;
bool td_dim_equal(td_dim a, td_dim b);
bool td_shape_equal(const td_shape *a, const td_shape *b);
bool td_dim_is(td_dim dim, int64_t constant); /* a constant of this value */
/* "[B<=2048, 13]" into a buffer; returns it. */
const char *td_shape_text(const td_graph *graph, const td_shape *shape, char *buffer, size_t bytes);
/* sum of two dims; false when they use different extents, or beyond 64 bits */
bool td_dim_add(td_dim a, td_dim b, td_dim *out);
/* product; false unless one is a constant, or beyond 64 bits */
bool td_dim_multiply(td_dim a, td_dim b, td_dim *out);
/* Elements of a shape as one dim; false when two extents would be multiplied. */
bool td_shape_elements(const td_shape *shape, td_dim *out);
/* Whether the capacity of every dimension, and their product, is at most 2^59: then bytes can be counted in 64 bits. */
bool td_shape_fits(const td_graph *graph, const td_shape *shape);
/* NumPy broadcasting. */
td_status *td_infer_broadcast(td_infer *infer, const td_shape *a, const td_shape *b, td_shape *out) TD_MUST_USE;
/* outputs[0] = inputs[0]'s type; inputs[0] must be a dense float. */
td_status *td_infer_same_float(td_infer *infer) TD_MUST_USE;
/* Input `index` must be dense (or of the kind) and of a dtype: errors name the port. */
td_status *td_infer_require(const td_infer *infer, int32_t index, td_kind kind, td_dtype dtype) TD_MUST_USE;

/* Attributes of a call or of inference, with the op's defaults already filled in by the builder. */
int64_t td_attr_int(const td_attr *attrs, int32_t n, const char *key, int64_t fallback);
double td_attr_float(const td_attr *attrs, int32_t n, const char *key, double fallback);
const char *td_attr_string(const td_attr *attrs, int32_t n, const char *key, const char *fallback);
/* A copy that owns its key, string and list; after a failure too it can be freed. */
td_status *td_attr_copy(td_attr *out, const td_attr *attr) TD_MUST_USE;
void td_attr_deinit(td_attr *attr);
/* Everything that a node owns. */
void td_node_deinit(td_node *node);
const td_attr *td_attr_find(const td_attr *attrs, int32_t n, const char *key);

/* ---- helpers for kernels ------------------------------------------------------------------------------------------------ */

static inline int64_t td_tensor_elements(const td_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}
/* The product of all dims but the last, and the last; rank 0 counts as [1]. */
static inline int64_t td_tensor_rows(const td_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i + 1 < t->rank; i++)
        n *= t->dims[i];
    return n;
}
static inline int64_t td_tensor_last(const td_tensor *t)
{
    return t->rank ? t->dims[t->rank - 1] : 1;
}
/* Bytes of all buffers of a tensor. */
int64_t td_tensor_bytes(const td_tensor *t);

/* ---- helpers for builders -------------------------------------------------------------------------------------------------- */

#define TD_INT(key_, value) ((td_attr){.key = (key_), .type = TD_ATTR_INT, .i = (value)})
#define TD_FLAG(key_, value) ((td_attr){.key = (key_), .type = TD_ATTR_BOOL, .i = (value)})
#define TD_FLOAT(key_, value) ((td_attr){.key = (key_), .type = TD_ATTR_FLOAT, .f = (value)})
#define TD_STRING(key_, value) ((td_attr){.key = (key_), .type = TD_ATTR_STRING, .s = (value)})
#define TD_INTS(key_, values, n) ((td_attr){.key = (key_), .type = TD_ATTR_INTS, .ints = (values), .n_ints = (n)})

/* Adds a node and infers its outputs. `name` NULL: automatic. `out_values` gets the outputs (TD_NO_VALUE after an error),
 * n_outputs of them. Inputs may be TD_NO_VALUE where the port is optional. Errors are kept in the graph. */
void td_graph_add(td_graph *graph, const char *op, const char *name, const td_value *inputs, int32_t n_inputs,
                  const td_attr *attrs, int32_t n_attrs, td_value *out_values, int32_t n_outputs);
/* For one output. Inside td_op.gradient, automatic names are "<forward node>/<op>" with a suffix for the input where the
 * op occurs twice, so they never tie. */
td_value td_graph_add1(td_graph *graph, const char *op, const char *name, const td_value *inputs, int32_t n_inputs,
                       const td_attr *attrs, int32_t n_attrs);
/* Keeps the first error of building. Takes `status`. */
void td_graph_fail(td_graph *graph, td_status *status);
bool td_graph_failed(const td_graph *graph);

#endif
