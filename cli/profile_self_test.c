/* What recording costs: see profile_self_test.h. */
#include "cli/profile_self_test.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/record.h"
#include "base/units.h"
#include "bench/engine.h"
#include "cli/json.h"

enum { BLOCKS = 12, STEPS = 20, MOST = BLOCKS * STEPS, HOOKS = 1000000 };

/* A model's step. */
typedef struct step_cost {
    const char *name;  /* as people say it */
    const char *bench; /* the case */
    int64_t rows;      /* of its tables; 0: the case's own. Fewer have as many ops, and a step that is rather shorter */
    int32_t timed;     /* steps */
    double events, ms, share;
} step_cost;

typedef struct cost {
    double event_ns, off_ns;
    double chain_events; /* of a step */
    step_cost steps[2];
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

static td_status *time_step(td_bench_engine *engine, double event_ns, step_cost *out)
{
    double ns[MOST];
    TD_TRY(run_steps(engine, 2, ns));
    td_record_switch(true);
    td_status *status = run_steps(engine, out->timed, ns);
    td_record_switch(false);
    out->events = (double)take_records() / out->timed;
    TD_TRY(status);
    out->ms = 1e-6 * median(ns, out->timed);
    out->share = 1e-6 * out->events * event_ns / out->ms;
    return NULL;
}

static td_status *measure_step(double event_ns, step_cost *out)
{
    td_bench_engine engine;
    td_bench_request request = {.no_bound = true, .rows = out->rows};
    TD_TRY(td_bench_open(td_bench_find(out->bench), &request, &engine));
    td_status *status = time_step(&engine, event_ns, out);
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

/* `step_share` is the larger one. */
static td_status *print_json(const cost *c, int models, FILE *out)
{
    double most = 0;
    json_t *steps = json_array();
    for (int i = 0; i < models; i++) {
        const step_cost *s = &c->steps[i];
        most = s->share > most ? s->share : most;
        json_array_append_new(steps, json_pack("{s:s, s:f, s:f, s:f}", "case", s->bench, "events", s->events, "step_ms",
                                               s->ms, "share", s->share));
    }
    return td_json_print(json_pack("{s:f, s:f, s:f, s:f, s:o, s:s}", "event_ns", c->event_ns, "off_ns", c->off_ns,
                                   "step_share", most, "chain_events", c->chain_events, "steps", steps, "clock",
                                   td_ticks_name()),
                         out);
}

td_status *td_profile_self_test(bool json, FILE *out)
{
    enum { MODELS = 2 };
    cost c = {.steps = {{.name = "DLRM", .bench = "dlrm.kaggle", .rows = 20000, .timed = 8},
                        {.name = "GPT", .bench = "gpt.fp32", .timed = 3}}};
    if (!td_record_open(TD_RECORD_MOST_PER_RING))
        return TD_ERROR(TD_OUT_OF_MEMORY, "no address space for the rings of records");
    c.off_ns = measure_off();
    TD_TRY(measure_event(&c));
    for (int i = 0; i < MODELS; i++)
        TD_TRY(measure_step(c.event_ns, &c.steps[i]));
    if (json)
        return print_json(&c, MODELS, out);
    fprintf(
        out,
        "an event takes %.1f ns (dispatch.chain250, %.0f events a step, recording on against off), a hook that is off "
        "%.2f ns; clock: %s\n",
        c.event_ns, c.chain_events, c.off_ns, td_ticks_name());
    for (int i = 0; i < MODELS; i++)
        fprintf(out, "a %s step of %s records %.0f events: %.4f %% of it\n", c.steps[i].name,
                td_format_seconds((td_unit_text){0}.text, 1e-3 * c.steps[i].ms), c.steps[i].events,
                100 * c.steps[i].share);
    return NULL;
}
