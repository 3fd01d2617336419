/* A whole backend in one file: the device "mirror".
 *
 * It stands in for an accelerator: memory of its own (here: host memory that the engine is not told about), queues, events
 * and kernels. It computes with the engine's reference kernels, and at once: a submission has ended when it returns. Start
 * from this file to bring a device of your own: replace `allocate`, the copies and `kernel_run`, then make the queues run
 * beside the host. It needs nothing of Tandem but tandem/backend.h.
 *
 *     cc -shared -fPIC -I/usr/local/include mirror.c -o libmirror.so -lpthread
 *     TANDEM_PLUGIN_PATH=. tandem devices */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/backend.h"

/* The codes of tandem/status.h that this backend uses; the ABI fixes their numbers. */
enum { INVALID_ARGUMENT = 1, OUT_OF_MEMORY = 2, UNSUPPORTED = 4 };

struct td_device {
    const td_host_services *host;
    pthread_mutex_t lock; /* of the counters: several queues may allocate */
    uint64_t capacity, now, peak;
};

struct td_queue {
    td_device *device;
};

struct td_event {
    td_device *device;
};

struct td_kernel {
    td_status *(*run)(const td_kernel_call *call);
};

#define FAIL(host, code, message) (host)->fail((code), __FILE__, __LINE__, (message))

/* ---- device -------------------------------------------------------------------------------------------------------------- */

/* "memory=64MiB", the only option. */
static td_status *read_options(const td_host_services *host, const char *options, uint64_t *out_capacity)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1}, {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char message[256];
    *out_capacity = (uint64_t)64 << 20;
    if (!options || !*options)
        return NULL;
    char *end = NULL;
    unsigned long long number = strncmp(options, "memory=", 7) == 0 ? strtoull(options + 7, &end, 10) : 0;
    for (int i = 0; end && end != options + 7 && i < 5; i++) {
        if (strcmp(end, units[i].name) == 0 && number > 0 && number <= UINT64_MAX / units[i].bytes) {
            *out_capacity = number * units[i].bytes;
            return NULL;
        }
    }
    (void)snprintf(message, sizeof message, "mirror: option \"%.100s\": expected memory=BYTES, such as memory=64MiB",
                   options);
    return FAIL(host, INVALID_ARGUMENT, message);
}

static td_status *device_open(const td_host_services *host, const char *options, td_device **out_device)
{
    *out_device = NULL;
    uint64_t capacity = 0;
    td_status *status = read_options(host, options, &capacity);
    if (status)
        return status;
    td_device *device = host->allocate(sizeof *device);
    if (!device)
        return FAIL(host, OUT_OF_MEMORY, "mirror: out of memory: a device");
    *device = (td_device){.host = host, .capacity = capacity};
    (void)pthread_mutex_init(&device->lock, NULL);
    *out_device = device;
    return NULL;
}

static void device_close(td_device *device)
{
    (void)pthread_mutex_destroy(&device->lock);
    device->host->release(device);
}

static void device_properties(td_device *device, td_device_properties *out_properties)
{
    /* An older engine knows fewer fields: write no more than it has room for. */
    size_t struct_size = out_properties->struct_size;
    td_device_properties properties = {
        .struct_size = struct_size,
        .memory_bytes = device->capacity,
        .link_bytes_per_s = 10e9,
        .cores = 0,
        .lanes = 1,
        .description = "reference kernels in memory of its own",
    };
    memcpy(out_properties, &properties, struct_size < sizeof properties ? struct_size : sizeof properties);
}

static bool supports(td_device *device, const td_kernel_call *call, char *reason, size_t reason_bytes)
{
    if (device->host->reference_kernel(call->op))
        return true;
    if (reason && reason_bytes)
        (void)snprintf(reason, reason_bytes, "mirror runs reference kernels, and %s has none", call->op);
    return false;
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

/* The size of a block lies in front of it, in a cache line of its own so that blocks stay aligned to 64 bytes. */
enum { HEADER_BYTES = 64 };

static td_status *allocate(td_device *device, size_t bytes, void **out_memory)
{
    char message[160];
    *out_memory = NULL;
    pthread_mutex_lock(&device->lock);
    uint64_t available = device->capacity - device->now;
    char *block = bytes <= available ? device->host->allocate(bytes + HEADER_BYTES) : NULL;
    if (block) {
        device->now += bytes;
        device->peak = device->now > device->peak ? device->now : device->peak;
    }
    pthread_mutex_unlock(&device->lock);
    if (!block) {
        (void)snprintf(message, sizeof message, "mirror: out of memory: %zu bytes asked for, %llu of %llu free", bytes,
                       (unsigned long long)available, (unsigned long long)device->capacity);
        return FAIL(device->host, OUT_OF_MEMORY, message);
    }
    memcpy(block, &bytes, sizeof bytes);
    *out_memory = block + HEADER_BYTES;
    return NULL;
}

static void release(td_device *device, void *memory)
{
    if (!memory)
        return;
    size_t bytes = 0;
    char *block = (char *)memory - HEADER_BYTES;
    memcpy(&bytes, block, sizeof bytes);
    pthread_mutex_lock(&device->lock);
    device->now -= bytes;
    pthread_mutex_unlock(&device->lock);
    device->host->release(block);
}

static void memory_in_use(td_device *device, uint64_t *out_now, uint64_t *out_peak)
{
    pthread_mutex_lock(&device->lock);
    *out_now = device->now;
    *out_peak = device->peak;
    pthread_mutex_unlock(&device->lock);
}

/* ---- queues and events: nothing is ever pending ------------------------------------------------------------------------------ */

static td_status *queue_open(td_device *device, const td_queue_options *options, td_queue **out_queue)
{
    (void)options;
    *out_queue = device->host->allocate(sizeof **out_queue);
    if (!*out_queue)
        return FAIL(device->host, OUT_OF_MEMORY, "mirror: out of memory: a queue");
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
        return FAIL(device->host, OUT_OF_MEMORY, "mirror: out of memory: an event");
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

/* ---- kernels --------------------------------------------------------------------------------------------------------------- */

static td_status *kernel_prepare(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes)
{
    char message[160];
    *out_kernel = NULL;
    *out_scratch_bytes = 0;
    td_status *(*run)(const td_kernel_call *) = device->host->reference_kernel(call->op);
    if (!run) {
        (void)snprintf(message, sizeof message, "mirror: %.60s has no reference kernel", call->op);
        return FAIL(device->host, UNSUPPORTED, message);
    }
    td_kernel *kernel = device->host->allocate(sizeof *kernel);
    if (!kernel)
        return FAIL(device->host, OUT_OF_MEMORY, "mirror: out of memory: a kernel");
    kernel->run = run;
    *out_kernel = kernel;
    return NULL;
}

static void kernel_release(td_device *device, td_kernel *kernel)
{
    device->host->release(kernel);
}

/* A real device would translate addresses here, and submit. */
static td_status *kernel_run(td_queue *queue, td_kernel *kernel, const td_kernel_call *call)
{
    (void)queue;
    return kernel->run(call);
}

static const td_backend_api api = {
    .struct_size = sizeof api,
    .abi_major = TD_BACKEND_ABI_MAJOR,
    .abi_minor = TD_BACKEND_ABI_MINOR,
    .name = "mirror",
    .summary = "the sample plug-in: reference kernels in memory of its own",
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
    .memory_in_use = memory_in_use,
};

const td_backend_api *td_backend_entry(void);
const td_backend_api *td_backend_entry(void)
{
    return &api;
}
