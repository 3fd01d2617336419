/* The cpu device: the host's memory, and its cores in teams.
 *
 * A compute queue owns a team of threads; kernels run on the calling thread and that team and have ended when kernel_run
 * returns, so errors come from there and events have nothing to wait for. The calling thread counts as the team's first
 * thread; whoever runs a queue binds it (base/team.h). */
#include <stdio.h>
#include <string.h>

#include "backends/cpu/engine.h"
#include "backends/options.h"
#include "backends/space.h"
#include "base/cores.h"
#include "base/memory.h"

struct td_device {
    td_cpu_engine engine;
    td_space space;
    int32_t cores, lanes;
};

struct td_queue {
    td_device *device;
    td_queue_kind kind;
    td_team *team;
};

struct td_event {
    td_device *device;
};

/* ---- device ------------------------------------------------------------------------------------------------------------ */

static td_status *allowed_cores(int32_t *out_count)
{
    td_core_set allowed;
    TD_TRY(td_cores_allowed(&allowed));
    *out_count = td_core_set_count(&allowed);
    return NULL;
}

static td_status *configure(td_device *device, const td_host_services *host, const char *options)
{
    uint64_t memory = 0;
    int32_t gemm = TD_GEMM_TILES;
    device->lanes = 1;
    TD_TRY(allowed_cores(&device->cores));
    const td_option table[] = {
        {.key = "memory", .type = TD_OPTION_BYTES, .target = &memory},
        {.key = "cores", .type = TD_OPTION_INT, .target = &device->cores, .least = 1},
        {.key = "lanes", .type = TD_OPTION_INT, .target = &device->lanes, .least = 1},
        {.key = "gemm", .type = TD_OPTION_CHOICE, .target = &gemm, .choices = td_gemm_kind_names},
    };
    TD_TRY(td_options_parse("cpu", options, table, (int32_t)(sizeof table / sizeof table[0])));
    TD_TRY(td_cpu_engine_init(&device->engine, host, (td_gemm_kind)gemm));
    td_space_init(&device->space, "cpu", memory);
    return NULL;
}

static td_status *device_open(const td_host_services *host, const char *options, td_device **out_device)
{
    *out_device = NULL;
    td_device *device = NULL;
    TD_TRY(TD_NEW(device, 1));
    td_status *status = configure(device, host, options);
    if (status) {
        td_free(device);
        return status;
    }
    *out_device = device;
    return NULL;
}

static void device_close(td_device *device)
{
    td_space_deinit(&device->space);
    td_free(device);
}

static void device_properties(td_device *device, td_device_properties *out_properties)
{
    size_t struct_size = out_properties->struct_size;
    td_device_properties properties = {
        .struct_size = struct_size,
        .memory_bytes = device->space.capacity,
        .flags = TD_DEVICE_HOST_MEMORY,
        .flops_per_s = td_cpu_engine_flops_per_s(&device->engine, device->cores),
        .memory_bytes_per_s = TD_CPU_MEMORY_BYTES_PER_S,
        .cores = device->cores,
        .lanes = device->lanes,
    };
    td_cpu_engine_describe(&device->engine, properties.description, sizeof properties.description);
    memcpy(out_properties, &properties, struct_size < sizeof properties ? struct_size : sizeof properties);
}

static bool supports(td_device *device, const td_kernel_call *call, char *reason, size_t reason_bytes)
{
    return td_cpu_engine_supports(&device->engine, call, reason, reason_bytes);
}

static td_status *allocate(td_device *device, size_t bytes, void **out_memory)
{
    return td_space_allocate(&device->space, bytes, out_memory);
}

static void release(td_device *device, void *memory)
{
    td_space_release(&device->space, memory);
}

static void memory_in_use(td_device *device, uint64_t *out_now, uint64_t *out_peak)
{
    *out_now = atomic_load(&device->space.now);
    *out_peak = atomic_load(&device->space.peak);
}

/* ---- queues, copies, events ---------------------------------------------------------------------------------------------- */

static td_status *queue_open(td_device *device, const td_queue_options *options, td_queue **out_queue)
{
    *out_queue = NULL;
    td_queue *queue = NULL;
    TD_TRY(TD_NEW(queue, 1));
    queue->device = device;
    queue->kind = options->kind;
    int32_t threads = options->threads > 0 ? options->threads : options->n_cores > 0 ? options->n_cores : device->cores;
    td_status *status = NULL;
    if (queue->kind == TD_QUEUE_COMPUTE)
        status = td_team_create(threads, options->cores, options->n_cores, &queue->team);
    td_team_allow_spinning(queue->team, !(options->flags & TD_QUEUE_SHARES_CORES));
    if (status) {
        td_free(queue);
        return status;
    }
    *out_queue = queue;
    return NULL;
}

static void queue_close(td_queue *queue)
{
    if (!queue)
        return;
    td_team_destroy(queue->team);
    td_free(queue);
}

static td_status *copy(td_queue *queue, void *destination, const void *source, size_t bytes)
{
    (void)queue;
    if (bytes)
        memmove(destination, source, bytes);
    return NULL;
}

static td_status *event_create(td_device *device, td_event **out_event)
{
    *out_event = NULL;
    TD_TRY(TD_NEW(*out_event, 1));
    (*out_event)->device = device;
    return NULL;
}

static void event_destroy(td_event *event)
{
    td_free(event);
}

/* All that was submitted before has ended. */
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

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

/* The handle is the engine's prepared kernel itself. */
static td_status *kernel_prepare(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes)
{
    td_cpu_prepared *prepared = NULL;
    *out_kernel = NULL;
    TD_TRY(td_cpu_engine_prepare(&device->engine, call, &prepared, out_scratch_bytes));
    *out_kernel = (td_kernel *)prepared;
    return NULL;
}

static void kernel_release(td_device *device, td_kernel *kernel)
{
    (void)device;
    td_cpu_engine_release((td_cpu_prepared *)kernel);
}

static td_status *kernel_run(td_queue *queue, td_kernel *kernel, const td_kernel_call *call)
{
    if (queue->kind != TD_QUEUE_COMPUTE)
        return TD_ERROR(TD_INTERNAL, "cpu: %s was submitted to a copy queue", call->op);
    return td_cpu_engine_run((td_cpu_prepared *)kernel, call, queue->team);
}

extern const td_backend_api td_backend_cpu;
const td_backend_api td_backend_cpu = {
    .struct_size = sizeof td_backend_cpu,
    .abi_major = TD_BACKEND_ABI_MAJOR,
    .abi_minor = TD_BACKEND_ABI_MINOR,
    .name = "cpu",
    .summary = "the host: its memory and its cores",
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
