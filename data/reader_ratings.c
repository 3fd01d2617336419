/* Ratings: TSV without header, user, movie, rating, time, as MovieLens-100k has them (Harper and Konstan, The MovieLens
 * Datasets, 2015). Rows are put in order of time, then user, then movie, so that the test part is what came last. */
#include "data/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/units.h"
#include "data/parse.h"

enum { N_FIELDS = 4, USER = 0, MOVIE = 1, SEEN = 2, N_IDS = 3 };

typedef struct rating {
    int64_t ids[2]; /* user, movie, from 1 */
    int64_t time;
    double value;
} rating;

typedef struct ratings {
    rating *rows;
    int64_t count, capacity;
    int64_t largest[2];
} ratings;

static const char *const id_names[2] = {"user", "movie"};

/* The stated rows of a table; 0: none stated. */
static int64_t stated_rows(const td_dataset_options *options, int32_t table)
{
    int32_t given = options->n_table_rows > 1 ? table : 0;
    return options->n_table_rows ? options->table_rows[given] : 0;
}

static td_status *check(const td_dataset_options *options)
{
    if (options->n_table_rows > 2)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: %s; ratings have two tables, users and movies",
                        TD_COUNTED(options->n_table_rows, "table size"));
    for (int32_t t = 0; t < 2; t++)
        if (stated_rows(options, t) < 0 || stated_rows(options, t) > UINT32_MAX)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "data: a table of %lld %ss; it must be 0 (as the data has) to 2^32 - 1",
                            (long long)stated_rows(options, t), id_names[t]);
    if (isnan(options->least_positive))
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: the least positive rating is not a number");
    return NULL;
}

/* An id outside its table is an error, or the row is counted and left out. *out_good: it is inside. */
static td_status *check_ids(td_parse *parse, const rating *row, bool *out_good)
{
    for (int32_t t = 0; t < 2; t++) {
        int64_t stated = stated_rows(parse->options, t), most = stated ? stated : UINT32_MAX;
        if (row->ids[t] >= 1 && row->ids[t] <= most)
            continue;
        if (!parse->options->skip_bad_ids)
            return td_status_help(TD_ERROR(TD_DATA_ERROR, "%s:%lld:%d: %s %lld is outside its table of %s",
                                           parse->text.path, (long long)parse->text.line, t + 1, id_names[t],
                                           (long long)row->ids[t], TD_COUNTED(most, "row")),
                                  "ids count from 1; data.bad_ids: skip leaves such rows out");
        parse->dataset->counts.bad_id_rows++;
        return NULL;
    }
    *out_good = true;
    return NULL;
}

static td_status *parse_row(td_parse *parse, td_span text, bool *out_good)
{
    ratings *all = parse->self;
    td_span fields[N_FIELDS];
    rating row = {0};
    char shown[TD_SPAN_SHOWN];
    int32_t n = td_tsv_split(text, '\t', fields, N_FIELDS);
    if (n != N_FIELDS)
        return td_parse_refuse(parse, 0, "%s where a rating has %d", TD_COUNTED(n, "column"), N_FIELDS);
    for (int32_t t = 0; t < 2; t++)
        if (!td_span_integer(fields[t], &row.ids[t]))
            return td_parse_refuse(parse, t + 1, "%s \"%s\" is not an integer", id_names[t],
                                   td_span_show(fields[t], shown));
    if (!td_span_real(fields[2], &row.value))
        return td_parse_refuse(parse, 3, "rating \"%s\" is not a number", td_span_show(fields[2], shown));
    if (!td_span_integer(fields[3], &row.time))
        return td_parse_refuse(parse, 4, "time \"%s\" is not an integer", td_span_show(fields[3], shown));
    TD_TRY(check_ids(parse, &row, out_good));
    if (!*out_good)
        return NULL;
    for (int32_t t = 0; t < 2; t++)
        all->largest[t] = row.ids[t] > all->largest[t] ? row.ids[t] : all->largest[t];
    TD_TRY(td_grow(&all->rows, &all->capacity, all->count, sizeof *all->rows));
    all->rows[all->count++] = row;
    return NULL;
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Time, user, movie; equal rows of those are ordered by rating, so that no order depends on the sort. */
static int by_time(const void *a, const void *b)
{
    const rating *x = a, *y = b;
    int order = compare(x->time, y->time);
    order = order ? order : compare(x->ids[USER], y->ids[USER]);
    order = order ? order : compare(x->ids[MOVIE], y->ids[MOVIE]);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

static void sort(ratings *all, int64_t begin)
{
    if (all->count > begin)
        qsort(all->rows + begin, (size_t)(all->count - begin), sizeof *all->rows, by_time);
}

/* Column counts, and which users have training rows (`seen`, one byte per user). */
static void count_columns(const ratings *all, int64_t train_rows, td_dataset *dataset, unsigned char *const *met,
                          unsigned char *seen)
{
    for (int64_t i = 0; i < all->count; i++)
        for (int32_t t = 0; t < 2; t++) {
            int64_t id = all->rows[i].ids[t] - 1;
            dataset->columns[t].distinct += !met[t][id];
            met[t][id] = 1;
        }
    for (int64_t i = 0; i < train_rows; i++)
        seen[all->rows[i].ids[USER] - 1] = 1;
}

static td_status *store(const td_dataset_options *options, const ratings *all, const unsigned char *seen,
                        td_dataset *dataset)
{
    td_rows *rows = &dataset->rows;
    td_rows_init(rows, N_IDS, 1, UINT32_MAX - 1);
    for (int64_t i = 0; i < all->count; i++) {
        const rating *row = &all->rows[i];
        bool positive = row->value >= options->least_positive;
        unsigned char *record;
        TD_TRY(td_rows_append(rows, &record));
        td_record_set_id(rows, record, USER, row->ids[USER] - 1);
        td_record_set_id(rows, record, MOVIE, row->ids[MOVIE] - 1);
        td_record_set_id(rows, record, SEEN, seen[row->ids[USER] - 1]);
        td_record_numbers(rows, record)[0] = positive;
        dataset->counts.positive_rows += positive;
    }
    return NULL;
}

static td_status *finish(const td_dataset_options *options, const ratings *all, int64_t train_rows, td_dataset *dataset)
{
    unsigned char *marks[3] = {NULL, NULL, NULL}; /* users met, movies met, users seen in training */
    td_status *status = NULL;
    TD_TRY(TD_NEW(dataset->columns, 2));
    dataset->n_columns = 2;
    for (int32_t t = 0; t < 2; t++) {
        td_column_counts *column = &dataset->columns[t];
        int64_t stated = stated_rows(options, t);
        td_column_name(column, id_names[t]);
        column->present = all->count;
        column->table_rows = stated ? stated : all->largest[t];
        TD_TRY_OR(status, end, TD_NEW(marks[t], column->table_rows));
    }
    TD_TRY_OR(status, end, TD_NEW(marks[2], dataset->columns[USER].table_rows));
    count_columns(all, train_rows, dataset, marks, marks[2]);
    TD_TRY_OR(status, end, store(options, all, marks[2], dataset));
    dataset->schema.train_rows = train_rows;
    dataset->schema.test_rows = all->count - train_rows;
end:
    for (int32_t i = 0; i < 3; i++)
        td_free(marks[i]);
    return status;
}

static td_status *note_bad_ids(td_dataset *dataset)
{
    char text[TD_UNIT_TEXT], note[128];
    if (!dataset->counts.bad_id_rows)
        return NULL;
    (void)snprintf(note, sizeof note, "%s with an id outside its table left out (data.bad_ids)",
                   td_format_counted(text, dataset->counts.bad_id_rows, "row"));
    return td_dataset_add_note(dataset, note);
}

static td_status *read_all(td_parse *parse, ratings *all)
{
    const td_dataset_options *options = parse->options;
    TD_TRY(td_parse_file(parse, options->train));
    sort(all, 0);
    int64_t train_rows = all->count;
    if (options->test) {
        TD_TRY(td_parse_file(parse, options->test));
        sort(all, train_rows);
    } else {
        train_rows = td_split_rows(train_rows, options->train_share);
    }
    TD_TRY(finish(options, all, train_rows, parse->dataset));
    TD_TRY(td_dataset_take_bad_rows(parse->dataset, &parse->bad));
    return note_bad_ids(parse->dataset);
}

static td_status *read_dataset(const td_dataset_options *options, td_dataset *dataset)
{
    ratings all = {0};
    td_parse parse = {.options = options, .dataset = dataset, .row = parse_row, .self = &all};
    td_status *status = read_all(&parse, &all);
    td_parse_deinit(&parse);
    td_free(all.rows);
    return status;
}

static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    (void)options;
    TD_TRY(td_dataset_add_table(dataset, USER, 0));
    TD_TRY(td_dataset_add_table(dataset, MOVIE, 0));
    TD_TRY(td_dataset_add_field(
        dataset, (td_field_form){.name = "label", .role = TD_FIELD_LABEL, .rank = 2, .width = 1, .first_column = -1}));
    return td_dataset_add_field(
        dataset,
        (td_field_form){
            .name = "seen_user", .role = TD_FIELD_MASK, .rank = 1, .width = 1, .first = SEEN, .first_column = -1});
}

const td_reader td_reader_ratings = {
    .name = "ratings",
    .summary = "ratings in order of time, TSV: user, movie, rating, time",
    .check = check,
    .read = read_dataset,
    .describe = describe,
};
