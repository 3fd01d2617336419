/* What a worker tells every other of a replica's window: its micro-batches' losses, then of each row-sparse gradient how many rows,
 * their keys, ascending, and the rows. Counts and keys are of 8 bytes, so every part begins at a multiple of 8. */
#ifndef TANDEM_PS_RANK_ROWS_H
#define TANDEM_PS_RANK_ROWS_H

#include "ps/fold.h"
#include "runtime/row_order.h"
#include "tandem/backend.h"

typedef struct td_micro_loss {
    double loss;
    int64_t weight;
} td_micro_loss;

int64_t td_row_elements(const td_tensor *gradient);
/* Bytes, a multiple of 8, that no message is longer than: of at most so many losses, and of gradients that have room for so many
 * bytes of counts, keys and rows, each a multiple of 8. */
int64_t td_rank_rows_room(int32_t losses, int64_t gradient_bytes);
/* Writes it, without rows where there are no losses; returns its bytes. `order` is memory that is used again. */
td_status *td_rank_rows_write(char *message, const td_micro_loss *losses, int64_t n_losses, const td_tensor *gradients,
                              int32_t n, td_row_order *order, int64_t *out_bytes) TD_MUST_USE;
/* Whether it is that, of so many losses and of the row-sparse ones among the gradients: it comes from another process. */
td_status *td_rank_rows_check(const char *message, int64_t bytes, int64_t losses, const td_tensor *gradients,
                              int32_t n) TD_MUST_USE;
const td_micro_loss *td_rank_rows_losses(const char *message, int64_t *out_n);
/* Where the first gradient's rows are. */
const char *td_rank_rows_begin(const char *message);
/* One gradient's rows; *at goes on to the next one's. */
td_fold_rows td_rank_rows_next(const char **at, const td_tensor *gradient);

#endif
