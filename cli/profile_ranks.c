/* Tables of a job's ranks: see profile_view.h. */
#include <inttypes.h>

#include "base/units.h"
#include "cli/profile_cell.h"
#include "cli/profile_view.h"
#include "cli/table.h"

/* What one rank says of a kind of work, a step. */
static const char *work_text(td_cell *to, const td_rank_work *work, const td_rank_times *times)
{
    return td_cell_time(to, work->n && times->steps ? (double)work->ns / (double)times->steps : 0);
}

static const char *clock_text(td_cell *to, const td_rank_trace *rank)
{
    char error[TD_UNIT_TEXT];
    if (rank->aligned == TD_JOB_SHARED)
        return "the same";
    if (rank->aligned == TD_JOB_UNALIGNED)
        return "not compared";
    (void)snprintf(to->text, sizeof to->text, "+- %.20s%s", td_format_seconds(error, 1e-9 * (double)rank->error_ns),
                   rank->aligned == TD_JOB_ALIGNED_ONCE ? " once" : "");
    return to->text;
}

static void add_rank(td_table *table, const td_ranks *ranks, int32_t index)
{
    const td_rank_trace *r = &ranks->job->ranks[index];
    const td_rank_times *t = &ranks->times[index];
    char number[16], role[140], last[40] = "-";
    td_cell c[8];
    (void)snprintf(number, sizeof number, "%d", r->rank);
    (void)snprintf(role, sizeof role, "%s%s%s", r->role, *r->host ? " on " : "", r->host);
    if (t->met)
        (void)snprintf(last, sizeof last, "%" PRId64 " of %" PRId64, t->times_last, t->met);
    td_table_row(table, number, role, td_cell_time(&c[0], t->intervals ? (double)t->step_ns / (double)t->intervals : 0),
                 work_text(&c[1], &t->pull, t), work_text(&c[2], &t->push, t), work_text(&c[3], &t->sum, t),
                 td_cell_time(&c[4], (double)t->late_median_ns), last, work_text(&c[5], &t->answer, t),
                 work_text(&c[6], &t->apply, t), r->trace ? clock_text(&c[7], r) : "-");
}

static void print_problems(const td_ranks *ranks, FILE *out)
{
    for (int32_t i = 0; i < ranks->job->n; i++) {
        const td_rank_trace *r = &ranks->job->ranks[i];
        if (*r->problem)
            fprintf(out, "  rank %d: %s\n", r->rank, r->problem);
        else if (r->trace && !r->shares && r->trace->cut)
            fprintf(out, "  rank %d: its trace is cut off after %s: this is what there is before\n", r->rank,
                    TD_COUNTED(r->trace->n_events, "event"));
    }
}

/* Of a job that lets workers run ahead. */
static void print_staleness(const td_ranks *ranks, FILE *out)
{
    for (int32_t i = 0; i < ranks->job->n; i++) {
        const td_rank_times *t = &ranks->times[i];
        double mean = 0;
        int32_t most = 0;
        const int64_t n = td_rank_behind(t, &mean, &most);
        if (!n)
            continue;
        fprintf(out, "  pulls of rank %d (%s) were behind by %.2g windows in the mean:", ranks->job->ranks[i].rank,
                ranks->job->ranks[i].role, mean);
        for (int32_t k = 0, told = 0; k <= most; k++)
            if (t->behind[k])
                fprintf(out, "%s %.0f %% by %d%s", told++ ? "," : "", 100 * (double)t->behind[k] / (double)n, k,
                        k == TD_MOST_BEHIND - 1 ? " and more" : "");
        fputc('\n', out);
    }
}

static void print_keys(const td_ranks *ranks, FILE *out)
{
    for (int64_t k = 0; k < ranks->n_keys; k++)
        fprintf(out, "  ids of %s: each row of a batch is named %.3g times\n", ranks->keys[k].tables,
                (double)ranks->keys[k].ids / (double)ranks->keys[k].distinct);
}

td_status *td_profile_print_ranks(const td_ranks *ranks, FILE *out)
{
    td_table table;
    td_table_init(&table, 11);
    for (int i = 2; i < 10; i++)
        table.right[i] = true;
    td_table_row(&table, "rank", "", "a step", "pull", "push", "sums", "late by", "last", "answers", "updates",
                 "clock");
    for (int32_t i = 0; i < ranks->job->n; i++)
        add_rank(&table, ranks, i);
    fputc('\n', out);
    TD_TRY(td_table_print(&table, "  ", out));
    print_problems(ranks, out);
    print_staleness(ranks, out);
    print_keys(ranks, out);
    return NULL;
}
