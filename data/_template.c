/* A data format to copy: lines of "<label> <id>". Copy to data/reader_<name>.c, rename the reader to td_reader_<name>, add one
 * row to data/readers.def and a paragraph to "Format by format" in tandem/data.h; test what a row becomes and what is refused
 * in tests/data/test_<name>.c. Say here what the format is and where it comes from. */
#include "data/reader.h"

#include "data/text.h"

enum { N_COLUMNS = 2 };

/* Before any file is touched: what the options must hold. Common ones (train_share, bad_rows, ...) have been checked. */
static td_status *check(const td_dataset_options *options)
{
    td_columns columns;
    td_status *status = td_columns_init(&columns, 0, 1, options, TD_TRANSFORM_NONE);
    td_columns_deinit(&columns);
    return status;
}

/* One record: check all of it before anything is counted; td_bad_rows_add says where and why, and whether it is one too many. */
static td_status *parse(const td_text *text, td_span record, td_columns *columns, td_bad_rows *bad, td_dataset *dataset)
{
    td_span fields[N_COLUMNS];
    int64_t label = 0, id;
    int32_t n = td_tsv_split(record, ' ', fields, N_COLUMNS);
    if (n != N_COLUMNS)
        return td_bad_rows_add(bad, text->path, text->line, 0, "%d columns where a row has %d", n, N_COLUMNS);
    if (!td_span_integer(fields[0], &label) || label < 0 || label > 1)
        return td_bad_rows_add(bad, text->path, text->line, 1, "the label is neither 0 nor 1");
    unsigned char *record_out;
    TD_TRY(td_rows_append(&dataset->rows, &record_out));
    TD_TRY(td_columns_category(columns, 0, fields[1], &id));
    td_record_set_id(&dataset->rows, record_out, 0, id);
    td_record_numbers(&dataset->rows, record_out)[0] = (float)label;
    dataset->counts.positive_rows += label;
    bad->good++;
    return NULL;
}

static td_status *parse_all(td_text *text, td_columns *columns, td_bad_rows *bad, td_dataset *dataset)
{
    for (;;) {
        td_span record;
        bool end;
        TD_TRY(td_text_next(text, &record, &end));
        if (end)
            return td_bad_rows_check(bad, text->path);
        TD_TRY(parse(text, record, columns, bad, dataset));
    }
}

static td_status *fill_in(const td_dataset_options *options, td_text *text, td_columns *columns, td_bad_rows *bad,
                          td_dataset *dataset)
{
    TD_TRY(td_columns_init(columns, 0, 1, options, TD_TRANSFORM_NONE));
    td_column_name(&columns->counts[0], "id");
    td_rows_init(&dataset->rows, 1, 1, td_columns_most_id(columns));
    TD_TRY(td_text_open(text, options->train));
    TD_TRY(parse_all(text, columns, bad, dataset));
    dataset->schema.train_rows = td_split_rows(dataset->rows.count, options->train_share);
    dataset->schema.test_rows = dataset->rows.count - dataset->schema.train_rows;
    TD_TRY(td_columns_finish(columns, &dataset->rows, dataset->schema.train_rows));
    td_dataset_take_columns(dataset, columns);
    return td_dataset_take_bad_rows(dataset, bad);
}

static td_status *read_dataset(const td_dataset_options *options, td_dataset *dataset)
{
    td_text text = {0};
    td_columns columns = {0};
    td_bad_rows bad = {.share = options->bad_rows};
    td_status *status = fill_in(options, &text, &columns, &bad, dataset);
    td_text_close(&text);
    td_columns_deinit(&columns);
    td_bad_rows_deinit(&bad);
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
