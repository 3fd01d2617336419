/* Which windows make their updates before the norm of all gradients is known (partition/speculate.c), and what is counted of it.
 *
 * A window speculates unless one shortly before it was wrong: after a miss the windows that begin rest, 16 of them, for where one
 * step is clipped the next ones often are. That is decided by what has ended when a window is admitted, so one that is in flight when
 * another misses may miss too; nothing but time depends on it. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/update_part.h"
#include "runtime/session.h"

enum { REST = 16 };

td_status *td_session_bind_speculation(td_session *session)
{
    const td_plan *plan = session->plan;
    td_instruction **of_node = NULL;
    if (plan->speculate < 0)
        return NULL;
    TD_TRY(TD_NEW(of_node, plan->graph->n_nodes + 1));
    for (int32_t c = 0; c < plan->n_clusters; c++)
        for (int32_t i = 0; i < session->clusters[c].n_instructions; i++)
            of_node[session->clusters[c].instructions[i].node] = &session->clusters[c].instructions[i];
    for (int64_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (!node->settles)
            continue;
        of_node[n]->early = of_node[plan->graph->values[node->inputs[SETTLE_LOG]].producer];
        session->clusters[plan->nodes[n].cluster].settles = true;
    }
    td_free(of_node);
    return NULL;
}

void td_session_choose_speculation(td_session *session, td_step_slot *slot)
{
    const bool may = session->plan->speculate >= 0 && slot->ends_window;
    slot->speculates = may && session->rest == 0;
    slot->rests = may && session->rest > 0;
    session->rest -= slot->rests;
}

/* As graph/ops/clip.c decides it, but from the norm as it is reported. */
static bool was_clipped(const td_session *session, const td_step_slot *slot)
{
    const td_plan *plan = session->plan;
    const int32_t norm = plan->outputs[plan->n_outputs - 2];
    const float *reported = td_session_address(session, norm, (int32_t)(slot->step % TD_PARITIES), 0);
    return plan->clip_norm / ((double)*reported + 1e-6) < 1;
}

void td_session_count_speculation(td_session *session, const td_step_slot *slot, bool held)
{
    session->counters.resting += slot->rests;
    session->counters.speculated += slot->speculates;
    if (!slot->speculates || (!held && !was_clipped(session, slot)))
        return;
    session->counters.missed++;
    session->rest = REST;
}

td_status *td_session_undo(td_lane *lane, td_instruction *in, int32_t parity)
{
    static const int64_t left_out = -1;
    const td_plan_site *site = &lane->session->plan->sites[lane->group->site];
    td_kernel_call call = in->call[parity];
    td_tensor inputs[SETTLE_INPUTS];
    memcpy(inputs, call.inputs, (size_t)call.n_inputs * sizeof *inputs);
    inputs[SETTLE_FIRST].data = (void *)(uintptr_t)&left_out;
    call.inputs = inputs;
    call.scratch = lane->scratch;
    call.scratch_bytes = lane->session->plan->nodes[in->node].scratch_bytes;
    TD_TRY(site->api->kernel_run(lane->queue, in->kernel, &call));
    return td_session_settle_lane(lane); /* the inputs are this function's */
}
