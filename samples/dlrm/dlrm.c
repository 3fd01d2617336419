/* DLRM: an MLP over dense features and a table per categorical feature; their interactions feed a second MLP that gives the
 * logit (Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and Recommendation Systems").
 *
 *     dense [B, n] -> bottom.0 .. bottom.k, ReLU after each -> x [B, dim]
 *     ids_t<i>     -> table.<i>/bag                          -> v_i [B, dim]
 *     interaction of x, v_0, v_1, ... -> top.0 .. top.m -> logit [B, 1]
 *
 * Interactions: `dot` is x and the dot products of all pairs, strictly below the diagonal, row-major; `concat_dot` is all
 * vectors and those products; `concat` all vectors. Without dense features there is no bottom MLP and no x. */
#include <string.h>

#include "base/units.h"
#include "cli/model.h"

static td_value interact(const td_model_options *options, td_value bottom, const td_value *vectors, int32_t n)
{
    const char *kind = td_section_string(options->config, "model.interaction");
    td_value parts[TD_MODEL_MOST_TABLES + 2];
    int32_t n_parts = 0;
    if (!strcmp(kind, "dot")) {
        if (bottom.id >= 0)
            parts[n_parts++] = bottom;
    } else {
        for (int32_t i = 0; i < n; i++)
            parts[n_parts++] = vectors[i];
    }
    if (strcmp(kind, "concat"))
        parts[n_parts++] = td_name(td_dot_interaction(n, vectors), "interaction/dot");
    return n_parts == 1 ? parts[0] : td_name(td_concat(n_parts, parts, 1), "interaction/concat");
}

td_status *td_model_dlrm(const td_model_options *options, td_graph *graph, td_model *out_model)
{
    td_model_inputs inputs;
    TD_TRY(td_model_inputs_add(options, graph, TD_MODEL_NUMBERS | TD_MODEL_TABLES, &inputs));
    int64_t dim = td_section_int(options->config, "model.dim");
    bool has_bottom = inputs.numbers.id >= 0;
    if (inputs.n_tables + has_bottom < 2)
        return TD_SECTION_ERROR(options->config, "model.name",
                                "dlrm needs two or more features to interact; the data has %s and %s dense features",
                                TD_COUNTED(inputs.n_tables, "table"), has_bottom ? "some" : "no");
    td_value vectors[TD_MODEL_MOST_TABLES + 1], bottom = TD_NO_VALUE;
    int32_t n = 0;
    if (has_bottom)
        vectors[n++] = bottom = td_model_perceptron(options, inputs.numbers, "bottom", "model.bottom", dim, true);
    for (int32_t i = 0; i < inputs.n_tables; i++)
        vectors[n++] = td_model_bag(options, graph, &inputs, i, "table.", dim);
    td_value logit = td_model_perceptron(options, interact(options, bottom, vectors, n), "top", "model.top", 1, false);
    *out_model = (td_model){.loss = td_name(td_bce_with_logits(logit, inputs.label), "loss"),
                            .logit = logit,
                            .scores = TD_NO_VALUE,
                            .next = TD_NO_VALUE};
    return NULL;
}
