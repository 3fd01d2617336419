/* Tables of a recording: micro-steps, and what went on at the same time. See profile_view.h. */
#include <stdlib.h>

#include "base/memory.h"
#include "cli/profile_cell.h"
#include "cli/profile_view.h"
#include "cli/table.h"

/* ---- micro-steps ------------------------------------------------------------------------------------------------------------------- */

static void add_times(td_table *table, const char *name, const td_step_times *s)
{
    td_cell c[9];
    td_table_row(table, name, td_cell_time(&c[0], (double)s->interval_ns), td_cell_time(&c[1], (double)s->data_wait_ns),
                 td_cell_time(&c[2], (double)s->forward_ns), td_cell_time(&c[3], (double)s->backward_ns),
                 td_cell_time(&c[4], (double)s->update_ns), td_cell_time(&c[5], (double)s->to_device_ns),
                 td_cell_time(&c[6], (double)s->to_host_ns),
                 td_cell_time(&c[7], (double)(s->pull_ns + s->push_ns + s->all_reduce_ns)),
                 td_cell_time(&c[8], (double)s->tail_ns));
}

td_status *td_profile_print_micros(const td_step_trace *trace, const td_step_times *micros, FILE *out)
{
    enum { MOST = 16 };
    td_table table;
    if (!micros)
        return NULL;
    td_table_init(&table, 10);
    for (int i = 1; i < 10; i++)
        table.right[i] = true;
    td_table_row(&table, "micro-step", "takes", "data wait", "forward", "backward", "update", "to device", "to host",
                 "ranks", "tail");
    for (int64_t m = 0; m < trace->view->n_micro; m++) {
        char name[32];
        if (!micros[m].interval_ns || (m >= MOST && m < trace->view->n_micro - 1))
            continue;
        (void)snprintf(name, sizeof name, "%s%d", m >= MOST ? "... " : "", (int)m);
        add_times(&table, name, &micros[m]);
    }
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

/* ---- at the same time -------------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    int32_t a, b;
    int64_t ns, of_ns; /* together; the one that took less */
} pair;

static int by_time(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns > y->ns ? -1 : 1;
    return x->a != y->a ? x->a - y->a : x->b - y->b;
}

static int64_t pairs_of(const td_overlaps *o, int64_t step, pair *out)
{
    int64_t n = 0;
    for (int32_t a = 0; a < o->n; a++)
        for (int32_t b = a + 1; b < o->n; b++) {
            bool all = step < 0;
            int64_t ns = all ? td_overlap_ns(o, a, b) : td_overlap_in_step_ns(o, a, b, step);
            int64_t x = all ? o->activities[a].busy_ns : td_overlap_in_step_ns(o, a, a, step);
            int64_t y = all ? o->activities[b].busy_ns : td_overlap_in_step_ns(o, b, b, step);
            if (ns)
                out[n++] = (pair){a, b, ns, x < y ? x : y};
        }
    if (n > 1)
        qsort(out, (size_t)n, sizeof *out, by_time);
    return n;
}

td_status *td_profile_print_overlaps(const td_overlaps *overlaps, int64_t step, FILE *out)
{
    enum { MOST = 8 };
    td_table table;
    td_cell c[2];
    pair *pairs = NULL;
    double steps = step < 0 ? (double)overlaps->trace->n_steps : 1;
    TD_TRY(TD_NEW(pairs, (int64_t)overlaps->n * overlaps->n + 1));
    const int64_t n = pairs_of(overlaps, step, pairs);
    td_table_init(&table, 4);
    table.right[2] = table.right[3] = true;
    td_table_row(&table, "at the same time", "and", step < 0 ? "a step" : "takes", "of the shorter");
    for (int64_t i = 0; i < n && i < MOST; i++)
        td_table_row(&table, overlaps->activities[pairs[i].a].name, overlaps->activities[pairs[i].b].name,
                     td_cell_time(&c[0], (double)pairs[i].ns / steps),
                     td_cell_share(&c[1], (double)pairs[i].ns, (double)pairs[i].of_ns));
    td_free(pairs);
    if (!n) {
        table.n = 0;
        return td_table_print(&table, "  ", out);
    }
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}
