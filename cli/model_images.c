/* Pieces of models over images and classes: see cli/model.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model.h"

static const td_schema_field *field_of(const td_model_options *options, const char *name)
{
    return options->schema ? td_schema_find(options->schema, name) : NULL;
}

td_status *td_model_image(const td_model_options *options, td_graph *graph, td_value *out_image)
{
    const td_schema_field *field = field_of(options, "image");
    if (!field)
        return TD_SECTION_ERROR(options->config, "model.name", "%s needs images (data.format: idx)",
                                td_section_string(options->config, "model.name"));
    const td_dim batch = td_extent(graph, "B", options->batch);
    *out_image =
        td_input(graph, "image", field->dtype, TD_SHAPE(batch, field->dims[0], field->dims[1], field->dims[2]));
    if (field->dtype != TD_F32)
        *out_image = td_cast(*out_image, TD_F32);
    return NULL;
}

td_status *td_model_classes(const td_model_options *options, td_graph *graph, td_value *out_label, int64_t *out_classes)
{
    const td_schema_field *field =
        options->schema && options->schema->label ? field_of(options, options->schema->label) : NULL;
    if (!field || field->dtype != TD_I64)
        return TD_SECTION_ERROR(options->config, "model.name", "%s needs classes to tell apart; the data has none",
                                td_section_string(options->config, "model.name"));
    *out_label = td_input(graph, field->name, TD_I64, TD_SHAPE(td_extent(graph, "B", options->batch)));
    *out_classes = field->table_rows;
    return NULL;
}

td_status *td_model_initial(const td_model_options *options, int64_t fan_in, td_initializer *out_weight,
                            td_initializer *out_bias)
{
    const char *text = td_section_string(options->config, "model.initial");
    if (strcmp(text, "fan_in") == 0) {
        *out_weight = *out_bias = td_init_uniform(fan_in > 0 ? 1 / sqrt((double)fan_in) : 0);
        return NULL;
    }
    char *end = NULL;
    const bool normal = strncmp(text, "normal(", 7) == 0;
    const double deviation = normal ? strtod(text + 7, &end) : 0;
    if (!normal || end == text + 7 || strcmp(end, ")") != 0 || !(deviation >= 0 && deviation <= 100))
        return TD_SECTION_ERROR(options->config, "model.initial",
                                "model.initial: \"%s\" is neither fan_in nor normal(0.02), a deviation up to 100",
                                text);
    *out_weight = td_init_normal(0, deviation);
    *out_bias = td_init_constant(0);
    return NULL;
}

td_status *td_model_layers(const td_model_options *options, const char *name, int64_t last, td_value *x)
{
    const int32_t hidden = td_section_count(options->config, "model.hidden");
    for (int32_t i = 0; i <= hidden; i++) {
        char layer[48], weight[64], bias[64];
        td_initializer weight_initial, bias_initial;
        const int64_t in = td_value_dim(*x, -1),
                      out = i < hidden ? td_section_int_at(options->config, "model.hidden", i) : last;
        TD_TRY(td_model_initial(options, in, &weight_initial, &bias_initial));
        (void)snprintf(layer, sizeof layer, "%.30s%d", name, i + 1);
        (void)snprintf(weight, sizeof weight, "%s.weight", layer);
        (void)snprintf(bias, sizeof bias, "%s.bias", layer);
        *x = td_linear_with(*x, td_parameter(x->graph, weight, TD_F32, TD_SHAPE(out, in), weight_initial),
                            td_parameter(x->graph, bias, TD_F32, TD_SHAPE(out), bias_initial), layer);
        if (i < hidden)
            *x = td_relu(*x);
    }
    return NULL;
}
