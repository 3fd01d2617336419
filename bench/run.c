/* Timing a case by the peers' rules: warm up, time single steps, median and quartiles. See bench/bench.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench/engine.h"
#include "bench/served.h"

enum { LEAST_RUNS = 5 };
static const double MOST_SECONDS = 20; /* of timed steps, once there are LEAST_RUNS */

/* All that a step of its own costs, from a batch in hand to the end of its updates. */
static td_status *time_step(td_bench_engine *engine, double *out_seconds)
{
    td_step_report report;
    int64_t begin = td_clock_ns();
    TD_TRY(td_bench_step(engine, &report));
    *out_seconds = 1e-9 * (double)(td_clock_ns() - begin);
    return NULL;
}

static td_status *time_steps(td_bench_engine *engine, int32_t runs, double *times, int32_t *out_n)
{
    double warm = 0;
    for (int32_t i = 0; i < engine->work.warm_up; i++)
        TD_TRY(time_step(engine, &warm));
    double begin = 1e-9 * (double)td_clock_ns();
    *out_n = 0;
    while (*out_n < runs && (*out_n < LEAST_RUNS || 1e-9 * (double)td_clock_ns() - begin < MOST_SECONDS)) {
        TD_TRY(time_step(engine, &times[*out_n]));
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
    out->streams = work->streams;
    out->in_bf16 = work->options.precision == TD_MIXED_BF16;
    memcpy(out->facts, work->facts, sizeof out->facts);
    out->n_facts = work->n_facts;
    if (work->samples)
        out->facts[out->n_facts++] = (td_bench_fact){"samples_per_s", (double)work->samples / out->median_s};
    if (work->ops)
        out->facts[out->n_facts++] = (td_bench_fact){"us_per_op", 1e6 * out->median_s / (double)work->ops};
}

/* ---- single ops ------------------------------------------------------------------------------------------------------------------ */

static int slowest_first(const void *a, const void *b)
{
    const td_bench_op *x = a, *y = b;
    return x->seconds != y->seconds ? (x->seconds < y->seconds) - (x->seconds > y->seconds) : strcmp(x->name, y->name);
}

static td_status *read_ops(const td_bench_engine *engine, td_bench_result *out)
{
    int32_t n = td_session_op_times(engine->session, 0, NULL);
    td_op_time *times = NULL;
    TD_TRY(TD_NEW(times, n + 1));
    td_status *status = TD_NEW(out->ops, n + 1);
    (void)td_session_op_times(engine->session, n, times);
    for (int32_t i = 0; i < n && !status; i++) {
        td_bench_op *op = &out->ops[out->n_ops++];
        (void)snprintf(op->name, sizeof op->name, "%s", times[i].name);
        (void)snprintf(op->op, sizeof op->op, "%s", times[i].op);
        op->flops = times[i].flops;
        op->bytes = times[i].bytes;
        op->seconds = times[i].runs ? times[i].seconds / (double)times[i].runs : 0;
    }
    td_free(times);
    if (!status)
        qsort(out->ops, (size_t)out->n_ops, sizeof *out->ops, slowest_first);
    return status;
}

static td_status *time_ops(td_bench_engine *engine, int32_t steps, td_bench_result *out)
{
    td_step_report report;
    td_session_time_ops(engine->session, true);
    for (int32_t i = 0; i < steps; i++)
        TD_TRY(td_bench_step(engine, &report));
    return read_ops(engine, out);
}

void td_bench_result_deinit(td_bench_result *result)
{
    td_free(result->ops);
    result->ops = NULL;
    result->n_ops = 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------------- */

static td_status *run(td_bench_engine *engine, const td_bench_request *request, td_bench_result *out)
{
    int32_t runs = request->runs ? request->runs : engine->work.runs;
    double *times = NULL;
    TD_TRY(TD_NEW(times, runs));
    td_status *status = time_steps(engine, runs, times, &out->runs);
    if (!status)
        summarize(&engine->work, times, out);
    if (!status && request->ops)
        status = time_ops(engine, out->runs, out);
    td_free(times);
    return status;
}

/* Beside its limits, which are measured now that nothing else runs. */
static td_status *measure_bound(const td_bench_request *request, td_bench_result *out)
{
    if (request->no_bound)
        return NULL;
    TD_TRY(td_machine_measure(out->threads, out->row_size, out->stream_bytes, out->in_bf16, &out->limits));
    if (out->streams)
        TD_TRY(td_measure_update_streams(out->streams, out->threads, out->stream_bytes, &out->limits.stream_bytes));
    out->bound_s = td_bench_bound(&out->limits, out->flops, out->stream_bytes, out->row_bytes);
    if (out->streams) {
        out->facts[out->n_facts++] = (td_bench_fact){"gb_per_s", 1e-9 * out->stream_bytes / out->median_s};
        out->facts[out->n_facts++] = (td_bench_fact){"share_of_bound", out->bound_s / out->median_s};
    }
    return NULL;
}

/* A case of two ranks: its rates are facts. */
static td_status *run_served(const td_bench_case *which, const td_bench_request *request, td_bench_result *out)
{
    td_workload work = {0};
    double *times = NULL;
    TD_TRY(td_bench_run_served(which, request, &work, &times));
    out->elsewhere = !times;
    if (out->elsewhere)
        return NULL;
    out->threads = 1; /* of the worker and of the server, each */
    out->runs = work.runs;
    summarize(&work, times, out);
    td_free(times);
    TD_TRY(measure_bound(request, out));
    const double keys = out->facts[0].value, bytes = out->stream_bytes;
    out->facts[out->n_facts++] = (td_bench_fact){"rows_per_s", (double)(int64_t)(keys / out->median_s)};
    out->facts[out->n_facts++] = (td_bench_fact){"bytes_per_s", (double)(int64_t)(bytes / out->median_s)};
    if (out->bound_s > 0)
        out->facts[out->n_facts++] = (td_bench_fact){"share_of_bound", out->bound_s / out->median_s};
    return NULL;
}

td_status *td_bench_run(const td_bench_case *which, const td_bench_request *request, td_bench_result *out_result)
{
    td_bench_engine engine;
    *out_result = (td_bench_result){.which = which};
    if (which->build == td_bench_served)
        return run_served(which, request, out_result);
    TD_TRY(td_bench_open(which, request, &engine));
    out_result->threads = engine.threads;
    td_status *status = run(&engine, request, out_result);
    td_bench_close(&engine);
    if (!status)
        status = measure_bound(request, out_result);
    if (status)
        td_bench_result_deinit(out_result);
    return status;
}
