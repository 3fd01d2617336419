/* Wide & deep: a linear model over ids and crosses of ids beside an MLP over embeddings and numbers; their sum is the logit
 * (Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems").
 *
 *     wide_ids [B, n]            -> sum of rows of wide.weight [rows, 1]           -> wide [B, 1]
 *     ids_t<i> -> deep.<i>/bag, numbers -> mlp.0 .. mlp.k, ReLU between them       -> deep [B, 1]
 *
 * Wide weights start at 0. Where the data has no wide ids, each table has wide weights of its own, wide.<i>.weight. */
#include "cli/model.h"

static td_value wide_part(const td_model_options *options, td_graph *graph, const td_model_inputs *inputs)
{
    if (inputs->wide_ids.id >= 0) {
        td_value weight =
            td_parameter(graph, "wide.weight", TD_F32, TD_SHAPE(inputs->wide_rows, 1), td_init_constant(0));
        return td_name(td_embedding_bag(weight, inputs->wide_ids, TD_SUM), "wide/bag");
    }
    td_value parts[TD_MODEL_MOST_TABLES];
    for (int32_t i = 0; i < inputs->n_tables; i++)
        parts[i] = td_model_bag(options, graph, inputs, i, "wide.", 1);
    if (inputs->n_tables == 1)
        return parts[0];
    return td_name(td_reduce_sum(td_name(td_concat(inputs->n_tables, parts, 1), "wide/concat"), 1, true), "wide/sum");
}

td_status *td_model_wide_deep(const td_model_options *options, td_graph *graph, td_model *out_model)
{
    td_model_inputs inputs;
    TD_TRY(td_model_inputs_add(options, graph, TD_MODEL_NUMBERS | TD_MODEL_TABLES | TD_MODEL_WIDE, &inputs));
    if (!inputs.n_tables)
        return TD_SECTION_ERROR(options->config, "model.name",
                                "wide_deep needs categorical columns; the data has none");
    td_value parts[TD_MODEL_MOST_TABLES + 1];
    int32_t n = 0;
    for (int32_t i = 0; i < inputs.n_tables; i++)
        parts[n++] = td_model_bag(options, graph, &inputs, i, "deep.", td_section_int(options->config, "model.dim"));
    if (inputs.numbers.id >= 0)
        parts[n++] = inputs.numbers;
    td_value features = n == 1 ? parts[0] : td_name(td_concat(n, parts, 1), "deep/concat");
    td_value deep = td_model_perceptron(options, features, "mlp", "model.hidden", 1, false);
    td_value logit = td_name(td_add(wide_part(options, graph, &inputs), deep), "logit");
    *out_model = (td_model){.loss = td_name(td_bce_with_logits(logit, inputs.label), "loss"),
                            .logit = logit,
                            .scores = TD_NO_VALUE,
                            .next = TD_NO_VALUE};
    return NULL;
}
