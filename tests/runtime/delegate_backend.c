/* A device for tests that takes whole subgraphs over ("compile=1") or runs op by op, with the reference kernels either way.
 * It has memory of its own, so its copies are real. `delegate_runs` counts the subgraphs it ran. */
#include <stdlib.h>
#include <string.h>

#include "tandem/backend.h"

long delegate_runs;

struct td_device {
    const td_host_services *host;
    bool compile;
};
typedef td_status *(*reference)(const td_kernel_call *call);
struct td_kernel {
    const td_host_services *host;
    int32_t n_calls;
    td_kernel_call *calls; /* shapes of each call; arguments come with each run */
};

#include "tests/plugins/at_once.h"

static td_status *device_open(const td_host_services *host, const char *options, td_device **out_device)
{
    *out_device = calloc(1, sizeof **out_device);
    if (!*out_device)
        return FAIL(host, OUT_OF_MEMORY, "delegate: out of memory");
    (*out_device)->host = host;
    (*out_device)->compile = strcmp(options, "compile=1") == 0;
    return NULL;
}

static void device_close(td_device *device)
{
    free(device);
}

static void device_properties(td_device *device, td_device_properties *out)
{
    (void)device;
    size_t struct_size = out->struct_size;
    td_device_properties properties = {.struct_size = struct_size, .memory_bytes = 64 << 20, .link_bytes_per_s = 1e9};
    memcpy(out, &properties, struct_size < sizeof properties ? struct_size : sizeof properties);
}

static bool supports(td_device *device, const td_kernel_call *call, char *reason, size_t reason_bytes)
{
    (void)reason;
    (void)reason_bytes;
    return device->host->reference_kernel(call->op) != NULL;
}

static td_status *allocate(td_device *device, size_t bytes, void **out_memory)
{
    *out_memory = device->host->allocate(bytes);
    return *out_memory ? NULL : out_of_memory(device);
}

static td_status *make_kernel(td_device *device, const td_kernel_call *calls, int32_t n_calls, td_kernel **out_kernel)
{
    td_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || !(kernel->calls = calloc((size_t)n_calls, sizeof *calls))) {
        free(kernel);
        return out_of_memory(device);
    }
    kernel->host = device->host;
    kernel->n_calls = n_calls;
    memcpy(kernel->calls, calls, (size_t)n_calls * sizeof *calls);
    *out_kernel = kernel;
    return NULL;
}

static td_status *kernel_prepare(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes)
{
    *out_scratch_bytes = 0;
    return make_kernel(device, call, 1, out_kernel);
}

static void kernel_release(td_device *device, td_kernel *kernel)
{
    (void)device;
    if (kernel)
        free(kernel->calls);
    free(kernel);
}

static td_status *kernel_run(td_queue *queue, td_kernel *kernel, const td_kernel_call *call)
{
    const td_tensor *inputs = call->inputs, *outputs = call->outputs;
    if (strcmp(call->op, "subgraph") != 0)
        return queue->device->host->reference_kernel(call->op)(call);
    __atomic_add_fetch(&delegate_runs, 1, __ATOMIC_RELAXED);
    for (int32_t i = 0; i < kernel->n_calls; i++) {
        td_kernel_call one = kernel->calls[i];
        one.inputs = inputs;
        one.outputs = outputs;
        inputs += one.n_inputs;
        outputs += one.n_outputs;
        if (strcmp(one.op, "reshape") == 0)
            continue; /* a view: its output is its input's memory */
        td_status *status = queue->device->host->reference_kernel(one.op)(&one);
        if (status)
            return status;
    }
    return NULL;
}

static td_status *compile_subgraph(td_device *device, const td_kernel_call *calls, int32_t n_calls,
                                   td_kernel **out_kernel, size_t *out_scratch_bytes)
{
    *out_kernel = NULL;
    *out_scratch_bytes = 0;
    return device->compile ? make_kernel(device, calls, n_calls, out_kernel) : NULL;
}

static const td_backend_api api = {
    .struct_size = sizeof api,
    .abi_major = TD_BACKEND_ABI_MAJOR,
    .abi_minor = TD_BACKEND_ABI_MINOR,
    .name = "delegate",
    .summary = "takes whole subgraphs over, for tests",
    .device_open = device_open,
    .device_close = device_close,
    .device_properties = device_properties,
    .supports = supports,
    .allocate = allocate,
    AT_ONCE_SLOTS,
    .kernel_prepare = kernel_prepare,
    .kernel_release = kernel_release,
    .kernel_run = kernel_run,
    .compile_subgraph = compile_subgraph,
};

__attribute__((visibility("default"))) const td_backend_api *td_backend_entry(void)
{
    return &api;
}
