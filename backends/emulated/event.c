/* Events of the emulated device: two counters of records, and a futex for those who wait. */
#include "backends/emulated/device.h"
#include "base/futex.h"
#include "base/memory.h"

/* Whether `completed` has reached `record`; both run on for ever. */
static bool has_reached(unsigned completed, unsigned record)
{
    return (int)(completed - record) >= 0;
}

void td_event_complete(td_event *event, unsigned record, unsigned failure)
{
    unsigned completed = atomic_load(&event->completed);
    /* A newer record, on another queue, may have completed before this one: then it has the say. */
    if (has_reached(completed, record))
        return;
    atomic_store(&event->failure, failure);
    while (!has_reached(completed, record) && !atomic_compare_exchange_weak(&event->completed, &completed, record))
        ;
    /* From here on the event may have been destroyed already, which keeps its memory (td_event_create). */
    if (atomic_load(&event->waiters))
        td_futex_wake_all(&event->completed);
}

void td_event_wait_for(td_event *event, unsigned record)
{
    unsigned completed = atomic_load(&event->completed);
    if (has_reached(completed, record))
        return;
    atomic_fetch_add(&event->waiters, 1);
    while (!has_reached(completed = atomic_load(&event->completed), record))
        td_futex_wait(&event->completed, completed, -1);
    atomic_fetch_sub(&event->waiters, 1);
}

/* Whoever waits for an event may destroy it as soon as it is signalled, while the queue that signals it still looks for
 * others to wake. So destroyed events keep their memory until the device is closed, and serve again. */
td_status *td_event_create(td_device *device, td_event **out_event)
{
    *out_event = NULL;
    pthread_mutex_lock(&device->lock);
    td_event *event = device->free_events;
    if (event)
        device->free_events = event->next;
    pthread_mutex_unlock(&device->lock);
    if (!event)
        TD_TRY(TD_NEW(event, 1));
    event->device = device;
    atomic_store(&event->failure, 0);
    *out_event = event;
    return NULL;
}

void td_event_destroy(td_event *event)
{
    if (!event)
        return;
    pthread_mutex_lock(&event->device->lock);
    event->next = event->device->free_events;
    event->device->free_events = event;
    pthread_mutex_unlock(&event->device->lock);
}

void td_event_free_all(td_device *device)
{
    while (device->free_events) {
        td_event *next = device->free_events->next;
        td_free(device->free_events);
        device->free_events = next;
    }
}
