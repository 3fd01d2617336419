/* See checkpoint.h: tensors of safetensors files, converted as they are read. */
#include <inttypes.h>
#include <math.h>

#include "base/convert.h"
#include "base/memory.h"
#include "base/string.h"
#include "runtime/checkpoint.h"

enum { PIECE = 1 << 16 }; /* elements that are converted at a time */

static int64_t size_of(td_dtype dtype)
{
    return (int64_t)td_dtype_bytes(dtype);
}

static td_status *overflow_error(const td_source_tensor *s, int64_t element)
{
    return TD_ERROR(TD_DATA_ERROR, "\"%s\": element %" PRId64 " is beyond what %s can hold", s->tensor->name, element,
                    td_dtype_name(s->dtype));
}

/* Through `raw`, which has room for PIECE elements. */
static td_status *convert_piece(const td_source_tensor *s, int64_t first, int64_t n, void *raw, void *out)
{
    const int64_t size = size_of(s->tensor->dtype);
    TD_TRY(td_safetensors_read(s->file, s->tensor, first * size, n * size, raw));
    int64_t overflow = td_floats_convert(raw, s->tensor->dtype, n, out, s->dtype);
    return overflow < 0 ? NULL : overflow_error(s, first + overflow);
}

td_status *td_source_read(const td_source_tensor *s, int64_t first, int64_t n, void *out)
{
    const int64_t size = size_of(s->dtype);
    if (s->tensor->dtype == s->dtype)
        return td_safetensors_read(s->file, s->tensor, first * size, n * size, out);
    float *raw = NULL; /* f32 is the widest that converts */
    td_status *status = NULL;
    TD_TRY(TD_NEW(raw, PIECE));
    for (int64_t done = 0; done < n && !status; done += PIECE)
        status = convert_piece(s, first + done, n - done < PIECE ? n - done : PIECE, raw, (char *)out + done * size);
    td_free(raw);
    return status;
}

td_status *td_source_check(const td_source_tensor *s)
{
    if (!td_conversion_may_overflow(s->tensor->dtype, s->dtype))
        return NULL;
    uint16_t *narrow = NULL;
    td_status *status = NULL;
    TD_TRY(TD_NEW(narrow, PIECE));
    for (int64_t first = 0; first < s->tensor->elements && !status; first += PIECE) {
        int64_t left = s->tensor->elements - first;
        status = td_source_read(s, first, left < PIECE ? left : PIECE, narrow);
    }
    td_free(narrow);
    return status;
}

td_status *td_source_check_finite(const td_source_tensor *s)
{
    const td_source_tensor wide = {s->file, s->tensor, TD_F32};
    float *numbers = NULL;
    td_status *status = NULL;
    TD_TRY(TD_NEW(numbers, PIECE));
    for (int64_t first = 0; first < s->tensor->elements && !status; first += PIECE) {
        int64_t left = s->tensor->elements - first, n = left < PIECE ? left : PIECE;
        status = td_source_read(&wide, first, n, numbers);
        for (int64_t i = 0; i < n && !status; i++)
            if (!isfinite(numbers[i]))
                status = TD_ERROR(TD_DATA_ERROR, "\"%s\": element %" PRId64 " is %s", s->tensor->name, first + i,
                                  isnan(numbers[i]) ? "nan"
                                  : numbers[i] > 0  ? "inf"
                                                    : "-inf");
    }
    td_free(numbers);
    return status;
}

char *td_source_type_text(td_dtype dtype, int32_t rank, const int64_t *dims)
{
    td_string text = {0};
    char *out = NULL;
    td_string_format(&text, "%s[", td_dtype_name(dtype));
    for (int32_t i = 0; i < rank; i++)
        td_string_format(&text, "%s%" PRId64, i ? ", " : "", dims[i]);
    td_string_append(&text, "]");
    td_status_destroy(td_string_finish(&text, &out));
    return out;
}
