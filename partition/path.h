/* How long one step of a plan takes if its ops take what they were measured to take elsewhere: the critical path through its
 * subgraphs. Not an estimate of the devices, and not a measurement of the plan itself. */
#ifndef TANDEM_PARTITION_PATH_H
#define TANDEM_PARTITION_PATH_H

#include "partition/plan.h"

/* Seconds that a node takes. */
typedef double (*td_node_seconds)(const void *context, const td_plan *plan, int32_t node);

/* The end of the last subgraph of one step by itself: a subgraph starts when all that it waits for have ended and a lane of its
 * device (or copy direction) is free; of several that could start at once the one of the highest rank does, as lanes do it. */
td_status *td_plan_critical_path(const td_plan *plan, td_node_seconds seconds, const void *context,
                                 double *out_seconds) TD_MUST_USE;

#endif
