/* What the test devices share: memory that is the host's own without the engine knowing, and queues whose submissions have ended
 * when they return, so that no event is ever pending. Include it once, after `struct td_device`, whose member `host` it uses. */
#ifndef TANDEM_TESTS_PLUGINS_AT_ONCE_H
#define TANDEM_TESTS_PLUGINS_AT_ONCE_H

#include <string.h>

#include "tandem/backend.h"

enum { INVALID_ARGUMENT = 1, OUT_OF_MEMORY = 2, INTERNAL = 9 }; /* of tandem/status.h; the ABI fixes their numbers */

#define FAIL(host, code, message) (host)->fail((code), __FILE__, __LINE__, (message))

struct td_queue {
    td_device *device;
};

struct td_event {
    td_device *device;
};

static td_status *out_of_memory(const td_device *device)
{
    return FAIL(device->host, OUT_OF_MEMORY, "a device for tests: out of memory");
}

static td_status *queue_open(td_device *device, const td_queue_options *options, td_queue **out_queue)
{
    (void)options;
    *out_queue = device->host->allocate(sizeof **out_queue);
    if (!*out_queue)
        return out_of_memory(device);
    (*out_queue)->device = device;
    return NULL;
}

static void queue_close(td_queue *queue)
{
    queue->device->host->release(queue);
}

static td_status *copy(td_queue *queue, void *destination, const void *source, size_t bytes)
{
    (void)queue;
    if (bytes)
        memcpy(destination, source, bytes);
    return NULL;
}

static void release(td_device *device, void *memory)
{
    device->host->release(memory);
}

static td_status *event_create(td_device *device, td_event **out_event)
{
    *out_event = device->host->allocate(sizeof **out_event);
    if (!*out_event)
        return out_of_memory(device);
    (*out_event)->device = device;
    return NULL;
}

static void event_destroy(td_event *event)
{
    event->device->host->release(event);
}

static td_status *event_record(td_event *event, td_queue *queue)
{
    (void)event;
    (void)queue;
    return NULL;
}

static td_status *event_wait(td_event *event)
{
    (void)event;
    return NULL;
}

static td_status *queue_wait(td_queue *queue, td_event *event)
{
    (void)queue;
    (void)event;
    return NULL;
}

/* The slots of all that. */
#define AT_ONCE_SLOTS                                                                                                  \
    .release = release, .queue_open = queue_open, .queue_close = queue_close, .copy_to_device = copy,                  \
    .copy_to_host = copy, .event_create = event_create, .event_destroy = event_destroy, .event_record = event_record,  \
    .event_wait = event_wait, .queue_wait = queue_wait

#endif
