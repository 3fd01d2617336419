/* See row_order.h. */
#include "runtime/row_order.h"

#include <stdbool.h>

#include "base/dedup.h"
#include "base/memory.h"

td_status *td_row_order_find(td_row_order *order, const int64_t *rows, int64_t n, int64_t table_rows)
{
    bool ascend = true;
    td_dedup dedup;
    for (int64_t i = 1; i < n && ascend; i++)
        ascend = rows[i - 1] < rows[i];
    order->at = NULL;
    if (ascend)
        return NULL;
    if (n > order->capacity) {
        td_free(order->scratch);
        order->capacity = 0;
        order->scratch = td_calloc(1, td_dedup_scratch_bytes(n));
        if (!order->scratch)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the order of %lld rows", (long long)n);
        order->capacity = n;
    }
    TD_TRY(td_dedup_group(rows, TD_I64, n, 0, table_rows, order->scratch, &dedup));
    order->at = dedup.positions;
    return NULL;
}

void td_row_order_deinit(td_row_order *order)
{
    td_free(order->scratch);
    *order = (td_row_order){0};
}
