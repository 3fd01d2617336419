/* Planning itself: a model of many elementwise ops, each of which reads two of the last hundred, is planned for training anew
 * at every run, options and devices included. */
#include <string.h>

#include "bench/workload.h"

enum { BAND = 100, BATCH = 8, WIDTH = 4 };

static int64_t ops_of(const td_bench_case *self, const td_bench_request *request)
{
    if (request->rows)
        return request->rows;
    return strcmp(self->name, "plan.ops100k") == 0 ? 100000 : 10000;
}

/* One of the last BAND values before `i`. */
static int64_t recent(td_bench_random *random, int64_t i)
{
    int64_t reach = i < BAND ? i : BAND;
    return i - 1 - (int64_t)(td_bench_uniform(random) * (double)reach);
}

static td_value one_op(int64_t i, td_value a, td_value b)
{
    switch (i % 4) {
    case 0:
        return td_add(a, b);
    case 1:
        return td_tanh(a);
    case 2:
        return td_mul(a, b);
    default:
        return td_scale(a, 0.9);
    }
}

static void build_band(td_workload *out, int64_t n)
{
    td_bench_random random = {.state = 1};
    td_value *values = td_workload_memory(out, (size_t)(n + 1) * sizeof *values);
    if (!values)
        return;
    td_value x = td_input(out->graph, "x", TD_F32, TD_SHAPE(BATCH, WIDTH)),
             y = td_input(out->graph, "y", TD_F32, TD_SHAPE(BATCH, WIDTH));
    values[0] = td_mul(x, td_parameter(out->graph, "w", TD_F32, TD_SHAPE(WIDTH), td_init_uniform(0.5)));
    for (int64_t i = 1; i <= n; i++) {
        int64_t a = recent(&random, i), b = recent(&random, i);
        values[i] = td_name(one_op(i, values[a], values[b]), td_workload_text(out, "op.%lld", (long long)i));
    }
    out->loss = td_mse(values[n], y);
}

td_status *td_bench_planning(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    TD_TRY(td_bench_has_not(self, "--batch", (double)request->batch));
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--dim", (double)request->dim));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    TD_TRY(td_bench_has_not(self, "--ops", request->ops));
    out->planning = true;
    out->ops = ops_of(self, request);
    out->runs = out->ops > 20000 ? 5 : 10;
    out->warm_up = 1;
    build_band(out, out->ops);
    return td_workload_check(out);
}
