/* Criteo click logs: TSV without header, label, 13 integers I1..I13, 26 hashed categories C1..C26, any of the 39 empty
 * where missing (Criteo, Kaggle Display Advertising Challenge, 2014). Numbers become log(1 + max(x, 0)) as in the DLRM
 * reference unless told otherwise. */
#include "data/reader.h"

#include <math.h>
#include <stdio.h>

#include "base/units.h"
#include "data/parse.h"

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
    td_status *status = td_columns_init(&columns, N_NUMBERS, N_CATEGORIES, 0, options, TD_TRANSFORM_LOG1P);
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

/* A field that is not what its column holds. */
static td_status *refuse(td_parse *parse, td_span field, int32_t column)
{
    char shown[TD_SPAN_SHOWN];
    (void)td_span_show(field, shown);
    if (column == 1)
        return td_parse_refuse(parse, column, "label \"%s\" is neither 0 nor 1", shown);
    if (column <= 1 + N_NUMBERS)
        return td_parse_refuse(parse, column, "\"%s\" is not an integer in column I%d", shown, column - 1);
    return td_parse_refuse(parse, column, "\"%s\" is not a hex number in column C%d", shown, column - 1 - N_NUMBERS);
}

static td_status *check_row(td_parse *parse, td_span record, row *out_row, bool *out_good)
{
    td_span fields[N_FIELDS];
    int32_t n = td_tsv_split(record, '\t', fields, N_FIELDS);
    if (n != N_FIELDS)
        return td_parse_refuse(parse, 0, "%s where a Criteo row has %d", TD_COUNTED(n, "column"), N_FIELDS);
    if (fields[0].length != 1 || (fields[0].data[0] != '0' && fields[0].data[0] != '1'))
        return refuse(parse, fields[0], 1);
    out_row->label = fields[0].data[0] == '1';
    for (int32_t i = 0; i < N_NUMBERS; i++) {
        td_span field = fields[1 + i];
        int64_t value = 0;
        if (field.length > 0 && !td_span_integer(field, &value))
            return refuse(parse, field, 2 + i);
        out_row->numbers[i] = field.length > 0 ? (double)value : NAN;
    }
    for (int32_t j = 0; j < N_CATEGORIES; j++) {
        out_row->categories[j] = fields[1 + N_NUMBERS + j];
        if (!is_hex(out_row->categories[j]))
            return refuse(parse, out_row->categories[j], 2 + N_NUMBERS + j);
    }
    *out_good = true;
    return NULL;
}

static td_status *parse_row(td_parse *parse, td_span text, bool *out_good)
{
    row checked = {.label = 0};
    td_rows *rows = &parse->dataset->rows;
    TD_TRY(check_row(parse, text, &checked, out_good));
    if (!*out_good)
        return NULL;
    unsigned char *record;
    TD_TRY(td_rows_append(rows, &record));
    float *numbers = td_record_numbers(rows, record);
    for (int32_t i = 0; i < N_NUMBERS; i++)
        numbers[i] = td_columns_number(&parse->columns, i, checked.numbers[i]);
    numbers[N_NUMBERS] = checked.label;
    for (int32_t j = 0; j < N_CATEGORIES; j++) {
        int64_t id;
        TD_TRY(td_columns_category(&parse->columns, j, checked.categories[j], &id));
        td_record_set_id(rows, record, j, id);
    }
    parse->dataset->counts.positive_rows += checked.label > 0;
    return NULL;
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

static td_status *read_dataset(const td_dataset_options *options, td_dataset *dataset)
{
    td_parse parse = {.options = options, .dataset = dataset, .row = parse_row};
    td_status *status = td_columns_init(&parse.columns, N_NUMBERS, N_CATEGORIES, 0, options, TD_TRANSFORM_LOG1P);
    if (!status) {
        name_columns(&parse.columns);
        td_rows_init(&dataset->rows, N_CATEGORIES, N_NUMBERS + 1, td_columns_most_id(&parse.columns));
        status = td_parse_files(&parse);
    }
    td_parse_deinit(&parse);
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
