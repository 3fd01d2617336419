/* See trace_events.h. */
#include "profiler/trace_events.h"

#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "profiler/trace_sort.h"

/* ---- checksums ---------------------------------------------------------------------------------------------------------------- */

typedef struct checking {
    const unsigned char *data;
    size_t *at; /* of long chunks */
    uint8_t *good;
    int64_t n;
    atomic_long next;
} checking;

static void *check_chunks(void *argument)
{
    checking *c = argument;
    for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;) {
        trace_chunk chunk;
        memcpy(&chunk, c->data + c->at[i], sizeof chunk);
        const unsigned char *payload = c->data + c->at[i] + sizeof chunk;
        c->good[i] = td_hash_bytes(payload, (size_t)chunk.bytes, chunk.type) == chunk.checksum;
    }
    return NULL;
}

/* Where long chunks are. */
static td_status *find_chunks(const unsigned char *data, size_t bytes, checking *c)
{
    int64_t capacity = 0;
    trace_chunk chunk;
    for (size_t at = sizeof(trace_header); bytes - at >= sizeof chunk;) {
        memcpy(&chunk, data + at, sizeof chunk);
        size_t left = bytes - at - sizeof chunk;
        if (chunk.bytes > left)
            break;
        if (chunk.type == TRACE_EVENTS && chunk.bytes >= TD_TRACE_LONG_CHUNK) {
            TD_TRY(td_grow(&c->at, &capacity, c->n, sizeof *c->at));
            c->at[c->n++] = at;
        }
        size_t padded = ((size_t)chunk.bytes + 7) & ~(size_t)7;
        at += sizeof chunk + (padded < left ? padded : left);
    }
    return NULL;
}

td_status *td_trace_check_chunks(const unsigned char *data, size_t bytes, int helpers, uint8_t **out_good)
{
    checking c = {.data = data};
    *out_good = NULL;
    td_status *status = find_chunks(data, bytes, &c);
    if (!status && c.n)
        status = TD_NEW(c.good, c.n);
    if (!status)
        td_thread_share(check_chunks, &c, helpers);
    td_free(c.at);
    *out_good = c.good;
    return status;
}

/* ---- records ------------------------------------------------------------------------------------------------------------------ */

typedef struct decoding {
    td_trace *trace;
    const td_trace_block *blocks;
    const td_trace_scale *scale;
    int64_t *at; /* where each block's events go */
    int64_t *first, n;
    atomic_long next, next_thread;
} decoding;

static void decode(const td_trace_block *block, const td_trace_scale *scale, td_trace_event *out)
{
    for (uint32_t i = 0; i < block->n; i++) {
        td_record record;
        memcpy(&record, block->records + i * sizeof record, sizeof record);
        const int64_t begin = td_trace_ns(scale, record.begin), end = td_trace_ns(scale, record.end);
        out[i] = (td_trace_event){.begin_ns = begin,
                                  .end_ns = end < begin ? begin : end,
                                  .id = record.id,
                                  .step = record.step,
                                  .micro = td_record_micro_of(&record),
                                  .kind = (int16_t)td_record_kind_of(&record),
                                  .thread = (uint16_t)block->thread,
                                  .amount = td_record_amount_of(&record)};
    }
}

static void *decode_blocks(void *argument)
{
    decoding *d = argument;
    for (int64_t i; (i = atomic_fetch_add(&d->next, 1)) < d->n;)
        decode(&d->blocks[i], d->scale, d->trace->events + d->at[i]);
    return NULL;
}

static void *sort_threads(void *argument)
{
    decoding *d = argument;
    for (int64_t t; (t = atomic_fetch_add(&d->next_thread, 1)) < d->trace->n_threads;)
        td_trace_sort_thread(d->trace->events + d->first[t], d->first[t + 1] - d->first[t]);
    return NULL;
}

/* Threads one after the other, each one's blocks in the order of the file. */
static td_status *lay_out(decoding *d)
{
    int64_t *next = NULL;
    TD_TRY(TD_NEW(next, d->trace->n_threads + 1));
    for (int64_t i = 0; i < d->n; i++)
        d->first[d->blocks[i].thread + 1] += d->blocks[i].n;
    for (int64_t t = 0; t < d->trace->n_threads; t++)
        next[t + 1] = d->first[t + 1] += d->first[t];
    for (int64_t i = 0; i < d->n; i++) {
        d->at[i] = next[d->blocks[i].thread];
        next[d->blocks[i].thread] += d->blocks[i].n;
    }
    td_free(next);
    d->trace->n_events = d->first[d->trace->n_threads];
    d->trace->events_capacity = d->trace->n_events + 1;
    return td_trace_room(d->trace->n_events, &d->trace->events);
}

td_status *td_trace_read_blocks(td_trace *trace, const td_trace_block *blocks, int64_t n, const td_trace_scale *scale,
                                int helpers, int64_t **out_first)
{
    decoding d = {.trace = trace, .blocks = blocks, .scale = scale, .n = n};
    td_status *status = TD_NEW(d.first, trace->n_threads + 1);
    if (!status)
        status = TD_NEW(d.at, n + 1);
    if (!status)
        status = lay_out(&d);
    if (!status) {
        td_thread_share(decode_blocks, &d, helpers);
        td_thread_share(sort_threads, &d, helpers);
    }
    td_free(d.at);
    *out_first = d.first;
    return status;
}
