/* Which ranks of this job have not come to MPI, as far as a host can see while MPI waits for them: its own processes say in their
 * environments which rank of which job they are, and a thread's name that they wait in MPI. Ranks of other hosts it cannot see. */
#ifndef TANDEM_PS_ABSENT_H
#define TANDEM_PS_ABSENT_H

/* What the thread that starts MPI calls itself. */
#define TD_COMM_THREAD "tandem ranks"

/* "rank 1 (process 4711, sleep) has not come"; where none such is to be seen, how many ranks have no process on this host: they may be
 * on others. NULL: all have come, or nothing can be seen. The caller frees it (td_free). */
char *td_absent_ranks(void);

#endif
