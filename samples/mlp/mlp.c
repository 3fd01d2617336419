/* A perceptron: linear layers with ReLU between them, over images or numbers, for classes or a yes or no.
 *
 *     image [B, C, H, W] or numbers [B, n] -> fc1 .. fc<k> -> scores [B, classes], or logit [B, 1] */
#include "cli/model.h"

static td_status *read_features(const td_model_options *options, td_graph *graph, td_value *out)
{
    if (!options->schema || td_schema_find(options->schema, "image")) {
        TD_TRY(td_model_image(options, graph, out));
        const int64_t pixels = td_value_dim(*out, 1) * td_value_dim(*out, 2) * td_value_dim(*out, 3);
        *out = td_name(td_reshape(*out, TD_SHAPE(td_value_shape(*out).dims[0], pixels)), "flat");
        return NULL;
    }
    td_model_inputs inputs;
    TD_TRY(td_model_inputs_add(options, graph, TD_MODEL_NUMBERS, &inputs));
    *out = inputs.numbers;
    if (out->id >= 0)
        return NULL;
    return TD_SECTION_ERROR(options->config, "model.name", "mlp needs images or numbers; the data has neither");
}

td_status *td_model_mlp(const td_model_options *options, td_graph *graph, td_model *out_model)
{
    td_value x, label;
    int64_t classes;
    TD_TRY(read_features(options, graph, &x));
    *out_model = (td_model){.logit = TD_NO_VALUE, .scores = TD_NO_VALUE, .next = TD_NO_VALUE};
    if (td_schema_find(options->schema, "image")) {
        TD_TRY(td_model_classes(options, graph, &label, &classes));
        TD_TRY(td_model_layers(options, "fc", classes, &x));
        out_model->scores = td_name(x, "scores");
        out_model->loss = td_name(td_softmax_cross_entropy(x, label), "loss");
        return NULL;
    }
    TD_TRY(td_model_layers(options, "fc", 1, &x));
    out_model->logit = td_name(x, "logit");
    out_model->loss = td_name(td_bce_with_logits(x, td_graph_find(graph, options->schema->label)), "loss");
    return NULL;
}
