/* Recording what happened when: hooks, and the rings that they write to.
 *
 * A hook is a pair of points around something that takes time. The first reads the clock if recording is on, the second writes
 * one record into the ring of its thread:
 *
 *     uint64_t from = td_record_begin();                                   // 0 while recording is off
 *     ... pull the rows ...
 *     td_record_end(TD_RECORD_PULL, id, step, from, bytes);                // nothing when from is 0
 *
 * A hook takes no lock and allocates nothing. A ring has a fixed size; when it is full, records are dropped and counted. Ids are
 * numbers that the plan's description in the trace file explains (docs/profiler.md). Nobody may decide anything by what is
 * recorded or by whether it is.
 *
 * Here are no files and no schedule: runtime/profiler.c turns recording on and off and empties the rings. One recording at a
 * time in a process. */
#ifndef TANDEM_BASE_RECORD_H
#define TANDEM_BASE_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ticks.h"

/* The numbers stand in trace files: append only. */
typedef enum td_record_kind {
#define TD_RECORD(number, symbol, name, help) TD_RECORD_##symbol = (number),
#include "base/record.def"
#undef TD_RECORD
    TD_RECORD_KINDS
} td_record_kind;

/* As in a trace file. what: kind in bits 0-7, micro-step in bits 8-23, amount in bits 24-63. */
typedef struct td_record {
    uint64_t begin, end; /* ticks; equal for a sample */
    uint32_t id, step;
    uint64_t what;
} td_record;

enum { TD_RECORD_MICRO_SHIFT = 8, TD_RECORD_AMOUNT_SHIFT = 24 };
#define TD_RECORD_MOST_AMOUNT ((UINT64_C(1) << 40) - 1)

static inline td_record_kind td_record_kind_of(const td_record *record)
{
    return (td_record_kind)(record->what & 0xff);
}
static inline uint32_t td_record_micro_of(const td_record *record)
{
    return (uint32_t)(record->what >> TD_RECORD_MICRO_SHIFT) & 0xffff;
}
static inline uint64_t td_record_amount_of(const td_record *record)
{
    return record->what >> TD_RECORD_AMOUNT_SHIFT;
}
/* "op", "copy"; NULL for a number that is no kind. */
const char *td_record_kind_name(int kind);
const char *td_record_kind_help(int kind);

/* ---- hooks ---------------------------------------------------------------------------------------------------------------- */

extern atomic_bool td_record_active;

/* Who sees it on sees which clock was chosen, and the rings. */
static inline bool td_record_on(void)
{
    return __builtin_expect(atomic_load_explicit(&td_record_active, memory_order_acquire), 0);
}

/* The first point of a hook. */
static inline uint64_t td_record_begin(void)
{
    return td_record_on() ? td_ticks() : 0;
}

/* A record of the calling thread. */
void td_record_write(td_record_kind kind, uint32_t id, uint32_t step, uint32_t micro, uint64_t begin, uint64_t end,
                     uint64_t amount);

/* What the calling thread works on: hooks below the engine (queues, loaders) take id, step and micro-step from here. */
typedef struct td_record_tag {
    uint32_t id, step, micro, set; /* set: recording was on */
} td_record_tag;
#define TD_RECORD_THREAD _Thread_local __attribute__((tls_model("initial-exec")))
extern TD_RECORD_THREAD td_record_tag td_record_current;

/* Of a job, whose work the calling thread does: the worker's number and one; 0: nobody said. A loader's threads do it for whoever made
 * the loader. */
extern TD_RECORD_THREAD uint32_t td_record_worker;

/* The second point. */
static inline void td_record_end(td_record_kind kind, uint32_t id, uint32_t step, uint64_t from, uint64_t amount)
{
    if (__builtin_expect(from != 0, 0))
        td_record_write(kind, id, step, td_record_current.micro, from, td_ticks(), amount);
}

/* Something that has a value at a moment rather than a length. */
static inline void td_record_sample(td_record_kind kind, uint32_t id, uint32_t step, uint64_t value)
{
    uint64_t now = td_record_begin();
    if (now)
        td_record_write(kind, id, step, 0, now, now, value);
}

/* What the calling thread is called in traces, at most 31 characters; before its first record. */
void td_record_name_thread(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- who turns it on and off -------------------------------------------------------------------------------------------------- */

enum { TD_RECORD_RINGS = 256, TD_RECORD_MOST_PER_RING = 1 << 16 };

/* Reserves the rings the first time; false when there is no address space for them. Later records go into rings of `records`
 * (a power of two, at most TD_RECORD_MOST_PER_RING; what is not read yet counts too). */
bool td_record_open(uint32_t records);
/* From now on hooks write, or no longer do; one that has begun still ends. */
void td_record_switch(bool on);

/* What a ring holds that was not read yet. */
typedef struct td_record_span {
    uint32_t thread;  /* a number that no other thread of the process has or had */
    const char *name; /* of the thread; "" when it has none */
    const td_record *records;
    uint32_t n;       /* in one piece; more may follow after td_record_consume */
    uint64_t dropped; /* since the last td_record_consume of this ring */
} td_record_span;
/* Ring 0 <= index < TD_RECORD_RINGS: false when it has nothing. One reader at a time. */
bool td_record_peek(int32_t index, td_record_span *out_span);
void td_record_consume(int32_t index, const td_record_span *span);
/* How full the fullest ring is: 0 to 1. */
double td_record_fill(void);
/* Records that no ring took because all rings belong to other threads; since the last call. */
uint64_t td_record_homeless(void);

#endif
