/* Parts of run.json: every setting by its full key, the model, and the data with the stages that it goes through. */
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "cli/config_tree.h"
#include "cli/summary.h"

/* ---- settings ------------------------------------------------------------------------------------------------------------- */

/* Numbers as numbers, true and false as such, all else as text. */
static json_t *scalar_json(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json && (json_is_number(json) || json_is_boolean(json)))
        return json;
    json_decref(json);
    return json_string(text);
}

static void join_scalars(const td_config_node *list, td_string *out)
{
    td_string_append(out, "[");
    for (int64_t i = 0; i < list->n_children; i++) {
        const td_config_node *child = list->children[i];
        td_string_append(out, i ? ", " : "");
        if (child->kind == TD_NODE_SCALAR)
            td_string_append(out, child->text);
        else
            join_scalars(child, out);
    }
    td_string_append(out, "]");
}

static td_status *add_settings(const td_config_node *node, const char *key, json_t *settings)
{
    td_status *status = NULL;
    bool maps = node->kind == TD_NODE_LIST && node->n_children && node->children[0]->kind == TD_NODE_MAP;
    if (node->kind == TD_NODE_MAP || maps) {
        for (int64_t i = 0; !status && i < node->n_children; i++) {
            const td_config_node *child = node->children[i];
            char *below = maps   ? td_format("%s[%lld]", key, (long long)i)
                          : *key ? td_format("%s.%s", key, child->key)
                                 : td_strdup(child->key);
            status =
                below ? add_settings(child, below, settings) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for run.json");
            td_free(below);
        }
        return status;
    }
    if (node->kind == TD_NODE_SCALAR) {
        json_object_set_new(settings, key, scalar_json(node->text));
        return NULL;
    }
    td_string text = {0};
    char *joined = NULL;
    join_scalars(node, &text);
    TD_TRY(td_string_finish(&text, &joined));
    json_object_set_new(settings, key, json_string(joined));
    td_free(joined);
    return NULL;
}

td_status *td_settings_json(td_section root, json_t **out_json)
{
    *out_json = json_object();
    td_status *status =
        *out_json ? add_settings(root.node, "", *out_json) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for run.json");
    if (status) {
        json_decref(*out_json);
        *out_json = NULL;
    }
    return status;
}

/* ---- data ----------------------------------------------------------------------------------------------------------------- */

static void add_stage(json_t *stages, const char *name, const char *does)
{
    json_array_append_new(stages, json_pack("{s:s, s:s}", "name", name, "does", does));
}

/* What a row goes through on its way to the model, as far as the settings say. */
static json_t *stages_json(const td_setup *setup, const td_schema *schema)
{
    td_section root = setup->root;
    json_t *stages = json_array();
    char text[256];
    const char *path = td_section_string(root, "data.train"), *transform = td_section_string(root, "data.transform");
    int32_t n_steps = td_section_count(root, "data.transforms");
    snprintf(text, sizeof text, "%s%s%.200s", schema->format, path ? " from " : "", path ? path : "");
    add_stage(stages, "reader", text);
    if (td_section_string(root, "data.cache"))
        add_stage(stages, "cache", td_section_string(root, "data.cache"));
    if (td_section_bool(root, "data.shuffle")) {
        long long rows = (long long)td_section_int(root, "data.shuffle_buffer");
        snprintf(text, sizeof text, "within runs of %s", TD_COUNTED(rows, "row"));
        add_stage(stages, "shuffle", rows ? text : "over all rows, another order in each epoch");
    }
    if (transform)
        add_stage(stages, "transform", transform);
    for (int32_t i = 0; i < n_steps; i++)
        add_stage(stages, "transform",
                  td_section_string(td_section_item(root, "data.transforms", i), "data.transforms[].op"));
    snprintf(text, sizeof text, "%s%s", TD_COUNTED(setup->batch, "sample"),
             td_section_bool(root, "data.drop_remainder") ? ", a short last one is left out" : "");
    add_stage(stages, "batch", text);
    snprintf(text, sizeof text, "%s", TD_COUNTED(td_section_int(root, "data.workers"), "worker"));
    add_stage(stages, "prefetch", text);
    return stages;
}

static json_t *fields_json(const td_schema *schema)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < schema->n_fields; i++) {
        const td_schema_field *field = &schema->fields[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:b, s:I}", "name", field->name, "width",
                                              (json_int_t)field->width, "ragged", field->kind == TD_RAGGED,
                                              "table_rows", (json_int_t)field->table_rows));
    }
    return list;
}

json_t *td_data_json(const td_setup *setup)
{
    if (!setup->dataset)
        return json_null();
    const td_schema *schema = td_dataset_schema(setup->dataset);
    return json_pack("{s:s, s:s?, s:s?, s:I, s:I, s:I, s:I, s:o, s:o}", "format", schema->format, "train",
                     td_section_string(setup->root, "data.train"), "test", td_section_string(setup->root, "data.test"),
                     "train_rows", (json_int_t)schema->train_rows, "test_rows", (json_int_t)schema->test_rows, "batch",
                     (json_int_t)setup->batch, "steps_per_epoch", (json_int_t)setup->steps_per_epoch, "fields",
                     fields_json(schema), "stages", stages_json(setup, schema));
}

/* ---- model ---------------------------------------------------------------------------------------------------------------- */

td_status *td_model_json(const td_setup *setup, const td_store *store, json_t **out_json)
{
    json_t *list = json_array();
    int64_t total = 0;
    for (int32_t i = 0; i < td_store_count(store); i++) {
        td_tensor shape;
        bool is_parameter;
        const char *device;
        td_status *status = td_store_describe(store, i, &shape, &is_parameter, &device);
        if (status) {
            json_decref(list);
            return status;
        }
        if (!is_parameter)
            continue;
        int64_t n = 1;
        json_t *dims = json_array();
        for (int32_t d = 0; d < shape.rank; d++) {
            n *= shape.dims[d];
            json_array_append_new(dims, json_integer((json_int_t)shape.dims[d]));
        }
        total += n;
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:s}", "name", td_store_name(store, i), "shape", dims, "device", device));
    }
    *out_json = json_pack("{s:s, s:I, s:o}", "name", setup->name, "parameters", (json_int_t)total, "tensors", list);
    return *out_json ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for run.json");
}
