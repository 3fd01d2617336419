/* See initial.h. */
#include "runtime/initial.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

td_initial td_initial_of(uint64_t seed, const char *name, td_dtype dtype, td_initializer how)
{
    return (td_initial){.how = how, .key = td_philox_key_of(seed, "initial", name), .dtype = dtype};
}

bool td_initial_is_zero(const td_initial *initial)
{
    return initial->how.kind == TD_INIT_CONSTANT && initial->how.a == 0 && !signbit(initial->how.a);
}

td_status *td_initial_check(const td_initial *initial, const char *name)
{
    if (td_initial_is_zero(initial) || initial->dtype == TD_F32 || initial->dtype == TD_F16 ||
        initial->dtype == TD_BF16)
        return NULL;
    return TD_ERROR(TD_UNSUPPORTED, "parameter \"%s\": initial values of %s", name, td_dtype_name(initial->dtype));
}

static void fill_halves(const td_initial *initial, int64_t first, int64_t n, uint16_t *out)
{
    enum { PIECE = 256 };
    float piece[PIECE];
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = n - done < PIECE ? n - done : PIECE;
        td_random_fill(piece, first + done, count, initial->key, (td_random_kind)initial->how.kind, initial->how.a,
                       initial->how.b);
        for (int64_t i = 0; i < count; i++)
            out[done + i] = initial->dtype == TD_F16 ? td_f32_to_f16(piece[i]) : td_f32_to_bf16(piece[i]);
    }
}

void td_initial_fill(const td_initial *initial, int64_t first, int64_t n, void *out)
{
    if (td_initial_is_zero(initial))
        memset(out, 0, (size_t)n * td_dtype_bytes(initial->dtype));
    else if (initial->dtype == TD_F32)
        td_random_fill(out, first, n, initial->key, (td_random_kind)initial->how.kind, initial->how.a, initial->how.b);
    else
        fill_halves(initial, first, n, out);
}
