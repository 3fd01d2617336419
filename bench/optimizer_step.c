/* One optimizer step of AdamW on the host, over one long tensor. "mixed": gradients in and parameters out in f16, f32 masters and
 * moments, one pass; the peers' flow is a copy that unscales, the update, a copy that rounds. "fp32": the update alone.
 *
 * The model is the update op and nothing else, so it is built from the graph's own parts instead of a loss. --rows: elements. */
#include <string.h>

#include "base/half.h"
#include "bench/workload.h"
#include "graph/op.h"
#include "optim/rule.h"

enum { ELEMENTS = 1 << 25, COEFFICIENTS = 16 };

static td_value add_state(td_graph *graph, td_value parameter, const char *name, td_dtype dtype, int64_t n)
{
    td_value state = td_graph_add_source(graph, TD_CLASS_STATE, TD_DENSE, name, dtype, TD_SHAPE(n), td_dim_constant(0));
    if (state.id >= 0)
        graph->values[state.id].parameter = parameter.id;
    return state;
}

/* lr 1e-3, weight decay 0.01, the gradient's scale 1 / 1024 where it comes in 16 bit: of update 10. */
static td_value coefficients(td_graph *graph, double scale)
{
    float numbers[COEFFICIENTS] = {0};
    double as_double[COEFFICIENTS];
    const td_rule *rule = td_rule_find("adamw");
    td_optimizer given = td_adamw(1e-3, .weight_decay = 0.01), settings;
    td_graph_fail(graph, td_rule_resolve(rule, &given, &settings));
    if (td_graph_failed(graph))
        return TD_NO_VALUE;
    rule->coefficients(&settings, settings.lr, 10, scale, numbers);
    for (int i = 0; i < COEFFICIENTS; i++)
        as_double[i] = (double)numbers[i];
    return td_scalar(graph, "coefficients", TD_F32, COEFFICIENTS, as_double);
}

static void fill_batches(td_workload *out, bool mixed, int64_t n)
{
    void *data = td_workload_memory(out, (size_t)n * (mixed ? 2 : 4));
    float *one = td_workload_memory(out, sizeof *one);
    td_bench_random random = {.state = 1};
    for (int64_t i = 0; data && i < n; i++) {
        float x = (float)(2 * td_bench_uniform(&random) - 1);
        if (mixed)
            ((uint16_t *)data)[i] = td_f32_to_f16(x);
        else
            ((float *)data)[i] = x;
    }
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        td_workload_dense(out, i, "gradient", mixed ? TD_F16 : TD_F32, 1, &n, data);
        td_workload_dense(out, i, "one", TD_F32, 1, (int64_t[]){1}, one);
    }
}

static void build(td_workload *out, bool mixed, int64_t n)
{
    td_graph *graph = out->graph;
    td_value one = td_input(graph, "one", TD_F32, TD_SHAPE(1));
    out->output = td_add(one, one); /* a plan computes something */
    td_value gradient = td_input(graph, "gradient", mixed ? TD_F16 : TD_F32, TD_SHAPE(n));
    td_value parameter = td_parameter(graph, "parameter", TD_F32, TD_SHAPE(n), td_init_normal(0, 1));
    td_value inputs[9] = {parameter, gradient}, copy;
    const int32_t states = mixed ? 6 : 3;
    for (int32_t i = 2; i < 9; i++)
        inputs[i] = TD_NO_VALUE;
    inputs[states - 1] = coefficients(graph, mixed ? 1.0 / 1024 : 1);
    inputs[states] = add_state(graph, parameter, "m", TD_F32, n);
    inputs[states + 1] = add_state(graph, parameter, "v", TD_F32, n);
    graph->phase = TD_UPDATE;
    const td_attr attrs[] = {TD_STRING("rule", "adamw"), TD_STRING("copy", "f16"), TD_INT("outputs", 1)};
    if (mixed)
        td_graph_add(graph, "update_mixed", "update", inputs, 9, attrs, 3, &copy, 1);
    else
        td_graph_add(graph, "adamw", "update", inputs, 5, NULL, 0, NULL, 0);
    graph->phase = TD_FORWARD;
}

td_status *td_bench_optimizer_step(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    TD_TRY(td_bench_has_not(self, "--batch", (double)request->batch));
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--dim", (double)request->dim));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    bool mixed = !strcmp(self->name, "optimizer_step.mixed");
    int64_t n = request->rows ? request->rows : ELEMENTS;
    build(out, mixed, n);
    fill_batches(out, mixed, n);
    out->runs = 20;
    out->streams = mixed ? TD_STREAMS_MIXED : TD_STREAMS_F32;
    out->stream_bytes = 28.0 * (double)n; /* f32: gradient 4, and 24 read and written; mixed: 2 + 2 + 24 */
    td_workload_fact(out, "elements", (double)n);
    return td_workload_check(out);
}
