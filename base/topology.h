/* The machine as this process may use it: processing units, caches, memory. And how lanes share it.
 *
 *     td_topology *topology = NULL;
 *     TD_TRY(td_topology_create(&topology));
 *     td_lane_cores lanes[2];
 *     bool turns = td_topology_split(topology, 2, (int32_t[]){3, 1}, lanes);   // true: they overlap and take turns
 *     TD_TRY(td_team_create(3, lanes[0].cores, lanes[0].n_cores, &team));
 *
 * Read once; what changes afterwards (a mask, a quota) is not seen. Affinity mask and control groups decide what is usable;
 * hwloc only says which units share a core and how large caches are, so a container that shows it a strange machine costs
 * order, not correctness. */
#ifndef TANDEM_BASE_TOPOLOGY_H
#define TANDEM_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_topology {
    /* Processing units the calling thread may run on, by operating-system index: first one of each physical core, then the
     * second ones (SMT), and so on; neighbours in the list share caches where they can. */
    int32_t *cores;
    int32_t n_cores;    /* at least 1 */
    int32_t n_physical; /* the first so many are on different physical cores */
    int32_t usable;     /* threads that can run at the same time: n_cores, or less where a quota of time allows less */
    int32_t n_numa;     /* memory nodes; 1 where unknown */
    double quota;       /* cores' worth of time by control group; 0: no limit */
    int64_t l1_bytes, l2_bytes, l3_bytes; /* data caches of one core's path; 0 where there is none or it is unknown */
    int64_t memory_bytes;                 /* the machine's, or the control group's limit where that is less */
    int64_t memory_available_bytes;       /* of it, what could be had at this moment */
} td_topology;

td_status *td_topology_create(td_topology **out_topology) TD_MUST_USE;
void td_topology_destroy(td_topology *topology);

/* A lane's processing units: a part of topology->cores. */
typedef struct td_lane_cores {
    const int32_t *cores;
    int32_t n_cores;
} td_lane_cores;

/* Cores for n lanes that want so many threads each; wanted 0: an equal share of what the others leave, at least one. While
 * the usable cores suffice, lanes get disjoint sets of the wanted size and false comes back. Otherwise true: each lane gets
 * as many as it wants, usable ones at most, the sets overlap, and the lanes must take turns. */
bool td_topology_split(const td_topology *topology, int32_t n, const int32_t *wanted, td_lane_cores *out_lanes);

#endif
