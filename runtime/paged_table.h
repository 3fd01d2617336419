/* Tables whose rows take memory only once they are touched, and may lie in a file otherwise: a parameter and its optimizer state
 * over the same rows, in arrays of a page pool (pages.h).
 *
 * A row is there once it was touched: it begins with its initial values, which follow from seed, name and index, so that no
 * order of touching matters. Before, it takes no memory, and reading it gives the initial values. Kernels work on the arrays as
 * if all of it were memory: rows that td_paged_table_touch named lie there in that step and the next. */
#ifndef TANDEM_RUNTIME_PAGED_TABLE_H
#define TANDEM_RUNTIME_PAGED_TABLE_H

#include "optim/rule.h"
#include "runtime/initial.h"
#include "runtime/pages.h"

enum { TD_PAGED_TABLE_ARRAYS = 1 + TD_MAX_SLOTS };

typedef struct td_paged_table_array {
    td_page_array pages;
    td_initial initial;
    int64_t row_elements, row_bytes;
} td_paged_table_array;

typedef struct td_paged_table {
    int64_t rows, n_there;
    td_page_pool *pool;
    td_paged_table_array arrays[TD_PAGED_TABLE_ARRAYS]; /* the parameter, then its state */
    int32_t n_arrays;
    uint64_t *there;    /* a bit per row */
    uint64_t *occupied; /* a bit per word of `there`: it is not zero */
} td_paged_table;

td_status *td_paged_table_init(td_paged_table *table, td_page_pool *pool, int64_t rows) TD_MUST_USE;
void td_paged_table_deinit(td_paged_table *table);
/* Forgets all rows. */
void td_paged_table_clear(td_paged_table *table);
/* All arrays are added before the first row is touched. */
td_status *td_paged_table_add(td_paged_table *table, int64_t row_elements, td_initial initial) TD_MUST_USE;

/* Before a lookup of these ids (dense or ragged, i64 or i32, plus `offset`), or an update of the rows of a row-sparse gradient: the rows are there, in memory, for this step and
 * the next. `write`: an update may change them. Ids outside the table are left for the lookup to refuse. Thread-safe. */
td_status *td_paged_table_touch(td_paged_table *table, const td_tensor *ids, int64_t offset, bool write) TD_MUST_USE;

/* Whole rows of one array. Writing makes them there (save one that only gets its initial values), with initial values in the
 * other arrays. One thread. */
td_status *td_paged_table_read(td_paged_table *table, int32_t array, int64_t row, int64_t n_rows,
                               void *out) TD_MUST_USE;
td_status *td_paged_table_write(td_paged_table *table, int32_t array, int64_t row, int64_t n_rows,
                                const void *data) TD_MUST_USE;
/* Elements of one array, which may begin and end within a row. */
td_status *td_paged_table_read_elements(td_paged_table *table, int32_t array, int64_t first, int64_t n,
                                        void *out) TD_MUST_USE;
td_status *td_paged_table_write_elements(td_paged_table *table, int32_t array, int64_t first, int64_t n,
                                         const void *data) TD_MUST_USE;
/* The first row at or after `row` that is there, or -1. */
int64_t td_paged_table_next(const td_paged_table *table, int64_t row);

#endif
