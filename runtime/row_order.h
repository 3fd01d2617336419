/* Rows of a row-sparse gradient by ascending row: sums over micro-batches list them as they came (graph/ops/accumulate.c), and
 * what other ranks get is ordered. */
#ifndef TANDEM_RUNTIME_ROW_ORDER_H
#define TANDEM_RUNTIME_ROW_ORDER_H

#include "tandem/status.h"

#include <stdint.h>

/* Zeroed: nothing yet. `at` lasts until the next call. */
typedef struct td_row_order {
    const int64_t *at; /* [n]: where the i-th row is; NULL: they ascend as they are */
    void *scratch;
    int64_t capacity;
} td_row_order;

/* n distinct rows, each less than table_rows. */
td_status *td_row_order_find(td_row_order *order, const int64_t *rows, int64_t n, int64_t table_rows) TD_MUST_USE;
void td_row_order_deinit(td_row_order *order);

static inline int64_t td_row_order_at(const td_row_order *order, int64_t i)
{
    return order->at ? order->at[i] : i;
}

#endif
