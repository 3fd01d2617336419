/* A profiler's file: what it begins with, emptying the rings into it, and what a hook costs, which stands in it. See
 * runtime/profiler.h. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "runtime/profiler.h"

/* ---- the file ------------------------------------------------------------------------------------------------------------------ */

td_status *td_profiler_write_text(td_profiler *profiler, trace_chunk_type type, const char *text)
{
    return td_trace_write(profiler->writer, type, text, strlen(text));
}

/* What may stand between quotes. */
void td_profiler_make_plain(char *text)
{
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '?';
}

static td_status *write_info(td_profiler *profiler)
{
    char host[64] = "", text[1200];
    const td_profiler_options *o = &profiler->options;
    (void)gethostname(host, sizeof host - 1);
    td_profiler_make_plain(host);
    (void)snprintf(text, sizeof text,
                   "{\"host\":\"%s\",\"process\":%ld,\"rank\":%d,\"ranks\":%d,\"role\":\"%.64s\",\"clock\":\"%s\","
                   "\"ring_records\":%d,"
                   "\"event_ns\":%.3f,\"off_ns\":%.3f,"
                   "\"schedule\":{\"skip\":%lld,\"wait\":%lld,\"warm_up\":%lld,\"active\":%lld,\"repeat\":%lld}}",
                   host, (long)getpid(), o->rank, o->ranks, profiler->role ? profiler->role : "", td_ticks_name(),
                   o->ring_records, profiler->event_ns, profiler->off_ns, (long long)o->skip, (long long)o->wait,
                   (long long)o->warm_up, (long long)o->active, (long long)o->repeat);
    return td_profiler_write_text(profiler, TRACE_INFO, text);
}

int32_t td_profiler_next_number(const char *directory)
{
    DIR *entries = opendir(directory);
    long most = 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        long number = strncmp(entry->d_name, "trace-", 6) ? 0 : strtol(entry->d_name + 6, NULL, 10);
        most = number > most && number < INT32_MAX ? number : most;
    }
    if (entries)
        (void)closedir(entries);
    return (int32_t)most + 1;
}

/* trace-0001.tdt, or of another rank trace-0001.rank2.tdt, and so on. */
td_status *td_profiler_open_file(td_profiler *profiler)
{
    char rank[32] = "";
    TD_TRY(td_directory_create(profiler->directory));
    int32_t number = profiler->options.number ? profiler->options.number : td_profiler_next_number(profiler->directory);
    if (profiler->options.rank)
        (void)snprintf(rank, sizeof rank, ".rank%d", profiler->options.rank);
    td_free(profiler->path);
    profiler->path = td_format("%s/trace-%04d%s.tdt", profiler->directory, number, rank);
    if (!profiler->path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    TD_TRY(td_trace_writer_open(profiler->path, &profiler->writer));
    TD_TRY(write_info(profiler));
    for (int64_t i = 0; i < profiler->n_notes; i++)
        TD_TRY(td_profiler_write_text(profiler, TRACE_INFO, profiler->notes[i]));
    return td_trace_write_clock(profiler->writer);
}

td_status *td_profiler_drain(td_profiler *profiler)
{
    uint64_t from = td_record_begin(), written = 0;
    td_record_span span;
    TD_TRY(td_trace_write_clock(profiler->writer)); /* before the records: a file that is cut there has their rate */
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span)) {
            TD_TRY(
                td_trace_write_records(profiler->writer, span.thread, span.name, span.records, span.n, span.dropped));
            td_record_consume(i, &span);
            written += span.n;
            profiler->dropped += span.dropped;
        }
    profiler->records += written;
    uint64_t homeless = td_record_homeless();
    profiler->dropped += homeless;
    profiler->homeless += homeless;
    profiler->drained_ns = td_clock_ns();
    td_status *status = td_trace_writer_flush(profiler->writer); /* whatever becomes of this process */
    td_record_end(TD_RECORD_FLUSH, 0, (uint32_t)profiler->completed_step + 1, from, written);
    return status;
}

/* What lies in the rings from before this profiler, or from between two windows. */
void td_profiler_discard(void)
{
    td_record_span span;
    for (int32_t i = 0; i < TD_RECORD_RINGS; i++)
        while (td_record_peek(i, &span))
            td_record_consume(i, &span);
    (void)td_record_homeless();
}

/* ---- what a hook costs -------------------------------------------------------------------------------------------------------------- */

/* Of a pair of hook points with recording on, and off. Nothing else is recording. */
void td_profiler_measure_hooks(td_profiler *profiler)
{
    enum { TIMES = 2000 };
    int64_t best_on = INT64_MAX, best_off = INT64_MAX;
    for (int round = 0; round < 5; round++) {
        int64_t begin = td_clock_ns();
        for (int i = 0; i < TIMES; i++)
            td_record_end(TD_RECORD_NONE, 0, 0, td_record_begin(), 0);
        int64_t middle = td_clock_ns();
        td_record_switch(true);
        for (int i = 0; i < TIMES; i++)
            td_record_end(TD_RECORD_NONE, 0, 0, td_record_begin(), 0);
        td_record_switch(false);
        int64_t end = td_clock_ns();
        best_off = middle - begin < best_off ? middle - begin : best_off;
        best_on = end - middle < best_on ? end - middle : best_on;
        td_profiler_discard();
    }
    profiler->event_ns = (double)best_on / TIMES;
    profiler->off_ns = (double)best_off / TIMES;
}
