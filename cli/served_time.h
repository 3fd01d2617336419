/* How long a step of a job would take, by its plan and by figures that the configuration states of the cluster: see docs/cluster.md.
 *
 * Not what a run measures: nothing here overlaps, ids are as many as a window may have, and no two workers name the same. */
#ifndef TANDEM_CLI_SERVED_TIME_H
#define TANDEM_CLI_SERVED_TIME_H

#include <stdio.h>

#include "cli/config.h"
#include "tandem/plan.h"

typedef struct td_cluster_figures {
    double network, latency_s,
        memory; /* bytes per second of a host each way; of a message; bytes per second of rows at random on a server */
    int32_t workers, servers;
} td_cluster_figures;

typedef struct td_served_time {
    double compute_s, pull_s, push_s, sums_s;
} td_served_time;

/* Of train.replicas (a worker each), ps.servers, ps.network, ps.latency and ps.memory. */
td_cluster_figures td_cluster_figures_of(td_section root);
td_served_time td_served_time_of(const td_plan *plan, const td_cluster_figures *figures);
/* The time, what it is made of, the formula and the figures. */
void td_served_time_print(const td_plan *plan, const td_cluster_figures *figures, FILE *out);

#endif
