/* One training step of a small GPT: pre-norm, tied output layer, AdamW with decay on matrices and tables alone, all gradients
 * clipped to norm 1. --dim is its width; heads are 64 wide.
 *
 *     ids [B, 257] -> tok + pos -> 6 blocks of attention and two linear layers -> next token of 256 */
#include <string.h>

#include "bench/workload.h"

enum { LAYERS = 6, HEAD = 64, CONTEXT = 256, SYMBOLS = 256 };

static td_status *fill_batches(td_workload *out, int64_t batch)
{
    td_bench_random random = {.state = 2};
    const int64_t n = batch * (CONTEXT + 1);
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        int64_t *ids = td_workload_memory(out, (size_t)n * sizeof *ids);
        for (int64_t k = 0; ids && k < n; k++)
            ids[k] = (int64_t)(SYMBOLS * td_bench_uniform(&random));
        out->batches[i].samples = batch;
        td_workload_dense(out, i, "ids", TD_I64, 2, (int64_t[]){batch, CONTEXT + 1}, ids);
    }
    return td_workload_check(out);
}

/* A parameter of [out, in] and what it takes: products with every token, forward and twice backward; itself and two moments
 * once in and once out. */
static void count_matrix(td_workload *out, int64_t rows, int64_t columns)
{
    out->flops += 6.0 * (double)(out->samples * CONTEXT) * (double)(rows * columns);
    out->stream_bytes += 6.0 * sizeof(float) * (double)(rows * columns);
}

static td_value linear(td_workload *out, td_value x, int64_t width, const char *name)
{
    count_matrix(out, width, td_value_dim(x, -1));
    return td_linear(x, width, name);
}

static td_value block(td_workload *out, td_value x, int64_t width, int32_t index)
{
    static const char *const parts[] = {"ln1", "qkv", "proj", "ln2", "up", "down"};
    const char *name[6];
    for (int i = 0; i < 6; i++)
        name[i] = td_workload_text(out, "h.%d.%s", index, parts[i]);
    td_value attention =
        td_causal_attention(linear(out, td_layer_norm(x, 1e-5, name[0]), 3 * width, name[1]), width / HEAD);
    x = td_name(td_add(x, linear(out, attention, width, name[2])), td_workload_text(out, "h.%d/attended", index));
    td_value hidden = td_gelu(linear(out, td_layer_norm(x, 1e-5, name[3]), 4 * width, name[4]), true);
    out->flops +=
        7.0 * (double)out->samples * CONTEXT * (CONTEXT + 1) * (double)width; /* attention, forward and backward */
    return td_name(td_add(x, linear(out, hidden, width, name[5])), td_workload_text(out, "h.%d/out", index));
}

static void build_model(td_workload *out, int64_t batch, int64_t width)
{
    td_dim samples = td_extent(out->graph, "B", batch);
    td_value ids = td_input(out->graph, "ids", TD_I64, TD_SHAPE(samples, CONTEXT + 1));
    td_value tokens = td_name(td_slice(ids, 1, 0, CONTEXT), "tokens"),
             targets = td_name(td_slice(ids, 1, 1, CONTEXT), "targets");
    td_value table = td_parameter(out->graph, "tok.weight", TD_F32, TD_SHAPE(SYMBOLS, width), td_init_normal(0, 0.02));
    td_value positions =
        td_parameter(out->graph, "pos.weight", TD_F32, TD_SHAPE(CONTEXT, width), td_init_normal(0, 0.02));
    td_value x = td_name(td_embedding(table, tokens, (td_embedding_options){0}), "tok/lookup");
    x = td_name(td_add(x, positions), "pos/add");
    for (int32_t i = 0; i < LAYERS; i++)
        x = block(out, x, width, i);
    count_matrix(out, SYMBOLS, width);
    x = td_linear_with(td_layer_norm(x, 1e-5, "ln_f"), table, TD_NO_VALUE, "head");
    out->loss = td_name(td_softmax_cross_entropy(x, targets), "loss");
    td_group(&out->options, "*ln*", td_adamw(3e-4, .weight_decay = TD_ZERO));
    td_group(&out->options, "*.bias", td_adamw(3e-4, .weight_decay = TD_ZERO));
    td_group(&out->options, "*", td_adamw(3e-4, .weight_decay = 0.1));
    out->options.clip_norm = 1;
}

td_status *td_bench_gpt(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    const int64_t batch = request->batch ? request->batch : 4, width = request->dim ? request->dim : 384;
    TD_TRY(td_bench_has_not(self, "--rows", (double)request->rows));
    TD_TRY(td_bench_has_not(self, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(self, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(self, "--alpha", request->alpha));
    if (width < HEAD || width % HEAD)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: --dim %lld is no multiple of %d, the width of a head", self->name,
                        (long long)width, HEAD);
    const char *precision = strchr(self->name, '.');
    out->options.precision = precision && !strcmp(precision, ".bf16")   ? TD_MIXED_BF16
                             : precision && !strcmp(precision, ".fp16") ? TD_MIXED_FP16
                                                                        : TD_FP32;
    out->samples = batch;
    out->runs = 9;
    TD_TRY(fill_batches(out, batch));
    build_model(out, batch, width);
    td_workload_fact(out, "batch", (double)batch);
    td_workload_fact(out, "tokens", (double)(batch * CONTEXT));
    return td_workload_check(out);
}
