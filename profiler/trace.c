/* Reading a trace file: see trace.h. */
#include "profiler/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/string.h"
#include "profiler/plan.h"
#include "profiler/trace_events.h"
#include "profiler/trace_sort.h"

typedef struct reading {
    td_trace *trace;
    const char *name;
    trace_clock first, last;
    int32_t n_clocks;
    char *taken;            /* the bytes, where they are ours to free */
    size_t room;            /* of their memory */
    int32_t *slots;         /* hash table of threads by number, [SLOTS]; -1: free */
    const uint8_t *good;    /* of long chunks, see td_trace_check_chunks; the next one's */
    td_trace_block *blocks; /* of events, which are read when all clocks are known */
    int64_t n_blocks, blocks_capacity;
} reading;

enum { SLOTS = 1 << 17, MOST_PLANS = 1 << 12 };

/* ---- times ---------------------------------------------------------------------------------------------------------------------- */

static double rate_of(const reading *r)
{
    double ticks = (double)(int64_t)(r->last.ticks - r->first.ticks);
    double ns = (double)r->last.monotonic_ns - (double)r->first.monotonic_ns;
    return ticks > 0 && ns > 0 && ns < 1e18 ? ns / ticks : 1;
}

/* Until now they are ticks. */
static void scale_windows(const reading *r, const td_trace_scale *scale)
{
    td_trace *trace = r->trace;
    for (int64_t i = 0; i < trace->n_windows; i++) {
        td_trace_window *w = &trace->windows[i];
        w->begin_ns = td_trace_ns(scale, (uint64_t)w->begin_ns);
        w->end_ns = td_trace_ns(scale, (uint64_t)w->end_ns);
    }
    trace->start_unix_ns = r->first.unix_ns;
    trace->start_monotonic_ns = r->first.monotonic_ns;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------------------- */

/* Texts go to terminals and pages: what is no character of a text becomes '?'. They are the document's own, and ours. */
static void make_plain(json_t *json)
{
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(json))
        td_text_plain((char *)(uintptr_t)json_string_value(json));
    json_array_foreach(json, i, item) make_plain(item);
    json_object_foreach(json, key, item) make_plain(item);
}

static td_status *read_json(const reading *r, const char *what, const void *payload, size_t bytes, json_t **out)
{
    json_error_t error;
    *out = json_loadb(payload, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return TD_ERROR(TD_DATA_ERROR, "%s: %s is no JSON object", r->name, what);
    }
    make_plain(*out);
    return NULL;
}

static td_status *read_info(reading *r, const void *payload, size_t bytes)
{
    json_t *json = NULL;
    TD_TRY(read_json(r, "its information", payload, bytes, &json));
    int failed = json_object_update(r->trace->info, json);
    json_decref(json);
    return failed ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a trace") : NULL;
}

static td_status *read_plan(reading *r, const void *payload, size_t bytes)
{
    td_trace *trace = r->trace;
    json_t *json = NULL;
    if (trace->n_plans == MOST_PLANS)
        return TD_ERROR(TD_DATA_ERROR, "%s: more than %d plans", r->name, MOST_PLANS);
    TD_TRY(td_grow(&trace->plans, &trace->plans_capacity, trace->n_plans, sizeof *trace->plans));
    TD_TRY(read_json(r, "a plan", payload, bytes, &json));
    TD_TRY(td_status_prefix(td_trace_plan_parse(json, &trace->plans[trace->n_plans]), "%s", r->name));
    trace->n_plans++;
    return NULL;
}

static td_status *read_clock(reading *r, const void *payload, size_t bytes)
{
    if (bytes < sizeof r->last)
        return TD_ERROR(TD_DATA_ERROR, "%s: a clock reading of %zu bytes", r->name, bytes);
    memcpy(&r->last, payload, sizeof r->last);
    if (r->n_clocks++ == 0)
        r->first = r->last;
    if (r->last.error_ns > r->trace->clock_error_ns)
        r->trace->clock_error_ns = r->last.error_ns;
    return NULL;
}

/* Where a thread of that number is, or would be. */
static int32_t *slot_of(const reading *r, uint32_t number)
{
    uint32_t at = (number * UINT32_C(0x9E3779B1)) % SLOTS;
    while (r->slots[at] >= 0 && r->trace->threads[r->slots[at]].number != number)
        at = (at + 1) % SLOTS;
    return &r->slots[at];
}

static td_status *read_thread(reading *r, const void *payload, size_t bytes)
{
    td_trace *trace = r->trace;
    trace_thread told;
    if (bytes < sizeof told)
        return TD_ERROR(TD_DATA_ERROR, "%s: a thread of %zu bytes", r->name, bytes);
    if (trace->n_threads >= UINT16_MAX)
        return TD_ERROR(TD_DATA_ERROR, "%s: more than %d threads", r->name, UINT16_MAX);
    memcpy(&told, payload, sizeof told);
    TD_TRY(td_grow(&trace->threads, &trace->threads_capacity, trace->n_threads, sizeof *trace->threads));
    td_trace_thread *thread = &trace->threads[trace->n_threads++];
    *thread = (td_trace_thread){.number = told.thread};
    *slot_of(r, told.thread) = (int32_t)trace->n_threads - 1; /* a later one of the same number takes its place */
    memcpy(thread->name, told.name, sizeof thread->name - 1);
    for (char *c = thread->name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    if (!thread->name[0])
        (void)snprintf(thread->name, sizeof thread->name, "thread %u", told.thread);
    return NULL;
}

static td_status *read_events(reading *r, const unsigned char *payload, size_t bytes)
{
    td_trace *trace = r->trace;
    trace_events head;
    if (bytes < sizeof head)
        return TD_ERROR(TD_DATA_ERROR, "%s: events of %zu bytes", r->name, bytes);
    memcpy(&head, payload, sizeof head);
    int32_t thread = *slot_of(r, head.thread);
    if ((bytes - sizeof head) / sizeof(td_record) < head.n || thread < 0)
        return TD_ERROR(TD_DATA_ERROR, "%s: events of thread %u, %u of them, in %zu bytes", r->name, head.thread,
                        head.n, bytes);
    trace->threads[thread].dropped += head.dropped;
    trace->dropped += head.dropped;
    TD_TRY(td_grow(&r->blocks, &r->blocks_capacity, r->n_blocks, sizeof *r->blocks));
    r->blocks[r->n_blocks++] = (td_trace_block){payload + sizeof head, head.n, (uint32_t)thread};
    trace->n_events += head.n;
    return NULL;
}

static td_status *read_window(reading *r, const void *payload, size_t bytes)
{
    td_trace *trace = r->trace;
    trace_window told;
    if (bytes < sizeof told)
        return TD_ERROR(TD_DATA_ERROR, "%s: a window of %zu bytes", r->name, bytes);
    memcpy(&told, payload, sizeof told);
    TD_TRY(td_grow(&trace->windows, &trace->windows_capacity, trace->n_windows, sizeof *trace->windows));
    trace->windows[trace->n_windows++] = (td_trace_window){.begin_ns = (int64_t)told.begin,
                                                           .end_ns = (int64_t)told.end,
                                                           .first_step = told.first_step,
                                                           .last_step = told.last_step};
    return NULL;
}

static td_status *read_end(reading *r, const void *payload, size_t bytes)
{
    trace_end end;
    if (bytes < sizeof end)
        return TD_ERROR(TD_DATA_ERROR, "%s: an end of %zu bytes", r->name, bytes);
    memcpy(&end, payload, sizeof end);
    r->trace->dropped = end.dropped > r->trace->dropped ? end.dropped : r->trace->dropped;
    r->trace->cut = false;
    return NULL;
}

static td_status *read_chunk(reading *r, uint32_t type, const unsigned char *payload, size_t bytes)
{
    switch (type) {
    case TRACE_INFO:
        return read_info(r, payload, bytes);
    case TRACE_PLAN:
        return read_plan(r, payload, bytes);
    case TRACE_CLOCK:
        return read_clock(r, payload, bytes);
    case TRACE_THREAD:
        return read_thread(r, payload, bytes);
    case TRACE_EVENTS:
        return read_events(r, payload, bytes);
    case TRACE_WINDOW:
        return read_window(r, payload, bytes);
    case TRACE_END:
        return read_end(r, payload, bytes);
    default:
        return NULL; /* of a later program: nothing that is known depends on it */
    }
}

static bool is_good(reading *r, const trace_chunk *chunk, const unsigned char *payload)
{
    if (chunk->type == TRACE_EVENTS && chunk->bytes >= TD_TRACE_LONG_CHUNK)
        return *r->good++;
    return td_hash_bytes(payload, (size_t)chunk->bytes, chunk->type) == chunk->checksum;
}

/* Whole chunks from `at` on; stops at the first that is not. */
static td_status *read_chunks(reading *r, const unsigned char *data, size_t bytes)
{
    size_t at = sizeof(trace_header);
    trace_chunk chunk;
    r->trace->cut = true;
    while (bytes - at >= sizeof chunk) {
        memcpy(&chunk, data + at, sizeof chunk);
        size_t left = bytes - at - sizeof chunk;
        const unsigned char *payload = data + at + sizeof chunk;
        if (chunk.bytes > left || !is_good(r, &chunk, payload))
            break;
        TD_TRY(read_chunk(r, chunk.type, payload, (size_t)chunk.bytes));
        size_t padded = ((size_t)chunk.bytes + 7) & ~(size_t)7;
        at += sizeof chunk + (padded < left ? padded : left);
        r->trace->cut_at = (int64_t)at;
        if (chunk.type == TRACE_END)
            break;
    }
    return NULL;
}

/* Of a trace that ends within a window: the steps that are there whole. */
static td_status *guess_window(td_trace *trace)
{
    td_trace_window guess = {.begin_ns = INT64_MAX, .end_ns = INT64_MIN, .first_step = INT64_MAX};
    for (int64_t i = 0; i < trace->n_events; i++) {
        const td_trace_event *e = &trace->events[i];
        if (e->kind != TD_RECORD_STEP)
            continue;
        guess.first_step = e->step < guess.first_step ? e->step : guess.first_step;
        guess.last_step = e->step > guess.last_step ? e->step : guess.last_step;
        guess.begin_ns = e->begin_ns < guess.begin_ns ? e->begin_ns : guess.begin_ns;
        guess.end_ns = e->end_ns > guess.end_ns ? e->end_ns : guess.end_ns;
    }
    if (guess.first_step > guess.last_step || trace->n_windows)
        return NULL;
    TD_TRY(td_grow(&trace->windows, &trace->windows_capacity, trace->n_windows, sizeof *trace->windows));
    trace->windows[trace->n_windows++] = guess;
    return NULL;
}

/* What kind of file it is. */
static td_status *check_header(const reading *r, const unsigned char *data, size_t bytes)
{
    trace_header header;
    if (bytes < sizeof header || memcmp(data, TRACE_MAGIC, strlen(TRACE_MAGIC)) != 0)
        return TD_ERROR(TD_DATA_ERROR, "%s: not a trace of tandem", r->name);
    memcpy(&header, data, sizeof header);
    if (header.version != TRACE_VERSION || header.record_bytes != sizeof(td_record))
        return TD_ERROR(TD_UNSUPPORTED,
                        "%s: a trace of version %u with records of %u bytes; this program reads %d, %zu", r->name,
                        header.version, header.record_bytes, TRACE_VERSION, sizeof(td_record));
    return NULL;
}

/* Bytes that are ours are needed until the events are out of them; then their memory has the events in order, or is freed. */
static td_status *sort_events(reading *r, int helpers)
{
    const td_trace_scale scale = {r->first.ticks, rate_of(r)};
    int64_t *first = NULL;
    td_status *status = td_trace_read_blocks(r->trace, r->blocks, r->n_blocks, &scale, helpers, &first);
    const bool fits = !status && r->taken && r->room / sizeof(td_trace_event) > (size_t)r->trace->n_events;
    if (!fits) {
        td_free(r->taken);
        r->taken = NULL;
    }
    if (!status)
        status = td_trace_merge(r->trace, first, (td_trace_event *)(void *)r->taken, helpers);
    if (!status)
        r->taken = NULL;
    scale_windows(r, &scale);
    td_free(first);
    return status;
}

static td_status *parse(reading *r, const unsigned char *data, size_t bytes, int helpers)
{
    uint8_t *good = NULL;
    r->trace->info = json_object();
    if (!r->trace->info)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a trace");
    TD_TRY(check_header(r, data, bytes));
    TD_TRY(TD_NEW(r->slots, SLOTS));
    memset(r->slots, 0xFF, SLOTS * sizeof *r->slots);
    TD_TRY(td_trace_check_chunks(data, bytes, helpers, &good));
    r->good = good;
    td_status *status = read_chunks(r, data, bytes);
    td_free(good);
    TD_TRY(status);
    TD_TRY(sort_events(r, helpers));
    TD_TRY(td_trace_index_plans(r->trace));
    return guess_window(r->trace);
}

static td_status *read_trace(reading *r, const void *data, size_t bytes, int helpers, td_trace **out_trace)
{
    *out_trace = NULL;
    td_status *status = TD_NEW(r->trace, 1);
    if (!status)
        status = parse(r, data, bytes, helpers);
    td_free(r->slots);
    td_free(r->blocks);
    td_free(r->taken);
    if (status)
        td_trace_destroy(r->trace);
    else
        *out_trace = r->trace;
    return status;
}

static int helpers_for(size_t bytes)
{
    return td_trace_helpers((int64_t)(bytes / sizeof(td_record)));
}

td_status *td_trace_parse_by(const void *data, size_t bytes, const char *name, int helpers, td_trace **out_trace)
{
    return read_trace(&(reading){.name = name}, data, bytes, helpers, out_trace);
}

td_status *td_trace_parse(const void *data, size_t bytes, const char *name, td_trace **out_trace)
{
    return td_trace_parse_by(data, bytes, name, helpers_for(bytes), out_trace);
}

td_status *td_trace_parse_taken(char *data, size_t bytes, size_t room, const char *name, td_trace **out_trace)
{
    return read_trace(&(reading){.name = name, .taken = data, .room = room}, data, bytes, helpers_for(bytes),
                      out_trace);
}

td_status *td_trace_read(const char *path, td_trace **out_trace)
{
    char *data = NULL;
    size_t bytes = 0;
    *out_trace = NULL;
    TD_TRY(td_file_read(path, &data, &bytes));
    return td_trace_parse_taken(data, bytes, bytes, path, out_trace);
}

void td_trace_destroy(td_trace *trace)
{
    if (!trace)
        return;
    for (int64_t i = 0; i < trace->n_plans; i++)
        td_trace_plan_deinit(&trace->plans[i]);
    json_decref(trace->info);
    td_free(trace->plans);
    td_free(trace->plan_order);
    td_free(trace->threads);
    td_free(trace->ranks);
    td_free(trace->windows);
    td_free(trace->events);
    td_free(trace);
}
