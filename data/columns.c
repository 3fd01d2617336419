/* Columns of a text format while rows arrive: see data/columns.h. What happens afterwards is in data/columns_finish.c. */
#include "data/columns.h"

#include <math.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/units.h"

static td_status *check_lists(int32_t n_numbers, int32_t n_ids, const td_dataset_options *options)
{
    if (options->n_transforms > 1 && options->n_transforms != n_numbers)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: %s for %s; give one for all or one each",
                        TD_COUNTED(options->n_transforms, "transform"), TD_COUNTED(n_numbers, "numeric column"));
    if (options->n_table_rows > 1 && options->n_table_rows != n_ids)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: %s for %s; give one for all or one each",
                        TD_COUNTED(options->n_table_rows, "table size"), TD_COUNTED(n_ids, "categorical column"));
    for (int32_t i = 0; i < options->n_table_rows; i++)
        if (options->table_rows[i] < 0 || options->table_rows[i] == 1)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "data: a table of %s; a hashed column needs at least 2, 0 asks for a vocabulary",
                            TD_COUNTED(options->table_rows[i], "row"));
    return NULL;
}

td_status *td_columns_init(td_columns *columns, int32_t n_numbers, int32_t n_categories, int32_t n_ready,
                           const td_dataset_options *options, td_transform fallback)
{
    int32_t n_ids = n_categories + n_ready;
    *columns = (td_columns){.n_numbers = n_numbers, .n_ids = n_ids, .n_categories = n_categories};
    columns->min_count = options->min_count > 1 ? options->min_count : 1;
    columns->count_distinct = options->count_distinct;
    TD_TRY(check_lists(n_numbers, n_categories, options));
    TD_TRY(TD_NEW(columns->counts, n_numbers + n_ids));
    TD_TRY(TD_NEW(columns->transforms, n_numbers));
    TD_TRY(TD_NEW(columns->words, n_ids));
    TD_TRY(TD_NEW(columns->by_vocabulary, n_ids));
    for (int32_t i = 0; i < n_numbers; i++) {
        int32_t given = options->n_transforms > 1 ? i : 0;
        td_transform transform = options->n_transforms ? options->transforms[given] : TD_TRANSFORM_DEFAULT;
        columns->transforms[i] = transform == TD_TRANSFORM_DEFAULT ? fallback : transform;
        columns->counts[i] = (td_column_counts){.numeric = true, .distinct = -1, .deviation = 1};
    }
    for (int32_t j = 0; j < n_ids; j++) {
        int32_t given = options->n_table_rows > 1 ? j : 0;
        int64_t rows = options->n_table_rows && j < n_categories ? options->table_rows[given] : 0;
        columns->by_vocabulary[j] = rows == 0 && j < n_categories;
        columns->counts[n_numbers + j] = (td_column_counts){.table_rows = rows, .distinct = -1};
    }
    return NULL;
}

void td_columns_deinit(td_columns *columns)
{
    for (int32_t j = 0; columns->words && j < columns->n_ids; j++)
        td_vocabulary_deinit(&columns->words[j]);
    td_free(columns->counts);
    td_free(columns->transforms);
    td_free(columns->words);
    td_free(columns->by_vocabulary);
    *columns = (td_columns){0};
}

void td_column_name(td_column_counts *column, const char *name)
{
    (void)snprintf(column->name, sizeof column->name, "%s", name);
}

int64_t td_columns_most_id(const td_columns *columns)
{
    int64_t most = UINT32_MAX; /* word numbers: bounded in td_columns_category */
    for (int32_t j = 0; j < columns->n_ids; j++) {
        int64_t rows = columns->counts[columns->n_numbers + j].table_rows;
        most = rows - 1 > most ? rows - 1 : most;
    }
    return most;
}

float td_columns_number(td_columns *columns, int32_t i, double value)
{
    td_column_counts *counts = &columns->counts[i];
    if (isnan(value)) {
        counts->missing++;
        return NAN;
    }
    bool first = counts->present++ == 0;
    counts->least = first || value < counts->least ? value : counts->least;
    counts->most = first || value > counts->most ? value : counts->most;
    counts->sum += value;
    return (float)value;
}

td_status *td_columns_category(td_columns *columns, int32_t j, td_span value, int64_t *out_id)
{
    td_column_counts *counts = &columns->counts[columns->n_numbers + j];
    int64_t word = 0;
    counts->missing += value.length == 0;
    counts->present += value.length > 0;
    if (columns->by_vocabulary[j] || (columns->count_distinct && value.length > 0))
        TD_TRY(td_vocabulary_add(&columns->words[j], value, &word));
    if (word >= UINT32_MAX)
        return TD_ERROR(TD_UNSUPPORTED, "column %s has more than 2^32 - 1 different values; hash it (data.table_rows)",
                        counts->name);
    *out_id = word;
    if (columns->by_vocabulary[j])
        return NULL;
    uint64_t hash = value.length ? td_hash_bytes(value.data, (size_t)value.length, 0) : 0;
    *out_id = value.length ? 1 + (int64_t)(hash % (uint64_t)(counts->table_rows - 1)) : 0;
    return NULL;
}
