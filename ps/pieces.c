/* See pieces.h. */
#include "ps/pieces.h"

#include "base/futex.h"

enum { LINE = 64 };

void td_pieces_begin(td_pieces *pieces)
{
    atomic_store(&pieces->written, 0);
    atomic_store(&pieces->asleep, 0);
}

void td_pieces_write(td_pieces *pieces, int64_t bytes)
{
    const int64_t lines = bytes / LINE;
    atomic_store(&pieces->written, lines < UINT32_MAX ? (unsigned)lines : UINT32_MAX);
    if (atomic_load(&pieces->asleep))
        td_futex_wake_shared(&pieces->written);
}

static int64_t bytes_of(unsigned lines, int64_t all)
{
    const int64_t bytes = (int64_t)lines * LINE;
    return lines == UINT32_MAX || bytes > all ? all : bytes;
}

int64_t td_pieces_wait(td_pieces *pieces, int64_t have, int64_t all, int64_t nanoseconds)
{
    unsigned lines = atomic_load(&pieces->written);
    if (bytes_of(lines, all) > have)
        return bytes_of(lines, all);
    atomic_store(&pieces->asleep, 1);
    if (atomic_load(&pieces->written) == lines)
        td_futex_wait_shared(&pieces->written, lines, nanoseconds);
    atomic_store(&pieces->asleep, 0);
    return bytes_of(atomic_load(&pieces->written), all);
}
