/* A plan as text for people: the state after a pass. JSON, Graphviz and explanations are in explain.c and report.c. */
#ifndef TANDEM_PARTITION_DESCRIBE_H
#define TANDEM_PARTITION_DESCRIBE_H

#include "partition/plan.h"

/* What is known so far: one line per node (device, cluster, offsets as far as passes have set them). Nodes are in an order
 * that does not depend on how the graph was built, after what became of plan->rewritten[first_rewritten ..]. *out_text:
 * td_free it. */
td_status *td_plan_describe_pass(const td_plan *plan, int64_t first_rewritten, char **out_text) TD_MUST_USE;

#endif
