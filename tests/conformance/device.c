/* Runs one kernel on a device through the plug-in ABI, the way the engine does: allocate, copy in, prepare at capacity, run
 * at actual extents, wait, copy out. */
#include <stdio.h>
#include <string.h>

#include "backends/registry.h"
#include "base/memory.h"
#include "tests/conformance/conformance.h"

td_status *device_open(const char *spec, conformance_device *out)
{
    char *name = NULL, *options = NULL;
    *out = (conformance_device){0};
    td_backend_set_reference(td_op_reference);
    TD_TRY(td_backend_split(spec, &name, &options));
    td_status *status = td_backend_find(name, &out->api);
    if (!status)
        status = out->api->device_open(td_backend_host(), options, &out->device);
    out->exact = strcmp(name, "cpu") == 0 || strcmp(name, "emulated") == 0;
    out->tolerance = 1e-4;
    td_free(name);
    td_free(options);
    return status;
}

void device_deinit(conformance_device *device)
{
    if (device->device)
        device->api->device_close(device->device);
    *device = (conformance_device){0};
}

/* Headers at capacity (extents NULL) or actual extents, with the device's addresses where there are any. */
static td_kernel_call make_call(const built_case *built, const int64_t *extents, const argument *inputs,
                                int32_t n_inputs, const argument *outputs, int32_t n_outputs, td_tensor *tensors)
{
    const td_node *node = &built->graph->nodes[built->node];
    for (int32_t i = 0; i < n_inputs + n_outputs; i++) {
        const int32_t value = i < n_inputs ? node->inputs[i] : node->outputs[i - n_inputs];
        tensors[i] = (td_tensor){0};
        if (value < 0)
            continue;
        td_value_tensor(built->graph, value, extents, &tensors[i]);
        const argument *a = !inputs ? NULL : i < n_inputs ? &inputs[i] : &outputs[i - n_inputs];
        if (a) {
            tensors[i].data = a->tensor.data;
            tensors[i].index = a->tensor.index;
            tensors[i].count = a->tensor.count;
        }
    }
    return (td_kernel_call){.struct_size = sizeof(td_kernel_call),
                            .op = node->op->name,
                            .name = node->name,
                            .attrs = node->attrs,
                            .inputs = tensors,
                            .outputs = tensors + n_inputs,
                            .n_attrs = node->n_attrs,
                            .n_inputs = n_inputs,
                            .n_outputs = n_outputs};
}

bool device_supports(const conformance_device *device, const built_case *built, char *reason, size_t reason_bytes)
{
    const td_node *node = &built->graph->nodes[built->node];
    td_tensor tensors[2 * MAX_ARGUMENTS];
    td_kernel_call call = make_call(built, NULL, NULL, node->n_inputs, NULL, node->n_outputs, tensors);
    reason[0] = 0;
    return device->api->supports(device->device, &call, reason, reason_bytes);
}

/* What one run holds on the device. */
typedef struct run {
    const conformance_device *device;
    td_queue *compute, *in, *out;
    td_event *event;
    td_kernel *kernel;
    void *scratch;
    size_t scratch_bytes;
    argument inputs[MAX_ARGUMENTS], outputs[MAX_ARGUMENTS];
} run;

static void **pointer_of(td_tensor *t, int k)
{
    return k == 0 ? &t->data : k == 1 ? &t->index : &t->count;
}

static td_status *wait_for(run *r, td_queue *queue)
{
    TD_TRY(r->device->api->event_record(r->event, queue));
    return r->device->api->event_wait(r->event);
}

static td_status *place(run *r, const argument *host, argument *out)
{
    *out = *host;
    out->tensor.data = out->tensor.index = out->tensor.count = NULL;
    if (host->tensor.kind == TD_NONE)
        return NULL;
    if (host->tensor.kind == TD_SCALAR) {
        out->tensor.data = host->tensor.data;
        return NULL;
    }
    for (int k = 0; k < 3; k++) {
        const size_t bytes = (size_t)host->bytes[k] + (k == 0 ? 64 : 0);
        if (!bytes)
            continue;
        TD_TRY(r->device->api->allocate(r->device->device, bytes, pointer_of(&out->tensor, k)));
        TD_TRY(r->device->api->copy_to_device(r->in, *pointer_of(&out->tensor, k),
                                              *pointer_of((td_tensor *)(uintptr_t)&host->tensor, k), bytes));
    }
    return NULL;
}

static td_status *fetch(run *r, argument *device, argument *host)
{
    for (int k = 0; k < 3 && host->tensor.kind != TD_NONE; k++) {
        const size_t bytes = (size_t)host->bytes[k] + (k == 0 ? 64 : 0);
        if (*pointer_of(&device->tensor, k) && bytes)
            TD_TRY(r->device->api->copy_to_host(r->out, *pointer_of(&host->tensor, k), *pointer_of(&device->tensor, k),
                                                bytes));
    }
    return NULL;
}

static td_status *open_queue(run *r, td_queue_kind kind, int32_t threads, td_queue **out)
{
    const td_queue_options options = {.struct_size = sizeof options, .kind = kind, .threads = threads};
    return r->device->api->queue_open(r->device->device, &options, out);
}

static td_status *run_all(run *r, const built_case *built, const int64_t *extents, int32_t threads,
                          int32_t shared_output, int32_t shared_input, arguments *a)
{
    const td_backend_api *api = r->device->api;
    td_tensor tensors[2 * MAX_ARGUMENTS];
    TD_TRY(open_queue(r, TD_QUEUE_COMPUTE, threads, &r->compute));
    TD_TRY(open_queue(r, TD_QUEUE_TO_DEVICE, 0, &r->in));
    TD_TRY(open_queue(r, TD_QUEUE_TO_HOST, 0, &r->out));
    TD_TRY(api->event_create(r->device->device, &r->event));
    for (int32_t i = 0; i < a->n_inputs; i++)
        TD_TRY(place(r, &a->inputs[i], &r->inputs[i]));
    for (int32_t i = 0; i < a->n_outputs; i++)
        TD_TRY(place(r, &a->outputs[i], &r->outputs[i]));
    TD_TRY(wait_for(r, r->in));
    td_kernel_call call = make_call(built, NULL, NULL, a->n_inputs, NULL, a->n_outputs, tensors);
    TD_TRY(api->kernel_prepare(r->device->device, &call, &r->kernel, &r->scratch_bytes));
    TD_TRY(api->allocate(r->device->device, r->scratch_bytes + 64, &r->scratch));
    call = make_call(built, extents, r->inputs, a->n_inputs, r->outputs, a->n_outputs, tensors);
    if (shared_output >= 0)
        tensors[a->n_inputs + shared_output].data = tensors[shared_input].data;
    call.scratch = r->scratch;
    call.scratch_bytes = r->scratch_bytes;
    TD_TRY(api->kernel_run(r->compute, r->kernel, &call));
    TD_TRY(wait_for(r, r->compute));
    for (int32_t i = 0; i < a->n_inputs; i++)
        if (a->inputs[i].written)
            TD_TRY(fetch(r, &r->inputs[i], &a->inputs[i]));
    for (int32_t i = 0; i < a->n_outputs; i++)
        TD_TRY(fetch(r, i == shared_output ? &r->inputs[shared_input] : &r->outputs[i], &a->outputs[i]));
    return wait_for(r, r->out);
}

static void give_back(run *r, argument *a)
{
    for (int k = 0; k < 3 && a->tensor.kind != TD_SCALAR; k++)
        if (*pointer_of(&a->tensor, k))
            r->device->api->release(r->device->device, *pointer_of(&a->tensor, k));
}

td_status *device_run(const conformance_device *device, const built_case *built, const int64_t *extents,
                      int32_t threads, int32_t shared_output, int32_t shared_input, arguments *a)
{
    const td_backend_api *api = device->api;
    run r = {.device = device};
    td_status *status = run_all(&r, built, extents, threads, shared_output, shared_input, a);
    td_queue *queues[3] = {r.compute, r.in, r.out};
    for (int i = 0; i < 3; i++)
        if (queues[i])
            api->queue_close(queues[i]);
    if (r.kernel)
        api->kernel_release(device->device, r.kernel);
    if (r.event)
        api->event_destroy(r.event);
    if (r.scratch)
        api->release(device->device, r.scratch);
    for (int32_t i = 0; i < a->n_inputs; i++)
        give_back(&r, &r.inputs[i]);
    for (int32_t i = 0; i < a->n_outputs; i++)
        give_back(&r, &r.outputs[i]);
    return status;
}
