/* Ranks of one host: buffers that they read and write in place, and bells that wake each other's communication thread.
 *
 * A message whose bytes lie in a td_buffer travels to a rank of the same host as a place, some 40 bytes; the receiver maps the
 * buffer, once, and reads there. The bytes are lent: the sender may not change them until the receiver gives them back, which it
 * does by clearing a word beside the sender's bell. Other ranks get the same message by copy, and nobody who sends or receives
 * need know which it was.
 *
 * A rank is near if both can map the other's memory: same host, same space of process numbers, same user. Without
 * such memory (an old kernel, a sandbox) every rank is far. */
#ifndef TANDEM_PS_NEAR_H
#define TANDEM_PS_NEAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/shared_memory.h"

enum {
    TD_NEAR_RANKS = 64,   /* more are far */
    TD_NEAR_BUFFERS = 64, /* of a rank; more are private: buckets of several windows have one each */
    TD_LENDINGS = 256     /* of a rank at a time; more are copied */
};

/* What each rank has one of, in memory that the near ones map. */
typedef struct td_bell {
    atomic_uint rung, asleep;
    uint64_t token;
    atomic_uint lent[TD_LENDINGS]; /* 1: a receiver reads it */
} td_bell;

/* Memory for messages. Zeroed: none. */
typedef struct td_buffer {
    td_shared_memory memory; /* memory.file >= 0: near ranks can map it */
    char *data;
    int64_t bytes;
    uint64_t id; /* never of two buffers of a rank */
    int32_t slot;
} td_buffer;

/* Where bytes lie, as it travels. */
typedef struct td_near_place {
    uint64_t id; /* of a buffer; 0: nowhere */
    int64_t first, buffer_bytes;
    int32_t slot, file;
} td_near_place;

typedef struct td_near td_near;

/* Before ranks meet: this rank's own bell. Never an error for want of shared memory; all ranks are far then. */
td_status *td_near_create(bool share, td_near **out_near) TD_MUST_USE;
void td_near_destroy(td_near *near);
/* What others need to map the bell; -1: there is none to map. */
int td_near_file(const td_near *near);
uint64_t td_near_token(const td_near *near);
/* Tries another rank's bell. False: it cannot be mapped. */
bool td_near_try(td_near *near, int32_t rank, int64_t pid, int file, uint64_t token);
/* That rank can map this one's bell too; those of whom this is not said are far. */
void td_near_confirm(td_near *near, int32_t rank);
bool td_near_is(const td_near *near, int32_t rank);

/* ---- bells ---- */
/* This rank's own, or a near one's. */
void td_near_ring_own(td_near *near);
void td_near_ring(td_near *near, int32_t rank);
/* How often the own one was rung so far. */
unsigned td_near_heard(const td_near *near);
/* Until it is rung once more than `heard`, or the time is over. */
void td_near_sleep(td_near *near, unsigned heard, int64_t nanoseconds);

/* ---- buffers ---- */
/* At least `bytes`, contents undefined where it grows. It must not be lent. */
int64_t td_buffer_bytes(int64_t bytes);
td_status *td_buffer_room(td_near *near, td_buffer *buffer, int64_t bytes) TD_MUST_USE;
/* near NULL: once the rank has no others. */
void td_buffer_free(td_near *near, td_buffer *buffer);
/* Of bytes within it; id 0 where it is private. */
td_near_place td_buffer_place(const td_buffer *buffer, const void *data);
/* `bytes` at a near rank's place, mapped here. The mapping stays until that rank makes another buffer of the slot. */
td_status *td_near_reach(td_near *near, int32_t rank, const td_near_place *place, int64_t bytes,
                         void **out_data) TD_MUST_USE;
/* A rank that is lost, and whose messages nobody has any more: its buffers are not mapped from here on. */
void td_near_forget(td_near *near, int32_t rank);

/* ---- lending ---- */
/* Marks a lending of this rank's; whoever was lent to ends it. */
void td_near_lend(td_near *near, int32_t lending);
void td_near_end_lending(td_near *near, int32_t lending);
bool td_near_is_lent(const td_near *near, int32_t lending);
/* Gives back what a rank, near or this one, has lent. */
void td_near_give_back(td_near *near, int32_t rank, int32_t lending);

#endif
