/* See fold.h. */
#include "ps/fold.h"

#include <string.h>

#include "base/memory.h"

void td_fold_begin(td_fold *fold, const td_fold_rows *rows)
{
    fold->sum = *rows;
}

td_fold_rows td_fold_result(const td_fold *fold)
{
    return fold->sum;
}

void td_fold_deinit(td_fold *fold)
{
    for (int i = 0; i < 2; i++) {
        td_free(fold->keys[i]);
        td_free(fold->rows[i]);
    }
    *fold = (td_fold){0};
}

static td_status *room(td_fold *fold, int64_t n, int64_t dim)
{
    const int32_t b = fold->next;
    TD_TRY(td_keep_room(&fold->keys[b], &fold->keys_capacity[b], n, sizeof(int64_t)));
    return td_keep_room(&fold->rows[b], &fold->rows_capacity[b], n * dim, sizeof(float));
}

static void add_row(float *out, const float *a, const float *b, int64_t dim)
{
    for (int64_t k = 0; k < dim; k++)
        out[k] = a[k] + b[k];
}

td_status *td_fold_add(td_fold *fold, const td_fold_rows *b)
{
    const td_fold_rows *a = &fold->sum;
    const int64_t dim = b->dim;
    if (b->n == 0)
        return NULL;
    if (a->n == 0) {
        fold->sum = *b;
        return NULL;
    }
    TD_TRY(room(fold, a->n + b->n, dim));
    int64_t *keys = fold->keys[fold->next], n = 0;
    float *rows = fold->rows[fold->next];
    for (int64_t i = 0, j = 0; i < a->n || j < b->n; n++) {
        const bool from_a = i < a->n && (j == b->n || a->keys[i] <= b->keys[j]);
        const bool from_b = j < b->n && (i == a->n || b->keys[j] <= a->keys[i]);
        keys[n] = from_a ? a->keys[i] : b->keys[j];
        if (from_a && from_b)
            add_row(rows + n * dim, a->rows + i * dim, b->rows + j * dim, dim);
        else
            memcpy(rows + n * dim, from_a ? a->rows + i * dim : b->rows + j * dim, (size_t)dim * sizeof *rows);
        i += from_a;
        j += from_b;
    }
    fold->sum = (td_fold_rows){n, dim, keys, rows};
    fold->next = 1 - fold->next;
    return NULL;
}
