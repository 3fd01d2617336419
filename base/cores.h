/* Sets of processing units as the scheduler sees them: what this process may use, and binding the calling thread.
 * Indices are the operating system's. */
#ifndef TANDEM_BASE_CORES_H
#define TANDEM_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TD_MAX_CORES = 8192 }; /* the largest NR_CPUS a kernel is built with */

typedef struct td_core_set {
    uint64_t bits[TD_MAX_CORES / 64];
} td_core_set;

static inline bool td_core_set_has(const td_core_set *set, int32_t core)
{
    return core >= 0 && core < TD_MAX_CORES && (set->bits[core / 64] >> (core % 64) & 1);
}
static inline void td_core_set_add(td_core_set *set, int32_t core)
{
    set->bits[core / 64] |= (uint64_t)1 << (core % 64);
}
int32_t td_core_set_count(const td_core_set *set);

/* The calling thread's affinity mask. */
td_status *td_cores_allowed(td_core_set *out_set) TD_MUST_USE;
/* Binds the calling thread to these. */
td_status *td_cores_bind_self(const td_core_set *set) TD_MUST_USE;

/* Whether this process may run on a core at all; the calling thread's own mask may be narrower. */
bool td_cores_usable(int32_t core);

#endif
