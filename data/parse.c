/* The walk through the files of a text format: see data/parse.h. */
#include "data/parse.h"

#include "base/file.h"

static td_status *next_record(td_parse *parse, td_span *out_record, bool *out_end)
{
    if (parse->csv)
        return td_text_next_csv(&parse->text, parse->csv, out_record, out_end);
    return td_text_next(&parse->text, out_record, out_end);
}

static void tell(const td_parse *parse, int64_t rows)
{
    int64_t bytes, of_bytes;
    if (!parse->options->on_reading)
        return;
    td_text_position(&parse->text, &bytes, &of_bytes);
    parse->options->on_reading(parse->options->on_reading_context, parse->text.path, bytes, of_bytes, rows);
}

static td_status *parse_records(td_parse *parse)
{
    enum { TOLD_EVERY = 4096 };
    int64_t most = parse->options->most_rows;
    if (parse->begin)
        TD_TRY(parse->begin(parse));
    for (int64_t rows = 0; most == 0 || rows < most;) {
        td_span record;
        bool end, good = false;
        TD_TRY(next_record(parse, &record, &end));
        if (end)
            return NULL;
        TD_TRY(parse->row(parse, record, &good));
        rows += good;
        parse->bad.good += good;
        if (good && rows % TOLD_EVERY == 0)
            tell(parse, rows);
    }
    return NULL;
}

td_status *td_parse_file(td_parse *parse, const char *path)
{
    parse->bad.share = parse->options->bad_rows;
    td_status *status = td_text_open(&parse->text, path);
    if (!status)
        status = parse_records(parse);
    td_text_close(&parse->text);
    TD_TRY(status);
    return td_bad_rows_check(&parse->bad, path);
}

/* Where parsed rows go to a cache, they lie in a file beside it meanwhile, so that memory does not bound them. Where no such file
 * can be made or it cannot grow, they lie in memory, and a note says why: like the cache itself, it is worth no error. */
static td_status *spill(td_parse *parse)
{
    const char *folder = parse->options->cache;
    td_work_file *file = NULL;
    if (!folder)
        return NULL;
    td_status *status = td_directory_create(folder);
    if (!status)
        status = td_work_file_create(folder, 0, &file);
    if (!status)
        td_rows_spill(&parse->dataset->rows, file);
    if (td_status_code(status) == TD_OUT_OF_MEMORY)
        return status;
    parse->dataset->rows.spill_ended = status;
    return NULL;
}

td_status *td_parse_files(td_parse *parse)
{
    td_dataset *dataset = parse->dataset;
    TD_TRY(spill(parse));
    TD_TRY(td_parse_file(parse, parse->options->train));
    int64_t train_rows = dataset->rows.count;
    if (parse->options->test)
        TD_TRY(td_parse_file(parse, parse->options->test));
    else
        train_rows = td_split_rows(train_rows, parse->options->train_share);
    dataset->schema.train_rows = train_rows;
    dataset->schema.test_rows = dataset->rows.count - train_rows;
    TD_TRY(td_columns_finish(&parse->columns, &dataset->rows, train_rows));
    td_dataset_take_columns(dataset, &parse->columns);
    return td_dataset_take_bad_rows(dataset, &parse->bad);
}

void td_parse_deinit(td_parse *parse)
{
    td_columns_deinit(&parse->columns);
    td_bad_rows_deinit(&parse->bad);
}
