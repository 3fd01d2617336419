/* A data format to copy: lines of "<label> <id>". Copy to data/reader_<name>.c, rename the reader to td_reader_<name>,
 * add one row to data/readers.def and a paragraph to "Format by format" in tandem/data.h; test what a row becomes and
 * what is refused in tests/data/test_<name>.c. Say here what the format is and where it comes from. */
#include "data/reader.h"

#include "base/units.h"
#include "data/parse.h"

enum { N_COLUMNS = 2 };

/* Before any file is touched: what the options must hold. Common ones (train_share, bad_rows, ...) have been checked. */
static td_status *check(const td_dataset_options *options)
{
    td_columns columns;
    td_status *status = td_columns_init(&columns, 0, 1, 0, options, TD_TRANSFORM_NONE);
    td_columns_deinit(&columns);
    return status;
}

/* One record: check all of it before anything is counted. td_parse_refuse says where and why a row is malformed. */
static td_status *parse_row(td_parse *parse, td_span text, bool *out_good)
{
    td_span fields[N_COLUMNS];
    td_rows *rows = &parse->dataset->rows;
    int64_t label = 0, id;
    int32_t n = td_tsv_split(text, ' ', fields, N_COLUMNS);
    if (n != N_COLUMNS)
        return td_parse_refuse(parse, 0, "%s where a row has %d", TD_COUNTED(n, "column"), N_COLUMNS);
    if (!td_span_integer(fields[0], &label) || label < 0 || label > 1)
        return td_parse_refuse(parse, 1, "the label is neither 0 nor 1");
    unsigned char *record;
    TD_TRY(td_rows_append(rows, &record));
    TD_TRY(td_columns_category(&parse->columns, 0, fields[1], &id));
    td_record_set_id(rows, record, 0, id);
    td_record_numbers(rows, record)[0] = (float)label;
    parse->dataset->counts.positive_rows += label;
    *out_good = true;
    return NULL;
}

static td_status *read_dataset(const td_dataset_options *options, td_dataset *dataset)
{
    td_parse parse = {.options = options, .dataset = dataset, .row = parse_row};
    td_status *status = td_columns_init(&parse.columns, 0, 1, 0, options, TD_TRANSFORM_NONE);
    if (!status) {
        td_column_name(&parse.columns.counts[0], "id");
        td_rows_init(&dataset->rows, 1, 1, td_columns_most_id(&parse.columns));
        status = td_parse_files(&parse);
    }
    td_parse_deinit(&parse);
    return status;
}

/* The fields of a batch. Only options and what `read` left in the data set may be looked at: rows may come from the cache. */
static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    (void)options;
    TD_TRY(td_dataset_add_table(dataset, 0, 0));
    return td_dataset_add_field(
        dataset, (td_field_form){.name = "label", .role = TD_FIELD_LABEL, .rank = 2, .width = 1, .first_column = -1});
}

const td_reader td_reader_template = {
    .name = "template",
    .summary = "lines of a label and an id",
    .check = check,
    .read = read_dataset,
    .describe = describe,
};
