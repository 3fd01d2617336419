/* See cli/served_view.h. */
#include "cli/served_view.h"

#include <stdlib.h>

#include "base/units.h"

static double all_rows(const td_plan_served_summary *table)
{
    return (double)table->rows * (double)(table->row_bytes + table->state_bytes) + (double)table->rows / 8;
}

void td_served_print(td_section root, const td_plan *plan, FILE *out)
{
    td_plan_served_summary table;
    char row[TD_UNIT_TEXT], all[TD_UNIT_TEXT], pull[TD_UNIT_TEXT], push[TD_UNIT_TEXT];
    const char *said = td_section_string(root, "ps.servers");
    long servers = strtol(said, NULL, 10);
    double bytes = 0, pulled = 0, pushed = 0;
    if (!td_plan_served_table(plan, 0, &table))
        return;
    servers = servers > 0 ? servers : 1;
    fprintf(out, "\n  %-24s %14s  %-11s %-13s %-12s %s\n", "served table", "rows", "row + state", "if all begin",
            "pull a step", "push a step");
    for (int32_t t = 0; td_plan_served_table(plan, t, &table); t++) {
        fprintf(out, "  %-24s %14lld  %-11s %-13s %-12s %s\n", table.name, (long long)table.rows,
                td_format_bytes(row, (double)(table.row_bytes + table.state_bytes)),
                td_format_bytes(all, all_rows(&table)), td_format_traffic(pull, (double)table.pull_bytes),
                td_format_traffic(push, (double)table.push_bytes));
        bytes += all_rows(&table);
        pulled += (double)table.pull_bytes;
        pushed += (double)table.push_bytes;
    }
    fprintf(out,
            "  each of %ld server%s (ps.servers: %s): at most %s, rows / servers x (row + state + 1/8 byte), as rows "
            "begin\n"
            "  each worker, at most: %s pulled and %s pushed a step, distinct ids x (8 + row) and x (8 + 4 dim)\n",
            servers, servers == 1 ? "" : "s", said, td_format_bytes(all, bytes / (double)servers),
            td_format_traffic(pull, pulled), td_format_traffic(push, pushed));
}
