/* What the files of the emulated device share. Not for others. */
#ifndef TANDEM_BACKENDS_EMULATED_DEVICE_H
#define TANDEM_BACKENDS_EMULATED_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "backends/cpu/engine.h"
#include "backends/space.h"

enum { TD_EMULATED_MESSAGE_BYTES = 512 };

/* The last error of work on the device. Failures are numbered from 1; a queue or an event remembers which one it is
 * affected by, so that whoever waits hears of it, also through a chain of queues. Under the device's lock but `reported`. */
typedef struct td_emulated_failure {
    uint32_t id;
    td_code code;
    char message[TD_EMULATED_MESSAGE_BYTES];
    atomic_uint reported; /* the newest failure that an event_wait returned: work goes on after it */
} td_emulated_failure;

struct td_device {
    td_cpu_engine engine;
    td_space space;
    int32_t cores, lanes;
    double link_bytes_per_s, link_latency_s;
    atomic_uint_fast64_t copied_to_device, copied_to_host; /* bytes so far */
    pthread_mutex_t lock;
    td_emulated_failure failure;
    td_event *free_events;
};

/* Recorded and completed count records of the event; it is signalled while they are equal. */
struct td_event {
    atomic_uint recorded;
    atomic_uint completed; /* also the futex that waiters sleep on */
    atomic_uint waiters;
    atomic_uint failure; /* of the work before the newest completed record; 0: none */
    td_device *device;
    td_event *next; /* of the destroyed ones */
};

/* A kernel keeps its own copy of the attributes, because submissions outlive the caller's. */
struct td_kernel {
    td_cpu_prepared *prepared;
    char *op, *name;
    td_attr *attrs;
    int32_t n_attrs;
};

/* Device addresses are host addresses with this bit flipped, which no pointer of a process has: touching one on the host,
 * or a host address in a kernel, traps. */
#define TD_EMULATED_BIT ((uintptr_t)1 << 55)
static inline void *td_emulated_flip(const void *pointer)
{
    return pointer ? (void *)((uintptr_t)pointer ^ TD_EMULATED_BIT) : NULL;
}

td_status *td_event_create(td_device *device, td_event **out_event) TD_MUST_USE;
void td_event_destroy(td_event *event);
void td_event_free_all(td_device *device); /* the destroyed ones */
void td_event_complete(td_event *event, unsigned record, unsigned failure);
/* Blocks until the record, or a newer one, has completed. */
void td_event_wait_for(td_event *event, unsigned record);

#endif
