/* Operator statistics: see ops.h. */
#include "profiler/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

/* The op that a thread is in. */
typedef struct within {
    int64_t end_ns;
    int32_t node;
} within;

static bool nests(int kind)
{
    return kind == TD_RECORD_PULL || kind == TD_RECORD_PUSH || kind == TD_RECORD_ALL_REDUCE;
}

/* A copy's event is the whole subgraph's: its nodes share it. */
static void add_copies(td_op_statistics *s, const td_trace_event *e, int32_t first)
{
    const td_trace_plan *plan = s->view->plan;
    int32_t begin = s->view->first_node[plan->nodes[first].subgraph];
    const int64_t ns = td_ns_minus(e->end_ns, e->begin_ns);
    double bytes = 0;
    for (int32_t n = begin; n >= 0; n = s->view->next_node[n])
        bytes += plan->nodes[n].bytes;
    for (int32_t n = begin; n >= 0; n = s->view->next_node[n]) {
        td_op_row *row = &s->ops.rows[n];
        double share = bytes > 0 ? plan->nodes[n].bytes / bytes : n == first;
        const int64_t part = share < 1 ? (int64_t)(share * (double)ns) : ns; /* 2^63 - 1 of a file is no double */
        row->count++;
        td_ns_add(&row->total_ns, part);
        td_ns_add(&row->self_ns, part);
    }
}

static void add_event(td_op_statistics *s, const td_trace_event *e, within *thread)
{
    int32_t node = td_view_node(s->view, e);
    int64_t ns = td_ns_minus(e->end_ns, e->begin_ns);
    if (!td_view_counts(s->view, e->step))
        return;
    if (e->kind == TD_RECORD_OP && node >= 0) {
        s->ops.rows[node].count++;
        td_ns_add(&s->ops.rows[node].total_ns, ns);
        td_ns_add(&s->ops.rows[node].self_ns, ns);
        *thread = (within){e->end_ns, node};
    } else if (e->kind == TD_RECORD_COPY && node >= 0) {
        add_copies(s, e, node);
    } else if (nests(e->kind) && e->end_ns <= thread->end_ns) {
        s->ops.rows[thread->node].self_ns -= ns;
    }
}

static td_status *sum_events(td_op_statistics *s)
{
    const td_trace *trace = s->view->trace;
    within *threads = NULL;
    TD_TRY(TD_NEW(threads, trace->n_threads + 1));
    for (int64_t i = 0; i < trace->n_events; i++)
        add_event(s, &trace->events[i], &threads[trace->events[i].thread]);
    td_free(threads);
    return NULL;
}

/* ---- groups ------------------------------------------------------------------------------------------------------------------------ */

static int by_self(const void *a, const void *b)
{
    const td_op_row *x = a, *y = b;
    if (x->self_ns != y->self_ns)
        return x->self_ns > y->self_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void sort(td_op_rows *rows)
{
    if (rows->n > 1)
        qsort(rows->rows, (size_t)rows->n, sizeof *rows->rows, by_self);
}

/* A row, and the name of its group. */
typedef struct member {
    const char *name;
    const td_op_row *row;
} member;

static int by_group(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = x->row->device_index - y->row->device_index;
    return order ? order : strcmp(x->name, y->name);
}

/* Sums up neighbours of one name and device. */
static void merge(const member *members, int64_t n, td_op_rows *out)
{
    for (int64_t i = 0; i < n; i++) {
        const td_op_row *row = members[i].row;
        if (!i || by_group(&members[i - 1], &members[i]) != 0)
            out->rows[out->n++] = (td_op_row){
                .name = members[i].name, .device = row->device, .device_index = row->device_index, .node = -1};
        td_op_row *to = &out->rows[out->n - 1];
        to->count += row->count;
        td_ns_add(&to->total_ns, row->total_ns);
        td_ns_add(&to->self_ns, row->self_ns);
        to->flops += row->flops;
        to->bytes += row->bytes;
    }
}

static td_status *group(td_op_statistics *s)
{
    const td_trace_plan *plan = s->view->plan;
    td_op_rows *const groups[] = {&s->types, &s->subgraphs, &s->devices};
    member *members = NULL;
    td_status *status = TD_NEW(members, s->ops.n + 1);
    sort(&s->ops);
    for (int g = 0; g < 3 && !status; g++) {
        status = TD_NEW(groups[g]->rows, s->ops.n + 1);
        for (int64_t i = 0; !status && i < s->ops.n; i++) {
            const td_op_row *row = &s->ops.rows[i];
            const char *const names[] = {row->op, plan->subgraphs[plan->nodes[row->node].subgraph].name, row->device};
            members[i] = (member){names[g], row};
        }
        if (!status && s->ops.n > 1)
            qsort(members, (size_t)s->ops.n, sizeof *members, by_group);
        if (!status)
            merge(members, s->ops.n, groups[g]);
        if (!status)
            sort(groups[g]);
    }
    for (int64_t i = 0; i < s->ops.n; i++)
        td_ns_add(&s->self_ns, s->ops.rows[i].self_ns);
    td_free(members);
    return status;
}

/* Keeps the nodes that ran. */
static void compact(td_op_statistics *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->ops.n; i++) {
        td_op_row *row = &s->ops.rows[i];
        const td_trace_node *node = &s->view->plan->nodes[row->node];
        if (!row->count)
            continue;
        row->flops = node->flops * (double)row->count;
        row->bytes = node->bytes * (double)row->count;
        s->ops.rows[n++] = *row;
    }
    s->ops.n = n;
}

static td_status *fill(td_op_statistics *s)
{
    const td_trace_plan *plan = s->view->plan;
    TD_TRY(TD_NEW(s->ops.rows, plan->n_nodes + 1));
    s->ops.n = plan->n_nodes;
    for (int32_t n = 0; n < plan->n_nodes; n++) {
        int32_t subgraph = plan->nodes[n].subgraph, device = subgraph < 0 ? 0 : plan->subgraphs[subgraph].device;
        s->ops.rows[n] = (td_op_row){.name = plan->nodes[n].name,
                                     .op = plan->nodes[n].op,
                                     .device = plan->devices[device].name,
                                     .device_index = device,
                                     .node = n};
        if (subgraph < 0)
            return TD_ERROR(TD_DATA_ERROR, "node \"%s\" of the trace's plan is in no subgraph", plan->nodes[n].name);
    }
    TD_TRY(sum_events(s));
    compact(s);
    s->steps = td_view_count(s->view);
    return group(s);
}

td_status *td_op_statistics_create(const td_view *view, td_op_statistics **out_statistics)
{
    td_op_statistics *s = NULL;
    *out_statistics = NULL;
    TD_TRY(TD_NEW(s, 1));
    s->view = view;
    td_status *status = fill(s);
    if (status)
        td_op_statistics_destroy(s);
    else
        *out_statistics = s;
    return status;
}

void td_op_statistics_destroy(td_op_statistics *statistics)
{
    if (!statistics)
        return;
    td_free(statistics->ops.rows);
    td_free(statistics->types.rows);
    td_free(statistics->subgraphs.rows);
    td_free(statistics->devices.rows);
    td_free(statistics);
}

/* ---- questions --------------------------------------------------------------------------------------------------------------------- */

double td_op_reached(const td_view *view, const td_op_row *row)
{
    const td_trace_device *device = &view->plan->devices[row->device_index];
    double seconds = 1e-9 * (double)row->self_ns;
    if (seconds <= 0)
        return 0;
    double flops = device->flops_per_s > 0 ? row->flops / seconds / device->flops_per_s : 0;
    double bytes = device->memory_bytes_per_s > 0 ? row->bytes / seconds / device->memory_bytes_per_s : 0;
    return flops > bytes ? flops : bytes;
}

const char *td_op_shapes(const td_trace_plan *plan, const int32_t *values, int32_t n, char *buffer, size_t bytes)
{
    size_t at = 0;
    buffer[0] = '\0';
    for (int32_t i = 0; i < n && at + 1 < bytes; i++) {
        const td_trace_value *value = values[i] < 0 ? NULL : &plan->values[values[i]];
        int length = snprintf(buffer + at, bytes - at, "%s%s%s%s", i ? ", " : "", value ? value->dtype : "-",
                              value && value->shape[0] ? " " : "", value ? value->shape : "");
        at += length > 0 ? (size_t)length : 0;
    }
    td_text_mend(buffer);
    return buffer;
}
