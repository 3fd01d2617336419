/* What the tests of devices share: the devices, one opened with its queues, moving bytes, and two kernels that nobody else has. */
#ifndef TANDEM_TESTS_BACKENDS_DEVICE_BENCH_H
#define TANDEM_TESTS_BACKENDS_DEVICE_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backends/registry.h"
#include "tandem/status.h"
#include "where.h"

/* ---- the devices under test ------------------------------------------------------------------------------------------------ */

typedef struct case_of {
    const char *name, *backend, *options;
    uint32_t flags; /* of its queues */
} case_of;

static const case_of cases[] = {
    {"cpu", "cpu", "memory=1MiB,cores=2", 0},
    {"emulated", "emulated", "memory=1MiB,cores=2,link=100GB/s,latency=0us", 0},
    {"emulated, slow link", "emulated", "memory=1MiB,link=1GB/s,latency=20us", 0},
    {"emulated, submitters wait", "emulated", "memory=1MiB,cores=2,link=1GB/s,latency=20us", TD_QUEUE_SUBMITTER_WAITS},
#ifdef TD_SAMPLE_PLUGIN
    {"sample plugin", TD_SAMPLE_PLUGIN, "memory=1MiB", 0},
#endif
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef struct bench {
    const td_backend_api *api;
    td_device *device;
    td_queue *compute, *up, *down;
    uint32_t flags;
} bench;

static inline td_status *failing_kernel(const td_kernel_call *call)
{
    (void)call;
    return TD_ERROR(TD_DATA_ERROR, "an id is outside its table");
}

/* y = x * scalar, to see scalar arguments and plain extents. */
static inline td_status *scaling_kernel(const td_kernel_call *call)
{
    const float *x = call->inputs[0].data, *factor = call->inputs[1].data;
    float *y = call->outputs[0].data;
    for (int64_t i = 0; i < call->outputs[0].dims[0]; i++)
        y[i] = x[i] * factor[0];
    return NULL;
}

static inline td_status *(*find_reference(const char *op))(const td_kernel_call *call)
{
    if (strcmp(op, "test_failing") == 0)
        return failing_kernel;
    if (strcmp(op, "test_scaling") == 0)
        return scaling_kernel;
    return NULL;
}

static inline void must(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

static inline void must_fail(td_status *status, td_code code, const char *part)
{
    assert_non_null(status);
    assert_int_equal(td_status_code(status), code);
    if (!strstr(td_status_message(status), part))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), part);
    td_status_destroy(status);
}

static inline td_queue *open_queue(const bench *b, td_queue_kind kind)
{
    td_queue_options options = {.struct_size = sizeof options, .kind = kind, .flags = b->flags};
    td_queue *queue = NULL;
    must(b->api->queue_open(b->device, &options, &queue));
    return queue;
}

static inline bench open_bench(const case_of *which)
{
    bench b = {.flags = which->flags};
    td_backend_set_reference(find_reference);
    must(td_backend_find(which->backend, &b.api));
    must(b.api->device_open(td_backend_host(), which->options, &b.device));
    b.compute = open_queue(&b, TD_QUEUE_COMPUTE);
    b.up = open_queue(&b, TD_QUEUE_TO_DEVICE);
    b.down = open_queue(&b, TD_QUEUE_TO_HOST);
    return b;
}

static inline void close_bench(bench *b)
{
    b->api->queue_close(b->compute);
    b->api->queue_close(b->up);
    b->api->queue_close(b->down);
    b->api->device_close(b->device);
}

static inline void finish(const bench *b, td_queue *queue)
{
    td_event *event = NULL;
    must(b->api->event_create(b->device, &event));
    must(b->api->event_record(event, queue));
    must(b->api->event_wait(event));
    b->api->event_destroy(event);
}

static inline void *allocate(const bench *b, size_t bytes)
{
    void *memory = NULL;
    must(b->api->allocate(b->device, bytes, &memory));
    return memory;
}

static inline void upload(const bench *b, void *device, const void *host, size_t bytes)
{
    must(b->api->copy_to_device(b->up, device, host, bytes));
    finish(b, b->up);
}

static inline void download(const bench *b, void *host, const void *device, size_t bytes)
{
    must(b->api->copy_to_host(b->down, host, device, bytes));
    finish(b, b->down);
}

static inline td_tensor vector(void *data, int64_t n)
{
    return (td_tensor){.kind = TD_DENSE, .dtype = TD_F32, .rank = 1, .dims = {n}, .data = data};
}

typedef struct prepared {
    td_kernel *kernel;
    td_kernel_call call;
} prepared;

static inline prepared prepare(const bench *b, const char *op, const td_tensor *inputs, int32_t n_inputs,
                               const td_tensor *output)
{
    prepared p = {.call = {.struct_size = sizeof p.call,
                           .op = op,
                           .name = "scope/x",
                           .inputs = inputs,
                           .n_inputs = n_inputs,
                           .outputs = output,
                           .n_outputs = 1}};
    size_t scratch = 1;
    char reason[128] = "";
    assert_true(b->api->supports(b->device, &p.call, reason, sizeof reason));
    must(b->api->kernel_prepare(b->device, &p.call, &p.kernel, &scratch));
    assert_int_equal(scratch, 0);
    return p;
}

/* Defines test_<promise>, which asks every device for it. */
#define OVER_ALL(promise)                                                                                              \
    static void test_##promise(void **state)                                                                           \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for (int i = 0; i < N_CASES; i++) {                                                                            \
            print_message("  %s\n", cases[i].name);                                                                    \
            promise(&cases[i]);                                                                                        \
        }                                                                                                              \
    }

#endif
