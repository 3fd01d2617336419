/* See cli/served_view.h. */
#include "cli/served_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/served_time.h"
#include "tandem/job.h"

static double all_rows(const td_plan_served_summary *table)
{
    return (double)(table->most_rows ? table->most_rows : table->rows) *
           ((double)(table->row_bytes + table->state_bytes) + table->overhead_bytes);
}

static void print_table(const td_plan_served_summary *table, FILE *out)
{
    char rows[32], row[TD_UNIT_TEXT], all[TD_UNIT_TEXT], pull[TD_UNIT_TEXT], push[TD_UNIT_TEXT];
    snprintf(rows, sizeof rows, "%s%lld%s", table->hashed && table->most_rows ? "<= " : "",
             (long long)(table->most_rows ? table->most_rows : table->rows),
             table->hashed && !table->most_rows ? " or more" : "");
    fprintf(out, "  %-24s %-5s %20s  %-11s %8.1f B  %-13s %-12s %s\n", table->name, table->hashed ? "hash" : "array",
            rows, td_format_bytes(row, (double)(table->row_bytes + table->state_bytes)), table->overhead_bytes,
            td_format_bytes(all, all_rows(table)), td_format_traffic(pull, (double)table->pull_bytes),
            td_format_traffic(push, (double)table->push_bytes));
}

/* What ids and messages take on each rank. */
static void print_staging(td_section root, const td_plan *plan, long servers, FILE *out)
{
    char worker[TD_UNIT_TEXT], server[TD_UNIT_TEXT];
    int64_t of_worker = 0, of_server = 0;
    const int64_t replicas = td_section_int(root, "train.replicas");
    const int32_t workers = replicas > 0 ? (int32_t)replicas : 1;
    if (td_job_staging(plan, workers, (int32_t)servers, &of_worker, &of_server))
        fprintf(out,
                "  messages, at most, beyond rows and the memory above: %s on a worker, %s on a server of %s "
                "(a rank that is both: both)\n",
                td_format_bytes(worker, (double)of_worker), td_format_bytes(server, (double)of_server),
                TD_COUNTED(workers, "worker"));
}

/* Who holds the rows, and what travels for them. */
static void print_owners(td_section root, const td_plan *plan, double bytes, double pulled, double pushed, FILE *out)
{
    char all[TD_UNIT_TEXT], pull[TD_UNIT_TEXT], push[TD_UNIT_TEXT];
    const char *said = td_section_string(root, "ps.servers");
    long servers = strtol(said, NULL, 10);
    servers = servers > 0 ? servers : 1;
    fprintf(out,
            "  each of %s (ps.servers: %s): at most %s, rows / servers x (row + state + overhead), as rows "
            "begin\n"
            "  each worker, at most: %s pulled and %s pushed a step, distinct ids x (8 + row) and x (8 + 4 dim)\n",
            TD_COUNTED(servers, "server"), said, td_format_bytes(all, bytes / (double)servers),
            td_format_traffic(pull, pulled), td_format_traffic(push, pushed));
    print_staging(root, plan, servers, out);
    const td_cluster_figures figures = td_cluster_figures_of(root);
    td_served_time_print(plan, &figures, out);
}

void td_served_print(td_section root, const td_plan *plan, FILE *out)
{
    td_plan_served_summary table;
    double bytes = 0, pulled = 0, pushed = 0;
    if (!td_plan_served_table(plan, 0, &table))
        return;
    fprintf(out, "\n  %-24s %-5s %20s  %-11s %-10s  %-13s %-12s %s\n", "served table", "kind", "rows", "row + state",
            "overhead", "if all begin", "pull a step", "push a step");
    for (int32_t t = 0; td_plan_served_table(plan, t, &table); t++) {
        print_table(&table, out);
        bytes += all_rows(&table);
        pulled += (double)table.pull_bytes;
        pushed += (double)table.push_bytes;
    }
    if (!strcmp(td_section_string(root, "offload.embedding"), "ps"))
        print_owners(root, plan, bytes, pulled, pushed, out);
    else
        fprintf(out, "  hash tables are this process's own, beyond the memory above, as rows begin; under mpirun its "
                     "servers have them\n");
}

void td_shared_print(td_section root, const td_plan *plan, FILE *out)
{
    char most[TD_UNIT_TEXT], whole[TD_UNIT_TEXT];
    int64_t bytes = 0, one = 0, all = 0, largest = 0;
    td_plan_served_summary table;
    int32_t workers = 0;
    if (!td_section_bool(root, "ps.shard_optimizer"))
        return;
    for (; td_plan_shared_state(plan, workers, &bytes, &one); workers++) {
        largest = bytes > largest ? bytes : largest;
        all = one;
    }
    if (workers) {
        fprintf(out,
                "\n  ps.shard_optimizer: each of %s keeps at most %s of the %s of optimizer state of dense "
                "parameters; the memory above is worker 0's\n",
                TD_COUNTED(workers, "worker"), td_format_bytes(most, (double)largest),
                td_format_bytes(whole, (double)all));
        if (!td_plan_served_table(plan, 0, &table) && td_job_staging(plan, workers, 1, &bytes, &one))
            fprintf(out, "  messages, at most, beyond the memory above: %s on a worker\n",
                    td_format_bytes(most, (double)bytes));
    } else
        fprintf(out,
                "\n  ps.shard_optimizer: nobody shares anything with one worker; train.replicas: N shows what each "
                "of N has\n");
}
