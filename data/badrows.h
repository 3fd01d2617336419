/* What becomes of malformed rows: they are counted, the first few kept for the report, and too many are an error. */
#ifndef TANDEM_DATA_BADROWS_H
#define TANDEM_DATA_BADROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TD_BAD_ROWS_KEPT = 5 };

typedef struct td_bad_rows {
    double share; /* of all rows, allowed */
    int64_t bad, good;
    char *first[TD_BAD_ROWS_KEPT]; /* "train.tsv:17:3: ..." */
} td_bad_rows;

/* One malformed row: in which file, line and column (field, from 1; 0: the row as a whole), and why. An error at
 * once if none is allowed, or if after 1,000 rows and more those so far are more bad than half of what is not allowed; else all
 * rows are judged at the end. */
td_status *td_bad_rows_add(td_bad_rows *rows, const char *path, int64_t line, int32_t column, const char *format, ...)
    TD_PRINTF(5, 6) TD_MUST_USE;
/* The judgement over all rows, exactly. */
td_status *td_bad_rows_check(const td_bad_rows *rows, const char *path) TD_MUST_USE;
void td_bad_rows_deinit(td_bad_rows *rows);

#endif
