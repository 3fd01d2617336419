/* A team of threads that runs loops over task indices.
 *
 *     td_team *team = NULL;
 *     TD_TRY(td_team_create(4, cores, 4, &team));
 *     td_team_run(team, n_blocks, update_block, &update);   // update_block(&update, i, thread) for each i, then
 * returns td_team_destroy(team);
 *
 * The calling thread takes part as thread 0, so a team of 4 has 3 threads of its own. A run allocates nothing and takes
 * no lock: a counter announces it, a counter says when all threads are through. Idle threads spin for up to 200
 * microseconds (only where every thread of the team can have a core) and then sleep. A team is not a pool: one run at a
 * time per team, started by one thread at a time, and a task must not start a run of its own team. What the caller wrote
 * before a run is visible to its tasks; what tasks wrote is visible after it. */
#ifndef TANDEM_BASE_TEAM_H
#define TANDEM_BASE_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_team td_team;
typedef void (*td_team_task)(void *context, int64_t index, int32_t thread);

/* `threads` counts the caller; at least 1. `cores`: processing units by operating-system index that the team may use
 * (copied); n_cores 0: no binding, the mask of the calling thread holds. With a core for each thread, thread i is bound to cores[i]; otherwise every thread
 * to all of them. The caller stays where it is until td_team_bind_self. Errors: a core this process may not use, no
 * memory, no more threads. */
td_status *td_team_create(int32_t threads, const int32_t *cores, int32_t n_cores, td_team **out_team) TD_MUST_USE;
/* Ends and joins the threads. No run may be under way. NULL is fine. */
void td_team_destroy(td_team *team);
/* Binds the calling thread as the team's thread 0. Does nothing for NULL or an unbound team. */
td_status *td_team_bind_self(const td_team *team) TD_MUST_USE;
/* Threads, the caller included; 1 for NULL. */
int32_t td_team_threads(const td_team *team);
/* Whether idle threads may spin at all: false for a team that shares its cores with others. On by default, and then
 * still only where each thread has a core. May be called between runs. */
void td_team_allow_spinning(td_team *team, bool allow);

/* Calls task(context, index, thread) once for each index in [0, tasks) and returns when all have returned. Thread t of
 * n runs the t-th of n contiguous, near-equal spans in ascending order: which thread runs an index depends on `tasks`
 * and the team size alone. NULL or a team of one: all on the caller. */
void td_team_run(td_team *team, int64_t tasks, td_team_task task, void *context);
/* The same, but each thread takes the next index when it is free: for tasks of unequal size. */
void td_team_run_dynamic(td_team *team, int64_t tasks, td_team_task task, void *context);

/* The span [*out_begin, *out_end) of thread `part` of `parts` in td_team_run, for callers that split by themselves. */
static inline void td_team_span(int64_t tasks, int64_t part, int64_t parts, int64_t *out_begin, int64_t *out_end)
{
    int64_t quotient = tasks / parts, rest = tasks % parts;
    *out_begin = part * quotient + (part < rest ? part : rest);
    *out_end = *out_begin + quotient + (part < rest ? 1 : 0);
}

#endif
