/* Rows and names of timelines: see tracks.h. */
#include "profiler/tracks.h"

#include <stdio.h>

td_tracks td_tracks_of(const td_trace *trace)
{
    int32_t processes = trace->n_ranks ? (int32_t)trace->n_ranks : 1;
    return (td_tracks){.trace = trace, .n = (int32_t)trace->n_threads + 2 * processes, .processes = processes};
}

int32_t td_tracks_process(const td_tracks *tracks, int32_t row)
{
    const td_trace *trace = tracks->trace;
    if (row >= trace->n_threads)
        return (int32_t)((row - trace->n_threads) / 2);
    return trace->n_ranks ? trace->threads[row].rank : 0;
}

int32_t td_tracks_process_of(const td_tracks *tracks, const td_trace_event *event)
{
    return td_tracks_process(tracks, event->thread);
}

const char *td_tracks_process_name(const td_tracks *tracks, int32_t process)
{
    return tracks->trace->n_ranks ? tracks->trace->ranks[process].name : "tandem";
}

const char *td_tracks_name(const td_tracks *tracks, int32_t row)
{
    if (row < tracks->trace->n_threads)
        return tracks->trace->threads[row].name;
    return (row - tracks->trace->n_threads) % 2 == 0 ? "steps" : "steps, by turns";
}

bool td_tracks_is_sample(const td_trace_event *event)
{
    return event->kind == TD_RECORD_MEMORY || event->kind == TD_RECORD_PROCESSOR || event->kind == TD_RECORD_QUEUE ||
           event->kind == TD_RECORD_STALENESS;
}

int32_t td_tracks_row(const td_tracks *tracks, const td_trace_event *event)
{
    if (td_tracks_is_sample(event) || !td_record_kind_name(event->kind) || event->kind == TD_RECORD_NONE)
        return -1;
    if (event->kind == TD_RECORD_STEP || event->kind == TD_RECORD_MICRO_STEP)
        return (int32_t)tracks->trace->n_threads + 2 * td_tracks_process_of(tracks, event) + (int32_t)(event->step % 2);
    return event->thread;
}

const char *td_tracks_event_name(const td_tracks *tracks, const td_trace_event *event, char *buffer, size_t bytes)
{
    int32_t node, subgraph;
    if (event->kind == TD_RECORD_STEP) {
        (void)snprintf(buffer, bytes, "step %u", event->step);
        return buffer;
    }
    const td_trace_plan *plan = event->id ? td_trace_find(tracks->trace, event->id, &node, &subgraph) : NULL;
    bool named =
        plan && (event->kind == TD_RECORD_OP || event->kind == TD_RECORD_COPY || event->kind == TD_RECORD_SUBGRAPH);
    if (!named)
        return td_record_kind_name(event->kind);
    return node >= 0 ? plan->nodes[node].name : plan->subgraphs[subgraph].name;
}

const char *td_tracks_sample_name(const td_tracks *tracks, const td_trace_event *event, char *buffer, size_t bytes)
{
    const td_trace *trace = tracks->trace;
    if (event->kind == TD_RECORD_QUEUE)
        return "batches ready";
    if (event->kind == TD_RECORD_STALENESS)
        return "windows behind";
    if (event->kind == TD_RECORD_PROCESSOR)
        return "processor time";
    bool known = trace->n_plans && event->id < (uint32_t)trace->plans[0].n_devices;
    (void)snprintf(buffer, bytes, "memory %s", known ? trace->plans[0].devices[event->id].name : "of a device");
    return buffer;
}
