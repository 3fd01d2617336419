/* Rings of records, one for each thread that has something to record: see record.h.
 *
 * The rings are reserved once and never given back, so that a hook that began before recording ended has somewhere to write.
 * A thread takes a free ring at its first record and leaves it when it ends; what it left unread stays until it is read, and
 * only then may another thread take that ring. One thread writes a ring, one reads it. */
#include "base/record.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { AHEAD = 8 }; /* records: their lines are asked for before they are written */

typedef struct ring {
    td_record *records;
    _Alignas(64) atomic_ullong head; /* the writer's: how many were written */
    atomic_ullong dropped;           /* the writer's */
    atomic_uint owner;               /* number of the thread; 0: free */
    uint64_t limit;                  /* the writer's: head may come this far without another look at the tail */
    char name[32];
    uint32_t named;                  /* the thread that `name` is of */
    _Alignas(64) atomic_ullong tail; /* the reader's: how many were read */
    uint64_t told;                   /* the reader's: dropped ones that it knows of */
} ring;

static const char *const kinds[][2] = {
#define TD_RECORD(number, symbol, name, help) [number] = {name, help},
#include "base/record.def"
#undef TD_RECORD
};

atomic_bool td_record_active;
TD_RECORD_THREAD td_record_tag td_record_current;
TD_RECORD_THREAD uint32_t td_record_worker;

static ring rings[TD_RECORD_RINGS];
static td_record *reserved;
static atomic_uint capacity = 1, last_thread;
static atomic_ullong homeless;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static TD_RECORD_THREAD ring *mine;
static TD_RECORD_THREAD char my_name[32];

const char *td_record_kind_name(int kind)
{
    return kind >= 0 && kind < TD_RECORD_KINDS ? kinds[kind][0] : NULL;
}

const char *td_record_kind_help(int kind)
{
    return kind >= 0 && kind < TD_RECORD_KINDS ? kinds[kind][1] : NULL;
}

void td_record_name_thread(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(my_name, sizeof my_name, format, arguments);
    va_end(arguments);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------ */

static void leave_ring(void *argument)
{
    ring *left = argument;
    mine = NULL;
    atomic_store_explicit(&left->owner, 0, memory_order_release);
}

/* A ring's pages are asked for at once, when a thread takes it: later its records cost no page faults. */
static void touch_pages(ring *found)
{
    volatile unsigned char *bytes = (volatile unsigned char *)found->records;
    for (size_t at = 0; at < sizeof *found->records * TD_RECORD_MOST_PER_RING; at += td_page_bytes())
        bytes[at] = 0;
}

static bool take_ring(void)
{
    uint32_t thread = atomic_fetch_add(&last_thread, 1) + 1;
    for (int32_t i = 0; reserved && i < TD_RECORD_RINGS; i++) {
        unsigned none = 0;
        ring *found = &rings[i];
        if (atomic_load(&found->owner) || atomic_load(&found->head) != atomic_load(&found->tail) ||
            !atomic_compare_exchange_strong(&found->owner, &none, thread))
            continue;
        if (atomic_load(&found->head) != atomic_load(&found->tail)) { /* another thread came and went in between */
            atomic_store(&found->owner, 0);
            continue;
        }
        memcpy(found->name, my_name, sizeof found->name);
        found->named = thread;
        found->limit = 0;
        touch_pages(found);
        mine = found;
        (void)pthread_setspecific(at_exit, found);
        return true;
    }
    return false;
}

/* Whether there is room for one more; a full ring counts what it drops. */
static bool has_room(ring *to, uint64_t head)
{
    uint64_t room = atomic_load_explicit(&capacity, memory_order_relaxed);
    to->limit = atomic_load_explicit(&to->tail, memory_order_acquire) + room;
    if (head < to->limit)
        return true;
    atomic_store_explicit(&to->dropped, atomic_load_explicit(&to->dropped, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return false;
}

void td_record_write(td_record_kind kind, uint32_t id, uint32_t step, uint32_t micro, uint64_t begin, uint64_t end,
                     uint64_t amount)
{
    if (__builtin_expect(!mine, 0) && !take_ring()) {
        atomic_fetch_add(&homeless, 1);
        return;
    }
    ring *to = mine;
    uint64_t head = atomic_load_explicit(&to->head, memory_order_relaxed);
    if (__builtin_expect(head >= to->limit, 0) && !has_room(to, head))
        return;
    __builtin_prefetch(&to->records[(head + AHEAD) % TD_RECORD_MOST_PER_RING], 1);
    if (amount > TD_RECORD_MOST_AMOUNT)
        amount = TD_RECORD_MOST_AMOUNT;
    to->records[head % TD_RECORD_MOST_PER_RING] =
        (td_record){.begin = begin,
                    .end = end,
                    .id = id,
                    .step = step,
                    .what = (uint64_t)kind | (uint64_t)(micro & 0xffff) << TD_RECORD_MICRO_SHIFT |
                            amount << TD_RECORD_AMOUNT_SHIFT};
    atomic_store_explicit(&to->head, head + 1, memory_order_release);
}

/* ---- turning on and off -------------------------------------------------------------------------------------------------------------- */

static void reserve(void)
{
    td_ticks_prepare();
    if (pthread_key_create(&at_exit, leave_ring) != 0)
        return;
    reserved = td_reserve(sizeof *reserved * TD_RECORD_RINGS * TD_RECORD_MOST_PER_RING);
    for (size_t i = 0; reserved && i < TD_RECORD_RINGS; i++)
        rings[i].records = reserved + i * TD_RECORD_MOST_PER_RING;
}

bool td_record_open(uint32_t records)
{
    (void)pthread_once(&once, reserve);
    atomic_store(&capacity, records);
    return reserved != NULL;
}

void td_record_switch(bool on)
{
    atomic_store(&td_record_active, on);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------------- */

bool td_record_peek(int32_t index, td_record_span *out_span)
{
    ring *from = &rings[index];
    uint64_t head = atomic_load_explicit(&from->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&from->tail, memory_order_relaxed);
    uint64_t at = tail % TD_RECORD_MOST_PER_RING, to_end = TD_RECORD_MOST_PER_RING - at;
    uint64_t dropped = atomic_load_explicit(&from->dropped, memory_order_relaxed);
    if (head == tail) /* what a ring dropped is told with its next record: the thread may be another one by now */
        return false;
    *out_span = (td_record_span){.thread = from->named,
                                 .name = from->name,
                                 .records = from->records + at,
                                 .n = (uint32_t)(head - tail < to_end ? head - tail : to_end),
                                 .dropped = dropped - from->told};
    return true;
}

void td_record_consume(int32_t index, const td_record_span *span)
{
    ring *from = &rings[index];
    uint64_t tail = atomic_load_explicit(&from->tail, memory_order_relaxed);
    from->told += span->dropped;
    atomic_store_explicit(&from->tail, tail + span->n, memory_order_release);
}

double td_record_fill(void)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++) {
        uint64_t tail = atomic_load_explicit(&rings[i].tail, memory_order_relaxed);
        uint64_t used = atomic_load_explicit(&rings[i].head, memory_order_relaxed) - tail;
        most = used > most ? used : most;
    }
    return (double)most / (double)atomic_load(&capacity);
}

uint64_t td_record_homeless(void)
{
    return atomic_exchange(&homeless, 0);
}
