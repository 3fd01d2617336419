/* Criteo click logs: TSV without header, label, 13 integers I1..I13, 26 hashed categories C1..C26, any of the 39 empty where
 * missing (Criteo, Kaggle Display Advertising Challenge, 2014). Numbers become log(1 + max(x, 0)) as in the DLRM reference
 * unless told otherwise. */
#include "data/reader.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "data/text.h"

enum { N_NUMBERS = 13, N_CATEGORIES = 26, N_FIELDS = 1 + N_NUMBERS + N_CATEGORIES };

/* One row, checked as a whole before any of it is counted. */
typedef struct row {
    double numbers[N_NUMBERS]; /* missing: NaN */
    td_span categories[N_CATEGORIES];
    float label;
} row;

static td_status *check(const td_dataset_options *options)
{
    td_columns columns;
    td_status *status = td_columns_init(&columns, N_NUMBERS, N_CATEGORIES, options, TD_TRANSFORM_LOG1P);
    td_columns_deinit(&columns);
    return status;
}

static bool is_hex(td_span span)
{
    for (int64_t i = 0; i < span.length; i++) {
        char c = span.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
            return false;
    }
    return span.length <= 16;
}

/* A field that is not what its column holds: reported, and *out_good stays false. */
static td_status *refuse(td_bad_rows *bad, const td_text *text, td_span field, int32_t column)
{
    char shown[TD_SPAN_SHOWN];
    (void)td_span_show(field, shown);
    if (column == 1)
        return td_bad_rows_add(bad, text->path, text->line, column, "label \"%s\" is neither 0 nor 1", shown);
    if (column <= 1 + N_NUMBERS)
        return td_bad_rows_add(bad, text->path, text->line, column, "\"%s\" is not an integer in column I%d", shown,
                               column - 1);
    return td_bad_rows_add(bad, text->path, text->line, column, "\"%s\" is not a hex number in column C%d", shown,
                           column - 1 - N_NUMBERS);
}

static td_status *parse(const td_text *text, td_span record, td_bad_rows *bad, row *out_row, bool *out_good)
{
    td_span fields[N_FIELDS];
    int32_t n = td_tsv_split(record, '\t', fields, N_FIELDS);
    *out_good = false;
    if (n != N_FIELDS)
        return td_bad_rows_add(bad, text->path, text->line, 0, "%d columns where a Criteo row has %d", n, N_FIELDS);
    if (fields[0].length != 1 || (fields[0].data[0] != '0' && fields[0].data[0] != '1'))
        return refuse(bad, text, fields[0], 1);
    out_row->label = fields[0].data[0] == '1';
    for (int32_t i = 0; i < N_NUMBERS; i++) {
        td_span field = fields[1 + i];
        int64_t value = 0;
        if (field.length > 0 && !td_span_integer(field, &value))
            return refuse(bad, text, field, 2 + i);
        out_row->numbers[i] = field.length > 0 ? (double)value : NAN;
    }
    for (int32_t j = 0; j < N_CATEGORIES; j++) {
        out_row->categories[j] = fields[1 + N_NUMBERS + j];
        if (!is_hex(out_row->categories[j]))
            return refuse(bad, text, out_row->categories[j], 2 + N_NUMBERS + j);
    }
    *out_good = true;
    return NULL;
}

static td_status *store(const row *from, td_columns *columns, td_dataset *dataset)
{
    unsigned char *record;
    TD_TRY(td_rows_append(&dataset->rows, &record));
    float *numbers = td_record_numbers(&dataset->rows, record);
    for (int32_t i = 0; i < N_NUMBERS; i++)
        numbers[i] = td_columns_number(columns, i, from->numbers[i]);
    numbers[N_NUMBERS] = from->label;
    for (int32_t j = 0; j < N_CATEGORIES; j++) {
        int64_t id;
        TD_TRY(td_columns_category(columns, j, from->categories[j], &id));
        td_record_set_id(&dataset->rows, record, j, id);
    }
    dataset->counts.positive_rows += from->label > 0;
    return NULL;
}

static td_status *read_lines(td_text *text, int64_t most_rows, td_columns *columns, td_bad_rows *bad,
                             td_dataset *dataset)
{
    for (int64_t good_rows = 0; most_rows == 0 || good_rows < most_rows;) {
        td_span record;
        row parsed;
        bool end, good;
        TD_TRY(td_text_next(text, &record, &end));
        if (end)
            return NULL;
        TD_TRY(parse(text, record, bad, &parsed, &good));
        if (!good)
            continue;
        TD_TRY(store(&parsed, columns, dataset));
        good_rows++;
        bad->good++;
    }
    return NULL;
}

static td_status *read_file(const char *path, int64_t most_rows, td_columns *columns, td_bad_rows *bad,
                            td_dataset *dataset)
{
    td_text text;
    td_status *status = td_text_open(&text, path);
    if (!status)
        status = read_lines(&text, most_rows, columns, bad, dataset);
    td_text_close(&text);
    TD_TRY(status);
    return td_bad_rows_check(bad, path);
}

static void name_columns(td_columns *columns)
{
    for (int32_t i = 0; i < N_NUMBERS + N_CATEGORIES; i++) {
        char name[16];
        bool number = i < N_NUMBERS;
        (void)snprintf(name, sizeof name, "%c%d", number ? 'I' : 'C', number ? i + 1 : i + 1 - N_NUMBERS);
        td_column_name(&columns->counts[i], name);
    }
}

static td_status *read_all(const td_dataset_options *options, td_columns *columns, td_bad_rows *bad,
                           td_dataset *dataset)
{
    TD_TRY(td_columns_init(columns, N_NUMBERS, N_CATEGORIES, options, TD_TRANSFORM_LOG1P));
    name_columns(columns);
    td_rows_init(&dataset->rows, N_CATEGORIES, N_NUMBERS + 1, td_columns_most_id(columns));
    TD_TRY(read_file(options->train, options->most_rows, columns, bad, dataset));
    int64_t train_rows = dataset->rows.count;
    if (options->test)
        TD_TRY(read_file(options->test, options->most_rows, columns, bad, dataset));
    else
        train_rows = td_split_rows(train_rows, options->train_share);
    dataset->schema.train_rows = train_rows;
    dataset->schema.test_rows = dataset->rows.count - train_rows;
    TD_TRY(td_columns_finish(columns, &dataset->rows, train_rows));
    td_dataset_take_columns(dataset, columns);
    return td_dataset_take_bad_rows(dataset, bad);
}

static td_status *read_dataset(const td_dataset_options *options, td_dataset *dataset)
{
    td_columns columns = {0};
    td_bad_rows bad = {.share = options->bad_rows};
    td_status *status = read_all(options, &columns, &bad, dataset);
    td_columns_deinit(&columns);
    td_bad_rows_deinit(&bad);
    return status;
}

static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    (void)options;
    TD_TRY(td_dataset_add_field(dataset, (td_field_form){.name = "dense", .rank = 2, .width = N_NUMBERS}));
    for (int32_t j = 0; j < N_CATEGORIES; j++)
        TD_TRY(td_dataset_add_table(dataset, j, N_NUMBERS));
    return td_dataset_add_field(
        dataset,
        (td_field_form){
            .name = "label", .role = TD_FIELD_LABEL, .rank = 2, .width = 1, .first = N_NUMBERS, .first_column = -1});
}

const td_reader td_reader_criteo = {
    .name = "criteo",
    .summary = "Criteo click log, TSV: label, 13 integers, 26 hex categories",
    .check = check,
    .read = read_dataset,
    .describe = describe,
};
