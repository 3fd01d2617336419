/* Pass: the optimizer's rules that need to know where ops run (TD_REWRITE_PLACED in rewrites/rewrites.def). */
#include "partition/fuse.h"

td_status *td_pass_fuse(td_plan *plan, const td_plan_request *request)
{
    (void)request;
    return plan->jit_level < TD_O2 ? NULL : td_rewrite_elementwise_chain(plan);
}
