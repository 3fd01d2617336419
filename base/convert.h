/* Floats from one width to another: exactly where the new one is wider, else rounded once, to nearest, ties to even. */
#ifndef TANDEM_BASE_CONVERT_H
#define TANDEM_BASE_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/backend.h"

/* f32, f16 or bf16. */
bool td_dtype_converts(td_dtype dtype);
/* Whether finite numbers of `from` may have no finite counterpart in `to`. */
bool td_conversion_may_overflow(td_dtype from, td_dtype to);
/* n numbers from `from` to `out`, which do not overlap. Returns the index of the first finite number that became infinite, or -1;
 * all are converted either way. */
int64_t td_floats_convert(const void *from, td_dtype from_dtype, int64_t n, void *out, td_dtype to_dtype);

#endif
