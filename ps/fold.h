/* Sums of row-sparse gradients, one after another: a row that both have is the sum so far plus the new one, others are taken as
 * they are. That is the order of contract (e): replicas left to right, an absent one skipped. */
#ifndef TANDEM_PS_FOLD_H
#define TANDEM_PS_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

/* n rows of dim numbers; keys ascend. */
typedef struct td_fold_rows {
    int64_t n, dim;
    const int64_t *keys;
    const float *rows;
} td_fold_rows;

/* Zeroed: none yet. Two buffers, of which one has the sum so far unless that is what the first caller brought. */
typedef struct td_fold {
    td_fold_rows sum;
    int64_t *keys[2];
    float *rows[2];
    int64_t keys_capacity[2], rows_capacity[2];
    int32_t next; /* buffer */
} td_fold;

/* Begins with these rows, which must stay. */
void td_fold_begin(td_fold *fold, const td_fold_rows *rows);
td_status *td_fold_add(td_fold *fold, const td_fold_rows *rows) TD_MUST_USE;
/* Until the next call. */
td_fold_rows td_fold_result(const td_fold *fold);
void td_fold_deinit(td_fold *fold);

#endif
