/* Perfetto's trace format: a stream of TracePacket messages in protobuf's wire format, written by hand.
 *
 * Field numbers are those of perfetto/protos/perfetto/trace: trace_packet.proto, track_event/track_event.proto,
 * track_event/track_descriptor.proto, interned_data/interned_data.proto. A slice is a begin and an end packet on its track; those
 * of one track are in order and nest. Names are interned: the first packet that uses one brings its text. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "profiler/export.h"
#include "profiler/sink.h"
#include "profiler/tracks.h"

/* ---- protobuf's wire format ------------------------------------------------------------------------------------------------------ */

enum { MOST_MESSAGE = 4096, SEQUENCE = 1 };

/* Begins with n = 0; the bytes are not cleared, which would cost more than all the rest. */
typedef struct message {
    size_t n;
    unsigned char bytes[MOST_MESSAGE];
} message;

static void put_varint(message *m, uint64_t value)
{
    while (value >= 0x80) {
        m->bytes[m->n++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    m->bytes[m->n++] = (unsigned char)value;
}

static void put_number(message *m, int field, uint64_t value)
{
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, value);
}

/* Cut off where the message is full: names longer than a few kilobytes are of no use to anybody. */
static void put_bytes(message *m, int field, const void *bytes, size_t n)
{
    size_t room = MOST_MESSAGE - m->n - 32;
    n = n < room ? n : room;
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

/* Text of at most 1,000 bytes; what is no printable character becomes '?'. */
static void put_text(message *m, int field, const char *text)
{
    char clean[1001];
    size_t n = 0;
    for (; text[n] && n < sizeof clean - 1; n++)
        clean[n] = (unsigned char)text[n] < ' ' || (unsigned char)text[n] > '~' ? '?' : text[n];
    put_bytes(m, field, clean, n);
}

static void put_message(message *m, int field, const message *inner)
{
    put_bytes(m, field, inner->bytes, inner->n);
}

static void write_packet(td_sink *out, const message *packet)
{
    message head;
    head.n = 0;
    put_varint(&head, 1 << 3 | 2); /* Trace.packet */
    put_varint(&head, packet->n);
    td_sink_bytes(out, head.bytes, head.n);
    td_sink_bytes(out, packet->bytes, packet->n);
}

/* ---- names ------------------------------------------------------------------------------------------------------------------------ */

/* A name's number is that of its id, or of its kind behind all ids; which were told already. */
typedef struct names {
    const td_trace *trace;
    bool *told;
    uint64_t n_ids;
} names;

static uint64_t name_number(const names *n, const td_trace_event *e)
{
    bool by_id = e->kind == TD_RECORD_OP || e->kind == TD_RECORD_COPY || e->kind == TD_RECORD_SUBGRAPH;
    return by_id && e->id < n->n_ids ? e->id : n->n_ids + (uint64_t)e->kind;
}

static uint64_t count_ids(const td_trace *trace)
{
    uint64_t most = 1;
    for (int64_t p = 0; p < trace->n_plans; p++) {
        uint64_t end = (uint64_t)trace->plans[p].first_id + (uint64_t)trace->plans[p].n_nodes +
                       (uint64_t)trace->plans[p].n_subgraphs;
        bool dense = end < (uint64_t)1 << 28;
        most = dense && end > most ? end : most;
    }
    return most;
}

/* ---- packets ---------------------------------------------------------------------------------------------------------------------- */

enum { SLICE_BEGIN = 1, SLICE_END = 2, COUNTER = 4 };
/* Numbers of tracks: rows from FIRST_ROW on; of each process its own track, and counters. */
enum { FIRST_ROW = 2, FIRST_COUNTER = 1 << 20, COUNTERS = 1 << 17, FIRST_PROCESS = 1 << 30 };

typedef struct writing {
    td_sink *out;
    td_tracks tracks;
    names names;
    int64_t **open; /* of each row: ends of the slices that are open, outermost first */
    int32_t *n_open, *open_capacity;
} writing;

static uint64_t process_track(int32_t process)
{
    return FIRST_PROCESS + (uint64_t)process;
}

static void describe_process(td_sink *out, int32_t process, const char *name)
{
    message packet, track, inner;
    packet.n = track.n = inner.n = 0;
    put_number(&track, 1, process_track(process));
    put_number(&inner, 1, (uint64_t)process + 1);
    put_text(&inner, 6, name);
    put_message(&track, 3, &inner);
    put_number(&packet, 10, SEQUENCE);
    put_message(&packet, 60, &track);
    write_packet(out, &packet);
}

static void describe_row(td_sink *out, int32_t row, int32_t process, const char *name, bool thread)
{
    message packet, track, inner;
    packet.n = track.n = inner.n = 0;
    put_number(&track, 1, (uint64_t)row + FIRST_ROW);
    put_number(&track, 5, process_track(process));
    if (thread) {
        put_number(&inner, 1, (uint64_t)process + 1);
        put_number(&inner, 2, (uint64_t)row + 2);
        put_text(&inner, 5, name);
        put_message(&track, 4, &inner);
    } else {
        put_text(&track, 2, name);
    }
    put_number(&packet, 10, SEQUENCE);
    put_message(&packet, 60, &track);
    write_packet(out, &packet);
}

static void describe_counter(td_sink *out, uint64_t uuid, int32_t process, const char *name, int unit)
{
    message packet, track, counter;
    packet.n = track.n = counter.n = 0;
    put_number(&track, 1, uuid);
    put_number(&track, 5, process_track(process));
    put_text(&track, 2, name);
    put_number(&counter, 3, (uint64_t)unit);
    put_message(&track, 8, &counter);
    put_number(&packet, 10, SEQUENCE);
    put_message(&packet, 60, &track);
    write_packet(out, &packet);
}

static void begin_packet(message *packet, int64_t at_ns)
{
    put_number(packet, 8, (uint64_t)(at_ns < 0 ? 0 : at_ns));
    put_number(packet, 10, SEQUENCE);
}

static void write_end(td_sink *out, int32_t row, int64_t at_ns)
{
    message packet, event;
    packet.n = event.n = 0;
    begin_packet(&packet, at_ns);
    put_number(&event, 9, SLICE_END);
    put_number(&event, 11, (uint64_t)row + FIRST_ROW);
    put_message(&packet, 11, &event);
    write_packet(out, &packet);
}

static void annotate(message *event, uint64_t name, uint64_t value)
{
    message annotation;
    annotation.n = 0;
    put_number(&annotation, 1, name);
    put_number(&annotation, 3, value);
    put_message(event, 4, &annotation);
}

/* One entry of interned data: a number and its text. */
static void intern(message *data, int field, uint64_t number, const char *text)
{
    message entry;
    entry.n = 0;
    put_number(&entry, 1, number);
    put_text(&entry, 2, text);
    put_message(data, field, &entry);
}

enum { STEP_NAME = 1, AMOUNT_NAME = 2, NEEDS_STATE = 2, CLEARS_STATE = 1 };

static void write_begin(writing *w, const td_trace_event *e, int32_t row)
{
    message packet, event, data;
    packet.n = event.n = data.n = 0;
    uint64_t number = name_number(&w->names, e);
    char buffer[64];
    begin_packet(&packet, e->begin_ns);
    if (!w->names.told[number] && e->kind != TD_RECORD_STEP)
        intern(&data, 2, number + 1, td_tracks_event_name(&w->tracks, e, buffer, sizeof buffer));
    w->names.told[number] = true;
    if (data.n)
        put_message(&packet, 12, &data);
    put_number(&packet, 13, NEEDS_STATE);
    put_number(&event, 9, SLICE_BEGIN);
    put_number(&event, 11, (uint64_t)row + FIRST_ROW);
    put_number(&event, 3, (uint64_t)e->kind + 1);
    if (e->kind == TD_RECORD_STEP)
        put_text(&event, 23, td_tracks_event_name(&w->tracks, e, buffer, sizeof buffer));
    else
        put_number(&event, 10, number + 1);
    annotate(&event, STEP_NAME, e->step);
    if (e->amount)
        annotate(&event, AMOUNT_NAME, e->amount);
    put_message(&packet, 11, &event);
    write_packet(w->out, &packet);
}

/* Ends what ends by `until_ns`, innermost first. */
static void close_slices(writing *w, int32_t row, int64_t until_ns)
{
    while (w->n_open[row] && w->open[row][w->n_open[row] - 1] <= until_ns)
        write_end(w->out, row, w->open[row][--w->n_open[row]]);
}

static td_status *write_slice(writing *w, const td_trace_event *e, int32_t row)
{
    int64_t end = e->end_ns;
    close_slices(w, row, e->begin_ns);
    if (w->n_open[row] && w->open[row][w->n_open[row] - 1] < end)
        end = w->open[row][w->n_open[row] - 1]; /* within what it began in */
    if (w->n_open[row] == w->open_capacity[row]) {
        int32_t room = w->open_capacity[row] ? 2 * w->open_capacity[row] : 16;
        int64_t *grown = td_realloc(w->open[row], (size_t)room, sizeof *grown);
        if (!grown)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a timeline");
        w->open[row] = grown;
        w->open_capacity[row] = room;
    }
    w->open[row][w->n_open[row]++] = end;
    write_begin(w, e, row);
    return NULL;
}

static uint64_t counter_of(int32_t process, const td_trace_event *e)
{
    uint64_t first = FIRST_COUNTER + COUNTERS * (uint64_t)process;
    if (e->kind == TD_RECORD_MEMORY)
        return first + 3 + (uint64_t)(e->id & 0xffff);
    return first + (e->kind == TD_RECORD_QUEUE ? 1 : e->kind == TD_RECORD_STALENESS ? 2 : 0);
}

static void write_sample(const writing *w, const td_trace_event *e)
{
    message packet, event;
    packet.n = event.n = 0;
    begin_packet(&packet, e->begin_ns);
    put_number(&event, 9, COUNTER);
    put_number(&event, 11, counter_of(td_tracks_process_of(&w->tracks, e), e));
    put_number(&event, 30, e->amount);
    put_message(&packet, 11, &event);
    write_packet(w->out, &packet);
}

/* The first packet of the sequence: what every later one may refer to. */
static void write_kinds(td_sink *out)
{
    message packet, data;
    packet.n = data.n = 0;
    for (int kind = 0; kind < TD_RECORD_KINDS; kind++)
        intern(&data, 1, (uint64_t)kind + 1, td_record_kind_name(kind));
    intern(&data, 3, STEP_NAME, "step");
    intern(&data, 3, AMOUNT_NAME, "amount");
    put_number(&packet, 10, SEQUENCE);
    put_number(&packet, 13, CLEARS_STATE);
    put_message(&packet, 12, &data);
    write_packet(out, &packet);
}

static void describe_counters(const writing *w, int32_t process)
{
    static const int units[] = {
        [TD_RECORD_PROCESSOR] = 1, [TD_RECORD_QUEUE] = 2, [TD_RECORD_MEMORY] = 3, [TD_RECORD_STALENESS] = 2};
    static const int16_t others[] = {TD_RECORD_PROCESSOR, TD_RECORD_QUEUE, TD_RECORD_STALENESS}; /* the last: of jobs */
    const td_trace *trace = w->tracks.trace;
    int32_t devices = trace->n_plans ? trace->plans[0].n_devices : 0;
    for (int32_t i = 0; i < devices + (trace->n_ranks ? 3 : 2); i++) {
        td_trace_event sample = {.kind = TD_RECORD_MEMORY, .id = (uint32_t)i};
        char name[128];
        if (i >= devices)
            sample.kind = others[i - devices];
        describe_counter(w->out, counter_of(process, &sample), process,
                         td_tracks_sample_name(&w->tracks, &sample, name, sizeof name), units[sample.kind]);
    }
}

static void describe(const writing *w)
{
    for (int32_t process = 0; process < w->tracks.processes; process++) {
        describe_process(w->out, process, td_tracks_process_name(&w->tracks, process));
        describe_counters(w, process);
    }
    for (int32_t row = 0; row < w->tracks.n; row++)
        describe_row(w->out, row, td_tracks_process(&w->tracks, row), td_tracks_name(&w->tracks, row),
                     row < w->tracks.trace->n_threads);
    write_kinds(w->out);
}

static td_status *write_all(writing *w)
{
    const td_trace *trace = w->tracks.trace;
    TD_TRY(TD_NEW(w->names.told, w->names.n_ids + 256));
    TD_TRY(TD_NEW(w->open, w->tracks.n));
    TD_TRY(TD_NEW(w->n_open, w->tracks.n));
    TD_TRY(TD_NEW(w->open_capacity, w->tracks.n));
    describe(w);
    for (int64_t i = 0; i < trace->n_events; i++) {
        int32_t row = td_tracks_row(&w->tracks, &trace->events[i]);
        if (row >= 0)
            TD_TRY(write_slice(w, &trace->events[i], row));
        else if (td_tracks_is_sample(&trace->events[i]))
            write_sample(w, &trace->events[i]);
    }
    for (int32_t row = 0; row < w->tracks.n; row++)
        close_slices(w, row, INT64_MAX);
    return NULL;
}

td_status *td_export_perfetto(const td_trace *trace, const char *path)
{
    writing w = {.tracks = td_tracks_of(trace), .names = {.trace = trace, .n_ids = count_ids(trace)}};
    TD_TRY(td_sink_open(path, &w.out));
    td_status *status = write_all(&w), *closed = td_sink_close(w.out);
    for (int32_t row = 0; w.open && row < w.tracks.n; row++)
        td_free(w.open[row]);
    td_free(w.open);
    td_free(w.n_open);
    td_free(w.open_capacity);
    td_free(w.names.told);
    if (status)
        td_status_destroy(closed);
    return status ? status : closed;
}
