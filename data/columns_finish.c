/* What makes records final once the training part is known: statistics of its numbers and its vocabularies, then one
 * pass over all records. Sums are taken in row order in double precision, so they are the same everywhere. */
#include "data/columns.h"

#include "base/math.h"
#include "base/memory.h"

static double before_statistics(td_transform transform, float value)
{
    bool logarithm = transform == TD_TRANSFORM_LOG1P || transform == TD_TRANSFORM_LOG1P_STANDARDISE;
    return logarithm ? td_log(1 + (value > 0 ? (double)value : 0.0)) : (double)value;
}

static bool standardises(td_transform transform)
{
    return transform == TD_TRANSFORM_STANDARDISE || transform == TD_TRANSFORM_LOG1P_STANDARDISE;
}

/* Mean and population deviation of one column over the first `train_rows`, in two passes. */
static void statistics(td_columns *columns, const td_rows *rows, int32_t i, int64_t train_rows)
{
    double sum = 0, squares = 0;
    int64_t present = 0;
    td_column_counts *counts = &columns->counts[i];
    for (int64_t row = 0; row < train_rows; row++) {
        float value = td_record_numbers(rows, td_rows_at(rows, row))[i];
        td_rows_pass(rows, row);
        present += !isnan(value);
        sum += isnan(value) ? 0 : before_statistics(columns->transforms[i], value);
    }
    counts->mean = present ? sum / (double)present : 0;
    for (int64_t row = 0; row < train_rows; row++) {
        float value = td_record_numbers(rows, td_rows_at(rows, row))[i];
        double apart = isnan(value) ? 0 : before_statistics(columns->transforms[i], value) - counts->mean;
        squares += apart * apart;
        td_rows_pass(rows, row);
    }
    counts->deviation = present ? sqrt(squares / (double)present) : 0;
}

static void transform_numbers(const td_columns *columns, float *numbers)
{
    for (int32_t i = 0; i < columns->n_numbers; i++) {
        td_transform transform = columns->transforms[i];
        const td_column_counts *counts = &columns->counts[i];
        double value = isnan(numbers[i]) ? NAN : before_statistics(transform, numbers[i]);
        if (standardises(transform))
            value = counts->deviation > 0 ? (value - counts->mean) / counts->deviation : 0;
        numbers[i] = isnan(value) ? 0.0f : (float)value;
    }
}

/* ranks[j]: word number -> id, for vocabulary columns; NULL elsewhere. */
static td_status *rank_words(td_columns *columns, const td_rows *rows, int64_t train_rows, int64_t **ranks)
{
    for (int32_t j = 0; j < columns->n_ids; j++) {
        td_column_counts *counts = &columns->counts[columns->n_numbers + j];
        const td_vocabulary *words = &columns->words[j];
        if (columns->by_vocabulary[j] || (columns->count_distinct && j < columns->n_categories))
            counts->distinct = words->count - (columns->by_vocabulary[j] && counts->missing > 0);
        if (!columns->by_vocabulary[j])
            continue;
        int64_t *seen = NULL, kept = 0;
        TD_TRY(TD_NEW(ranks[j], words->count));
        TD_TRY(TD_NEW(seen, words->count));
        for (int64_t row = 0; row < train_rows; row++) {
            seen[td_record_id(rows, td_rows_at(rows, row), j)]++;
            td_rows_pass(rows, row);
        }
        td_status *status = td_vocabulary_rank(words, seen, columns->min_count, ranks[j], &kept);
        td_free(seen);
        TD_TRY(status);
        counts->table_rows = kept + 1;
    }
    return NULL;
}

static void rewrite(const td_columns *columns, const td_rows *rows, int64_t *const *ranks)
{
    for (int64_t row = 0; row < rows->count; row++) {
        unsigned char *record = td_rows_at(rows, row);
        transform_numbers(columns, td_record_numbers(rows, record));
        for (int32_t j = 0; j < columns->n_ids; j++)
            if (ranks[j])
                td_record_set_id(rows, record, j, ranks[j][td_record_id(rows, record, j)]);
        td_rows_pass(rows, row);
    }
}

td_status *td_columns_finish(td_columns *columns, td_rows *rows, int64_t train_rows)
{
    int64_t **ranks = NULL;
    TD_TRY(TD_NEW(ranks, columns->n_ids));
    for (int32_t i = 0; i < columns->n_numbers; i++)
        if (standardises(columns->transforms[i]))
            statistics(columns, rows, i, train_rows);
    td_status *status = rank_words(columns, rows, train_rows, ranks);
    if (!status)
        rewrite(columns, rows, ranks);
    for (int32_t j = 0; j < columns->n_ids; j++)
        td_free(ranks[j]);
    td_free(ranks);
    return status;
}
