/* IDX files, as MNIST comes in: bytes of up to four dimensions, plain or gzip (http://yann.lecun.com/exdb/mnist). */
#ifndef TANDEM_DATA_IDX_H
#define TANDEM_DATA_IDX_H

#include <stdint.h>

#include "tandem/status.h"

enum { TD_IDX_RANK = 4 };

typedef struct td_idx {
    int32_t rank;
    int64_t dims[TD_IDX_RANK];
    int64_t item_bytes; /* of one step of the first dimension */
    uint8_t *data;
} td_idx;

/* Reads a file of unsigned bytes whose rank is in [least_rank, most_rank]; the first `most` items of it (0: all). On failure
 * too, td_idx_deinit frees. */
td_status *td_idx_read(const char *path, int32_t least_rank, int32_t most_rank, int64_t most, td_idx *out) TD_MUST_USE;
void td_idx_deinit(td_idx *idx);

#endif
