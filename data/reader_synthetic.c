/* The synthetic click log as a data set: nothing is stored, batches are generated from data/click_model.h, and the AUC
 * of the true model is known. Training rows are 0 .. train_rows - 1, test rows follow. */
#include "data/reader.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "data/click_model.h"
#include "data/fill.h"

static void defaults(td_dataset_options *options)
{
    options->synthetic = (td_synthetic_options){
        .train_rows = 1000000, .test_rows = 100000, .n_dense = 13, .bag = 1, .skew = 1.05, .seed = 1};
}

static td_status *check(const td_dataset_options *options)
{
    const td_synthetic_options *synthetic = &options->synthetic;
    const int64_t most_rows = (int64_t)1 << 44, most_bag = 1 << 20;
    if (synthetic->train_rows < 1 || synthetic->test_rows < 0 ||
        synthetic->train_rows > INT64_MAX - synthetic->test_rows)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: %lld training and %lld test rows cannot be generated",
                        (long long)synthetic->train_rows, (long long)synthetic->test_rows);
    if (options->n_table_rows < 1)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: synthetic data needs at least one table (data.table_rows)");
    for (int32_t t = 0; t < options->n_table_rows; t++)
        if (options->table_rows[t] < 1 || options->table_rows[t] > most_rows)
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: table %d of synthetic data has %lld rows; it must be 1 to 2^44",
                            t, (long long)options->table_rows[t]);
    if (synthetic->n_dense < 0 || synthetic->n_dense > 1 << 20)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: %d dense columns; it must be 0 to 2^20", synthetic->n_dense);
    if (synthetic->bag < 1 || synthetic->bag > most_bag)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: bags of %lld ids; it must be 1 to 2^20", (long long)synthetic->bag);
    if (!(synthetic->skew >= 0 && synthetic->skew <= 10))
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: a skew of %g; it must be 0 (uniform) to 10", synthetic->skew);
    return NULL;
}

/* Which tensor each table's ids go to; whatever is not wanted stays NULL. */
typedef struct targets {
    int64_t **ids, **offsets; /* [n_tables] each, one block */
    td_click_sink sink;
} targets;

static td_status *find_targets(const td_dataset *dataset, int32_t n_fields, const int32_t *which,
                               const td_tensor *tensors, targets *out)
{
    const td_click_model *model = dataset->generator;
    TD_TRY(TD_NEW(out->ids, 2 * (int64_t)model->n_tables));
    out->offsets = out->ids + model->n_tables;
    out->sink = (td_click_sink){.ids = out->ids, .offsets = out->offsets};
    for (int32_t f = 0; f < n_fields; f++) {
        const td_schema_field *field = &dataset->fields[which[f]];
        int32_t table = dataset->plans[which[f]].first;
        if (field->role == TD_FIELD_NUMBERS)
            out->sink.dense = tensors[f].data;
        else if (field->role == TD_FIELD_LABEL)
            out->sink.label = tensors[f].data;
        else
            out->ids[table] = tensors[f].data;
        if (field->kind == TD_RAGGED) {
            out->offsets[table] = tensors[f].index;
            out->offsets[table][0] = 0;
        }
    }
    return NULL;
}

static td_status *fill(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                       const int32_t *which, td_tensor *tensors)
{
    targets to = {0};
    float label;
    TD_TRY(find_targets(dataset, n_fields, which, tensors, &to));
    for (int64_t i = 0; i < n; i++)
        (void)td_click_model_row(dataset->generator, rows[i], i, &to.sink, &label);
    for (int32_t f = 0; f < n_fields; f++) {
        td_fill_dims(&dataset->fields[which[f]], n, &tensors[f]);
        if (tensors[f].kind == TD_RAGGED)
            tensors[f].entries = ((const int64_t *)tensors[f].index)[n];
    }
    td_free(to.ids);
    return NULL;
}

static td_status *true_auc(const td_dataset *dataset, td_part part, double *out_auc)
{
    const td_click_sink nowhere = {0};
    int64_t begin = part == TD_PART_TRAIN ? 0 : dataset->schema.train_rows;
    int64_t end = begin + (part == TD_PART_TRAIN ? dataset->schema.train_rows : dataset->schema.test_rows);
    td_metric *metric = NULL;
    TD_TRY(td_metric_create("auc", &metric));
    td_status *status = NULL;
    for (int64_t row = begin; row < end && !status; row++) {
        float label, logit = (float)td_click_model_row(dataset->generator, row, 0, &nowhere, &label);
        status = td_metric_add(metric, &logit, &label, NULL, 1);
    }
    if (!status)
        status = td_metric_finish(metric, out_auc);
    td_metric_destroy(metric);
    return status;
}

static void destroy_model(void *model)
{
    td_click_model_destroy(model);
}

static td_status *add_tables(const td_dataset_options *options, td_dataset *dataset)
{
    int64_t bag = options->synthetic.bag;
    dataset->n_columns = options->n_table_rows;
    TD_TRY(TD_NEW(dataset->columns, dataset->n_columns));
    for (int32_t t = 0; t < options->n_table_rows; t++) {
        char name[32];
        (void)snprintf(name, sizeof name, "ids_t%d", t);
        td_column_name(&dataset->columns[t], name);
        dataset->columns[t].table_rows = options->table_rows[t];
        dataset->columns[t].distinct = -1;
        TD_TRY(td_dataset_add_field(dataset, (td_field_form){.name = name,
                                                             .role = TD_FIELD_IDS,
                                                             .rank = 1,
                                                             .width = bag,
                                                             .first = t,
                                                             .first_column = t,
                                                             .ragged = bag > 1}));
    }
    dataset->schema.n_tables = options->n_table_rows;
    return NULL;
}

static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    const td_synthetic_options *synthetic = &options->synthetic;
    td_click_model *model = NULL;
    TD_TRY(td_click_model_create(synthetic, options->n_table_rows, options->table_rows, &model));
    dataset->generator = model;
    dataset->generator_destroy = destroy_model;
    dataset->fill = fill;
    dataset->true_auc = true_auc;
    dataset->schema.train_rows = synthetic->train_rows;
    dataset->schema.test_rows = synthetic->test_rows;
    dataset->counts.positive_rows = -1;
    td_field_form dense = {.name = "dense", .rank = 2, .width = synthetic->n_dense, .first_column = -1};
    if (synthetic->n_dense > 0)
        TD_TRY(td_dataset_add_field(dataset, dense));
    TD_TRY(add_tables(options, dataset));
    return td_dataset_add_field(
        dataset, (td_field_form){.name = "label", .role = TD_FIELD_LABEL, .rank = 2, .width = 1, .first_column = -1});
}

const td_reader td_reader_synthetic = {
    .name = "synthetic",
    .summary = "a generated click log with planted structure; the AUC of its true model is known",
    .defaults = defaults,
    .check = check,
    .describe = describe,
};
