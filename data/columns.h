/* Columns of a text format: from values of a row to numbers and ids of a record, with counts along the way.
 *
 * While rows arrive, a record holds raw numbers (missing: NaN) and, in vocabulary columns, word numbers.
 * td_columns_finish knows the training part, so it takes the statistics and vocabularies from there and rewrites the
 * records in place. */
#ifndef TANDEM_DATA_COLUMNS_H
#define TANDEM_DATA_COLUMNS_H

#include "data/rows.h"
#include "data/vocabulary.h"
#include "tandem/data.h"

typedef struct td_columns {
    int32_t n_numbers, n_ids, n_categories; /* ids: categories first, then those that come ready */
    td_column_counts *counts;               /* [n_numbers + n_ids], numbers first */
    td_transform *transforms;               /* [n_numbers], none TD_TRANSFORM_DEFAULT */
    td_vocabulary *words;                   /* [n_ids], in use where by vocabulary or distinct values are counted */
    bool *by_vocabulary;                    /* [n_ids] */
    int64_t min_count;
    bool count_distinct;
} td_columns;

/* Columns without names: numbers, categories, and n_ready columns of ids that come ready (crosses). transforms and table
 * rows: one for all, one each, or none (`fallback`; 0: by vocabulary). */
td_status *td_columns_init(td_columns *columns, int32_t n_numbers, int32_t n_categories, int32_t n_ready,
                           const td_dataset_options *options, td_transform fallback) TD_MUST_USE;
void td_columns_deinit(td_columns *columns);
void td_column_name(td_column_counts *column, const char *name);
/* The largest id that any column can hold while rows arrive. */
int64_t td_columns_most_id(const td_columns *columns);

/* A value of numeric column `i` (NaN: missing), counted; returns what the record holds for now. */
float td_columns_number(td_columns *columns, int32_t i, double value);
/* A value of categorical column `j`, counted; *out_id: what the record holds for now. */
td_status *td_columns_category(td_columns *columns, int32_t j, td_span value, int64_t *out_id) TD_MUST_USE;
/* Vocabularies and transforms over all records; statistics are of the first `train_rows`. */
td_status *td_columns_finish(td_columns *columns, td_rows *rows, int64_t train_rows) TD_MUST_USE;

#endif
