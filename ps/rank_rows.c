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

static int64_t bytes_of(int64_t rows, int64_t dim)
{
    const int64_t bytes = rows * (int64_t)(sizeof(int64_t) + (size_t)dim * sizeof(float));
    return (int64_t)sizeof(int64_t) + (bytes + 7) / 8 * 8;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

int64_t td_rank_rows_room(int32_t losses, int64_t gradient_bytes)
{
    return (int64_t)sizeof(int64_t) + losses * (int64_t)sizeof(td_micro_loss) + gradient_bytes;
}

/* n rows of a gradient, ascending. */
static td_status *write_gradient(const td_tensor *gradient, int64_t n, td_row_order *order, char *out)
{
    const int64_t dim = td_row_elements(gradient);
    const int64_t *keys = gradient->index;
    const float *rows = gradient->data;
    TD_TRY(td_row_order_find(order, keys, n, gradient->dims[0]));
    memcpy(out, &n, sizeof n);
    int64_t *out_keys = (int64_t *)(void *)(out + sizeof n);
    float *out_rows = (float *)(void *)(out_keys + n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = td_row_order_at(order, i);
        out_keys[i] = keys[from];
        memcpy(out_rows + i * dim, rows + from * dim, (size_t)dim * sizeof *rows);
    }
    return NULL;
}

td_status *td_rank_rows_write(char *message, const td_micro_loss *losses, int64_t n_losses, const td_tensor *gradients,
                              int32_t n, td_row_order *order, int64_t *out_bytes)
{
    int64_t at = (int64_t)sizeof n_losses + n_losses * (int64_t)sizeof *losses;
    memcpy(message, &n_losses, sizeof n_losses);
    if (n_losses)
        memcpy(message + sizeof n_losses, losses, (size_t)n_losses * sizeof *losses);
    for (int32_t i = 0; i < n; i++) {
        if (gradients[i].kind != TD_ROW_SPARSE)
            continue;
        const int64_t rows = n_losses ? *(const int64_t *)gradients[i].count : 0;
        TD_TRY(write_gradient(&gradients[i], rows, order, message + at));
        at += bytes_of(rows, td_row_elements(&gradients[i]));
    }
    *out_bytes = at;
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------- */

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
