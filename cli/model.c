/* Built-in models by name, and the pieces that builders share: see cli/model.h. */
#include "cli/model.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "cli/config_keys.h"

#define MODEL(name) td_status *td_model_##name(const td_model_options *options, td_graph *graph, td_model *out_model);
#include "samples/models.def"
#undef MODEL

static const struct {
    const char *name;
    td_model_builder build;
} models[] = {
#define MODEL(name) {#name, td_model_##name},
#include "samples/models.def"
#undef MODEL
};

int32_t td_model_count(void)
{
    return (int32_t)(sizeof models / sizeof *models);
}

const char *td_model_name(int32_t index)
{
    return models[index].name;
}

/* ---- from a name ---------------------------------------------------------------------------------------------- */

static td_status *unknown_model(td_section config, const char *name)
{
    const char *nearest = NULL;
    int best = 1000;
    td_string names = {0};
    char *list = NULL;
    for (int32_t i = 0; i < td_model_count(); i++) {
        if (td_config_close(name, models[i].name, &best))
            nearest = models[i].name;
        td_string_format(&names, "%s%s", i ? ", " : "", models[i].name);
    }
    TD_TRY(td_string_finish(&names, &list));
    td_status *status = nearest ? TD_SECTION_ERROR(config, "model.name",
                                                   "there is no model \"%s\"; did you mean \"%s\"?", name, nearest)
                                : TD_SECTION_ERROR(config, "model.name", "there is no model \"%s\"", name);
    status = td_status_help(status, "known: %s (a model of your own: graph: model.tdg)", list);
    td_free(list);
    return status;
}

static td_status *build_named(const td_model_options *options, const char *name, td_graph **out_graph,
                              td_model *out_model)
{
    td_model_builder build = NULL;
    for (int32_t i = 0; i < td_model_count(); i++)
        if (!strcmp(models[i].name, name))
            build = models[i].build;
    if (!build)
        return unknown_model(options->config, name);
    td_graph *graph = NULL;
    TD_TRY(td_graph_create(&graph));
    td_status *status = build(options, graph, out_model);
    if (!status)
        status = td_graph_check(graph);
    if (status)
        td_graph_destroy(graph);
    else
        *out_graph = graph;
    return status;
}

td_status *td_model_build(const td_model_options *options, td_graph **out_graph, td_model *out_model)
{
    *out_graph = NULL;
    *out_model = (td_model){.loss = TD_NO_VALUE, .logit = TD_NO_VALUE, .scores = TD_NO_VALUE, .next = TD_NO_VALUE};
    const char *name = td_section_string(options->config, "model.name");
    bool from_file = td_section_has(options->config, "graph");
    if (name && from_file)
        return TD_SECTION_ERROR(options->config, "graph", "graph and model.name are both given; keep one");
    if (name)
        return build_named(options, name, out_graph, out_model);
    if (!from_file)
        return TD_SECTION_ERROR(options->config, "", "no model: give model.name (%s, ...) or graph, a .tdg file",
                                models[0].name);
    char *path = NULL;
    TD_TRY(td_section_path(options->config, "graph", &path));
    td_status *status = td_model_from_file(path, out_graph, out_model);
    td_free(path);
    return status;
}

/* ---- for builders --------------------------------------------------------------------------------------------------------- */

static td_value add_input(td_graph *graph, const td_schema_field *field, td_dim batch, int64_t capacity)
{
    if (field->kind == TD_RAGGED) {
        char name[96];
        snprintf(name, sizeof name, "%s_n", field->name);
        return td_input_ragged(graph, field->name, field->dtype, batch,
                               td_extent(graph, name, capacity * field->width));
    }
    if (field->rank == 1)
        return td_input(graph, field->name, field->dtype, TD_SHAPE(batch));
    return td_input(graph, field->name, field->dtype, TD_SHAPE(batch, field->width));
}

static td_status *add_tables(const td_model_options *options, td_graph *graph, td_model_inputs *inputs)
{
    const td_schema *schema = options->schema;
    if (schema->n_tables > TD_MODEL_MOST_TABLES)
        return TD_ERROR(TD_UNSUPPORTED, "the data has %d tables; models take %d", schema->n_tables,
                        TD_MODEL_MOST_TABLES);
    for (int32_t i = 0; i < schema->n_tables; i++) {
        char name[32];
        snprintf(name, sizeof name, "ids_t%d", i);
        const td_schema_field *field = td_schema_find(schema, name);
        if (!field)
            return TD_ERROR(TD_INTERNAL, "the data says that it has %d tables, but not \"%s\"", schema->n_tables, name);
        inputs->ids[i] = add_input(graph, field, inputs->batch, options->batch);
        inputs->rows[i] = field->table_rows;
    }
    inputs->n_tables = schema->n_tables;
    return NULL;
}

static void add_numbers(const td_model_options *options, td_graph *graph, td_model_inputs *inputs)
{
    const td_schema_field *field = td_schema_find(options->schema, "dense");
    if (!field)
        field = td_schema_find(options->schema, "numeric");
    if (!field)
        return;
    inputs->numbers = add_input(graph, field, inputs->batch, options->batch);
    inputs->n_numbers = field->width;
}

td_status *td_model_inputs_add(const td_model_options *options, td_graph *graph, unsigned wanted,
                               td_model_inputs *out_inputs)
{
    *out_inputs = (td_model_inputs){.numbers = TD_NO_VALUE, .label = TD_NO_VALUE, .wide_ids = TD_NO_VALUE};
    const td_schema *schema = options->schema;
    const td_schema_field *label = schema && schema->label ? td_schema_find(schema, schema->label) : NULL;
    if (!label)
        return TD_SECTION_ERROR(options->config, "model.name",
                                "the data has no label, so there is nothing to train on");
    out_inputs->batch = td_extent(graph, "B", options->batch);
    out_inputs->label = add_input(graph, label, out_inputs->batch, options->batch);
    if (wanted & TD_MODEL_NUMBERS)
        add_numbers(options, graph, out_inputs);
    if (wanted & TD_MODEL_TABLES)
        TD_TRY(add_tables(options, graph, out_inputs));
    const td_schema_field *wide = wanted & TD_MODEL_WIDE ? td_schema_find(schema, "wide_ids") : NULL;
    if (wide) {
        out_inputs->wide_ids = add_input(graph, wide, out_inputs->batch, options->batch);
        out_inputs->wide_rows = wide->table_rows;
    }
    return NULL;
}

td_value td_model_bag(const td_model_options *options, td_graph *graph, const td_model_inputs *inputs, int32_t index,
                      const char *prefix, int64_t dim)
{
    char name[64];
    int64_t rows = inputs->rows[index];
    td_initializer initial = td_section_has(options->config, "model.table_deviation")
                                 ? td_init_normal(0, td_section_float(options->config, "model.table_deviation"))
                                 : td_init_uniform(1 / sqrt((double)rows));
    snprintf(name, sizeof name, "%s%d.weight", prefix, index);
    const char *kept = td_section_string(options->config, "train.table_dtype");
    td_dtype dtype = !strcmp(kept, "bf16") ? TD_BF16 : !strcmp(kept, "f16") ? TD_F16 : TD_F32;
    td_value table = td_parameter(graph, name, dtype, TD_SHAPE(rows, dim), initial);
    td_pooling pooling = strcmp(td_section_string(options->config, "model.pooling"), "mean") ? TD_SUM : TD_MEAN;
    snprintf(name, sizeof name, "%s%d/bag", prefix, index);
    return td_name(td_embedding_bag(table, inputs->ids[index], pooling), name);
}

td_value td_model_perceptron(const td_model_options *options, td_value x, const char *name, const char *key,
                             int64_t last, bool relu_last)
{
    int32_t hidden = td_section_count(options->config, key);
    for (int32_t i = 0; i <= hidden; i++) {
        char layer[64];
        snprintf(layer, sizeof layer, "%s.%d", name, i);
        x = td_linear(x, i < hidden ? td_section_int_at(options->config, key, i) : last, layer);
        if (i < hidden || relu_last)
            x = td_relu(x);
    }
    return x;
}
