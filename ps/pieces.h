/* An answer that is read while it is written: a server of the same host writes rows into the asker's memory, and says there how
 * many bytes have come so far, so the asker takes the first while the last are gathered.
 *
 * A head of TD_PIECES_HEAD bytes lies before the bytes. The answer's message still follows, and is what counts: a server that
 * cannot write in place sends head and bytes as any message, and says nothing meanwhile. */
#ifndef TANDEM_PS_PIECES_H
#define TANDEM_PS_PIECES_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    TD_PIECES_HEAD = 64,
    TD_PIECE_BYTES = 1 << 18 /* worth waking the asker for */
};
#define TD_PIECES_ALL INT64_MAX

typedef struct td_pieces {
    atomic_uint written; /* lines of 64 bytes; all bits: everything */
    atomic_uint asleep;
} td_pieces;

/* By the asker, before it asks. */
void td_pieces_begin(td_pieces *pieces);
/* By the server: the first `bytes` are there, at least as many as last time; TD_PIECES_ALL: all. */
void td_pieces_write(td_pieces *pieces, int64_t bytes);
/* By the asker: until more than `have` of `all` bytes are there, or the time is over. Returns how many are. */
int64_t td_pieces_wait(td_pieces *pieces, int64_t have, int64_t all, int64_t nanoseconds);

/* Bytes of an answer, rounded up so that another's head may follow. */
static inline int64_t td_pieces_aligned(int64_t bytes)
{
    return (bytes + TD_PIECES_HEAD - 1) / TD_PIECES_HEAD * TD_PIECES_HEAD;
}

#endif
