/* A small GPT over characters: pre-norm blocks, learned positions, the token table as the output layer too (Radford et al. 2019).
 *
 *     ids [B, T + 1] -> the first T are read, the last T are to be predicted
 *     x = tok[ids] + pos;  per block h.<i>: x += proj(attention(qkv(ln1(x)))), x += down(gelu(up(ln2(x))))
 *     next [B, T, symbols] = ln_f(x) tok^T
 *
 * Weights start at N(0, model.deviation), those whose result is added to x at that over sqrt(2 layers). */
#include "cli/model.h"

#include <math.h>
#include <stdio.h>

typedef struct gpt {
    const td_model_options *options;
    td_graph *graph;
    int64_t width, heads, layers;
    double deviation;
    bool bias, tanh_form;
} gpt;

static td_value weight_of(const gpt *g, const char *layer, int64_t out, int64_t in, double deviation)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.weight", layer);
    return td_parameter(g->graph, name, TD_F32, TD_SHAPE(out, in), td_init_normal(0, deviation));
}

/* The parameter `layer`.`suffix` [n], constant; no value for a bias where there are none. */
static td_value row_of(const gpt *g, const char *layer, const char *suffix, int64_t n, double value)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", layer, suffix);
    if (!g->bias && value == 0)
        return TD_NO_VALUE;
    return td_parameter(g->graph, name, TD_F32, TD_SHAPE(n), td_init_constant(value));
}

static td_value linear(const gpt *g, td_value x, int64_t out, const char *layer, double deviation)
{
    td_value weight = weight_of(g, layer, out, td_value_dim(x, -1), deviation);
    return td_linear_with(x, weight, row_of(g, layer, "bias", out, 0), layer);
}

static td_value norm(const gpt *g, td_value x, const char *layer)
{
    td_value weight = row_of(g, layer, "weight", g->width, 1);
    return td_layer_norm_with(x, weight, row_of(g, layer, "bias", g->width, 0), 1e-5, layer);
}

static td_value block(const gpt *g, td_value x, int32_t index)
{
    static const char *const parts[] = {"ln1", "qkv", "proj", "ln2", "up", "down"};
    char name[6][32], sum[2][48];
    const double last = g->deviation / sqrt(2 * (double)g->layers);
    for (int i = 0; i < 6; i++)
        (void)snprintf(name[i], sizeof name[i], "h.%d.%s", index, parts[i]);
    (void)snprintf(sum[0], sizeof sum[0], "%s/residual", name[2]);
    (void)snprintf(sum[1], sizeof sum[1], "%s/residual", name[5]);
    td_value attention =
        td_causal_attention(linear(g, norm(g, x, name[0]), 3 * g->width, name[1], g->deviation), g->heads);
    x = td_name(td_add(x, linear(g, attention, g->width, name[2], last)), sum[0]);
    td_value hidden = td_gelu(linear(g, norm(g, x, name[3]), 4 * g->width, name[4], g->deviation), g->tanh_form);
    return td_name(td_add(x, linear(g, hidden, g->width, name[5], last)), sum[1]);
}

static td_status *read_settings(const td_model_options *options, td_graph *graph, gpt *out)
{
    td_section config = options->config;
    *out = (gpt){.options = options,
                 .graph = graph,
                 .width = td_section_int(config, "model.width"),
                 .heads = td_section_int(config, "model.heads"),
                 .layers = td_section_int(config, "model.layers"),
                 .deviation = td_section_float(config, "model.deviation"),
                 .bias = td_section_bool(config, "model.bias"),
                 .tanh_form = td_section_string(config, "model.gelu")[0] == 't'};
    if (out->width % out->heads == 0)
        return NULL;
    return TD_SECTION_ERROR(config, "model.heads", "model.heads %lld does not divide model.width %lld",
                            (long long)out->heads, (long long)out->width);
}

td_status *td_model_gpt(const td_model_options *options, td_graph *graph, td_model *out_model)
{
    gpt g;
    TD_TRY(read_settings(options, graph, &g));
    const td_schema_field *field = options->schema ? td_schema_find(options->schema, "ids") : NULL;
    if (!field || !field->symbols)
        return TD_SECTION_ERROR(options->config, "model.name", "gpt needs a text (data.format: text)");
    const td_dim batch = td_extent(graph, "B", options->batch);
    const int64_t context = field->width - 1;
    td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(batch, context + 1));
    td_value tokens = td_name(td_slice(ids, 1, 0, context), "tokens"),
             targets = td_name(td_slice(ids, 1, 1, context), "targets");
    td_value table = weight_of(&g, "tok", field->table_rows, g.width, g.deviation),
             positions = weight_of(&g, "pos", context, g.width, g.deviation);
    td_value rows = td_name(td_embedding(table, tokens, (td_embedding_options){0}), "tok/lookup");
    td_value x = td_name(td_add(rows, positions), "pos/add");
    for (int32_t i = 0; i < (int32_t)g.layers; i++)
        x = block(&g, x, i);
    td_value next = td_linear_with(norm(&g, x, "ln_f"), table, TD_NO_VALUE, "head");
    *out_model = (td_model){.loss = td_name(td_softmax_cross_entropy(next, targets), "loss"),
                            .logit = TD_NO_VALUE,
                            .scores = TD_NO_VALUE,
                            .next = next};
    return NULL;
}
