/* Chrome's trace JSON. Complete events ("X") nest by their times; threads are named by metadata events. */
#include "profiler/export.h"
#include "profiler/sink.h"
#include "profiler/tracks.h"

static void write_event(td_sink *out, const td_tracks *tracks, const td_trace_event *e, int32_t row)
{
    char buffer[64];
    td_sink_text(out, ",\n{\"ph\":\"X\",\"pid\":");
    td_sink_number(out, td_tracks_process(tracks, row) + 1);
    td_sink_text(out, ",\"tid\":");
    td_sink_number(out, row + 1);
    td_sink_text(out, ",\"ts\":");
    td_sink_us(out, e->begin_ns);
    td_sink_text(out, ",\"dur\":");
    td_sink_us(out, e->end_ns - e->begin_ns);
    td_sink_text(out, ",\"cat\":\"");
    td_sink_text(out, td_record_kind_name(e->kind));
    td_sink_text(out, "\",\"name\":\"");
    td_sink_json(out, td_tracks_event_name(tracks, e, buffer, sizeof buffer));
    td_sink_text(out, "\",\"args\":{\"step\":");
    td_sink_number(out, e->step);
    if (e->amount) {
        td_sink_text(out, ",\"amount\":");
        td_sink_number(out, (int64_t)e->amount);
    }
    td_sink_text(out, "}}");
}

static void write_sample(td_sink *out, const td_tracks *tracks, const td_trace_event *e)
{
    char buffer[128];
    td_sink_text(out, ",\n{\"ph\":\"C\",\"pid\":");
    td_sink_number(out, td_tracks_process_of(tracks, e) + 1);
    td_sink_text(out, ",\"ts\":");
    td_sink_us(out, e->begin_ns);
    td_sink_text(out, ",\"name\":\"");
    td_sink_json(out, td_tracks_sample_name(tracks, e, buffer, sizeof buffer));
    td_sink_text(out, "\",\"args\":{\"value\":");
    td_sink_number(out, (int64_t)e->amount);
    td_sink_text(out, "}}");
}

td_status *td_export_chrome(const td_trace *trace, const char *path)
{
    td_sink *out = NULL;
    td_tracks tracks = td_tracks_of(trace);
    TD_TRY(td_sink_open(path, &out));
    td_sink_text(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (int32_t process = 0; process < tracks.processes; process++) {
        td_sink_format(out, "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"",
                       process ? "," : "", process + 1);
        td_sink_json(out, td_tracks_process_name(&tracks, process));
        td_sink_text(out, "\"}}");
    }
    for (int32_t row = 0; row < tracks.n; row++) {
        td_sink_format(out, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"",
                       td_tracks_process(&tracks, row) + 1, row + 1);
        td_sink_json(out, td_tracks_name(&tracks, row));
        td_sink_text(out, "\"}}");
    }
    for (int64_t i = 0; i < trace->n_events; i++) {
        int32_t row = td_tracks_row(&tracks, &trace->events[i]);
        if (row >= 0)
            write_event(out, &tracks, &trace->events[i], row);
        else if (td_tracks_is_sample(&trace->events[i]))
            write_sample(out, &tracks, &trace->events[i]);
    }
    td_sink_text(out, "\n]}\n");
    return td_sink_close(out);
}
