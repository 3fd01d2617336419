/* What reader and writer of safetensors files agree on; for them alone. */
#ifndef TANDEM_BASE_SAFETENSORS_FORMAT_H
#define TANDEM_BASE_SAFETENSORS_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "tandem/backend.h"

enum {
    TD_SAFETENSORS_LENGTH_BYTES = 8,
    TD_SAFETENSORS_LONGEST_HEADER = 100000000 /* as the format's own library allows */
};

typedef struct td_safetensors_dtype {
    const char *name;
    int64_t bytes;
} td_safetensors_dtype;

/* By td_dtype. */
static const td_safetensors_dtype td_safetensors_dtypes[TD_DTYPE_COUNT] = {
    [TD_F32] = {"F32", 4}, [TD_F16] = {"F16", 2}, [TD_BF16] = {"BF16", 2}, [TD_I32] = {"I32", 4},
    [TD_I64] = {"I64", 8}, [TD_U8] = {"U8", 1},   [TD_BOOL] = {"BOOL", 1}, [TD_F64] = {"F64", 8},
};

/* Elements and bytes of a shape; false when they overflow or a dimension is negative. */
static inline bool td_safetensors_size(td_dtype dtype, int32_t rank, const int64_t *dims, int64_t *out_elements,
                                       int64_t *out_bytes)
{
    *out_elements = 1;
    for (int32_t i = 0; i < rank; i++)
        if (!td_multiply_checked(*out_elements, dims[i], out_elements))
            return false;
    return td_multiply_checked(*out_elements, td_safetensors_dtypes[dtype].bytes, out_bytes);
}

#endif
