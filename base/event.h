/* A gate: a counter that threads raise and others wait on, without a lock. What lanes signal and wait for.
 *
 *     td_gate done;
 *     td_gate_init(&done, 0);
 *     td_gate_post(&done, 1);                        // any thread
 *     if (!td_gate_wait_at_least(&done, step))       // any number of threads
 *         return stopped;
 *
 * Every wait has a stop condition: td_gate_stop ends all waits, now and later, that are not already satisfied. What a
 * thread wrote before it posted is visible to whoever the wait let through. The count may pass 2^32: targets within
 * 2^31 of it are compared as they should be. The gate must outlive every call on it. */
#ifndef TANDEM_BASE_EVENT_H
#define TANDEM_BASE_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct td_gate {
    atomic_uint count;
    atomic_uint changes; /* what sleepers sleep on: moves with every post and stop */
    atomic_uint sleepers;
    atomic_bool stopped;
    int32_t spins;
} td_gate;

typedef enum td_gate_result { TD_GATE_REACHED = 0, TD_GATE_STOPPED, TD_GATE_TIMEOUT } td_gate_result;

/* Count 0. `spins`: how many times a wait looks before it sleeps; 0 where cores are shared, some thousands (tens of
 * microseconds) where the waiter has a core to itself. */
void td_gate_init(td_gate *gate, int32_t spins);
void td_gate_post(td_gate *gate, uint32_t n);
uint32_t td_gate_count(const td_gate *gate);
/* True: the count is at least `target`. False: it is not, and the gate is stopped. */
bool td_gate_wait_at_least(td_gate *gate, uint32_t target);
/* The same, for at most so many nanoseconds. */
td_gate_result td_gate_wait_for(td_gate *gate, uint32_t target, int64_t nanoseconds);
/* Ends all waits, until td_gate_init. */
void td_gate_stop(td_gate *gate);

#endif
