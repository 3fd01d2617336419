/* A device for tests, as a shared object: memory of its own, reference kernels, and things that no real device has.
 *
 *     partner:without=OP     it does not support OP
 *     partner:meet=OP        OP waits until as many of them run at once as `parties` says, on whatever devices of this library
 *     partner:parties=N      2 if not said
 *     partner:fail=OP        OP fails, from its run number `after` + 1 on, as on a device that is lost
 *     partner:after=N        0 if not said
 *     partner:allocations=N  its N-th allocation and all after it fail; 0: none does
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

enum { OP_NAME = 32, DEADLINE_S = 60, CAPACITY = 16 << 20 };

struct td_device {
    const td_host_services *host;
    char without[OP_NAME], meet[OP_NAME], fail[OP_NAME];
    int parties, after, allocations;
    int failing_runs; /* of the op that fails, so far; its runs come from one queue */
};

struct td_kernel {
    td_status *(*run)(const td_kernel_call *call);
    bool meets, fails;
};

#include "tests/plugins/at_once.h"

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

static bool is_key(const char *pair, size_t bytes, const char *name)
{
    return bytes == strlen(name) && strncmp(pair, name, bytes) == 0;
}

static bool read_option(td_device *device, const char *pair, size_t bytes)
{
    const char *value = memchr(pair, '=', bytes);
    size_t key = value ? (size_t)(value++ - pair) : 0, length = bytes - key - 1;
    if (!value || length >= OP_NAME)
        return false;
    int *number = is_key(pair, key, "parties")       ? &device->parties
                  : is_key(pair, key, "after")       ? &device->after
                  : is_key(pair, key, "allocations") ? &device->allocations
                                                     : NULL;
    if (number)
        *number = atoi(value);
    char *target = is_key(pair, key, "without") ? device->without
                   : is_key(pair, key, "meet")  ? device->meet
                   : is_key(pair, key, "fail")  ? device->fail
                                                : NULL;
    if (target)
        memcpy(target, value, length);
    return target || (number && *number >= 0 && device->parties > 0);
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
            return FAIL(host, INVALID_ARGUMENT,
                        "partner: options are without=OP, meet=OP, parties=N, fail=OP, after=N, allocations=N");
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
    bool full = device->allocations == 1;
    device->allocations -= device->allocations > 1;
    *out_memory = full ? NULL : device->host->allocate(bytes ? bytes : 1);
    return *out_memory ? NULL : FAIL(device->host, OUT_OF_MEMORY, "partner: out of memory");
}

/* ---- kernels -------------------------------------------------------------------------------------------------------------------- */

static td_status *kernel_prepare(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes)
{
    *out_scratch_bytes = 0;
    *out_kernel = device->host->allocate(sizeof **out_kernel);
    if (!*out_kernel)
        return out_of_memory(device);
    **out_kernel = (td_kernel){device->host->reference_kernel(call->op), strcmp(call->op, device->meet) == 0,
                               strcmp(call->op, device->fail) == 0};
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
    if (kernel->fails && queue->device->failing_runs++ >= queue->device->after)
        return FAIL(queue->device->host, INTERNAL, "partner: the device is lost");
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
    AT_ONCE_SLOTS,
    .kernel_prepare = kernel_prepare,
    .kernel_release = kernel_release,
    .kernel_run = kernel_run,
};

const td_backend_api *td_backend_entry(void);
const td_backend_api *td_backend_entry(void)
{
    return &api;
}
