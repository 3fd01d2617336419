/* Inside a data set: what readers fill and the loader reads. */
#ifndef TANDEM_DATA_DATASET_H
#define TANDEM_DATA_DATASET_H

#include "data/badrows.h"
#include "data/columns.h"
#include "data/rows.h"
#include "tandem/data.h"

typedef struct td_reader td_reader;

/* Where a field's elements come from: `width` columns of a record from `first`, ids (numbers, for numbers and the
 * label). shifts: added to each id, or NULL. */
typedef struct td_field_plan {
    int32_t first;
    int64_t *shifts;
} td_field_plan;

struct td_dataset {
    const td_reader *reader;
    td_schema schema; /* its fields and their lists belong to the data set */
    td_schema_field *fields;
    td_field_plan *plans;
    int64_t fields_capacity, plans_capacity;
    td_rows rows;
    td_column_counts *columns;
    int32_t n_columns;
    td_dataset_counts counts;
    char **notes;
    int64_t n_notes, notes_capacity;
    void *generator; /* of a format that stores no rows */
    void (*generator_destroy)(void *generator);
    /* Writes rows[0, n) into tensors that have room for n rows at the schema's shapes, and sets their dims and entries.
     * which[i]: the schema's field of tensors[i]. Any number of threads at once. */
    td_status *(*fill)(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                       const int32_t *which, td_tensor *tensors);
    td_status *(*true_auc)(const td_dataset *dataset, td_part part, double *out_auc); /* NULL: not known */
};

/* What a field is, as a reader says it. `first`: the record's first column (an index among ids, or among numbers).
 * Columns are named and sized after dataset->columns[first_column ..]; first_column -1: no names. `shifted`: each
 * column gets its own range of ids. */
typedef struct td_field_form {
    const char *name;
    td_field_role role;
    int32_t rank, first, first_column;
    int64_t width;
    int64_t dims[3]; /* rank 4 */
    td_dtype dtype;  /* f32: the role's own */
    bool ragged, shifted;
} td_field_form;

td_status *td_dataset_add_field(td_dataset *dataset, td_field_form form) TD_MUST_USE;
/* "ids_t<index>", one id per row. */
td_status *td_dataset_add_table(td_dataset *dataset, int32_t index, int32_t first_column) TD_MUST_USE;
td_status *td_dataset_add_note(td_dataset *dataset, const char *text) TD_MUST_USE;
/* Moves the columns' counts into the data set and what is known of bad rows into its counts and notes. */
void td_dataset_take_columns(td_dataset *dataset, td_columns *columns);
td_status *td_dataset_take_bad_rows(td_dataset *dataset, const td_bad_rows *bad) TD_MUST_USE;
/* floor(share * rows), as the split is made. */
int64_t td_split_rows(int64_t rows, double share);

#endif
