/* Rules about what runs where: see advice.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "profiler/advice.h"

/* ---- balance ----------------------------------------------------------------------------------------------------------------------------- */

/* Of a device's compute lanes together, a step. */
static double busy_of(const td_analysis *a, int32_t device)
{
    double ns = 0;
    for (int64_t l = 0; l < a->view->n_lanes; l++)
        if (a->view->lanes[l].device == device && a->view->lanes[l].kind == TD_TRACE_COMPUTE)
            ns += (double)a->steps->lanes[l].busy_ns / (double)a->steps->n_steps;
    return ns / (a->view->plan->devices[device].lanes > 1 ? a->view->plan->devices[device].lanes : 1);
}

/* An op that a device computes, and another one could: not the caller's own code. */
static bool is_movable(const td_analysis *a, const td_op_row *row, int32_t device)
{
    const td_trace_node *node = &a->view->plan->nodes[row->node];
    return row->device_index == device && a->view->plan->subgraphs[node->subgraph].lane == TD_TRACE_COMPUTE &&
           strcmp(node->op, "host_call") != 0;
}

/* The op of a device with the fewest flops a byte among those that take up to `most_ns` of a step, and at least a tenth of that: what
 * suits another device best. */
static const td_op_row *best_to_move(const td_analysis *a, int32_t device, double most_ns)
{
    const td_op_row *best = NULL;
    for (int64_t i = 0; i < a->ops->ops.n; i++) {
        const td_op_row *row = &a->ops->ops.rows[i];
        double ns = (double)row->self_ns / (double)a->ops->steps;
        if (!is_movable(a, row, device) || ns > most_ns || ns < 0.1 * most_ns || row->bytes <= 0)
            continue;
        if (!best || row->flops / row->bytes < best->flops / best->bytes)
            best = row;
    }
    return best;
}

static int by_layer(const void *a, const void *b)
{
    const char *x = (*(const td_op_row *const *)a)->name, *y = (*(const td_op_row *const *)b)->name;
    const size_t length_x = td_layer_length(x), length_y = td_layer_length(y);
    const int order = memcmp(x, y, length_x < length_y ? length_x : length_y);
    return order ? order : length_x != length_y ? (length_x < length_y ? -1 : 1) : strcmp(x, y);
}

/* A layer of the model on a device. */
typedef struct layer {
    const char *name;
    size_t length;
    double ns; /* of a step */
} layer;

/* The largest layer of a device that takes up to `most_ns` of a step, and at least a tenth of that. */
static layer layer_to_move(const td_analysis *a, int32_t device, double most_ns)
{
    const td_op_row **rows = td_calloc((size_t)a->ops->ops.n + 1, sizeof(const td_op_row *));
    layer best = {NULL, 0, 0.1 * most_ns}, now = {NULL, 0, 0};
    int64_t n = 0;
    for (int64_t i = 0; rows && i < a->ops->ops.n; i++)
        if (is_movable(a, &a->ops->ops.rows[i], device))
            rows[n++] = &a->ops->ops.rows[i];
    if (n > 1)
        qsort(rows, (size_t)n, sizeof *rows, by_layer);
    for (int64_t i = 0; i < n; i++) {
        const size_t length = td_layer_length(rows[i]->name);
        if (!now.name || length != now.length || strncmp(now.name, rows[i]->name, length) != 0)
            now = (layer){rows[i]->name, length, 0};
        now.ns += (double)rows[i]->self_ns / (double)a->ops->steps;
        const bool ends = i + 1 == n || td_layer_length(rows[i + 1]->name) != length ||
                          strncmp(now.name, rows[i + 1]->name, length) != 0;
        if (ends && now.ns <= most_ns && now.ns > best.ns)
            best = now;
    }
    td_free(rows);
    return best;
}

static double at_best(const td_trace_device *device, const td_op_row *row)
{
    const double flops = device->flops_per_s > 0 ? row->flops / device->flops_per_s : 0;
    const double bytes = device->memory_bytes_per_s > 0 ? row->bytes / device->memory_bytes_per_s : 0;
    return flops > bytes ? flops : bytes;
}

/* How many times as long one device's work would take on another, by what both state of themselves; 1 where they do not. */
static double slower_on(const td_analysis *a, int32_t from, int32_t to)
{
    const td_trace_device *devices = a->view->plan->devices;
    double here = 0, there = 0;
    for (int64_t i = 0; i < a->ops->ops.n; i++) {
        const td_op_row *row = &a->ops->ops.rows[i];
        const double x = is_movable(a, row, from) ? at_best(&devices[from], row) : 0, y = at_best(&devices[to], row);
        if (row->device_index != from)
            continue;
        here += (double)row->self_ns;
        there += (double)row->self_ns * (x > 0 && y > 0 ? y / x : 1);
    }
    return here > 0 ? there / here : 1;
}

static void advise_balance(const td_analysis *a, td_advice_list *list)
{
    const td_trace_plan *plan = a->view->plan;
    int32_t most = -1, least = -1;
    for (int32_t d = 0; d < plan->n_devices; d++) {
        most = most < 0 || busy_of(a, d) > busy_of(a, most) ? d : most;
        least = least < 0 || busy_of(a, d) < busy_of(a, least) ? d : least;
    }
    if (most == least || most < 0 || td_advice_share(a, busy_of(a, most)) < 0.6)
        return;
    /* what is moved away takes as many times as long there */
    const double gain = (busy_of(a, most) - busy_of(a, least)) / (1 + slower_on(a, most, least));
    const td_op_row *row = best_to_move(a, most, gain);
    const layer whole = row ? (layer){NULL, 0, 0} : layer_to_move(a, most, gain);
    char what[256];
    if (row)
        (void)snprintf(what, sizeof what, "move %s \"%.120s\" to %s first: it takes %s now, %.2g flops a byte", row->op,
                       row->name, plan->devices[least].name, TD_ADVICE_TIME(row->self_ns / a->ops->steps),
                       row->flops / row->bytes);
    else if (whole.name)
        (void)snprintf(what, sizeof what, "move \"%.*s%s*\" to %s first (placement.rules): its ops take %s now",
                       (int)(whole.length < 120 ? whole.length : 120), whole.name,
                       whole.name[whole.length] == '.'   ? "."
                       : whole.name[whole.length] == '/' ? "/"
                                                         : "",
                       plan->devices[least].name, TD_ADVICE_TIME(whole.ns));
    else
        (void)snprintf(
            what, sizeof what,
            "but no op or layer there is small enough and free to move; a smaller share of the batch or another "
            "model cut would");
    td_advice_give(list, TD_ADVICE_unbalanced_cut, td_advice_share(a, gain),
                   row          ? (double)row->self_ns / (double)a->ops->steps
                   : whole.name ? whole.ns
                                : gain,
                   "%s works %s of a step, %s %s: balance would save up to %s%s %s", plan->devices[most].name,
                   TD_ADVICE_TIME(busy_of(a, most)), plan->devices[least].name,
                   busy_of(a, least) > 0 ? TD_ADVICE_TIME(busy_of(a, least)) : "none", TD_ADVICE_TIME(gain),
                   row || whole.name ? ";" : ",", what);
}

/* ---- there and back ------------------------------------------------------------------------------------------------------------------------ */

/* Copies that a subgraph waits for, and those that wait for it alone. */
typedef struct neighbours {
    int32_t in, out, others;
    int64_t ns, bytes; /* of the copies, all steps */
} neighbours;

static void add_neighbour(const td_analysis *a, neighbours *n, int32_t subgraph, int32_t *copies)
{
    bool copy = a->view->plan->subgraphs[subgraph].lane != TD_TRACE_COMPUTE;
    *(copy ? copies : &n->others) += 1;
    n->ns += copy ? a->steps->subgraphs[subgraph].total_ns : 0;
    n->bytes += copy ? a->steps->subgraphs[subgraph].bytes : 0;
}

/* Of every subgraph. NULL: no memory, and then no advice. */
static neighbours *find_neighbours(const td_analysis *a)
{
    const td_trace_plan *plan = a->view->plan;
    neighbours *all = td_calloc((size_t)plan->n_subgraphs + 1, sizeof *all);
    for (int32_t s = 0; all && s < plan->n_subgraphs; s++)
        for (int32_t i = 0; i < plan->subgraphs[s].n_after; i++) {
            int32_t before = plan->subgraphs[s].after[i];
            add_neighbour(a, &all[s], before, &all[s].in);
            add_neighbour(a, &all[before], s, &all[before].out);
        }
    return all;
}

static bool has_state(const td_view *view, int32_t subgraph)
{
    const td_trace_plan *plan = view->plan;
    for (int32_t n = view->first_node[subgraph]; n >= 0; n = view->next_node[n])
        for (int32_t i = 0; i < plan->nodes[n].n_inputs; i++)
            if (plan->nodes[n].inputs[i] >= 0 && !strcmp(plan->values[plan->nodes[n].inputs[i]].storage, "store"))
                return true;
    return false;
}

static const char *first_op(const td_view *view, int32_t subgraph)
{
    for (int32_t n = view->first_node[subgraph]; n >= 0; n = view->next_node[n])
        if (!view->plan->nodes[n].view)
            return view->plan->nodes[n].name;
    return view->plan->subgraphs[subgraph].name;
}

/* A subgraph between copies on both sides holds nothing that must live where it is: without the copies it would run at the far
 * end in about the same time. */
static void advise_round_trips(const td_analysis *a, td_advice_list *list)
{
    const td_trace_plan *plan = a->view->plan;
    neighbours *all = find_neighbours(a);
    for (int32_t s = 0; all && s < plan->n_subgraphs; s++) {
        if (plan->subgraphs[s].lane != TD_TRACE_COMPUTE || !plan->devices[plan->subgraphs[s].device].host)
            continue;
        neighbours n = all[s];
        if (!n.in || !n.out || n.others || has_state(a->view, s))
            continue;
        int32_t far = -1;
        for (int32_t i = 0; i < plan->subgraphs[s].n_after; i++)
            far = plan->subgraphs[plan->subgraphs[s].after[i]].device;
        double ns = (double)n.ns / (double)a->steps->n_steps;
        td_advice_give(
            list, TD_ADVICE_round_trip, td_advice_share(a, ns), ns,
            "move \"%s\" to %s: saves %s of copies a step, about %s", first_op(a->view, s), plan->devices[far].name,
            td_format_traffic((td_unit_text){0}.text, (double)n.bytes / (double)a->steps->n_steps), TD_ADVICE_TIME(ns));
    }
    td_free(all);
}

/* ---- steps one after the other --------------------------------------------------------------------------------------------------------------- */

static void advise_overlap(const td_analysis *a, td_advice_list *list)
{
    double all = 0, longest = 0;
    if (a->view->plan->pipelined)
        return;
    for (int32_t d = 0; d < a->view->plan->n_devices; d++) {
        double busy = busy_of(a, d);
        all += busy;
        longest = busy > longest ? busy : longest;
    }
    double interval = (double)a->steps->average.interval_ns;
    double gain = all - longest < interval - longest ? all - longest : interval - longest;
    td_advice_give(
        list, TD_ADVICE_no_overlap, td_advice_share(a, gain), gain,
        "each step ends before the next begins; with train.pipeline: on, up to %s of one device's work would "
        "hide behind another's",
        TD_ADVICE_TIME(gain));
}

void td_advice_moves(const td_analysis *analysis, td_advice_list *list)
{
    advise_balance(analysis, list);
    advise_round_trips(analysis, list);
    advise_overlap(analysis, list);
}
