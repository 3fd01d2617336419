/* See rank_rows.h. */
#include "ps/rank_rows.h"

#include <inttypes.h>
#include <string.h>

int64_t td_row_elements(const td_tensor *gradient)
{
    int64_t n = 1;
    for (int32_t i = 1; i < gradient->rank; i++)
        n *= gradient->dims[i];
    return n;
}

const td_micro_loss *td_rank_rows_losses(const char *message, int64_t *out_n)
{
    memcpy(out_n, message, sizeof *out_n);
    return (const td_micro_loss *)(const void *)(message + sizeof *out_n);
}

const char *td_rank_rows_begin(const char *message)
{
    int64_t n = 0;
    return (const char *)(td_rank_rows_losses(message, &n) + n);
}

static int64_t bytes_of(int64_t rows, int64_t dim)
{
    const int64_t bytes = rows * (int64_t)(sizeof(int64_t) + (size_t)dim * sizeof(float));
    return (int64_t)sizeof(int64_t) + (bytes + 7) / 8 * 8;
}

td_fold_rows td_rank_rows_next(const char **at, const td_tensor *gradient)
{
    td_fold_rows rows = {.dim = td_row_elements(gradient)};
    memcpy(&rows.n, *at, sizeof rows.n);
    rows.keys = (const int64_t *)(const void *)(*at + sizeof rows.n);
    rows.rows = (const float *)(const void *)(rows.keys + rows.n);
    *at += bytes_of(rows.n, rows.dim);
    return rows;
}

static bool ascend_below(const int64_t *keys, int64_t n, int64_t end)
{
    for (int64_t i = 0; i < n; i++)
        if (keys[i] < 0 || keys[i] >= end || (i && keys[i] <= keys[i - 1]))
            return false;
    return true;
}

/* *at goes on if the next gradient's rows lie before `end`. */
static bool take(const char **at, const char *end, const td_tensor *gradient)
{
    const int64_t left = end - *at - (int64_t)sizeof(int64_t), dim = td_row_elements(gradient);
    int64_t n = 0;
    if (left < 0)
        return false;
    memcpy(&n, *at, sizeof n);
    if (n < 0 || n > left / (int64_t)(sizeof(int64_t) + (size_t)dim * sizeof(float)) || bytes_of(n, dim) > end - *at)
        return false;
    const td_fold_rows rows = td_rank_rows_next(at, gradient);
    return ascend_below(rows.keys, rows.n, gradient->dims[0]);
}

td_status *td_rank_rows_check(const char *message, int64_t bytes, int64_t losses, const td_tensor *gradients, int32_t n)
{
    const int64_t head = sizeof(int64_t);
    int64_t told = -1;
    bool good = bytes >= head;
    if (good)
        (void)td_rank_rows_losses(message, &told);
    good = good && told == losses && told >= 0 && told <= (bytes - head) / (int64_t)sizeof(td_micro_loss);
    const char *at = good ? td_rank_rows_begin(message) : NULL;
    for (int32_t i = 0; good && i < n; i++)
        if (gradients[i].kind == TD_ROW_SPARSE)
            good = take(&at, message + bytes, &gradients[i]);
    if (good && at == message + bytes)
        return NULL;
    return TD_ERROR(TD_INTERNAL, "a message of %" PRId64 " bytes is not %" PRId64 " losses and the rows of gradients",
                    bytes, losses);
}
