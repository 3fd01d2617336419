/* Threads of the library: they take no signals, so that one which interrupts training finds a thread of the program's own,
 * such as the one that waits for the step. */
#ifndef TANDEM_BASE_THREAD_H
#define TANDEM_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create with default attributes: 0, or the error number. */
int td_thread_create(pthread_t *out_thread, void *(*run)(void *argument), void *argument);

#endif
