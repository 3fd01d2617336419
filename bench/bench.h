/* The built-in cases of `tandem bench --case`: a model, its batches, and how long one step takes.
 *
 *     const td_bench_case *which = td_bench_find("dlrm.kaggle");
 *     td_bench_result result;
 *     TD_TRY(td_bench_run(which, &(td_bench_request){0}, &result));
 *     printf("%f ms\n", 1e3 * result.median_s);
 *     td_bench_result_deinit(&result);
 *
 * A case is built with the public C API alone and runs as a user's model would: a graph, a plan on the one device "cpu", a
 * store, a session. Shapes, ids, batches (eight, taken in turn), optimizers and rules of timing are those of the peers'
 * scripts in bench/peers. Data stands ready before the clock starts. Here is no printing, and no comparing with others:
 * bench/compare does that. */
#ifndef TANDEM_BENCH_BENCH_H
#define TANDEM_BENCH_BENCH_H

#include "bench/machine.h"
#include "bench/update_streams.h"
#include "tandem/tandem.h"

/* What a person may change of a case; 0 keeps the case's own. A family refuses what it has not. */
typedef struct td_bench_request {
    int64_t batch, rows, tables, dim, bag; /* rows: of the largest tables */
    double alpha;                          /* Zipf exponent of ids; TD_BENCH_UNIFORM: uniform */
    int32_t threads;
    int32_t runs;  /* timed steps */
    bool no_bound; /* the machine is not measured */
    bool ops;      /* as many steps more, with each op timed */
} td_bench_request;
#define TD_BENCH_UNIFORM (-1.0)

typedef struct td_bench_case td_bench_case;
typedef struct td_workload td_workload;

struct td_bench_case {
    const char *name, *rule, *summary;
    td_status *(*build)(const td_bench_case *self, const td_bench_request *request, td_workload *out);
};

int32_t td_bench_count(void);
const td_bench_case *td_bench_at(int32_t index);
/* NULL when there is none; then td_bench_nearest names the closest. */
const td_bench_case *td_bench_find(const char *name);
const char *td_bench_nearest(const char *name);

/* A further number of a result: "batch", "rows", ... */
typedef struct td_bench_fact {
    const char *name;
    double value;
} td_bench_fact;
enum { TD_BENCH_MOST_FACTS = 10 };

/* What one op took of a step. */
typedef struct td_bench_op {
    char name[64], op[32];
    double seconds, flops, bytes;
} td_bench_op;

typedef struct td_bench_result {
    const td_bench_case *which;
    double median_s, q1_s, q3_s; /* of one step */
    int32_t runs, threads;
    bool elsewhere; /* another rank of the job measured; nothing is known here */
    bool in_bf16;   /* products are of bf16 */
    double bound_s; /* what the machine allows: see td_bench_bound; 0: not measured */
    double flops, stream_bytes, row_bytes, row_size;
    td_update_streams streams;
    td_machine_limits limits;
    td_bench_fact facts[TD_BENCH_MOST_FACTS];
    int32_t n_facts;
    td_bench_op *ops; /* slowest first; only where they were asked for */
    int32_t n_ops;
} td_bench_result;

void td_bench_result_deinit(td_bench_result *result);

/* Builds the case, warms up, times steps, and measures the machine. On failure the result holds nothing. */
td_status *td_bench_run(const td_bench_case *which, const td_bench_request *request,
                        td_bench_result *out_result) TD_MUST_USE;

/* The losses of the first `n` steps from the initial values, and those values and all batches as a file of named tensors
 * (safetensors; NULL: no file), so that another framework can do the same steps:
 *     param/<name>                    every parameter
 *     batch.<i>/<input>               data of batch i; of bags also batch.<i>/<input>/offsets
 * Step k (from 0) takes batch (k + 1) modulo TD_WORKLOAD_BATCHES. A case that trains nothing is refused. */
td_status *td_bench_losses(const td_bench_case *which, const td_bench_request *request, const char *path, int32_t n,
                           float *out_losses) TD_MUST_USE;

#endif
