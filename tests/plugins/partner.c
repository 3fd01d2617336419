/* A device for tests, as a shared object: memory of its own, reference kernels, and two things that no real device has.
 *
 *     partner:without=OP     it does not support OP
 *     partner:meet=OP        OP waits until as many of them run at once as `parties` says, on whatever devices of this library
 *     partner:parties=N      2 if not said
 *
 * A meeting that does not come about within a minute is an error: what proves that two ops ran at the same time must not
 * hang when they do not. Submissions have ended when they return. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tandem/backend.h"

enum { INVALID_ARGUMENT = 1, OUT_OF_MEMORY = 2, INTERNAL = 9, OP_NAME = 32, DEADLINE_S = 60, CAPACITY = 16 << 20 };

struct td_device {
    const td_host_services *host;
    char without[OP_NAME], meet[OP_NAME];
    int parties;
};

struct td_queue {
    td_device *device;
};

struct td_event {
    td_device *device;
};

struct td_kernel {
    td_status *(*run)(const td_kernel_call *call);
    bool meets;
};

#define FAIL(host, code, message) (host)->fail((code), __FILE__, __LINE__, (message))

/* ---- the meeting ------------------------------------------------------------------------------------------------------------ */

static struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int present;
    unsigned round;
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool meet(int parties)
{
    struct timespec deadline;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += DEADLINE_S;
    pthread_mutex_lock(&meeting.lock);
    unsigned round = meeting.round;
    if (++meeting.present == parties) {
        meeting.present = 0;
        meeting.round++;
        pthread_cond_broadcast(&meeting.changed);
    }
    while (round == meeting.round && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&meeting.changed, &meeting.lock, &deadline);
    bool met = round != meeting.round;
    meeting.present -= !met;
    pthread_mutex_unlock(&meeting.lock);
    return met;
}

/* ---- device ------------------------------------------------------------------------------------------------------------------- */

static bool read_option(td_device *device, const char *pair, size_t bytes)
{
    const char *value = memchr(pair, '=', bytes);
    size_t key = value ? (size_t)(value++ - pair) : 0, length = bytes - key - 1;
    if (!value || length >= OP_NAME)
        return false;
    if (key == 7 && strncmp(pair, "parties", key) == 0) {
        device->parties = atoi(value);
        return device->parties > 0;
    }
    char *target = key == 7 && strncmp(pair, "without", key) == 0 ? device->without
                   : key == 4 && strncmp(pair, "meet", key) == 0  ? device->meet
                                                                  : NULL;
    if (target)
        memcpy(target, value, length);
    return target != NULL;
}

static td_status *device_open(const td_host_services *host, const char *options, td_device **out_device)
{
    td_device *device = host->allocate(sizeof *device);
    *out_device = NULL;
    if (!device)
        return FAIL(host, OUT_OF_MEMORY, "partner: out of memory: a device");
    *device = (td_device){.host = host, .parties = 2};
    while (options && *options) {
        size_t bytes = strcspn(options, ",");
        if (!read_option(device, options, bytes)) {
            host->release(device);
            return FAIL(host, INVALID_ARGUMENT, "partner: options are without=OP, meet=OP and parties=N");
        }
        options += bytes + (options[bytes] == ',');
    }
    *out_device = device;
    return NULL;
}

static void device_close(td_device *device)
{
    device->host->release(device);
}

static void device_properties(td_device *device, td_device_properties *out_properties)
{
    (void)device;
    size_t struct_size = out_properties->struct_size;
    td_device_properties properties = {.struct_size = struct_size,
                                       .memory_bytes = CAPACITY,
                                       .link_bytes_per_s = 10e9,
                                       .lanes = 1,
                                       .description = "a device for tests"};
    memcpy(out_properties, &properties, struct_size < sizeof properties ? struct_size : sizeof properties);
}

static bool supports(td_device *device, const td_kernel_call *call, char *reason, size_t reason_bytes)
{
    bool known = device->host->reference_kernel(call->op) && strcmp(call->op, device->without) != 0;
    if (!known && reason && reason_bytes)
        (void)snprintf(reason, reason_bytes, "partner was told to do without %s", call->op);
    return known;
}

static td_status *allocate(td_device *device, size_t bytes, void **out_memory)
{
    *out_memory = device->host->allocate(bytes ? bytes : 1);
    return *out_memory ? NULL : FAIL(device->host, OUT_OF_MEMORY, "partner: out of memory");
}

static void release(td_device *device, void *memory)
{
    device->host->release(memory);
}

/* ---- queues and events: nothing is ever pending --------------------------------------------------------------------------------- */

static td_status *queue_open(td_device *device, const td_queue_options *options, td_queue **out_queue)
{
    (void)options;
    *out_queue = device->host->allocate(sizeof **out_queue);
    if (!*out_queue)
        return FAIL(device->host, OUT_OF_MEMORY, "partner: out of memory: a queue");
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

static td_status *event_create(td_device *device, td_event **out_event)
{
    *out_event = device->host->allocate(sizeof **out_event);
    if (!*out_event)
        return FAIL(device->host, OUT_OF_MEMORY, "partner: out of memory: an event");
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

/* ---- kernels -------------------------------------------------------------------------------------------------------------------- */

static td_status *kernel_prepare(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes)
{
    *out_scratch_bytes = 0;
    *out_kernel = device->host->allocate(sizeof **out_kernel);
    if (!*out_kernel)
        return FAIL(device->host, OUT_OF_MEMORY, "partner: out of memory: a kernel");
    **out_kernel = (td_kernel){device->host->reference_kernel(call->op), strcmp(call->op, device->meet) == 0};
    return NULL;
}

static void kernel_release(td_device *device, td_kernel *kernel)
{
    device->host->release(kernel);
}

static td_status *kernel_run(td_queue *queue, td_kernel *kernel, const td_kernel_call *call)
{
    if (kernel->meets && !meet(queue->device->parties))
        return FAIL(queue->device->host, INTERNAL, "partner: nobody came within a minute");
    return kernel->run(call);
}

static const td_backend_api api = {
    .struct_size = sizeof api,
    .abi_major = TD_BACKEND_ABI_MAJOR,
    .abi_minor = TD_BACKEND_ABI_MINOR,
    .name = "partner",
    .summary = "a device for tests",
    .device_open = device_open,
    .device_close = device_close,
    .device_properties = device_properties,
    .supports = supports,
    .allocate = allocate,
    .release = release,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .copy_to_device = copy,
    .copy_to_host = copy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .queue_wait = queue_wait,
    .kernel_prepare = kernel_prepare,
    .kernel_release = kernel_release,
    .kernel_run = kernel_run,
};

const td_backend_api *td_backend_entry(void);
const td_backend_api *td_backend_entry(void)
{
    return &api;
}
