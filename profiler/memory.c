/* Device memory over a step: see memory.h. */
#include "profiler/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* When a root lives, in the step. */
typedef struct life {
    int64_t begin_ns, end_ns; /* begin > end: never */
    int64_t bytes;
} life;

typedef struct change {
    int64_t at_ns, bytes; /* bytes < 0: it goes */
} change;

static int by_time(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* what goes first makes room */
}

/* The root's life covers the run of `node`'s subgraph. */
static void touch(const td_view *view, int64_t index, life *lives, int32_t value, int32_t node)
{
    const td_trace_plan *plan = view->plan;
    int32_t root = plan->values[value].root < 0 ? value : plan->values[value].root;
    int32_t subgraph = plan->nodes[node].subgraph;
    const td_view_run *run = subgraph < 0 ? NULL : td_view_at(view, index, subgraph);
    if (!run)
        return;
    life *l = &lives[root];
    l->begin_ns = run->begin_ns < l->begin_ns ? run->begin_ns : l->begin_ns;
    l->end_ns = run->end_ns > l->end_ns ? run->end_ns : l->end_ns;
    l->bytes = plan->values[root].bytes;
}

static void find_lives(const td_view *view, int64_t index, life *lives)
{
    const td_trace_plan *plan = view->plan;
    for (int32_t v = 0; v < plan->n_values; v++)
        lives[v] = (life){INT64_MAX, INT64_MIN, 0};
    for (int32_t n = 0; n < plan->n_nodes; n++) {
        for (int32_t i = 0; i < plan->nodes[n].n_inputs; i++)
            if (plan->nodes[n].inputs[i] >= 0)
                touch(view, index, lives, plan->nodes[n].inputs[i], n);
        for (int32_t i = 0; i < plan->nodes[n].n_outputs; i++)
            if (plan->nodes[n].outputs[i] >= 0)
                touch(view, index, lives, plan->nodes[n].outputs[i], n);
    }
}

static bool in_arena(const td_trace_plan *plan, int32_t value, int32_t device)
{
    const td_trace_value *v = &plan->values[value];
    return v->device == device && (v->root < 0 || v->root == value) && !strcmp(v->storage, "arena");
}

static td_status *sum_lives(const td_view *view, int64_t begin_ns, const life *lives, td_device_memory *out)
{
    const td_trace_plan *plan = view->plan;
    change *changes = NULL;
    int64_t n = 0, now = 0;
    TD_TRY(TD_NEW(changes, 2 * (int64_t)plan->n_values + 1));
    for (int32_t v = 0; v < plan->n_values; v++)
        if (in_arena(plan, v, out->device) && lives[v].begin_ns <= lives[v].end_ns) {
            changes[n++] = (change){lives[v].begin_ns, lives[v].bytes};
            changes[n++] = (change){lives[v].end_ns, -lives[v].bytes};
        }
    if (n > 1)
        qsort(changes, (size_t)n, sizeof *changes, by_time);
    td_status *status = TD_NEW(out->points, n + 1);
    for (int64_t i = 0; !status && i < n; i++) {
        now += changes[i].bytes;
        if (i + 1 < n && changes[i + 1].at_ns == changes[i].at_ns)
            continue;
        out->points[out->n_points++] = (td_memory_point){changes[i].at_ns - begin_ns, now};
        if (now > out->peak_live_bytes) {
            out->peak_live_bytes = now;
            out->peak_at_ns = changes[i].at_ns - begin_ns;
        }
    }
    td_free(changes);
    return status;
}

static void keep_tenant(td_device_memory *memory, const td_trace_value *value)
{
    int32_t at = memory->n_tenants;
    if (at == TD_MEMORY_TENANTS && memory->tenants[at - 1].bytes >= value->bytes)
        return;
    at -= at == TD_MEMORY_TENANTS;
    for (; at > 0 && memory->tenants[at - 1].bytes < value->bytes; at--)
        memory->tenants[at] = memory->tenants[at - 1];
    memory->tenants[at] = (td_memory_tenant){value->name, value->class, value->bytes};
    memory->n_tenants += memory->n_tenants < TD_MEMORY_TENANTS;
}

static void find_tenants(const td_view *view, int64_t begin_ns, const life *lives, td_device_memory *out)
{
    const td_trace_plan *plan = view->plan;
    int64_t peak_ns = begin_ns + out->peak_at_ns;
    for (int32_t v = 0; v < plan->n_values; v++) {
        bool stored = plan->values[v].device == out->device && !strcmp(plan->values[v].storage, "store");
        bool lives_then = in_arena(plan, v, out->device) && lives[v].begin_ns <= peak_ns && lives[v].end_ns > peak_ns;
        if (stored || lives_then)
            keep_tenant(out, &plan->values[v]);
    }
}

static void find_in_use(const td_view *view, td_device_memory *out)
{
    for (int64_t i = 0; i < view->trace->n_events; i++) {
        const td_trace_event *e = &view->trace->events[i];
        if (e->kind == TD_RECORD_MEMORY && (int32_t)e->id == out->device && (int64_t)e->amount > out->in_use_bytes)
            out->in_use_bytes = (int64_t)e->amount;
    }
}

static int64_t middle_step(const td_view *view)
{
    int64_t wanted = td_view_count(view) / 2, n = 0;
    for (int64_t s = view->window.first_step; s <= view->window.last_step; s++)
        if (td_view_counts(view, s) && n++ == wanted)
            return s;
    return -1;
}

static td_status *fill(const td_view *view, td_memory_view *memory)
{
    life *lives = NULL;
    td_status *status = NULL;
    memory->step = middle_step(view);
    memory->n_devices = view->plan->n_devices;
    if (memory->step < 0)
        return TD_ERROR(TD_DATA_ERROR, "the window has no whole step");
    TD_TRY(TD_NEW(memory->devices, memory->n_devices + 1));
    TD_TRY(TD_NEW(lives, view->plan->n_values + 1));
    const td_view_micro *micro = td_view_last_micro(view, memory->step); /* in which every subgraph runs */
    const int64_t begin_ns = micro ? micro->begin_ns : td_view_step_of(view, memory->step)->begin_ns;
    find_lives(view, micro ? td_view_index(view, micro->step, micro->micro) : -1, lives);
    for (int32_t d = 0; d < memory->n_devices && !status; d++) {
        td_device_memory *out = &memory->devices[d];
        const td_trace_device *device = &view->plan->devices[d];
        *out = (td_device_memory){.device = d,
                                  .store_bytes = device->store_bytes,
                                  .arena_bytes = device->arena_bytes,
                                  .capacity_bytes = device->memory_bytes};
        status = sum_lives(view, begin_ns, lives, out);
        if (status)
            break;
        find_tenants(view, begin_ns, lives, out);
        find_in_use(view, out);
    }
    td_free(lives);
    return status;
}

td_status *td_memory_view_create(const td_view *view, td_memory_view **out_memory)
{
    td_memory_view *memory = NULL;
    *out_memory = NULL;
    TD_TRY(TD_NEW(memory, 1));
    td_status *status = fill(view, memory);
    if (status)
        td_memory_view_destroy(memory);
    else
        *out_memory = memory;
    return status;
}

void td_memory_view_destroy(td_memory_view *memory)
{
    if (!memory)
        return;
    for (int32_t d = 0; memory->devices && d < memory->n_devices; d++)
        td_free(memory->devices[d].points);
    td_free(memory->devices);
    td_free(memory);
}
