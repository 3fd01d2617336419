/* The IR and its builder: a model is a graph of ops over typed values.
 *
 *     td_graph *graph = NULL;
 *     TD_TRY(td_graph_create(&graph));
 *     td_dim batch = td_extent(graph, "B", 2048);
 *     td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, 13));
 *     td_value y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
 *     td_value hidden = td_relu(td_linear(x, 64, "fc.0"));
 *     td_value loss = td_mse(td_linear(hidden, 1, "fc.1"), y);
 *     td_target(hidden, "accel");                                   // primitive_target of the op that makes it
 *     TD_TRY(td_graph_check(graph));
 *
 * A value knows its graph, so calls nest. The graph remembers its first error; later builder calls do nothing, and the
 * next call that returns a status (td_graph_check, td_plan_train) reports it. One thread at a time per graph. */
#ifndef TANDEM_GRAPH_H
#define TANDEM_GRAPH_H

#include "tandem/backend.h"
#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_graph td_graph;

/* A value of a graph. `id` < 0: no value (an optional argument left out, or a builder call after an error). */
typedef struct td_value {
    td_graph *graph;
    int32_t id;
} td_value;
#define TD_NO_VALUE ((td_value){NULL, -1})

/* A dimension: multiple * extent + constant, or just the constant (extent < 0). */
typedef struct td_dim {
    int32_t extent;
    int64_t multiple;
    int64_t constant;
} td_dim;

typedef struct td_shape {
    int32_t rank;
    td_dim dims[TD_MAX_RANK];
} td_shape;

/* Buffer classes. */
typedef enum td_class {
    TD_CLASS_INPUT = 0, /* comes with each batch */
    TD_CLASS_PARAMETER,
    TD_CLASS_STATE, /* an optimizer's */
    TD_CLASS_ACTIVATION,
    TD_CLASS_GRADIENT,
    TD_CLASS_SCALAR, /* host numbers passed by value at launch */
    TD_CLASS_CONSTANT,
    TD_CLASS_STAGING, /* made by the planner: copies */
    TD_CLASS_REPLICA, /* made by the planner: a parameter where it is read, refreshed after its update elsewhere */
    TD_CLASS_COUNT
} td_class;

td_status *td_graph_create(td_graph **out_graph) TD_MUST_USE;
void td_graph_destroy(td_graph *graph);
/* The first error of the building so far (taken: a second call returns NULL for it but building stays stopped), or what
 * is wrong with the whole: a dangling input, a cycle through declared state. */
td_status *td_graph_check(td_graph *graph) TD_MUST_USE;

/* ---- shapes ------------------------------------------------------------------------------------------------------- */

/* A named extent with its capacity: the size of a dimension that differs from batch to batch. The same name twice is the
 * same extent; its capacity must agree. */
td_dim td_extent(td_graph *graph, const char *name, int64_t capacity);
td_dim td_dim_constant(int64_t n);
td_dim td_dim_self(td_dim dim);
td_shape td_shape_of(int32_t rank, const td_dim *dims);

#ifndef __cplusplus
#define TD_DIM(x) _Generic((x), td_dim : td_dim_self, default : td_dim_constant)(x)
#define TD_DIMS_1(a) TD_DIM(a)
#define TD_DIMS_2(a, b) TD_DIM(a), TD_DIM(b)
#define TD_DIMS_3(a, b, c) TD_DIM(a), TD_DIM(b), TD_DIM(c)
#define TD_DIMS_4(a, b, c, d) TD_DIM(a), TD_DIM(b), TD_DIM(c), TD_DIM(d)
#define TD_DIMS_5(a, b, c, d, e) TD_DIM(a), TD_DIM(b), TD_DIM(c), TD_DIM(d), TD_DIM(e)
#define TD_DIMS_6(a, b, c, d, e, f) TD_DIM(a), TD_DIM(b), TD_DIM(c), TD_DIM(d), TD_DIM(e), TD_DIM(f)
#define TD_DIMS_PICK(a, b, c, d, e, f, name, ...) name
/* 1 to 6 dimensions, numbers and extents mixed: TD_SHAPE(batch, 13). */
#define TD_SHAPE(...)                                                                                                  \
    td_shape_of((int32_t)(sizeof((td_dim[]){TD_DIMS_(__VA_ARGS__)}) / sizeof(td_dim)),                                 \
                (td_dim[]){TD_DIMS_(__VA_ARGS__)})
#define TD_DIMS_(...)                                                                                                  \
    TD_DIMS_PICK(__VA_ARGS__, TD_DIMS_6, TD_DIMS_5, TD_DIMS_4, TD_DIMS_3, TD_DIMS_2, TD_DIMS_1, 0)(__VA_ARGS__)
#endif

/* ---- values -------------------------------------------------------------------------------------------------------- */

/* How a parameter starts. Values are a function of (seed, parameter name, element index) alone. */
typedef enum td_initializer_kind {
    TD_INIT_CONSTANT = 0, /* a */
    TD_INIT_UNIFORM,      /* [a, b) */
    TD_INIT_NORMAL        /* mean a, standard deviation b */
} td_initializer_kind;
typedef struct td_initializer {
    td_initializer_kind kind;
    double a, b;
} td_initializer;
td_initializer td_init_constant(double value);
td_initializer td_init_uniform(double bound); /* [-bound, bound) */
td_initializer td_init_normal(double mean, double deviation);

/* What comes with each batch under this name. `shape` may use extents in any dimension. */
td_value td_input(td_graph *graph, const char *name, td_dtype dtype, td_shape shape);
/* Bags of ids: `bags` bags, `ids` in all (an extent whose capacity bounds them). */
td_value td_input_ragged(td_graph *graph, const char *name, td_dtype dtype, td_dim bags, td_dim ids);
/* A trained tensor; its shape has constants only. */
td_value td_parameter(td_graph *graph, const char *name, td_dtype dtype, td_shape shape, td_initializer initial);
/* A short vector of host numbers that a step may change without a new plan; read by ops that take a scalar. */
td_value td_scalar(td_graph *graph, const char *name, td_dtype dtype, int32_t n, const double *initial);

/* Excludes a parameter from training. Returns it. */
td_value td_freeze(td_value parameter);
/* Sets primitive_target of the op that makes `value` ("cpu", "accel", ...; case ignored). Returns the value. */
td_value td_target(td_value value, const char *device);
/* Names the op that makes `value` (and the value). Returns the value. */
td_value td_name(td_value value, const char *name);
/* Names made between push and pop start with "scope/". */
void td_scope_push(td_graph *graph, const char *scope);
void td_scope_pop(td_graph *graph);
/* Marks a value as one to be read after a step, evaluated even if no loss needs it. */
void td_output(td_value value);

/* ---- looking ------------------------------------------------------------------------------------------------------- */

/* By full name; TD_NO_VALUE when there is none. */
td_value td_graph_find(td_graph *graph, const char *name);
const char *td_value_name(td_value value);
td_dtype td_value_dtype(td_value value);
td_kind td_value_kind(td_value value);
td_class td_value_class(td_value value);
/* Shape with extents; td_value_capacity gives numbers at capacity. */
td_shape td_value_shape(td_value value);
int64_t td_value_dim(td_value value, int32_t axis); /* at capacity; negative axes count from the end */
int64_t td_graph_extent_capacity(const td_graph *graph, td_dim dim);
const char *td_dtype_name(td_dtype dtype);
size_t td_dtype_bytes(td_dtype dtype);

/* ---- text form (.tdg) ------------------------------------------------------------------------------------------------ */

/* The graph as text, one line per node; parsing it gives an equal graph. The caller owns *out_text (td_text_free). */
td_status *td_graph_print(const td_graph *graph, char **out_text) TD_MUST_USE;
void td_text_free(char *text);
/* `origin` names the text in errors ("model.tdg"): "model.tdg:3:14: ...". Never reads beyond text[bytes]. */
td_status *td_graph_parse(const char *text, size_t bytes, const char *origin, td_graph **out_graph) TD_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
