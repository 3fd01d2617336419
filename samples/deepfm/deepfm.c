/* DeepFM: a factorization machine and an MLP over the same embeddings; their sum is the logit (Guo et al. 2017, "DeepFM: A
 * Factorization-Machine based Neural Network for CTR Prediction").
 *
 *     first order    sum of rows of first.<i>.weight [rows, 1], plus the linear layer numbers.linear of the numbers
 *     second order   half of the sum over dim of (sum v)^2 - sum v^2, over all fields' vectors v: table.<i>/bag, and for
 *                    number j its value times row j of numbers.weight
 *     deep           all bags and the numbers -> mlp.0 .. mlp.k -> [B, 1] */
#include "cli/model.h"

/* Vectors' sum and sum of squares, [B, dim] each. */
typedef struct moments {
    td_value sum, squares;
} moments;

static moments table_moments(const td_model_inputs *inputs, const td_value *bags, int64_t dim)
{
    int32_t n = inputs->n_tables;
    td_value all = n == 1 ? bags[0] : td_name(td_concat(n, bags, 1), "fm/concat");
    td_value x = td_name(td_reshape(all, TD_SHAPE(inputs->batch, n, dim)), "fm/vectors");
    td_value squared = td_name(td_mul(x, x), "fm/squared");
    return (moments){td_name(td_reduce_sum(x, 1, false), "fm/sum"),
                     td_name(td_reduce_sum(squared, 1, false), "fm/sum_of_squares")};
}

/* The same over numbers: x V and x^2 V^2. */
static moments number_moments(td_graph *graph, const td_model_inputs *inputs, int64_t dim)
{
    td_value x = inputs->numbers;
    td_value v =
        td_parameter(graph, "numbers.weight", TD_F32, TD_SHAPE(inputs->n_numbers, dim), td_init_normal(0, 0.01));
    td_value x2 = td_name(td_mul(x, x), "fm/numbers_squared"), v2 = td_name(td_mul(v, v), "fm/weight_squared");
    return (moments){td_name(td_matmul(x, v, false, false), "fm/numbers_sum"),
                     td_name(td_matmul(x2, v2, false, false), "fm/numbers_sum_of_squares")};
}

static td_value second_order(td_graph *graph, const td_model_inputs *inputs, const td_value *bags, int64_t dim)
{
    moments m = table_moments(inputs, bags, dim);
    if (inputs->numbers.id >= 0) {
        moments numbers = number_moments(graph, inputs, dim);
        m.sum = td_name(td_add(m.sum, numbers.sum), "fm/all_sum");
        m.squares = td_name(td_add(m.squares, numbers.squares), "fm/all_sum_of_squares");
    }
    td_value square_of_sum = td_name(td_mul(m.sum, m.sum), "fm/square_of_sum");
    td_value pairs = td_name(td_sub(square_of_sum, m.squares), "fm/pairs");
    return td_name(td_scale(td_name(td_reduce_sum(pairs, 1, true), "fm/over_dim"), 0.5), "fm/second_order");
}

static td_value first_order(const td_model_options *options, td_graph *graph, const td_model_inputs *inputs)
{
    td_value parts[TD_MODEL_MOST_TABLES + 1];
    int32_t n = 0;
    for (int32_t i = 0; i < inputs->n_tables; i++)
        parts[n++] = td_model_bag(options, graph, inputs, i, "first.", 1);
    if (inputs->numbers.id >= 0)
        parts[n++] = td_linear(inputs->numbers, 1, "numbers.linear");
    if (n == 1)
        return parts[0];
    return td_name(td_reduce_sum(td_name(td_concat(n, parts, 1), "first/concat"), 1, true), "first/sum");
}

td_status *td_model_deepfm(const td_model_options *options, td_graph *graph, td_model *out_model)
{
    td_model_inputs inputs;
    TD_TRY(td_model_inputs_add(options, graph, TD_MODEL_NUMBERS | TD_MODEL_TABLES, &inputs));
    if (!inputs.n_tables)
        return TD_SECTION_ERROR(options->config, "model.name", "deepfm needs categorical columns; the data has none");
    int64_t dim = td_section_int(options->config, "model.dim");
    td_value parts[TD_MODEL_MOST_TABLES + 1];
    int32_t n = 0;
    for (int32_t i = 0; i < inputs.n_tables; i++)
        parts[n++] = td_model_bag(options, graph, &inputs, i, "table.", dim);
    td_value fm = td_name(td_add(first_order(options, graph, &inputs), second_order(graph, &inputs, parts, dim)), "fm");
    if (inputs.numbers.id >= 0)
        parts[n++] = inputs.numbers;
    td_value features = n == 1 ? parts[0] : td_name(td_concat(n, parts, 1), "deep/concat");
    td_value deep = td_model_perceptron(options, features, "mlp", "model.hidden", 1, false);
    td_value logit = td_name(td_add(fm, deep), "logit");
    *out_model = (td_model){.loss = td_name(td_bce_with_logits(logit, inputs.label), "loss"),
                            .logit = logit,
                            .scores = TD_NO_VALUE,
                            .next = TD_NO_VALUE};
    return NULL;
}
