/* See base/cores.h. A td_core_set has the layout of the kernel's mask on little-endian and 64-bit big-endian machines,
 * so it is handed over as it is. */
#include "base/cores.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

int32_t td_core_set_count(const td_core_set *set)
{
    int32_t count = 0;
    for (int32_t i = 0; i < TD_MAX_CORES / 64; i++)
        count += __builtin_popcountll(set->bits[i]);
    return count;
}

td_status *td_cores_allowed(td_core_set *out_set)
{
    memset(out_set, 0, sizeof *out_set);
    if (sched_getaffinity(0, sizeof *out_set, (cpu_set_t *)(void *)out_set) != 0)
        return TD_ERROR(TD_IO, "cannot read the set of cores this thread may use: %s", strerror(errno));
    return NULL;
}

td_status *td_cores_bind_self(const td_core_set *set)
{
    if (sched_setaffinity(0, sizeof *set, (const cpu_set_t *)(const void *)set) != 0)
        return TD_ERROR(TD_IO, "cannot bind a thread to %d core(s): %s", td_core_set_count(set), strerror(errno));
    return NULL;
}

/* A control group's set of cores shows only by trying: where it has the core, binding to it succeeds. */
bool td_cores_usable(int32_t core)
{
    td_core_set before = {{0}}, one = {{0}};
    if (core < 0 || core >= TD_MAX_CORES || sched_getaffinity(0, sizeof before, (cpu_set_t *)(void *)&before) < 0)
        return false;
    if (td_core_set_has(&before, core))
        return true;
    td_core_set_add(&one, core);
    bool usable = sched_setaffinity(0, sizeof one, (const cpu_set_t *)(const void *)&one) == 0;
    if (usable)
        (void)sched_setaffinity(0, sizeof before, (const cpu_set_t *)(const void *)&before);
    return usable;
}
