/* An open data set: options, schema, notes and the calls of tandem/data.h around a reader. What a format looks like is
 * in data/reader_<name>.c; how rows become batches is in data/fill.c and data/loader.c. */
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "data/cache.h"
#include "data/fill.h"
#include "data/reader.h"

#define TD_READER(reader_name) extern const td_reader td_reader_##reader_name;
#include "data/readers.def"
#undef TD_READER

static const td_reader *const readers[] = {
#define TD_READER(reader_name) &td_reader_##reader_name,
#include "data/readers.def"
#undef TD_READER
};
enum { N_READERS = sizeof readers / sizeof readers[0] };

int32_t td_dataset_format_count(void)
{
    return N_READERS;
}

const char *td_dataset_format_name(int32_t index)
{
    return readers[index]->name;
}

const char *td_dataset_format_summary(int32_t index)
{
    return readers[index]->summary;
}

static const td_reader *find_reader(const char *format)
{
    for (int32_t i = 0; format && i < N_READERS; i++)
        if (strcmp(readers[i]->name, format) == 0)
            return readers[i];
    return NULL;
}

td_dataset_options td_dataset_defaults(const char *format)
{
    td_dataset_options options = {
        .format = format, .train_share = 0.8, .min_count = 1, .delimiter = ',', .least_positive = 4};
    const td_reader *reader = find_reader(format);
    if (reader && reader->defaults)
        reader->defaults(&options);
    return options;
}

static td_status *unknown_format(const char *format)
{
    char list[256] = "";
    for (int32_t i = 0; i < N_READERS; i++) {
        size_t used = strlen(list);
        (void)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", readers[i]->name);
    }
    if (!format)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: no format given; the formats are %s", list);
    return TD_ERROR(TD_INVALID_ARGUMENT, "data: there is no format \"%s\"; the formats are %s", format, list);
}

static td_status *check_common(const td_dataset_options *options)
{
    if (!(options->train_share > 0 && options->train_share <= 1))
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.train_share is %g; it must be above 0 and at most 1",
                        options->train_share);
    if (!(options->bad_rows >= 0 && options->bad_rows <= 1))
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.bad_rows is %g; it is a share, from 0 to 1", options->bad_rows);
    if (options->most_rows < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.most_rows is %lld; 0 reads all rows", (long long)options->most_rows);
    return NULL;
}

/* After the cache was written: it keeps the notes about the data only. */
static td_status *note_spill(td_dataset *dataset)
{
    const td_status *ended = dataset->rows.spill_ended;
    if (!ended || td_status_code(ended) == TD_INVALID_ARGUMENT) /* a cache in memory: rows there or here are the same */
        return NULL;
    const char *message = td_status_message(ended);
    char *note =
        td_format("rows were kept in memory, not beside the cache: %.*s", (int)strcspn(message, "\n"), message);
    if (!note)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a note about rows");
    td_status *status = td_dataset_add_note(dataset, note);
    td_free(note);
    return status;
}

/* Rows from the cache where there is a good one, else from the files, then into the cache. */
static td_status *read_cached(const td_reader *reader, const td_dataset_options *options, td_dataset *dataset)
{
    td_cache cache;
    bool found = false;
    td_status *status = td_cache_init(&cache, options);
    if (!status)
        status = td_cache_load(&cache, dataset, &found);
    if (!status && !found)
        status = reader->read(options, dataset);
    if (!status && !found)
        status = td_cache_store(&cache, dataset);
    if (!status)
        status = note_spill(dataset);
    td_cache_deinit(&cache);
    return status;
}

static td_status *no_rows(const td_dataset *dataset, const char *path, const char *help)
{
    const char *before = dataset->reader->before_rows;
    const int64_t bad = dataset->counts.bad_rows;
    td_status *status =
        TD_ERROR(TD_DATA_ERROR, "%s: it has no rows%s%s%s%s", path, before ? " after its " : "", before ? before : "",
                 bad ? " but bad ones: " : "", bad ? TD_COUNTED(bad, "bad row") : "");
    return td_status_help(status, "%s", help);
}

/* A part may be empty because of how rows were split, which is the caller's to judge, but not for want of any in its file. */
static td_status *check_rows(const td_dataset_options *options, const td_dataset *dataset)
{
    const td_schema *schema = &dataset->schema;
    if (!schema->train_rows && (options->test || !schema->test_rows))
        return no_rows(dataset, options->train, "data.train: name a file that has some");
    if (!schema->test_rows && options->test)
        return no_rows(dataset, options->test, "data.test: name a file that has some, or leave it out");
    return NULL;
}

static td_status *open_with(const td_reader *reader, const td_dataset_options *options, td_dataset *dataset)
{
    TD_TRY(check_common(options));
    TD_TRY(reader->check(options));
    dataset->fill = td_fill_rows;
    if (reader->read && !options->train)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: format %s needs a file (data.train)", reader->name);
    if (reader->read)
        TD_TRY(options->cache ? read_cached(reader, options, dataset) : reader->read(options, dataset));
    if (reader->read)
        TD_TRY(check_rows(options, dataset));
    TD_TRY(reader->describe(options, dataset));
    if (!reader->read && options->train) /* it knows its rows only now */
        TD_TRY(check_rows(options, dataset));
    dataset->schema.fields = dataset->fields;
    dataset->counts.rows = dataset->schema.train_rows + dataset->schema.test_rows;
    return NULL;
}

td_status *td_dataset_open(const td_dataset_options *options, td_dataset **out_dataset)
{
    *out_dataset = NULL;
    const td_reader *reader = find_reader(options->format);
    if (!reader)
        return unknown_format(options->format);
    td_dataset *dataset = NULL;
    TD_TRY(TD_NEW(dataset, 1));
    dataset->reader = reader;
    dataset->schema.format = reader->name;
    td_status *status = open_with(reader, options, dataset);
    if (status) {
        td_dataset_destroy(dataset);
        return td_status_pass(status, __FILE__, __LINE__);
    }
    *out_dataset = dataset;
    return NULL;
}

static void destroy_fields(td_dataset *dataset)
{
    for (int32_t i = 0; i < dataset->schema.n_fields; i++) {
        td_schema_field *field = &dataset->fields[i];
        td_free((void *)(uintptr_t)field->name);
        td_free((void *)(uintptr_t)field->columns);
        td_free((void *)(uintptr_t)field->column_rows);
        td_free(dataset->plans[i].shifts);
    }
    td_free(dataset->fields);
    td_free(dataset->plans);
}

void td_dataset_destroy(td_dataset *dataset)
{
    if (!dataset)
        return;
    destroy_fields(dataset);
    td_rows_deinit(&dataset->rows);
    td_free(dataset->columns);
    for (int64_t i = 0; i < dataset->n_notes; i++)
        td_free(dataset->notes[i]);
    td_free(dataset->notes);
    if (dataset->generator_destroy)
        dataset->generator_destroy(dataset->generator);
    td_free(dataset);
}

const td_schema *td_dataset_schema(const td_dataset *dataset)
{
    return &dataset->schema;
}

const td_schema_field *td_schema_find(const td_schema *schema, const char *name)
{
    for (int32_t i = 0; i < schema->n_fields; i++)
        if (strcmp(schema->fields[i].name, name) == 0)
            return &schema->fields[i];
    return NULL;
}

const td_column_counts *td_dataset_describe(const td_dataset *dataset, int32_t *out_n)
{
    *out_n = dataset->n_columns;
    return dataset->columns;
}

td_dataset_counts td_dataset_count(const td_dataset *dataset)
{
    return dataset->counts;
}

const char *td_dataset_note(const td_dataset *dataset, int32_t index)
{
    return index < dataset->n_notes ? dataset->notes[index] : NULL;
}

td_status *td_dataset_true_auc(const td_dataset *dataset, td_part part, double *out_auc)
{
    *out_auc = 0;
    if (!dataset->true_auc)
        return TD_ERROR(TD_UNSUPPORTED, "data: the true model of %s data is not known; only synthetic data has one",
                        dataset->schema.format);
    return dataset->true_auc(dataset, part, out_auc);
}

int64_t td_split_rows(int64_t rows, double share)
{
    return (int64_t)floor((double)rows * share);
}
