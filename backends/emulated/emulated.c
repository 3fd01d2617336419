/* The emulated device: an accelerator made of some of the host's cores.
 *
 * It has memory of its own, with a hard capacity and addresses that the host cannot touch; queues that run beside the host;
 * copies that take as long as a stated link makes them take; and it computes with the CPU kernels, so it is exact. What it
 * does not emulate is a speed: a kernel takes what its cores need for it. */
#include "backends/emulated/emulated.h"

#include <stdio.h>
#include <string.h>

#include "backends/emulated/queue.h"
#include "backends/options.h"
#include "base/memory.h"

/* ---- device ------------------------------------------------------------------------------------------------------------ */

static td_status *configure(td_device *device, const td_host_services *host, const char *options)
{
    uint64_t memory = (uint64_t)256 << 20;
    int32_t gemm = TD_GEMM_TILES;
    device->cores = 1;
    device->lanes = 1;
    device->link_bytes_per_s = 12e9; /* PCIe 3.0 with 16 lanes, about */
    device->link_latency_s = 8e-6;
    const td_option table[] = {
        {.key = "memory", .type = TD_OPTION_BYTES, .target = &memory},
        {.key = "cores", .type = TD_OPTION_INT, .target = &device->cores, .least = 1},
        {.key = "link", .type = TD_OPTION_RATE, .target = &device->link_bytes_per_s},
        {.key = "latency", .type = TD_OPTION_SECONDS, .target = &device->link_latency_s},
        {.key = "lanes", .type = TD_OPTION_INT, .target = &device->lanes, .least = 1},
        {.key = "gemm", .type = TD_OPTION_CHOICE, .target = &gemm, .choices = td_gemm_kind_names},
    };
    TD_TRY(td_options_parse("emulated", options, table, (int32_t)(sizeof table / sizeof table[0])));
    if (memory == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "emulated: memory=0: expected its capacity, such as 256MiB");
    TD_TRY(td_cpu_engine_init(&device->engine, host, (td_gemm_kind)gemm));
    td_space_init(&device->space, "emulated", memory);
    return NULL;
}

static td_status *device_open(const td_host_services *host, const char *options, td_device **out_device)
{
    *out_device = NULL;
    td_device *device = NULL;
    TD_TRY(TD_NEW(device, 1));
    td_status *status = configure(device, host, options);
    if (!status && pthread_mutex_init(&device->lock, NULL) != 0) {
        td_space_deinit(&device->space);
        status = TD_ERROR(TD_OUT_OF_MEMORY, "emulated: the system refuses a mutex");
    }
    if (status) {
        td_free(device);
        return status;
    }
    *out_device = device;
    return NULL;
}

static void device_close(td_device *device)
{
    if (!device)
        return;
    td_event_free_all(device);
    td_space_deinit(&device->space);
    (void)pthread_mutex_destroy(&device->lock);
    td_free(device);
}

static void device_properties(td_device *device, td_device_properties *out_properties)
{
    size_t struct_size = out_properties->struct_size;
    td_device_properties properties = {
        .struct_size = struct_size,
        .memory_bytes = device->space.capacity,
        .link_bytes_per_s = device->link_bytes_per_s,
        .link_latency_s = device->link_latency_s,
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

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

static td_status *allocate(td_device *device, size_t bytes, void **out_memory)
{
    *out_memory = NULL;
    void *memory = NULL;
    TD_TRY(td_space_allocate(&device->space, bytes, &memory));
    *out_memory = td_emulated_flip(memory);
    return NULL;
}

static void release(td_device *device, void *memory)
{
    td_space_release(&device->space, td_emulated_flip(memory));
}

static void memory_in_use(td_device *device, uint64_t *out_now, uint64_t *out_peak)
{
    *out_now = atomic_load(&device->space.now);
    *out_peak = atomic_load(&device->space.peak);
}

void td_emulated_copied(td_device *device, uint64_t *out_to_device, uint64_t *out_to_host)
{
    *out_to_device = atomic_load(&device->copied_to_device);
    *out_to_host = atomic_load(&device->copied_to_host);
}

/* ---- events -------------------------------------------------------------------------------------------------------------- */

/* Only the newest failure is kept; an event that an older one affected still reports one. */
static td_status *report_failure(td_device *device, uint32_t id)
{
    td_emulated_failure *failure = &device->failure;
    pthread_mutex_lock(&device->lock);
    td_status *status = TD_ERROR(failure->code, "%s", failure->message);
    if (atomic_load(&failure->reported) < id)
        atomic_store(&failure->reported, id);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static td_status *event_wait(td_event *event)
{
    td_event_wait_for(event, atomic_load(&event->recorded));
    unsigned id = atomic_load(&event->failure);
    return id ? report_failure(event->device, id) : NULL;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

static void destroy_attrs(td_attr *attrs, int32_t n_attrs)
{
    for (int32_t i = 0; attrs && i < n_attrs; i++) {
        td_free((void *)attrs[i].key);
        td_free((void *)attrs[i].s);
        td_free((void *)attrs[i].ints);
    }
    td_free(attrs);
}

static td_status *copy_attr(td_attr *to, const td_attr *from)
{
    *to = *from;
    to->key = td_strdup(from->key);
    to->s = from->s ? td_strdup(from->s) : NULL;
    int64_t *ints = from->n_ints > 0 ? td_calloc((size_t)from->n_ints, sizeof *ints) : NULL;
    to->ints = ints;
    if (ints)
        memcpy(ints, from->ints, (size_t)from->n_ints * sizeof *ints);
    if (!to->key || (from->s && !to->s) || (from->n_ints > 0 && !ints))
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: attributes of a kernel");
    return NULL;
}

static td_status *copy_identity(td_kernel *kernel, const td_kernel_call *call)
{
    kernel->op = td_strdup(call->op);
    kernel->name = td_strdup(call->name ? call->name : "");
    if (!kernel->op || !kernel->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a kernel of %s", call->op);
    if (call->n_attrs <= 0)
        return NULL;
    TD_TRY(TD_NEW(kernel->attrs, call->n_attrs));
    kernel->n_attrs = call->n_attrs;
    for (int32_t i = 0; i < call->n_attrs; i++)
        TD_TRY(copy_attr(&kernel->attrs[i], &call->attrs[i]));
    return NULL;
}

static void kernel_release(td_device *device, td_kernel *kernel)
{
    (void)device;
    if (!kernel)
        return;
    td_cpu_engine_release(kernel->prepared);
    destroy_attrs(kernel->attrs, kernel->n_attrs);
    td_free(kernel->op);
    td_free(kernel->name);
    td_free(kernel);
}

static td_status *kernel_prepare(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes)
{
    *out_kernel = NULL;
    *out_scratch_bytes = 0;
    td_kernel *kernel = NULL;
    TD_TRY(TD_NEW(kernel, 1));
    td_status *status = copy_identity(kernel, call);
    if (!status)
        status = td_cpu_engine_prepare(&device->engine, call, &kernel->prepared, out_scratch_bytes);
    if (status) {
        kernel_release(device, kernel);
        return status;
    }
    *out_kernel = kernel;
    return NULL;
}

const td_backend_api td_backend_emulated = {
    .struct_size = sizeof td_backend_emulated,
    .abi_major = TD_BACKEND_ABI_MAJOR,
    .abi_minor = TD_BACKEND_ABI_MINOR,
    .name = "emulated",
    .summary = "an accelerator made of host cores, with its own memory and a paced link",
    .device_open = device_open,
    .device_close = device_close,
    .device_properties = device_properties,
    .supports = supports,
    .allocate = allocate,
    .release = release,
    .queue_open = td_emulated_queue_open,
    .queue_close = td_emulated_queue_close,
    .copy_to_device = td_emulated_copy_to_device,
    .copy_to_host = td_emulated_copy_to_host,
    .event_create = td_event_create,
    .event_destroy = td_event_destroy,
    .event_record = td_emulated_record,
    .event_wait = event_wait,
    .queue_wait = td_emulated_queue_wait,
    .kernel_prepare = kernel_prepare,
    .kernel_release = kernel_release,
    .kernel_run = td_emulated_kernel_run,
    .memory_in_use = memory_in_use,
    .copy_ranges = td_emulated_copy_ranges,
};
