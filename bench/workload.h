/* One case made ready: its graph, its batches, and what is known about the work of a step. Families fill it in. */
#ifndef TANDEM_BENCH_WORKLOAD_H
#define TANDEM_BENCH_WORKLOAD_H

#include "bench/bench.h"

enum { TD_WORKLOAD_BATCHES = 8, TD_WORKLOAD_MOST_FIELDS = 64 };

struct td_workload {
    td_graph *graph;
    td_train_options options;
    td_value loss;   /* id < 0: no training, `output` is computed */
    td_value output; /* of a forward case */
    td_batch batches[TD_WORKLOAD_BATCHES];
    td_field *fields; /* TD_WORKLOAD_MOST_FIELDS of each batch */
    void **owned;     /* memory of the batches */
    int64_t n_owned, owned_capacity;
    const char *scalar; /* set to another number before every step, within its time; NULL: none */
    bool planning;      /* what is timed is making the plan, with options and device, not a step of it */
    int32_t warm_up, runs;
    int64_t samples; /* of a batch: gives samples_per_s; 0: does not */
    int64_t ops;     /* gives us_per_op; 0: does not */
    /* The least work of one step: see td_bench_bound. */
    double flops, stream_bytes, row_bytes;
    double row_size;           /* bytes of one row */
    td_update_streams streams; /* the step is an optimizer's: stream_bytes are bounded by these */
    td_bench_fact facts[TD_BENCH_MOST_FACTS];
    int32_t n_facts;
    td_status *error; /* the first failure of the calls below that return no status */
};

td_status *td_workload_init(td_workload *workload) TD_MUST_USE;
void td_workload_deinit(td_workload *workload);

/* Memory that lives as long as the workload; NULL when there is none, which td_workload_check reports. */
void *td_workload_memory(td_workload *workload, size_t bytes);
/* Puts a field into batch `index`. `data` and `offsets` are borrowed for the workload's life. */
void td_workload_dense(td_workload *workload, int32_t index, const char *name, td_dtype dtype, int32_t rank,
                       const int64_t *dims, void *data);
void td_workload_ragged(td_workload *workload, int32_t index, const char *name, int64_t bags, int64_t *ids,
                        int64_t *offsets);
/* A text that lives as long as the workload. */
const char *td_workload_text(td_workload *workload, const char *format, ...) TD_PRINTF(2, 3);
void td_workload_fact(td_workload *workload, const char *name, double value);
/* The first failure so far, which the caller then owns. */
td_status *td_workload_check(td_workload *workload) TD_MUST_USE;

/* ---- numbers -------------------------------------------------------------------------------------------------------------- */

/* A stream of random numbers, its own for each purpose. */
typedef struct td_bench_random {
    uint64_t state;
} td_bench_random;
double td_bench_uniform(td_bench_random *random); /* [0, 1) */
/* `count` ids of a table of `rows`: a bounded power law by the inverse of its continuous distribution, scattered over the
 * table by id * 2654435761 mod rows, as the peers' scripts draw them. */
void td_bench_zipf(td_bench_random *random, int64_t rows, double alpha, int64_t count, int64_t *out_ids);
/* How many different ids there are. Errors: no memory. */
td_status *td_bench_distinct(const int64_t *ids, int64_t count, int64_t rows, int64_t *out_distinct) TD_MUST_USE;

/* An error unless the request leaves `given` alone: a case without such a size refuses it. */
td_status *td_bench_has_not(const td_bench_case *which, const char *option, double given) TD_MUST_USE;

#define TD_BENCH_CASE(family, name, rule, summary)                                                                     \
    td_status *td_bench_##family(const td_bench_case *self, const td_bench_request *request, td_workload *out);
#include "bench/cases.def"
#undef TD_BENCH_CASE

#endif
