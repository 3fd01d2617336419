/* See cli/served_time.h. */
#include "cli/served_time.h"

#include <stdlib.h>

#include "base/units.h"

td_cluster_figures td_cluster_figures_of(td_section root)
{
    const int64_t replicas = td_section_int(root, "train.replicas");
    const int32_t workers = replicas > 0 ? (int32_t)replicas : 1;
    const long servers = strtol(td_section_string(root, "ps.servers"), NULL, 10); /* 0: colocated */
    return (td_cluster_figures){.network = td_section_rate(root, "ps.network"),
                                .latency_s = td_section_seconds(root, "ps.latency"),
                                .memory = td_section_rate(root, "ps.memory"),
                                .workers = workers,
                                .servers = servers > 0 ? (int32_t)servers : workers};
}

/* Of what is not served, and crosses as f32. */
static double dense_bytes(const td_plan *plan)
{
    return (double)td_plan_parameter_count(plan) * (double)sizeof(float);
}

td_served_time td_served_time_of(const td_plan *plan, const td_cluster_figures *f)
{
    td_plan_served_summary table;
    double pulled = 0, pushed = 0, read = 0, updated = 0;
    const double each = (double)f->workers / (double)f->servers, most = each > 1 ? each : 1;
    for (int32_t t = 0; td_plan_served_table(plan, t, &table); t++) {
        pulled += (double)table.pull_bytes;
        pushed += (double)table.push_bytes;
        read += (double)table.keys * (double)table.row_bytes;
        updated += table.push_bytes ? 2 * (double)table.keys * (double)(table.row_bytes + table.state_bytes) : 0;
    }
    td_served_time time = {.compute_s = td_plan_summarize(plan).step_bound_s,
                           .pull_s = 2 * f->latency_s + most * pulled / f->network + each * read / f->memory,
                           .push_s = f->latency_s + most * pushed / f->network + each * updated / f->memory};
    if (f->workers > 1)
        time.sums_s = 2 * f->latency_s + 2 * dense_bytes(plan) * (1 - 1.0 / f->workers) / f->network;
    return time;
}

void td_served_time_print(const td_plan *plan, const td_cluster_figures *f, FILE *out)
{
    const td_served_time time = td_served_time_of(plan, f);
    char step[TD_UNIT_TEXT], compute[TD_UNIT_TEXT], pull[TD_UNIT_TEXT], push[TD_UNIT_TEXT], sums[TD_UNIT_TEXT];
    char network[TD_UNIT_TEXT], latency[TD_UNIT_TEXT], memory[TD_UNIT_TEXT];
    fprintf(out, "  predicted step %s: compute %s + pull %s + push %s + sums %s, were nothing to overlap\n",
            td_format_seconds(step, time.compute_s + time.pull_s + time.push_s + time.sums_s),
            td_format_seconds(compute, time.compute_s), td_format_seconds(pull, time.pull_s),
            td_format_seconds(push, time.push_s), td_format_seconds(sums, time.sums_s));
    fprintf(out,
            "    pull = 2 latency + pulled x max(1, W/S) / network + ids x row x W/S / memory\n"
            "    push = latency + pushed x max(1, W/S) / network + 2 ids x (row + state) x W/S / memory\n"
            "    sums = 2 latency + 2 x 4 bytes x dense parameters x (1 - 1/W) / network\n"
            "    W = %d (train.replicas, a worker each), S = %d, ps.network %s, ps.latency %s, ps.memory %s\n",
            f->workers, f->servers, td_format_rate(network, f->network), td_format_seconds(latency, f->latency_s),
            td_format_rate(memory, f->memory));
}
