/* The table of cases, and running one: see bench/bench.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "bench/workload.h"

static const td_bench_case cases[] = {
#define TD_BENCH_CASE(family, name, rule, summary) {name, rule, summary, td_bench_##family},
#include "bench/cases.def"
#undef TD_BENCH_CASE
};

int32_t td_bench_count(void)
{
    return (int32_t)(sizeof cases / sizeof *cases);
}

const td_bench_case *td_bench_at(int32_t index)
{
    return &cases[index];
}

const td_bench_case *td_bench_find(const char *name)
{
    for (int32_t i = 0; i < td_bench_count(); i++)
        if (!strcmp(cases[i].name, name))
            return &cases[i];
    return NULL;
}

static const char *name_at(const void *context, int32_t index)
{
    (void)context;
    return cases[index].name;
}

const char *td_bench_nearest(const char *name)
{
    return td_nearest(name, td_bench_count(), name_at, NULL);
}

/* ---- running -------------------------------------------------------------------------------------------------------------------- */

enum { LEAST_RUNS = 5 };
static const double MOST_SECONDS = 20; /* of timed steps, once there are LEAST_RUNS */

typedef struct engine {
    td_plan *plan;
    td_store *store;
    td_session *session;
} engine;

static td_status *open_engine(td_workload *work, int32_t threads, engine *out)
{
    char device[32];
    snprintf(device, sizeof device, "cpu:cores=%d", threads);
    td_add_device(&work->options, "cpu", device);
    if (work->loss.id >= 0)
        TD_TRY(td_plan_train(work->graph, work->loss, &work->options, &out->plan));
    else
        TD_TRY(td_plan_evaluate(work->graph, &work->output, 1, &work->options, NULL, &out->plan));
    TD_TRY(td_store_create(out->plan, &out->store));
    return td_session_create(out->plan, out->store, &out->session);
}

static void close_engine(engine *e)
{
    td_session_destroy(e->session);
    td_store_release(e->store);
    td_plan_release(e->plan);
}

/* Seconds of step `index`: all that a step of its own costs, from a batch in hand to the end of its updates. */
static td_status *time_step(const td_workload *work, engine *e, int64_t index, double *out_seconds)
{
    td_step_report report;
    double factor = 0.5 + 1e-3 * (double)index;
    int64_t begin = td_clock_ns();
    if (work->scalar)
        TD_TRY(td_session_set_scalar(e->session, work->scalar, &factor, 1));
    TD_TRY(td_session_step(e->session, &work->batches[(index + 1) % TD_WORKLOAD_BATCHES], &report));
    *out_seconds = 1e-9 * (double)(td_clock_ns() - begin);
    return NULL;
}

static td_status *time_steps(const td_workload *work, engine *e, int32_t runs, double *times, int32_t *out_n)
{
    int64_t index = 0;
    double begin = 0, warm = 0;
    for (int32_t i = 0; i < work->warm_up; i++)
        TD_TRY(time_step(work, e, index++, &warm));
    begin = 1e-9 * (double)td_clock_ns();
    *out_n = 0;
    while (*out_n < runs && (*out_n < LEAST_RUNS || 1e-9 * (double)td_clock_ns() - begin < MOST_SECONDS)) {
        TD_TRY(time_step(work, e, index++, &times[*out_n]));
        ++*out_n;
    }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Quantiles as Python's statistics.quantiles(n=4) has them ("exclusive"): position share * (n + 1), from 1. */
static double quantile(const double *sorted, int32_t n, double share)
{
    double position = share * (n + 1);
    int32_t below = (int32_t)position;
    if (below < 1)
        return sorted[0];
    if (below >= n)
        return sorted[n - 1];
    return sorted[below - 1] + (position - below) * (sorted[below] - sorted[below - 1]);
}

static void summarize(const td_workload *work, double *times, td_bench_result *out)
{
    qsort(times, (size_t)out->runs, sizeof *times, ascending);
    out->median_s = quantile(times, out->runs, 0.5);
    out->q1_s = quantile(times, out->runs, 0.25);
    out->q3_s = quantile(times, out->runs, 0.75);
    out->flops = work->flops;
    out->stream_bytes = work->stream_bytes;
    out->row_bytes = work->row_bytes;
    out->row_size = work->row_size;
    memcpy(out->facts, work->facts, sizeof out->facts);
    out->n_facts = work->n_facts;
    if (work->samples)
        out->facts[out->n_facts++] = (td_bench_fact){"samples_per_s", (double)work->samples / out->median_s};
    if (work->ops)
        out->facts[out->n_facts++] = (td_bench_fact){"us_per_op", 1e6 * out->median_s / (double)work->ops};
}

static td_status *run_workload(td_workload *work, int32_t runs, td_bench_result *out)
{
    engine e = {0};
    double *times = NULL;
    td_status *status = open_engine(work, out->threads, &e);
    if (!status)
        status = TD_NEW(times, runs);
    if (!status)
        status = time_steps(work, &e, runs, times, &out->runs);
    if (!status)
        summarize(work, times, out);
    td_free(times);
    close_engine(&e);
    return status;
}

td_status *td_bench_run(const td_bench_case *which, const td_bench_request *request, td_bench_result *out_result)
{
    td_workload work;
    *out_result = (td_bench_result){.which = which, .threads = request->threads};
    td_core_set allowed;
    TD_TRY(td_cores_allowed(&allowed));
    if (!out_result->threads)
        out_result->threads = td_core_set_count(&allowed);
    td_status *status = td_workload_init(&work);
    if (!status)
        status = which->build(which, request, &work);
    if (!status)
        status = run_workload(&work, request->runs ? request->runs : work.runs, out_result);
    td_workload_deinit(&work);
    if (status || request->no_bound)
        return status;
    TD_TRY(td_machine_measure(out_result->threads, out_result->row_size, &out_result->limits));
    out_result->bound_s =
        td_bench_bound(&out_result->limits, out_result->flops, out_result->stream_bytes, out_result->row_bytes);
    return NULL;
}
