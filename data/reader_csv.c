/* CSV with a header line (RFC 4180): numeric columns, categorical columns, crosses of columns, and a label that is 1
 * for one value. Which columns there are and what becomes of them is the options' business; columns not named are not
 * looked at. */
#include "data/reader.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/nearest.h"
#include "base/string.h"
#include "base/units.h"
#include "data/parse.h"

/* Where the columns are in the file at hand. */
typedef struct layout {
    int32_t n_fields;                                   /* of the header; each row must have as many */
    td_span *fields;                                    /* [n_fields], of the record at hand */
    int32_t *numeric, *categorical, *cross_a, *cross_b; /* field numbers */
    int32_t label;
    double *numbers; /* [n_numeric], of the record at hand; missing: NaN */
    char first_label[TD_SPAN_SHOWN];
} layout;

/* A label among the features is read, not predicted; a column that is named twice is a slip of the pen. */
static td_status *check_list(const td_dataset_options *options, const char *key, const char *const *names, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!strcmp(names[i], options->label))
            return td_status_help(
                TD_ERROR(TD_INVALID_ARGUMENT, "data: column \"%s\" is both the label and in %s", names[i], key),
                "take it out there: a model that reads what it is to predict learns nothing");
        for (int32_t k = 0; k < i; k++)
            if (!strcmp(names[i], names[k]))
                return TD_ERROR(TD_INVALID_ARGUMENT, "data: %s names column \"%s\" twice; remove one", key, names[i]);
    }
    return NULL;
}

static td_status *check_names(const td_dataset_options *options)
{
    for (int32_t i = 0; i < options->n_numeric; i++)
        if (!options->numeric[i])
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: numeric column %d has no name", i);
    for (int32_t j = 0; j < options->n_categorical; j++)
        if (!options->categorical[j])
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: categorical column %d has no name", j);
    TD_TRY(check_list(options, "data.numeric", options->numeric, options->n_numeric));
    TD_TRY(check_list(options, "data.categorical", options->categorical, options->n_categorical));
    for (int32_t k = 0; k < options->n_crosses; k++) {
        const td_cross *cross = &options->crosses[k];
        if (!cross->a || !cross->b || cross->buckets < 1 || cross->buckets > UINT32_MAX)
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: cross %d needs two columns and 1 to 2^32 - 1 buckets", k);
    }
    return NULL;
}

static td_status *check(const td_dataset_options *options)
{
    if (!options->label || !options->positive)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: csv needs a label column and its positive value (data.label, "
                                             "data.positive)");
    if (options->n_numeric < 0 || options->n_categorical < 0 || options->n_crosses < 0 ||
        options->n_numeric + options->n_categorical + options->n_crosses == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: csv needs columns (data.numeric, data.categorical)");
    if (options->delimiter == '\0' || options->delimiter == '"' || options->delimiter == '\n' ||
        options->delimiter == '\r')
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: character %d cannot delimit CSV", options->delimiter);
    TD_TRY(check_names(options));
    td_columns columns;
    td_status *status = td_columns_init(&columns, options->n_numeric, options->n_categorical, options->n_crosses,
                                        options, TD_TRANSFORM_STANDARDISE);
    td_columns_deinit(&columns);
    return status;
}

/* ---- the header ----------------------------------------------------------------------------------------------------- */

static const char *name_at(const void *context, int32_t index)
{
    return ((char *const *)context)[index];
}

/* Another character that would cut a header of one column into several, and into how many; 0: none. */
static char better_delimiter(const layout *file, char now, int32_t *out_columns)
{
    static const char others[] = ";\t|,:";
    const td_span header = file->fields[0];
    char best = '\0';
    *out_columns = 1;
    for (const char *c = others; *c && file->n_fields == 1; c++) {
        int32_t n = *c == now ? 1 : td_tsv_split(header, *c, NULL, 0);
        if (n > *out_columns) {
            *out_columns = n;
            best = *c;
        }
    }
    return best;
}

static td_status *list_columns(td_status *status, const layout *file, char *const *names)
{
    enum { SHOWN = 12 };
    td_string text = {0};
    char *list = NULL;
    for (int32_t i = 0; i < file->n_fields && i < SHOWN; i++)
        td_string_format(&text, "%s%s", i ? ", " : "", names[i]);
    if (file->n_fields > SHOWN)
        td_string_format(&text, ", %d more", file->n_fields - SHOWN);
    td_status *failed = td_string_finish(&text, &list);
    if (!failed)
        td_status_help(status, "it has: %s", list);
    td_status_destroy(failed);
    td_free(list);
    return status;
}

/* What helps: the column that is nearly called so, another delimiter than `now`, or all columns. */
static td_status *help_find(td_status *status, const layout *file, char now, const char *name, char *const *names)
{
    int32_t columns;
    const char other = better_delimiter(file, now, &columns);
    const char *nearest = td_nearest(name, file->n_fields, name_at, names);
    if (other)
        return td_status_help(status, "its header is one column, \"%.60s\"; with data.delimiter: %s it has %d",
                              names[0], other == '\t' ? "tab" : (char[]){'"', other, '"', '\0'}, columns);
    if (td_is_near(name, nearest))
        return td_status_help(status, "did you mean \"%s\"?", nearest);
    return list_columns(status, file, names);
}

/* A column that is not there. */
static td_status *unknown(const td_parse *parse, const layout *file, const char *key, const char *name)
{
    char **names = NULL;
    TD_TRY(TD_NEW(names, file->n_fields));
    td_status *status = NULL;
    for (int32_t i = 0; i < file->n_fields && !status; i++) {
        names[i] = td_format("%.*s", (int)(file->fields[i].length & 255), file->fields[i].data);
        if (!names[i])
            status = TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for the header", parse->text.path);
    }
    if (!status)
        status =
            help_find(TD_ERROR(TD_INVALID_ARGUMENT, "%s: there is no column \"%s\" (%s)", parse->text.path, name, key),
                      file, parse->csv, name, names);
    for (int32_t i = 0; i < file->n_fields; i++)
        td_free(names[i]);
    td_free(names);
    return status;
}

static td_status *find(const td_parse *parse, const layout *file, const char *key, const char *name, int32_t *out_field)
{
    int32_t found = -1;
    for (int32_t i = 0; i < file->n_fields; i++) {
        td_span field = file->fields[i];
        if (field.length != (int64_t)strlen(name) || memcmp(field.data, name, (size_t)field.length) != 0)
            continue;
        if (found >= 0)
            return TD_ERROR(TD_DATA_ERROR, "%s: there are two columns \"%s\" (%d and %d)", parse->text.path, name,
                            found + 1, i + 1);
        found = i;
    }
    *out_field = found;
    return found >= 0 ? NULL : unknown(parse, file, key, name);
}

static td_status *find_all(td_parse *parse, layout *file)
{
    const td_dataset_options *options = parse->options;
    for (int32_t i = 0; i < options->n_numeric; i++)
        TD_TRY(find(parse, file, "data.numeric", options->numeric[i], &file->numeric[i]));
    for (int32_t j = 0; j < options->n_categorical; j++)
        TD_TRY(find(parse, file, "data.categorical", options->categorical[j], &file->categorical[j]));
    for (int32_t k = 0; k < options->n_crosses; k++) {
        TD_TRY(find(parse, file, "data.crosses", options->crosses[k].a, &file->cross_a[k]));
        TD_TRY(find(parse, file, "data.crosses", options->crosses[k].b, &file->cross_b[k]));
    }
    return find(parse, file, "data.label", options->label, &file->label);
}

static td_status *read_header(td_parse *parse)
{
    layout *file = parse->self;
    td_span header;
    bool end;
    TD_TRY(td_text_next_csv(&parse->text, parse->csv, &header, &end));
    if (end)
        return TD_ERROR(TD_DATA_ERROR, "%s: empty; a CSV file begins with a header line, and rows follow it",
                        parse->text.path);
    int64_t most = 1;
    for (int64_t i = 0; i < header.length; i++)
        most += header.data[i] == parse->csv;
    td_free(file->fields);
    TD_TRY(TD_NEW(file->fields, most));
    file->n_fields = td_csv_split(header, parse->csv, file->fields, (int32_t)most);
    if (file->n_fields == 0)
        return TD_ERROR(TD_DATA_ERROR, "%s:1: a quote of the header is not closed or is followed by text",
                        parse->text.path);
    return find_all(parse, file);
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

/* FNV-1a, 32 bit (Fowler, Noll, Vo), over one more piece of text; it begins with 2166136261. */
static uint32_t fnv1a(uint32_t hash, const char *data, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)data[i]) * 16777619u;
    return hash;
}

static int64_t cross_id(td_span a, td_span b, int64_t buckets)
{
    uint32_t hash = fnv1a(2166136261u, a.data, a.length);
    hash = fnv1a(hash, "_x_", 3);
    hash = fnv1a(hash, b.data, b.length);
    return (int64_t)hash % buckets;
}

static td_status *check_row(td_parse *parse, layout *file, td_span text, bool *out_good)
{
    int32_t n = td_csv_split(text, parse->csv, file->fields, file->n_fields);
    if (n == 0)
        return td_parse_refuse(parse, 0, "a quote is not closed or is followed by text");
    if (n != file->n_fields)
        return td_parse_refuse(parse, 0, "%s where the header has %d", TD_COUNTED(n, "column"), file->n_fields);
    for (int32_t i = 0; i < parse->options->n_numeric; i++) {
        td_span field = file->fields[file->numeric[i]];
        char shown[TD_SPAN_SHOWN];
        file->numbers[i] = NAN;
        if (field.length > 0 && !td_span_real(field, &file->numbers[i]))
            return td_parse_refuse(parse, file->numeric[i] + 1, "\"%s\" is not a number in column %s",
                                   td_span_show(field, shown), parse->options->numeric[i]);
        if (fabs(file->numbers[i]) > (double)FLT_MAX)
            return td_parse_refuse(parse, file->numeric[i] + 1, "\"%s\" in column %s is beyond 32-bit floating point",
                                   td_span_show(field, shown), parse->options->numeric[i]);
    }
    if (!file->fields[file->label].length && parse->options->positive[0])
        return td_parse_refuse(parse, file->label + 1, "the label is missing (column %s)", parse->options->label);
    *out_good = true;
    return NULL;
}

static td_status *parse_row(td_parse *parse, td_span text, bool *out_good)
{
    layout *file = parse->self;
    const td_dataset_options *options = parse->options;
    td_rows *rows = &parse->dataset->rows;
    TD_TRY(check_row(parse, file, text, out_good));
    if (!*out_good)
        return NULL;
    unsigned char *record;
    TD_TRY(td_rows_append(rows, &record));
    float *numbers = td_record_numbers(rows, record);
    for (int32_t i = 0; i < options->n_numeric; i++)
        numbers[i] = td_columns_number(&parse->columns, i, file->numbers[i]);
    for (int32_t j = 0; j < options->n_categorical; j++) {
        int64_t id;
        TD_TRY(td_columns_category(&parse->columns, j, file->fields[file->categorical[j]], &id));
        td_record_set_id(rows, record, j, id);
    }
    for (int32_t k = 0; k < options->n_crosses; k++)
        td_record_set_id(
            rows, record, options->n_categorical + k,
            cross_id(file->fields[file->cross_a[k]], file->fields[file->cross_b[k]], options->crosses[k].buckets));
    td_span label = file->fields[file->label];
    bool positive = label.length == (int64_t)strlen(options->positive) &&
                    memcmp(label.data, options->positive, (size_t)label.length) == 0;
    numbers[options->n_numeric] = positive;
    parse->dataset->counts.positive_rows += positive;
    if (rows->count == 1)
        (void)td_span_show(label, file->first_label);
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

static void name_columns(const td_dataset_options *options, td_columns *columns)
{
    td_column_counts *next = columns->counts;
    for (int32_t i = 0; i < options->n_numeric; i++)
        td_column_name(next++, options->numeric[i]);
    for (int32_t j = 0; j < options->n_categorical; j++)
        td_column_name(next++, options->categorical[j]);
    for (int32_t k = 0; k < options->n_crosses; k++, next++) {
        (void)snprintf(next->name, sizeof next->name, "%s_x_%s", options->crosses[k].a, options->crosses[k].b);
        next->table_rows = options->crosses[k].buckets;
    }
}

static td_status *prepare(td_parse *parse, layout *file)
{
    const td_dataset_options *options = parse->options;
    int32_t n_ids = options->n_categorical + options->n_crosses;
    TD_TRY(TD_NEW(file->numeric, options->n_numeric));
    TD_TRY(TD_NEW(file->numbers, options->n_numeric));
    TD_TRY(TD_NEW(file->categorical, options->n_categorical));
    TD_TRY(TD_NEW(file->cross_a, options->n_crosses));
    TD_TRY(TD_NEW(file->cross_b, options->n_crosses));
    TD_TRY(td_columns_init(&parse->columns, options->n_numeric, options->n_categorical, options->n_crosses, options,
                           TD_TRANSFORM_STANDARDISE));
    name_columns(options, &parse->columns);
    td_rows_init(&parse->dataset->rows, n_ids, options->n_numeric + 1, td_columns_most_id(&parse->columns));
    return NULL;
}

/* A label that never has its positive value is another spelling of it: all would be told that they are right. */
static td_status *check_labels(const td_dataset_options *options, const layout *file, const td_dataset *dataset)
{
    if (!dataset->rows.count || dataset->counts.positive_rows)
        return NULL;
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: no row has \"%s\" in column %s, so every label would be 0",
                                   options->train, options->positive, options->label),
                          "set data.positive to what counts as 1; the first row has \"%s\"", file->first_label);
}

static td_status *read_dataset(const td_dataset_options *options, td_dataset *dataset)
{
    layout file = {0};
    td_parse parse = {.options = options,
                      .dataset = dataset,
                      .csv = options->delimiter,
                      .begin = read_header,
                      .row = parse_row,
                      .self = &file};
    td_status *status = prepare(&parse, &file);
    if (!status)
        status = td_parse_files(&parse);
    if (!status)
        status = check_labels(options, &file, dataset);
    td_parse_deinit(&parse);
    td_free(file.fields);
    td_free(file.numeric);
    td_free(file.numbers);
    td_free(file.categorical);
    td_free(file.cross_a);
    td_free(file.cross_b);
    return status;
}

static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    int32_t n_numeric = options->n_numeric, n_ids = options->n_categorical + options->n_crosses;
    td_field_form numeric = {.name = "numeric", .rank = 2, .width = n_numeric};
    td_field_form ids = {
        .name = "ids", .role = TD_FIELD_IDS, .rank = 2, .width = options->n_categorical, .first_column = n_numeric};
    td_field_form wide = {.name = "wide_ids",
                          .role = TD_FIELD_IDS,
                          .rank = 2,
                          .width = n_ids,
                          .first_column = n_numeric,
                          .shifted = true};
    if (n_numeric > 0)
        TD_TRY(td_dataset_add_field(dataset, numeric));
    if (options->n_categorical > 0)
        TD_TRY(td_dataset_add_field(dataset, ids));
    for (int32_t j = 0; j < options->n_categorical; j++)
        TD_TRY(td_dataset_add_table(dataset, j, n_numeric));
    if (n_ids > 0)
        TD_TRY(td_dataset_add_field(dataset, wide));
    return td_dataset_add_field(
        dataset,
        (td_field_form){
            .name = "label", .role = TD_FIELD_LABEL, .rank = 2, .width = 1, .first = n_numeric, .first_column = -1});
}

const td_reader td_reader_csv = {
    .name = "csv",
    .summary = "CSV with a header: numeric and categorical columns, crosses, a label",
    .before_rows = "header line",
    .check = check,
    .read = read_dataset,
    .describe = describe,
};
