/* Threads of the library: they take no signals, so that one which interrupts training finds a thread of the program's own,
 * such as the one that waits for the step. */
#ifndef TANDEM_BASE_THREAD_H
#define TANDEM_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create with default attributes: 0, or the error number. */
int td_thread_create(pthread_t *out_thread, void *(*run)(void *argument), void *argument);

/* For a thread that waits most of the time and is to run as soon as it need not, however busy the cores are: asks the system for the
 * shortest time slices, 0.1 ms, which makes it let the thread in before those that compute (Linux 6.12 and later; others change nothing),
 * and to end its sleep at the time it named rather than the usual 50 us later. A refusal costs precision only. */
void td_thread_run_soon(void);

/* For a thread that works ahead of need: it takes its share of the cores, but when it wakes up it interrupts nobody (SCHED_BATCH). A thread of
 * another policy than the usual one keeps that. */
void td_thread_run_aside(void);

/* For a program that has nothing else to do meanwhile, such as one that reads a long file: how many further threads it has cores
 * for, at most TD_MOST_HELPERS. Training has teams instead (base/team.h). */
enum { TD_MOST_HELPERS = 7 };
int td_thread_helpers(void);
/* Runs the same function on this thread and on so many more, and waits for all: for pieces of work that they take from a counter in
 * `argument`, whichever of them come to be. */
void td_thread_share(void *(*run)(void *argument), void *argument, int helpers);

#endif
