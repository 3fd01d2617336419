/* See base/convert.h. Everything passes through f32, which holds every number of the narrower ones. */
#include "base/convert.h"

#include <math.h>
#include <string.h>

#include "base/rows16.h"

enum { PIECE = 1024 };

bool td_dtype_converts(td_dtype dtype)
{
    return dtype == TD_F32 || dtype == TD_F16 || dtype == TD_BF16;
}

bool td_conversion_may_overflow(td_dtype from, td_dtype to)
{
    return from != to && to != TD_F32 && from != TD_F16;
}

static int64_t bytes_of(td_dtype dtype)
{
    return dtype == TD_F32 ? 4 : 2;
}

static void to_f32(const void *from, td_dtype dtype, int64_t n, float *out)
{
    if (dtype == TD_F32)
        memcpy(out, from, (size_t)n * sizeof *out);
    else
        td_widen_row(from, dtype, n, out);
}

static bool is_infinite(const void *numbers, td_dtype dtype, int64_t i)
{
    uint16_t bits;
    if (dtype == TD_F32)
        return false; /* nothing overflows into f32 */
    memcpy(&bits, (const char *)numbers + i * 2, sizeof bits);
    return (bits & 0x7fffu) == (dtype == TD_F16 ? 0x7c00u : 0x7f80u);
}

int64_t td_floats_convert(const void *from, td_dtype from_dtype, int64_t n, void *out, td_dtype to_dtype)
{
    float wide[PIECE];
    int64_t overflow = -1;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        char *to = (char *)out + first * bytes_of(to_dtype);
        to_f32((const char *)from + first * bytes_of(from_dtype), from_dtype, count, wide);
        if (to_dtype == TD_F32)
            memcpy(to, wide, (size_t)count * sizeof *wide);
        else
            td_narrow_row_to_nearest(wide, to_dtype, count, (uint16_t *)(void *)to);
        for (int64_t i = 0; i < count && overflow < 0; i++)
            if (isfinite(wide[i]) && is_infinite(to, to_dtype, i))
                overflow = first + i;
    }
    return overflow;
}
