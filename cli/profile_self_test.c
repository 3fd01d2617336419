/* What recording costs: see profile_self_test.h. */
#include "cli/profile_self_test.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/record.h"
#include "bench/engine.h"
#include "cli/json.h"

enum { BLOCKS = 12, STEPS = 20, MOST = BLOCKS * STEPS, HOOKS = 1000000 };

typedef struct cost {
    double event_ns, off_ns, step_share;
    double chain_events, step_events; /* of a step */
    double step_ms;
} cost;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

/* Empties the rings; how many records there were. */
static int64_t take_records(void)
{
    td_record_span span;
    int64_t n = 0;
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span)) {
            n += span.n;
            td_record_consume(i, &span);
        }
    return n;
}

static td_status *run_steps(td_bench_engine *engine, int32_t n, double *ns)
{
    td_step_report report;
    for (int32_t i = 0; i < n; i++) {
        int64_t begin = td_clock_ns();
        TD_TRY(td_bench_step(engine, &report));
        ns[i] = (double)(td_clock_ns() - begin);
    }
    return NULL;
}

/* Recording on and off by turns, so that what else the machine does falls on both. */
static td_status *compare(td_bench_engine *engine, cost *out)
{
    static double on[MOST], off[MOST];
    int64_t events = 0;
    TD_TRY(run_steps(engine, STEPS, off));
    for (int32_t b = 0; b < BLOCKS; b++) {
        td_record_switch(true);
        td_status *status = run_steps(engine, STEPS, on + b * STEPS);
        td_record_switch(false);
        events += take_records();
        TD_TRY(status);
        TD_TRY(run_steps(engine, STEPS, off + b * STEPS));
    }
    out->chain_events = (double)events / MOST;
    out->event_ns = (median(on, MOST) - median(off, MOST)) / out->chain_events;
    return NULL;
}

static td_status *measure_event(cost *out)
{
    td_bench_engine engine;
    td_bench_request request = {.no_bound = true};
    TD_TRY(td_bench_open(td_bench_find("dispatch.chain250"), &request, &engine));
    td_status *status = compare(&engine, out);
    td_bench_close(&engine);
    return status;
}

static td_status *time_step(td_bench_engine *engine, cost *out)
{
    enum { TIMED = 8 };
    double ns[TIMED];
    TD_TRY(run_steps(engine, 2, ns));
    td_record_switch(true);
    td_status *status = run_steps(engine, TIMED, ns);
    td_record_switch(false);
    out->step_events = (double)take_records() / TIMED;
    out->step_ms = 1e-6 * median(ns, TIMED);
    out->step_share = 1e-6 * out->step_events * out->event_ns / out->step_ms;
    return status;
}

/* The tables are smaller than the case's own: fewer bytes to fill, as many ops, a step that is rather shorter. */
static td_status *measure_step(cost *out)
{
    td_bench_engine engine;
    td_bench_request request = {.no_bound = true, .rows = 20000};
    TD_TRY(td_bench_open(td_bench_find("dlrm.kaggle"), &request, &engine));
    td_status *status = time_step(&engine, out);
    td_bench_close(&engine);
    return status;
}

static double measure_off(void)
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        int64_t begin = td_clock_ns();
        for (int i = 0; i < HOOKS; i++)
            td_record_end(TD_RECORD_NONE, 0, 0, td_record_begin(), 0);
        double ns = (double)(td_clock_ns() - begin) / HOOKS;
        best = round && best < ns ? best : ns;
    }
    return best;
}

td_status *td_profile_self_test(bool json, FILE *out)
{
    cost c = {0};
    if (!td_record_open(TD_RECORD_MOST_PER_RING))
        return TD_ERROR(TD_OUT_OF_MEMORY, "no address space for the rings of records");
    c.off_ns = measure_off();
    TD_TRY(measure_event(&c));
    TD_TRY(measure_step(&c));
    if (json)
        return td_json_print(json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "event_ns", c.event_ns, "off_ns",
                                       c.off_ns, "step_share", c.step_share, "chain_events", c.chain_events,
                                       "step_events", c.step_events, "step_ms", c.step_ms, "clock", td_ticks_name()),
                             out);
    fprintf(
        out,
        "an event takes %.1f ns (dispatch.chain250, %.0f events a step, recording on against off), a hook that is off "
        "%.2f ns; clock: %s\n",
        c.event_ns, c.chain_events, c.off_ns, td_ticks_name());
    fprintf(out, "a DLRM step of %.3g ms records %.0f events: %.4f %% of it\n", c.step_ms, c.step_events,
            100 * c.step_share);
    return NULL;
}
