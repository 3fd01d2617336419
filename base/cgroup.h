/* What Linux control groups allow this process: processor time and memory. Containers limit by these, and neither the
 * affinity mask nor the machine's memory shows it. Versions 1 and 2. */
#ifndef TANDEM_BASE_CGROUP_H
#define TANDEM_BASE_CGROUP_H

#include <stdint.h>

typedef struct td_cgroup {
    double cpus;               /* cores' worth of time; 0: no limit */
    int64_t memory_bytes;      /* 0: no limit */
    int64_t memory_used_bytes; /* of the group that sets the limit, without file pages that can be dropped at once */
} td_cgroup;

/* The tightest limits of this process's group and the groups above it. `root` goes before /proc and /sys ("" but in tests).
 * What cannot be read counts as no limit: outside containers these files may be missing. */
td_cgroup td_cgroup_read(const char *root);

#endif
