/* Tables of operators, data, memory and advice of a recording: see profile_view.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/string.h"
#include "base/units.h"
#include "cli/profile_cell.h"
#include "cli/profile_view.h"
#include "cli/table.h"
#include "profiler/lanes.h"

static const char *rate_text(td_cell *to, double per_s, const char *unit)
{
    char number[TD_UNIT_TEXT];
    if (per_s < 1e6)
        return "-";
    (void)snprintf(to->text, sizeof to->text, "%.8s%.8s", td_format_count(number, per_s * 1e-9), unit);
    return to->text;
}

/* ---- operators ------------------------------------------------------------------------------------------------------------------ */

/* Beyond its memory's rate an op works within caches. */
static const char *peak_text(td_cell *to, double reached)
{
    return reached > 1 ? "beyond" : reached > 0 ? td_cell_share(to, reached, 1) : "-";
}

static void add_row(td_table *table, const td_op_statistics *ops, const td_op_row *row)
{
    td_cell t[6];
    char count[32], name[101];
    double seconds = 1e-9 * (double)row->self_ns, steps = (double)ops->steps;
    (void)snprintf(count, sizeof count, "%.3g", (double)row->count / steps);
    td_text_cut(name, sizeof name, row->name);
    td_table_row(table, name, row->op ? row->op : "", row->device, count,
                 td_cell_time(&t[0], (double)row->self_ns / steps),
                 td_cell_share(&t[1], (double)row->self_ns, (double)ops->self_ns),
                 rate_text(&t[2], seconds > 0 ? row->flops / seconds : 0, " GFLOP/s"),
                 rate_text(&t[3], seconds > 0 ? row->bytes / seconds : 0, " GB/s"),
                 peak_text(&t[4], td_op_reached(ops->view, row)));
}

static td_status *print_rows(const td_op_statistics *ops, const td_op_rows *rows, const char *head, int64_t most,
                             FILE *out)
{
    td_table table;
    td_table_init(&table, 9);
    for (int i = 3; i < 9; i++)
        table.right[i] = true;
    td_table_row(&table, head, rows == &ops->ops ? "type" : "", "device", "runs", "a step", "share", "flops", "bytes",
                 "of its peak");
    for (int64_t i = 0; i < rows->n && i < most; i++)
        add_row(&table, ops, &rows->rows[i]);
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

td_status *td_profile_print_ops(const td_analysis *analysis, FILE *out)
{
    enum { TYPES = 8, OPS = 8 };
    TD_TRY(print_rows(analysis->ops, &analysis->ops->types, "ops by type", TYPES, out));
    return print_rows(analysis->ops, &analysis->ops->ops, "slowest ops", OPS, out);
}

td_status *td_profile_print_op_info(const td_analysis *analysis, FILE *out)
{
    const td_op_statistics *ops = analysis->ops;
    const td_trace_plan *plan = ops->view->plan;
    for (int64_t i = 0; i < ops->ops.n; i++) {
        const td_op_row *row = &ops->ops.rows[i];
        const td_trace_node *node = &plan->nodes[row->node];
        char inputs[1024], outputs[512];
        td_cell time;
        fprintf(out, "%s %s on %s%s: %s, %s each\n", row->op, row->name, row->device,
                node->inserted ? " (inserted by the planner)" : "", TD_COUNTED(row->count, "time"),
                td_cell_time(&time, (double)row->self_ns / (double)(row->count + !row->count)));
        fprintf(out, "  %s -> %s\n", td_op_shapes(plan, node->inputs, node->n_inputs, inputs, sizeof inputs),
                td_op_shapes(plan, node->outputs, node->n_outputs, outputs, sizeof outputs));
        if (node->attributes[0])
            fprintf(out, "  %s\n", node->attributes);
    }
    return NULL;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------------------------- */

static void print_data(const td_analysis *a, FILE *out)
{
    const td_data_view *d = &a->data;
    td_cell t[3];
    char steps[200];
    double n = (double)a->steps->n_steps;
    fprintf(out, "\n  data: ");
    if (d->queue_samples)
        fprintf(out, "%.1f of %s stand ready (%" PRId64 " to %" PRId64 "), ",
                (double)d->queue_sum / (double)d->queue_samples, TD_COUNTED(d->queue_places, "batch"), d->queue_least,
                d->queue_greatest);
    if (d->fetches)
        fprintf(out, "one takes %s to make, ", td_cell_time(&t[0], (double)d->fetch_ns / (double)d->fetches));
    if (d->workers)
        fprintf(out, "%" PRId64 " %s %s a step for room, ", d->workers,
                d->workers == 1 ? "worker waits" : "workers wait", td_cell_time(&t[2], (double)d->full_ns / n));
    fprintf(out, "the run waits %s a step for a batch\n", td_cell_time(&t[1], (double)d->waited_ns / n));
    if (d->starved_steps)
        fprintf(out, "  the data may be the bottleneck of %s %s\n", d->starved_steps == 1 ? "step" : "steps",
                td_data_starved_text(a->steps, d, steps, sizeof steps));
}

static void print_machine(const td_analysis *a, FILE *out)
{
    const td_data_view *d = &a->data;
    double n = (double)a->steps->n_steps;
    fprintf(out, "  machine: ");
    const td_rank_trace *place = a->ranks ? td_ranks_place(a->ranks, a->view->trace, a->view->plan->worker) : NULL;
    if (d->cores_used > 0 && place && td_ranks_on(a->ranks, place->host) > 1)
        fprintf(out, "%.1f of %d %s for this %s, %.1f for the %d ranks of its host together; ", d->cores_used, d->cores,
                d->cores == 1 ? "core works" : "cores work", place->worker < 0 ? "rank" : "worker",
                td_ranks_cores_used(a->ranks, place->host), td_ranks_on(a->ranks, place->host));
    else if (d->cores_used > 0)
        fprintf(out, "%.1f of %d %s; ", d->cores_used, d->cores, d->cores == 1 ? "core works" : "cores work");
    for (int32_t i = 0; i < a->view->plan->n_devices; i++)
        fprintf(out, "%s computes %.0f %% of the time; ", a->view->plan->devices[i].name,
                100 * td_device_utilisation(a->steps, i));
    int64_t tasks = 0;
    for (int64_t l = 0; l < a->view->n_lanes; l++)
        tasks += a->steps->lanes[l].tasks;
    fprintf(out, "%" PRId64 " %s %.3g %s a step\n", a->view->n_lanes, a->view->n_lanes == 1 ? "lane runs" : "lanes run",
            (double)tasks / n, (double)tasks == n ? "task" : "tasks");
    fprintf(out, "  recording: %s a step, about %.2f %% of its time\n",
            TD_COUNTED(llround((double)d->events / n), "event"), 100 * d->events_share);
}

static const char *short_name(char *to, size_t room, const char *name)
{
    td_text_cut(to, room, name);
    return to;
}

static td_status *print_memory(const td_analysis *a, FILE *out)
{
    td_table table;
    td_table_init(&table, 6);
    for (int i = 1; i < 5; i++)
        table.right[i] = true;
    td_table_row(&table, "memory", "store", "arena", "live at peak", "in use", "largest at the peak");
    for (int32_t d = 0; d < a->memory->n_devices; d++) {
        const td_device_memory *m = &a->memory->devices[d];
        td_cell t[4], size;
        char tenants[256] = "", short_text[61];
        for (int32_t i = 0; i < m->n_tenants && i < 3; i++)
            (void)snprintf(tenants + strlen(tenants), sizeof tenants - strlen(tenants), "%s%s %s", i ? ", " : "",
                           short_name(short_text, sizeof short_text, m->tenants[i].name),
                           td_format_bytes(size.text, (double)m->tenants[i].bytes));
        td_table_row(&table, a->view->plan->devices[d].name, td_format_bytes(t[0].text, (double)m->store_bytes),
                     td_format_bytes(t[1].text, (double)m->arena_bytes),
                     td_format_bytes(t[2].text, (double)m->peak_live_bytes),
                     m->in_use_bytes ? td_format_bytes(t[3].text, (double)m->in_use_bytes) : "-", tenants);
    }
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

td_status *td_profile_print_rest(const td_analysis *analysis, FILE *out)
{
    td_advice_list list;
    print_data(analysis, out);
    print_machine(analysis, out);
    TD_TRY(print_memory(analysis, out));
    td_advise(analysis, &list);
    if (list.n)
        fprintf(out, "\n  advice\n");
    for (int32_t i = 0; i < list.n; i++)
        fprintf(out, "  - %s: %s\n", list.items[i].rule, list.items[i].text);
    return NULL;
}
