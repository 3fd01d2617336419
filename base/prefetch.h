/* Asking for memory some time before it is used.
 *
 * Every function here, and every function that does nothing else than call them, must be TD_PREFETCHES: GCC (12 and later)
 * holds a function whose only effect is a prefetch for one without any, and leaves out calls of it that are not inlined
 * before it looks. That cost the lookups half of their speed without a word. */
#ifndef TANDEM_BASE_PREFETCH_H
#define TANDEM_BASE_PREFETCH_H

#include <stdint.h>

#define TD_PREFETCHES static inline __attribute__((always_inline))

enum {
    TD_PREFETCH_LINE = 64,
    TD_PREFETCH_MOST = 4 * TD_PREFETCH_LINE /* bytes of a row; the hardware finds the rest of a long one by itself */
};

/* The beginning of `bytes` bytes that will be read. */
TD_PREFETCHES void td_prefetch_row(const void *row, int64_t bytes)
{
    if (bytes == TD_PREFETCH_MOST) { /* the common case without a loop */
        __builtin_prefetch(row);
        __builtin_prefetch((const char *)row + TD_PREFETCH_LINE);
        __builtin_prefetch((const char *)row + 2 * TD_PREFETCH_LINE);
        __builtin_prefetch((const char *)row + 3 * TD_PREFETCH_LINE);
        return;
    }
    for (int64_t at = 0; at < bytes && at < TD_PREFETCH_MOST; at += TD_PREFETCH_LINE)
        __builtin_prefetch((const char *)row + at);
}

/* The beginning of `bytes` bytes that will be read and written. */
TD_PREFETCHES void td_prefetch_row_to_write(const void *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes && at < TD_PREFETCH_MOST; at += TD_PREFETCH_LINE)
        __builtin_prefetch((const char *)row + at, 1);
}

#endif
