/* What running one op costs beyond its arithmetic: a chain of additions of one number, one product of a million elements,
 * and the same by a scalar that is another at every step. */
#include <string.h>

#include "bench/workload.h"

enum { CHAIN = 250, ELEMENTS = 1000000 };

static void fill(td_workload *out, int32_t index, const char *name, int64_t n, bool random, float value)
{
    float *data = td_workload_memory(out, (size_t)n * sizeof *data);
    td_bench_random numbers = {.state = 1};
    for (int64_t i = 0; data && i < n; i++)
        data[i] = random ? (float)td_bench_uniform(&numbers) : value;
    td_workload_dense(out, index, name, TD_F32, 1, &n, data);
}

static void build_chain(td_workload *out)
{
    td_value x = td_input(out->graph, "x", TD_F32, TD_SHAPE(1)), one = td_input(out->graph, "one", TD_F32, TD_SHAPE(1));
    for (int32_t i = 0; i < CHAIN; i++)
        x = td_name(td_add(x, one), td_workload_text(out, "add.%d", i));
    out->output = x;
    out->ops = CHAIN;
    out->options.jit_level = TD_O1; /* not fused: what is measured is handing out each op */
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        fill(out, i, "x", 1, false, 0);
        fill(out, i, "one", 1, false, 1);
    }
}

static void build_product(td_workload *out, bool by_scalar)
{
    td_value a = td_input(out->graph, "a", TD_F32, TD_SHAPE(ELEMENTS));
    if (by_scalar) {
        out->scalar = "factor";
        out->output = td_scale_by(a, td_scalar(out->graph, out->scalar, TD_F32, 1, (double[]){0.5}));
    } else {
        out->output = td_mul(a, a);
    }
    out->runs = 200;
    out->flops = ELEMENTS;
    out->stream_bytes = 2.0 * sizeof(float) * ELEMENTS;
    fill(out, 0, "a", ELEMENTS, true, 0);
    for (int32_t i = 1; i < TD_WORKLOAD_BATCHES; i++) /* one and the same, as for the peers */
        td_workload_dense(out, i, "a", TD_F32, 1, (int64_t[]){ELEMENTS}, out->fields[0].tensor.data);
}

td_status *td_bench_dispatch(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    TD_TRY(td_bench_has_not(self, "--batch", (double)request->batch));
    TD_TRY(td_bench_has_not(self, "--rows", (double)request->rows));
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--dim", (double)request->dim));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    if (!strcmp(self->name, "dispatch.chain250"))
        build_chain(out);
    else
        build_product(out, !strcmp(self->name, "dispatch.mul1m_scalar"));
    return td_workload_check(out);
}
