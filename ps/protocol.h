/* What workers and servers say to each other: kinds of messages and the layout of their bytes. Not compatible between versions;
 * ranks of other versions are refused at the start. */
#ifndef TANDEM_PS_PROTOCOL_H
#define TANDEM_PS_PROTOCOL_H

#include <string.h>

#include "ps/comm.h"
#include "ps/shard.h"

/* A question about rows is answered once as many windows are applied as this word says. */
enum { TD_WORD_APPLIED = 4 };

enum {
    TD_ASK_TABLE =
        TD_REQUESTS, /* words: table; bytes: td_shard_definition with the whole table's rows. Answered empty */
    TD_ASK_PULL, /* words: parts, begin, windows pushed, whether in pieces; bytes: parts, keys. Answer: rows, after a head
                        (pieces.h) where in pieces */
    TD_ASK_PUSH, /* words: window, parts, replica, step or 0 (not recorded); bytes: parts, keys, coefficients, rows.
                        No answer */
    TD_ASK_OFFER, /* as TD_ASK_PUSH, the words' third with TD_OFFER_ENDS in a worker's last one of a window: answered with the
                        squares of each part's sum when all are there */
    TD_ASK_DECIDE, /* words: window, whether it is forgotten, the factor's bits; bytes: coefficients of each part. No answer */
    TD_ASK_READ,      /* words: table, array, cursor, most. Answer: words n, cursor; bytes: keys, rows */
    TD_ASK_WRITE,     /* words: table, array, n; bytes: keys, rows. Answered empty */
    TD_ASK_CLEAR,     /* words: table. Answered empty */
    TD_ASK_COUNT,     /* words: table. Answer: words rows */
    TD_ASK_CHECKSUM,  /* words: table. Answer: words sum */
    TD_ASK_SAVE,      /* words: steps, changes, track; bytes: path. Answer: words bytes, xxh64 of the file */
    TD_ASK_TRACKS,    /* words: none. Answer: words 0 if all changes of all tables are known, 1 otherwise */
    TD_ASK_LEAVE,     /* a worker asks nothing more. No answer */
    TD_ASK_RECORD,    /* words: number; bytes: folder of the recording. No answer */
    TD_ASK_STALENESS, /* Answer: pulls by how many windows they were behind */
    TD_ASK_CLOCK      /* Answer: words the server's monotonic nanoseconds */
};

_Static_assert((int)TD_ASK_CLOCK < (int)TD_REPLIES, "kinds of requests end where kinds of replies begin");

/* Replies: td_reply_of(kind) by number; and what workers tell each other. */
enum {
    TD_TELL_SEGMENT = TD_REPLIES + 32,
    TD_TELL_SUM,
    TD_TELL_ROWS,
    TD_TELL_AGREE,
    TD_TELL_RECORD,
    TD_TELL_CLOCK,
    TD_TELL_COMBINE,
    TD_TELL_STATE
};

#define TD_OFFER_ENDS (UINT64_C(1) << 32)

static inline uint32_t td_reply_of(uint32_t kind)
{
    return kind - TD_REQUESTS + TD_REPLIES;
}

/* Whether it is about rows. */
static inline bool td_asks_of_rows(uint32_t kind)
{
    return kind == TD_ASK_PULL || (kind >= TD_ASK_READ && kind <= TD_ASK_TRACKS);
}

typedef struct td_wire_part {
    int64_t table, n;
} td_wire_part;

/* The rows of an array table that server s of n owns: [td_range(rows, s, n), td_range(rows, s + 1, n)). */
static inline int64_t td_range(int64_t rows, int64_t s, int64_t n)
{
    return (int64_t)((__int128)rows * s / n);
}

/* The least key that server s of n owns of a table of `rows` rows; those of server n - 1 have no end. */
static inline int64_t td_owner_begin(const td_shard_definition *whole, int32_t s, int32_t n)
{
    if (whole->kind != TD_SHARD_HASH)
        return td_range(whole->rows, s, n);
    const int32_t parts = td_shard_parts(whole);
    return td_key_part_begin((int32_t)td_range(parts, s, n), parts);
}

static inline int32_t td_owner_of(const td_shard_definition *whole, int64_t key, int32_t n)
{
    int32_t s = 0;
    while (s + 1 < n && key >= td_owner_begin(whole, s + 1, n))
        s++;
    return s;
}

#endif
