/* Perceptron, DLRM, wide & deep, LeNet, GPT: as the golden cases describe them. See model.h. */
#include "tests/tools/golden_check/model.h"

#include <stdio.h>
#include <string.h>

enum { MOST_TABLES = 256 };

/* Linear layers <name>.<i> over the sizes, ReLU after each but, perhaps, the last. */
static td_status *perceptron(const json_t *model, const char *sizes_key, const char *name, bool last_relu, td_value *x)
{
    json_t *sizes;
    TD_TRY(golden_json_get(model, sizes_key, JSON_ARRAY, &sizes));
    int32_t layers = (int32_t)json_array_size(sizes) - 1;
    for (int32_t i = 0; i < layers; i++) {
        char layer[64];
        (void)snprintf(layer, sizeof layer, "%s.%d", name, i);
        *x = td_linear(*x, json_integer_value(json_array_get(sizes, (size_t)i + 1)), layer);
        if (i < layers - 1 || last_relu)
            *x = td_relu(*x);
    }
    return NULL;
}

static td_status *build_mlp(const golden_case *c, const json_t *model, td_graph *graph, td_value *out_loss)
{
    td_value x, y;
    TD_TRY(golden_case_input(c, graph, "x", &x));
    TD_TRY(golden_case_input(c, graph, "y", &y));
    TD_TRY(perceptron(model, "sizes", "fc", false, &x));
    *out_loss = td_name(td_mse(x, y), "loss");
    return NULL;
}

static td_value table(const golden_case *c, td_graph *graph, const char *name)
{
    return td_parameter(graph, name, TD_F32, TD_SHAPE(golden_case_dim(c, name, 0), golden_case_dim(c, name, 1)),
                        td_init_constant(0));
}

static td_status *bag(const golden_case *c, td_graph *graph, int32_t t, td_value *out)
{
    char parameter[64], ids[64], name[64];
    td_value bags;
    (void)snprintf(parameter, sizeof parameter, "table.%d.weight", t);
    (void)snprintf(ids, sizeof ids, "ids_t%d", t);
    (void)snprintf(name, sizeof name, "table.%d/bag", t);
    TD_TRY(golden_case_input(c, graph, ids, &bags));
    *out = td_name(td_embedding_bag(table(c, graph, parameter), bags, TD_SUM), name);
    return NULL;
}

static td_status *build_dlrm(const golden_case *c, const json_t *model, td_graph *graph, td_value *out_loss)
{
    td_value vectors[MOST_TABLES + 1], label;
    json_t *rows;
    TD_TRY(golden_case_input(c, graph, "dense", &vectors[0]));
    TD_TRY(golden_case_input(c, graph, "label", &label));
    TD_TRY(perceptron(model, "bottom", "bottom", true, &vectors[0]));
    TD_TRY(golden_json_get(model, "rows", JSON_ARRAY, &rows));
    int32_t n = (int32_t)json_array_size(rows);
    if (n > MOST_TABLES)
        return TD_ERROR(TD_UNSUPPORTED, "%d tables; this check takes %d", n, MOST_TABLES);
    for (int32_t t = 0; t < n; t++)
        TD_TRY(bag(c, graph, t, &vectors[1 + t]));
    td_value parts[] = {vectors[0], td_dot_interaction(n + 1, vectors)};
    td_value logit = td_concat(2, parts, 1);
    TD_TRY(perceptron(model, "top", "top", false, &logit));
    *out_loss = td_bce_with_logits(logit, label);
    return NULL;
}

/* Values weigh the rows: the wide ones are summed over the fields, the deep ones lie side by side. */
static td_status *build_wide_deep(const golden_case *c, const json_t *model, td_graph *graph, td_value *out_loss)
{
    td_value ids, values, label, wide_table = table(c, graph, "wide.weight"),
                                 deep_table = table(c, graph, "deep.weight");
    TD_TRY(golden_case_input(c, graph, "ids", &ids));
    TD_TRY(golden_case_input(c, graph, "values", &values));
    TD_TRY(golden_case_input(c, graph, "label", &label));
    td_embedding_options weighted = {.pooling = TD_SUM, .weights = values};
    td_value wide = td_name(td_embedding_bag_with(wide_table, ids, weighted), "wide/bag");
    td_value rows = td_name(td_embedding(deep_table, ids, (td_embedding_options){0}), "deep/lookup");
    td_dim batch = td_value_shape(ids).dims[0];
    int64_t fields = td_value_dim(ids, 1), dim = td_value_dim(deep_table, 1);
    td_value column = td_name(td_reshape(values, TD_SHAPE(batch, fields, 1)), "deep/values");
    td_value deep = td_reshape(td_mul(rows, column), TD_SHAPE(batch, fields * dim));
    TD_TRY(perceptron(model, "mlp", "mlp", false, &deep));
    *out_loss = td_bce_with_logits(td_add(wide, deep), label);
    return NULL;
}

/* The bytes of an image over 256, two convolutions with pooling, three linear layers. */
static td_status *build_lenet(const golden_case *c, const json_t *model, td_graph *graph, td_value *out_loss)
{
    td_value x, label;
    json_t *paddings;
    TD_TRY(golden_case_input(c, graph, "image", &x));
    TD_TRY(golden_case_input(c, graph, "label", &label));
    TD_TRY(golden_json_get(model, "padding", JSON_ARRAY, &paddings));
    x = td_scale(td_cast(x, TD_F32), 1.0 / 256);
    for (int32_t i = 0; i < 2; i++) {
        char name[16], weight[32];
        (void)snprintf(name, sizeof name, "conv%d", i + 1);
        (void)snprintf(weight, sizeof weight, "%s.weight", name);
        const td_conv2d_options options = {.padding = json_integer_value(json_array_get(paddings, (size_t)i))};
        x = td_conv2d(x, golden_case_dim(c, weight, 0), golden_case_dim(c, weight, 2), options, name);
        x = td_max_pool2d(td_relu(x), 2, 0, 0);
    }
    x = td_reshape(x, TD_SHAPE(td_value_shape(x).dims[0], golden_case_dim(c, "fc1.weight", 1)));
    for (int32_t i = 0; i < 3; i++) {
        char name[16], weight[32];
        (void)snprintf(name, sizeof name, "fc%d", i + 1);
        (void)snprintf(weight, sizeof weight, "%s.weight", name);
        x = td_linear(x, golden_case_dim(c, weight, 0), name);
        x = i < 2 ? td_relu(x) : x;
    }
    *out_loss = td_softmax_cross_entropy(x, label);
    return NULL;
}

/* One layer of a transformer: attention, then two linear layers, each added to what it reads. */
static td_value block(td_value x, int64_t width, int64_t heads, double epsilon, int32_t index)
{
    char name[6][32];
    static const char *const parts[6] = {"ln1", "qkv", "proj", "ln2", "up", "down"};
    for (int32_t i = 0; i < 6; i++)
        (void)snprintf(name[i], sizeof name[i], "h.%d.%s", index, parts[i]);
    td_value attention = td_causal_attention(td_linear(td_layer_norm(x, epsilon, name[0]), 3 * width, name[1]), heads);
    char sum[2][48];
    (void)snprintf(sum[0], sizeof sum[0], "%s/residual", name[2]);
    (void)snprintf(sum[1], sizeof sum[1], "%s/residual", name[5]);
    x = td_name(td_add(x, td_linear(attention, width, name[2])), sum[0]);
    td_value hidden = td_gelu(td_linear(td_layer_norm(x, epsilon, name[3]), 4 * width, name[4]), true);
    return td_name(td_add(x, td_linear(hidden, width, name[5])), sum[1]);
}

/* Tokens and positions, blocks, and the token table again as the output layer. */
static td_status *build_gpt(const golden_case *c, const json_t *model, td_graph *graph, td_value *out_loss)
{
    td_value ids;
    double layers, heads, epsilon;
    TD_TRY(golden_case_input(c, graph, "ids", &ids));
    TD_TRY(golden_json_number(model, "layers", &layers));
    TD_TRY(golden_json_number(model, "heads", &heads));
    TD_TRY(golden_json_number(model, "layer_norm_eps", &epsilon));
    if (!(layers >= 0 && layers <= (double)td_safetensors_count(c->initial)))
        return TD_ERROR(TD_DATA_ERROR, "expected.json: %g layers; init.safetensors does not have as many", layers);
    int64_t context = td_value_dim(ids, 1) - 1, width = golden_case_dim(c, "tok.weight", 1);
    td_value tokens = td_name(td_slice(ids, 1, 0, context), "tokens"),
             next = td_name(td_slice(ids, 1, 1, context), "next");
    td_value token_table = table(c, graph, "tok.weight"), positions = table(c, graph, "pos.weight");
    td_value rows = td_name(td_embedding(token_table, tokens, (td_embedding_options){0}), "tok/lookup");
    td_value x = td_name(td_add(rows, positions), "pos/add");
    for (int32_t i = 0; i < (int32_t)layers; i++)
        x = block(x, width, (int64_t)heads, epsilon, i);
    x = td_linear_with(td_layer_norm(x, epsilon, "ln_f"), token_table, TD_NO_VALUE, "head");
    *out_loss = td_softmax_cross_entropy(x, next);
    return NULL;
}

static const golden_model models[] = {{"mlp", build_mlp, {NULL}},
                                      {"dlrm", build_dlrm, {"table.*"}},
                                      {"wide_deep", build_wide_deep, {"wide.*", "deep.*"}},
                                      {"lenet", build_lenet, {"conv2*", "fc2*"}},
                                      {"gpt", build_gpt, {"h.0.up*", "h.1.qkv*"}}};

const golden_model *golden_model_find(const char *type)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].type, type) == 0)
            return &models[i];
    return NULL;
}
