/* One training step of LeNet-5 on images of 28 x 28, SGD with momentum; of one batch, or of four added up ("batch32x4").
 *
 *     image [B, 1, 28, 28] -> conv1 (6 of 5 x 5), relu, pool -> conv2 (16 of 5 x 5), relu, pool -> fc1 120, fc2 84, fc3 10 */
#include <string.h>

#include "bench/workload.h"

enum { SIDE = 28, CLASSES = 10, LAYERS = 3 };
static const int64_t widths[LAYERS] = {120, 84, CLASSES};

static td_status *fill_batches(td_workload *out, int64_t batch)
{
    td_bench_random random = {.state = 1};
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        const int64_t pixels = batch * SIDE * SIDE;
        float *images = td_workload_memory(out, (size_t)pixels * sizeof *images);
        int64_t *labels = td_workload_memory(out, (size_t)batch * sizeof *labels);
        for (int64_t k = 0; images && k < pixels; k++)
            images[k] = (float)td_bench_uniform(&random);
        for (int64_t k = 0; labels && k < batch; k++)
            labels[k] = (int64_t)(CLASSES * td_bench_uniform(&random));
        out->batches[i].samples = batch;
        td_workload_dense(out, i, "image", TD_F32, 4, (int64_t[]){batch, 1, SIDE, SIDE}, images);
        td_workload_dense(out, i, "label", TD_I64, 1, (int64_t[]){batch}, labels);
    }
    return td_workload_check(out);
}

/* A layer's products, forward and for its weight, and for its input unless it reads the images; its parameters and their
 * momentum once in and once out. */
static void count_work(td_workload *out, int64_t products, int64_t parameters, bool first)
{
    out->flops += (first ? 4.0 : 6.0) * (double)(out->samples * products);
    out->stream_bytes += 4.0 * sizeof(float) * (double)parameters;
}

static td_value convolve(td_workload *out, td_value x, int64_t channels, int64_t padding, const char *name)
{
    const int64_t in = td_value_dim(x, 1);
    x = td_conv2d(x, channels, 5, (td_conv2d_options){.padding = padding}, name);
    count_work(out, channels * td_value_dim(x, 2) * td_value_dim(x, 3) * in * 25, channels * (in * 25 + 1), in == 1);
    return td_max_pool2d(td_relu(x), 2, 0, 0);
}

static void build_model(td_workload *out, int64_t batch)
{
    td_dim samples = td_extent(out->graph, "B", batch);
    td_value image = td_input(out->graph, "image", TD_F32, TD_SHAPE(samples, 1, SIDE, SIDE));
    td_value label = td_input(out->graph, "label", TD_I64, TD_SHAPE(samples));
    td_value x = convolve(out, convolve(out, image, 6, 2, "conv1"), 16, 0, "conv2");
    x = td_name(td_reshape(x, TD_SHAPE(samples, 400)), "flat");
    for (int32_t i = 0; i < LAYERS; i++) {
        const int64_t in = td_value_dim(x, 1);
        count_work(out, in * widths[i], (in + 1) * widths[i], false);
        x = td_linear(x, widths[i], td_workload_text(out, "fc%d", i + 1));
        x = i < LAYERS - 1 ? td_relu(x) : x;
    }
    out->loss = td_name(td_softmax_cross_entropy(x, label), "loss");
    td_group(&out->options, "*", td_sgd(0.01, .momentum = 0.9));
}

td_status *td_bench_lenet(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    const int64_t batch = request->batch ? request->batch : 32, micro = strstr(self->name, "x4") ? 4 : 1;
    TD_TRY(td_bench_has_not(self, "--rows", (double)request->rows));
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--dim", (double)request->dim));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    out->samples = batch * micro;
    out->options.accumulate = (int32_t)micro;
    out->runs = micro > 1 ? 50 : 100;
    TD_TRY(fill_batches(out, batch));
    build_model(out, batch);
    out->stream_bytes += (double)(out->samples * SIDE * SIDE) * sizeof(float);
    td_workload_fact(out, "batch", (double)batch);
    return td_workload_check(out);
}
