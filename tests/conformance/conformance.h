/* The op conformance suite: does a device compute what the ops say?
 *
 * A case is one line of a table: an op, its inputs as text, its attributes as text. For every case the suite runs the op's
 * reference kernel and the device's kernel on the same numbers, at several actual extents (full, odd, one, none), with one,
 * two and three threads, also in place where the op allows it, and compares. Ops with a gradient are differentiated in a
 * graph and compared with finite differences. Two kinds of agreement: bit for bit, the rule for devices that compute with
 * the engine's own kernels; or within a tolerance.
 *
 * Inputs as text, separated by spaces (B and N are extents, whose capacities the case states):
 *     f32[B,13]      dense; numbers of both signs, none near 0      i64[B]<50      dense integers in [0, 50)
 *     i64[B]{N}<50   ragged: B bags of N ids                        f32[50,8]{N}   row-sparse, room for N rows
 *     f64*1=0.7      a scalar of one number                         -              left out
 * and after a colon how dense floats are filled: positive (0.1 to 1.1), unit (0 to 1), above (1 to 2), wide (up to +-60); `bad` puts one
 * integer outside its range, `coefficients` makes a scalar the coefficients of the optimizer that the op is. */
#ifndef TANDEM_TESTS_CONFORMANCE_H
#define TANDEM_TESTS_CONFORMANCE_H

#include "graph/op.h"

enum { MAX_ARGUMENTS = 32, N_EXTENTS = 2, MAX_RUNS = 6 };

typedef enum case_flags {
    CASE_NEAR = 1,       /* libraries may compute it: within a tolerance instead of bit for bit */
    CASE_FAILS = 2,      /* the kernel must refuse with TD_DATA_ERROR and name the node, unless there are no elements */
    CASE_NO_GRADIENT = 4 /* finite differences say nothing here (a case beside a kink, or of huge numbers) */
} case_flags;

typedef struct conformance_case {
    const char *op, *inputs, *attrs; /* attrs "axis=1 keep=true", or NULL */
    int64_t batch, entries;          /* capacities of B and N */
    unsigned flags;
} conformance_case;

/* Each ends with an op of NULL. */
extern const conformance_case lookup_cases[], elementwise_cases[], shape_cases[], matrix_cases[], image_cases[],
    attention_cases[], update_cases[], loss_cases[], optimizer_cases[];

typedef enum fill_kind {
    FILL_BOTH_SIGNS,
    FILL_POSITIVE,
    FILL_UNIT,
    FILL_ABOVE,
    FILL_WIDE,
    FILL_BAD,
    FILL_COEFFICIENTS,
    FILL_GIVEN
} fill_kind;

/* A case as a graph of its sources and one node. */
typedef struct built_case {
    const conformance_case *source;
    td_graph *graph;
    int32_t node;
    int32_t n_inputs;
    fill_kind fills[MAX_ARGUMENTS];
    int64_t limits[MAX_ARGUMENTS];
    double given[MAX_ARGUMENTS][8];
} built_case;

/* `constants` NULL: B and N are extents; floats that a gradient may reach are inputs. Otherwise B and N are these numbers and
 * such floats are parameters, so that the graph can be differentiated. */
td_status *case_build(const conformance_case *source, const int64_t *constants, built_case *out) TD_MUST_USE;
void case_deinit(built_case *built);
/* The actual extents to run at: how many, into out. */
int32_t case_extents(const conformance_case *source, int64_t out[MAX_RUNS][N_EXTENTS]);

/* ---- arguments in host memory ------------------------------------------------------------------------------------------- */

/* One argument: memory for its capacity, a header at actual extents. */
typedef struct argument {
    td_tensor tensor;
    int64_t bytes[3]; /* at capacity: data, index, count */
    bool written;     /* an output, or an input that the op writes */
} argument;

typedef struct arguments {
    int32_t n_inputs, n_outputs;
    argument inputs[MAX_ARGUMENTS], outputs[MAX_ARGUMENTS];
} arguments;

/* Filled inputs, and outputs of recognisable garbage. */
td_status *arguments_init(const built_case *built, const int64_t *extents, arguments *out) TD_MUST_USE;
/* Copies of all of them. */
td_status *arguments_clone(const arguments *from, arguments *out) TD_MUST_USE;
void arguments_deinit(arguments *a);
/* The call on them; `tensors` keeps the headers. */
td_kernel_call arguments_call(const built_case *built, const arguments *a, td_tensor tensors[2 * MAX_ARGUMENTS]);
/* Sets source values [0, n) of a value's buffer as `fill` says; exposed for graphs of several nodes. */
void argument_fill(const built_case *built, int32_t input, argument *a);

/* Compares what was written. tolerance 0: bit for bit, and nothing beyond the actual extents may have changed. Otherwise
 * |a - b| <= tolerance * (1 + |b|). An error says where they differ. */
td_status *arguments_compare(const arguments *actual, const arguments *expected, double tolerance) TD_MUST_USE;

/* ---- the checks ---------------------------------------------------------------------------------------------------------- */

typedef struct conformance_device {
    const td_backend_api *api;
    td_device *device;
    bool exact; /* held to bits, and must support every op; otherwise `tolerance` */
    double tolerance;
    /* with this many only, beside the reference alone; 0: one to three, compared with each other too */
    int32_t threads;
} conformance_device;

td_status *device_open(const char *spec, conformance_device *out) TD_MUST_USE;
void device_deinit(conformance_device *device);
/* Runs a call's kernel on the device: results come back into `a`. `shared_output`/`shared_input` >= 0: in place. */
td_status *device_run(const conformance_device *device, const built_case *built, const int64_t *extents,
                      int32_t threads, int32_t shared_output, int32_t shared_input, arguments *a) TD_MUST_USE;
bool device_supports(const conformance_device *device, const built_case *built, char *reason, size_t reason_bytes);

/* Forward at one set of extents against the reference, and against `peer` (may be NULL) bit for bit. */
td_status *check_forward(const conformance_device *device, const conformance_device *peer, const built_case *built,
                         const int64_t *extents) TD_MUST_USE;
/* Copies, events and a long chain over three queues. */
td_status *check_queues(const conformance_device *device) TD_MUST_USE;
/* Gradient of the op's reference against finite differences of it. *out_checked: numbers compared, 0 if it has none. */
td_status *check_gradient(const conformance_case *source, int64_t *out_checked) TD_MUST_USE;

#endif
