/* Chunks of a trace file: see trace_writer.h. */
#include "base/trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_error.h"
#include "base/hash.h"
#include "base/memory.h"

struct td_trace_writer {
    int file;
    char *path;
    uint32_t *threads; /* those that a THREAD chunk has told of */
    int64_t n_threads, threads_capacity;
    uint64_t records, dropped;
    size_t used;
    struct {
        trace_events head;
        td_record records[TRACE_MOST_RECORDS];
    } events;
    unsigned char buffer[1 << 16];
};

static td_status *failed(const td_trace_writer *writer, const char *what)
{
    return td_file_error(writer->path, what, errno);
}

static td_status *write_out(td_trace_writer *writer, const unsigned char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = td_file_inject() ? -1 : write(writer->file, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(writer, "write");
        data += n;
        bytes -= (size_t)n;
    }
    return NULL;
}

td_status *td_trace_writer_flush(td_trace_writer *writer)
{
    size_t bytes = writer->used;
    writer->used = 0;
    return write_out(writer, writer->buffer, bytes);
}

static td_status *append(td_trace_writer *writer, const void *data, uint64_t bytes)
{
    if (bytes > sizeof writer->buffer - writer->used)
        TD_TRY(td_trace_writer_flush(writer));
    if (bytes > sizeof writer->buffer)
        return write_out(writer, data, bytes);
    if (bytes)
        memcpy(writer->buffer + writer->used, data, bytes);
    writer->used += bytes;
    return NULL;
}

td_status *td_trace_writer_open(const char *path, td_trace_writer **out_writer)
{
    td_trace_writer *writer = NULL;
    trace_header header = {.magic = TRACE_MAGIC, .version = TRACE_VERSION, .record_bytes = sizeof(td_record)};
    *out_writer = NULL;
    TD_TRY(TD_NEW(writer, 1));
    writer->file = -1;
    writer->path = td_strdup(path);
    if (!writer->path) {
        td_free(writer);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a trace");
    }
    writer->file = td_file_inject() ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    td_status *status = writer->file < 0 ? failed(writer, "make the file") : append(writer, &header, sizeof header);
    if (status)
        td_trace_writer_abandon(writer);
    else
        *out_writer = writer;
    return status;
}

td_status *td_trace_write(td_trace_writer *writer, trace_chunk_type type, const void *payload, uint64_t bytes)
{
    static const char zeros[8] = {0};
    trace_chunk chunk = {.type = type, .bytes = bytes, .checksum = td_hash_bytes(payload, bytes, type)};
    TD_TRY(append(writer, &chunk, sizeof chunk));
    TD_TRY(append(writer, payload, bytes));
    return append(writer, zeros, -bytes & 7);
}

static td_status *tell_thread(td_trace_writer *writer, uint32_t thread, const char *name)
{
    for (int64_t i = 0; i < writer->n_threads; i++)
        if (writer->threads[i] == thread)
            return NULL;
    TD_TRY(td_grow(&writer->threads, &writer->threads_capacity, writer->n_threads, sizeof *writer->threads));
    trace_thread told = {.thread = thread};
    (void)snprintf(told.name, sizeof told.name, "%s", name);
    TD_TRY(td_trace_write(writer, TRACE_THREAD, &told, sizeof told));
    writer->threads[writer->n_threads++] = thread;
    return NULL;
}

td_status *td_trace_write_records(td_trace_writer *writer, uint32_t thread, const char *name, const td_record *records,
                                  uint32_t n, uint64_t dropped)
{
    TD_TRY(tell_thread(writer, thread, name));
    for (uint32_t first = 0; first < n || dropped; first += TRACE_MOST_RECORDS) {
        uint32_t some = n - first < TRACE_MOST_RECORDS ? n - first : TRACE_MOST_RECORDS;
        writer->events.head = (trace_events){.thread = thread, .n = some, .dropped = dropped};
        memcpy(writer->events.records, records + first, some * sizeof *records);
        TD_TRY(
            td_trace_write(writer, TRACE_EVENTS, &writer->events, sizeof writer->events.head + some * sizeof *records));
        writer->records += some;
        writer->dropped += dropped;
        dropped = 0;
    }
    return NULL;
}

td_status *td_trace_write_clock(td_trace_writer *writer)
{
    struct timespec now;
    td_ticks_pair pair = td_ticks_read_pair();
    int64_t before = td_clock_ns();
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t after = td_clock_ns(), middle = before + (after - before) / 2;
    trace_clock clock = {.ticks = pair.ticks,
                         .monotonic_ns = pair.ns,
                         .unix_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (middle - pair.ns),
                         .error_ns = pair.error};
    return td_trace_write(writer, TRACE_CLOCK, &clock, sizeof clock);
}

td_status *td_trace_writer_close(td_trace_writer *writer, uint64_t homeless)
{
    trace_end end = {.records = writer->records, .dropped = writer->dropped + homeless};
    td_status *status = td_trace_write(writer, TRACE_END, &end, sizeof end);
    if (!status)
        status = td_trace_writer_flush(writer);
    if (!status && close(writer->file) != 0)
        status = failed(writer, "close");
    else if (status)
        (void)close(writer->file);
    writer->file = -1;
    td_trace_writer_abandon(writer);
    return status;
}

void td_trace_writer_abandon(td_trace_writer *writer)
{
    if (!writer)
        return;
    if (writer->file >= 0)
        (void)close(writer->file);
    td_free(writer->path);
    td_free(writer->threads);
    td_free(writer);
}
