/* Fusing elementwise ops: the pass (fuse.c), the rule that groups them (rewrites/elementwise_chain.c), and the program of the
 * fused_elementwise op that a group becomes (fuse_program.c). */
#ifndef TANDEM_PARTITION_FUSE_H
#define TANDEM_PARTITION_FUSE_H

#include "partition/plan.h"

td_status *td_rewrite_elementwise_chain(td_plan *plan) TD_MUST_USE;
/* How many instructions a node is (base/fused.h); 0: it cannot be part of a program. */
int32_t td_fuse_instructions(const td_graph *graph, const td_node *node);
/* The node `members[n - 1]`, to which all others lead, becomes the fused op of all; `members` in topological order. `index`
 * has room for every value, all -1 before and after. *out_fused false: its device declines, and nothing has changed. */
td_status *td_fuse_members(td_plan *plan, const int32_t *members, int32_t n, int32_t *index,
                           bool *out_fused) TD_MUST_USE;

#endif
