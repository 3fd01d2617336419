/* What started this process, where that decides what a job may do. Not where a job's ranks are: that is ps/comm.h's. */
#pragma once
#include <stdbool.h>

/* Whether the launcher leaves the other ranks alone when one is lost: mpirun --enable-recovery. Open MPI 4.1 says so in each rank's
 * environment; mpirun 5.0 tells its processes nothing, so its own command line is looked at, which only ranks of its host can
 * see: one of them that knows is enough (td_job_options.recover). */
bool td_launcher_leaves_others(void);
/* Whether what a rank writes to a descriptor (1 or 2) ends on a terminal: a launcher gives its ranks one of their own, wherever its own
 * output goes. On other hosts than its own nobody can see, and it does not. */
bool td_launcher_shows(int descriptor);
