/* What a device's queues and events promise: copies of any size arrive whole, an event says when they have, and a long chain
 * over three queues (in, compute, out) keeps its order without the host waiting in between. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "tests/conformance/conformance.h"

enum { SOAK_STEPS = 10000, ELEMENTS = 16, RANGES = 7, RANGE_ROOM = 5000 };

typedef struct lanes {
    const td_backend_api *api;
    td_device *device;
    td_queue *in, *compute, *out;
    td_event *arrived, *computed, *left;
    void *x, *y;
    td_kernel *kernel;
    void *scratch;
    size_t scratch_bytes;
    float *from, *to; /* host: SOAK_STEPS x ELEMENTS each */
} lanes;

static td_status *open_queue(lanes *l, td_queue_kind kind, td_queue **out)
{
    const td_queue_options options = {.struct_size = sizeof options, .kind = kind, .threads = 1};
    return l->api->queue_open(l->device, &options, out);
}

static td_status *lanes_init(const conformance_device *device, lanes *l)
{
    *l = (lanes){.api = device->api, .device = device->device};
    TD_TRY(open_queue(l, TD_QUEUE_TO_DEVICE, &l->in));
    TD_TRY(open_queue(l, TD_QUEUE_COMPUTE, &l->compute));
    TD_TRY(open_queue(l, TD_QUEUE_TO_HOST, &l->out));
    td_event **events[3] = {&l->arrived, &l->computed, &l->left};
    for (int i = 0; i < 3; i++)
        TD_TRY(l->api->event_create(l->device, events[i]));
    return NULL;
}

static void lanes_deinit(lanes *l)
{
    td_queue *queues[3] = {l->in, l->compute, l->out};
    td_event *events[3] = {l->arrived, l->computed, l->left};
    void *memory[3] = {l->x, l->y, l->scratch};
    for (int i = 0; i < 3; i++)
        if (queues[i])
            l->api->queue_close(queues[i]);
    for (int i = 0; i < 3; i++) {
        if (events[i])
            l->api->event_destroy(events[i]);
        if (memory[i])
            l->api->release(l->device, memory[i]);
    }
    if (l->kernel)
        l->api->kernel_release(l->device, l->kernel);
    td_free(l->from);
    td_free(l->to);
}

/* ---- copies ------------------------------------------------------------------------------------------------------------------ */

static td_status *copy_there_and_back(lanes *l, unsigned char *host, size_t bytes)
{
    unsigned char *back = host + bytes + 1;
    for (size_t i = 0; i < bytes; i++)
        host[i] = (unsigned char)(i * 131 + bytes);
    memset(back, 0, bytes + 1);
    TD_TRY(l->api->allocate(l->device, bytes, &l->x));
    TD_TRY(l->api->copy_to_device(l->in, l->x, host, bytes));
    TD_TRY(l->api->event_record(l->arrived, l->in));
    TD_TRY(l->api->queue_wait(l->out, l->arrived));
    TD_TRY(l->api->copy_to_host(l->out, back, l->x, bytes));
    TD_TRY(l->api->event_record(l->left, l->out));
    TD_TRY(l->api->event_wait(l->left));
    l->api->release(l->device, l->x);
    l->x = NULL;
    if (memcmp(host, back, bytes) != 0)
        return TD_ERROR(TD_INTERNAL, "a copy of %zu bytes there and back is not what it was", bytes);
    return back[bytes] ? TD_ERROR(TD_INTERNAL, "a copy of %zu bytes wrote more than that", bytes) : NULL;
}

static td_status *check_copies(lanes *l)
{
    static const size_t sizes[] = {1, 3, 63, 64, 65, 4095, 4097, (1u << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *host = td_calloc(2 * sizes[i] + 2, 1);
        if (!host)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a copy");
        td_status *status = copy_there_and_back(l, host, sizes[i]);
        td_free(host);
        TD_TRY(status);
    }
    return NULL;
}

/* All sizes as one list, an empty range among them, and back; each range is followed by a byte that nobody may write. */
static td_status *list_there_and_back(lanes *l, unsigned char *host)
{
    static const size_t sizes[RANGES] = {1, 0, 63, 64, 65, 4097, 3};
    td_copy_range there[RANGES], back[RANGES];
    unsigned char *returned = host + RANGES * RANGE_ROOM;
    TD_TRY(l->api->allocate(l->device, (size_t)RANGES * RANGE_ROOM, &l->x));
    for (int i = 0; i < RANGES; i++) {
        unsigned char *device = (unsigned char *)l->x + i * RANGE_ROOM, *from = host + i * RANGE_ROOM,
                      *to = returned + i * RANGE_ROOM;
        for (size_t k = 0; k < RANGE_ROOM; k++)
            from[k] = (unsigned char)(k * 131 + (size_t)i + 1);
        memset(to, 0xee, RANGE_ROOM);
        there[i] = (td_copy_range){device, from, sizes[i]};
        back[i] = (td_copy_range){to, device, sizes[i]};
    }
    TD_TRY(l->api->copy_ranges(l->in, there, RANGES));
    TD_TRY(l->api->event_record(l->arrived, l->in));
    TD_TRY(l->api->queue_wait(l->out, l->arrived));
    TD_TRY(l->api->copy_ranges(l->out, back, RANGES));
    memset(back, 0, sizeof back); /* the list need not outlive the call */
    TD_TRY(l->api->event_record(l->left, l->out));
    TD_TRY(l->api->event_wait(l->left));
    l->api->release(l->device, l->x);
    l->x = NULL;
    for (int i = 0; i < RANGES; i++)
        if (memcmp(host + i * RANGE_ROOM, returned + i * RANGE_ROOM, sizes[i]) != 0 ||
            returned[(size_t)(i * RANGE_ROOM) + sizes[i]] != 0xee)
            return TD_ERROR(TD_INTERNAL, "range %d of a list, %zu bytes, is not what it was, or wrote more", i,
                            sizes[i]);
    return NULL;
}

static td_status *check_lists(lanes *l)
{
    if (!l->api->copy_ranges)
        return NULL;
    unsigned char *host = td_calloc(2 * RANGES * RANGE_ROOM, 1);
    if (!host)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a list of copies");
    td_status *status = list_there_and_back(l, host);
    td_free(host);
    return status;
}

/* ---- the long chain ------------------------------------------------------------------------------------------------------------ */

static td_kernel_call copy_call(const lanes *l, td_tensor tensors[2], bool bound)
{
    for (int i = 0; i < 2; i++)
        tensors[i] = (td_tensor){.kind = TD_DENSE,
                                 .dtype = TD_F32,
                                 .rank = 1,
                                 .dims = {ELEMENTS},
                                 .data = !bound ? NULL
                                         : i    ? l->y
                                                : l->x};
    return (td_kernel_call){.struct_size = sizeof(td_kernel_call),
                            .op = "copy",
                            .name = "soak",
                            .inputs = tensors,
                            .outputs = tensors + 1,
                            .n_inputs = 1,
                            .n_outputs = 1,
                            .scratch = l->scratch,
                            .scratch_bytes = l->scratch_bytes};
}

static td_status *soak_init(lanes *l)
{
    const size_t bytes = ELEMENTS * sizeof(float);
    td_tensor tensors[2];
    const td_kernel_call call = copy_call(l, tensors, false);
    TD_TRY(TD_NEW(l->from, SOAK_STEPS * ELEMENTS));
    TD_TRY(TD_NEW(l->to, SOAK_STEPS * ELEMENTS));
    for (int i = 0; i < SOAK_STEPS * ELEMENTS; i++)
        l->from[i] = (float)i;
    TD_TRY(l->api->allocate(l->device, bytes, &l->x));
    TD_TRY(l->api->allocate(l->device, bytes, &l->y));
    TD_TRY(l->api->kernel_prepare(l->device, &call, &l->kernel, &l->scratch_bytes));
    return l->api->allocate(l->device, l->scratch_bytes + 1, &l->scratch);
}

/* One step: in, compute, out, each after what it needs, and x and y not before the step before has done with them. */
static td_status *soak_step(lanes *l, int step)
{
    const size_t bytes = ELEMENTS * sizeof(float);
    td_tensor tensors[2];
    const td_kernel_call call = copy_call(l, tensors, true);
    TD_TRY(l->api->queue_wait(l->in, l->computed));
    TD_TRY(l->api->copy_to_device(l->in, l->x, l->from + step * ELEMENTS, bytes));
    TD_TRY(l->api->event_record(l->arrived, l->in));
    TD_TRY(l->api->queue_wait(l->compute, l->arrived));
    TD_TRY(l->api->queue_wait(l->compute, l->left));
    TD_TRY(l->api->kernel_run(l->compute, l->kernel, &call));
    TD_TRY(l->api->event_record(l->computed, l->compute));
    TD_TRY(l->api->queue_wait(l->out, l->computed));
    TD_TRY(l->api->copy_to_host(l->out, l->to + step * ELEMENTS, l->y, bytes));
    return l->api->event_record(l->left, l->out);
}

static td_status *check_soak(lanes *l)
{
    TD_TRY(soak_init(l));
    for (int step = 0; step < SOAK_STEPS; step++)
        TD_TRY(soak_step(l, step));
    TD_TRY(l->api->event_wait(l->left));
    for (int i = 0; i < SOAK_STEPS * ELEMENTS; i++)
        if (l->to[i] != l->from[i])
            return TD_ERROR(TD_INTERNAL, "step %d of the chain gave %g at element %d, expected %g", i / ELEMENTS,
                            (double)l->to[i], i % ELEMENTS, (double)l->from[i]);
    return NULL;
}

td_status *check_queues(const conformance_device *device)
{
    lanes l;
    td_status *status = lanes_init(device, &l);
    if (!status)
        status = td_status_prefix(l.api->event_wait(l.arrived), "a fresh event");
    if (!status)
        status = td_status_prefix(check_copies(&l), "copies");
    if (!status)
        status = td_status_prefix(check_lists(&l), "lists of copies");
    if (!status)
        status = td_status_prefix(check_soak(&l), "%d steps over three queues", SOAK_STEPS);
    lanes_deinit(&l);
    return status;
}
