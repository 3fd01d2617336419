/* What ids in a trace mean: a plan as JSON, for traces alone (docs/profiler.md has its names). */
#ifndef TANDEM_RUNTIME_PROFILER_PLAN_H
#define TANDEM_RUNTIME_PROFILER_PLAN_H

#include "runtime/session.h"

/* `first_id`: of node 0; subgraph 0 has first_id + number of nodes. The text is td_free'd by the caller. */
td_status *td_profiler_plan_json(const td_session *session, uint32_t first_id, char **out_text) TD_MUST_USE;

#endif
