/* Tasks that each need a piece of scratch, of which there is a bounded number. Not a kernel.
 *
 * How many pieces there are is a function of shapes (decision 7): with as many threads or fewer, a thread keeps its piece; with
 * more, tasks run in rounds of as many as there are pieces. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_SLOTS_H
#define TANDEM_BACKENDS_CPU_KERNELS_SLOTS_H

#include "base/team.h"

enum { SLOTS_MOST = 16 };

/* Runs task `task` with the piece `slot`. */
typedef void (*slots_task)(const void *context, int64_t task, int64_t slot);

static inline int64_t slots_for(int64_t tasks)
{
    return tasks < SLOTS_MOST ? tasks : SLOTS_MOST;
}

typedef struct slots_run_context {
    slots_task task;
    const void *context;
    int64_t first;
    bool by_thread;
} slots_run_context;

static inline void slots_run_one(void *context, int64_t index, int32_t thread)
{
    const slots_run_context *run = context;
    run->task(run->context, run->first + index, run->by_thread ? thread : index);
}

/* `slots` is slots_for(tasks) of this call or of a larger one. */
static inline void slots_run(td_team *team, int64_t tasks, int64_t slots, slots_task task, const void *context)
{
    slots_run_context run = {.task = task, .context = context, .by_thread = td_team_threads(team) <= slots};
    const int64_t round = run.by_thread ? tasks : slots;
    for (; run.first < tasks; run.first += round)
        td_team_run_dynamic(team, tasks - run.first < round ? tasks - run.first : round, slots_run_one, &run);
}

#endif
