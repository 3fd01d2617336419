/* The backend ABI, asked of every device here in the same words: memory, copies, events, queues, errors, kernels. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "backends/emulated/emulated.h"
#include "backends/registry.h"
#include "base/memory.h"

/* ---- the devices under test ------------------------------------------------------------------------------------------------ */

typedef struct case_of {
    const char *name, *backend, *options;
} case_of;

static const case_of cases[] = {
    {"cpu", "cpu", "memory=1MiB,cores=2"},
    {"emulated", "emulated", "memory=1MiB,cores=2,link=100GB/s,latency=0us"},
    {"emulated, slow link", "emulated", "memory=1MiB,link=1GB/s,latency=20us"},
#ifdef TD_SAMPLE_PLUGIN
    {"sample plugin", TD_SAMPLE_PLUGIN, "memory=1MiB"},
#endif
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef struct bench {
    const td_backend_api *api;
    td_device *device;
    td_queue *compute, *up, *down;
} bench;

static td_status *failing_kernel(const td_kernel_call *call)
{
    (void)call;
    return TD_ERROR(TD_DATA_ERROR, "an id is outside its table");
}

/* y = x * scalar, to see scalar arguments and plain extents. */
static td_status *scaling_kernel(const td_kernel_call *call)
{
    const float *x = call->inputs[0].data, *factor = call->inputs[1].data;
    float *y = call->outputs[0].data;
    for (int64_t i = 0; i < call->outputs[0].dims[0]; i++)
        y[i] = x[i] * factor[0];
    return NULL;
}

static td_status *(*find_reference(const char *op))(const td_kernel_call *call)
{
    if (strcmp(op, "test_failing") == 0)
        return failing_kernel;
    if (strcmp(op, "test_scaling") == 0)
        return scaling_kernel;
    return NULL;
}

static void must(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

static void must_fail(td_status *status, td_code code, const char *part)
{
    assert_non_null(status);
    assert_int_equal(td_status_code(status), code);
    if (!strstr(td_status_message(status), part))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), part);
    td_status_destroy(status);
}

static td_queue *open_queue(const bench *b, td_queue_kind kind)
{
    td_queue_options options = {.struct_size = sizeof options, .kind = kind};
    td_queue *queue = NULL;
    must(b->api->queue_open(b->device, &options, &queue));
    return queue;
}

static bench open_bench(const case_of *which)
{
    bench b = {0};
    td_backend_set_reference(find_reference);
    must(td_backend_find(which->backend, &b.api));
    must(b.api->device_open(td_backend_host(), which->options, &b.device));
    b.compute = open_queue(&b, TD_QUEUE_COMPUTE);
    b.up = open_queue(&b, TD_QUEUE_TO_DEVICE);
    b.down = open_queue(&b, TD_QUEUE_TO_HOST);
    return b;
}

static void close_bench(bench *b)
{
    b->api->queue_close(b->compute);
    b->api->queue_close(b->up);
    b->api->queue_close(b->down);
    b->api->device_close(b->device);
}

static void finish(const bench *b, td_queue *queue)
{
    td_event *event = NULL;
    must(b->api->event_create(b->device, &event));
    must(b->api->event_record(event, queue));
    must(b->api->event_wait(event));
    b->api->event_destroy(event);
}

static void *allocate(const bench *b, size_t bytes)
{
    void *memory = NULL;
    must(b->api->allocate(b->device, bytes, &memory));
    return memory;
}

static void upload(const bench *b, void *device, const void *host, size_t bytes)
{
    must(b->api->copy_to_device(b->up, device, host, bytes));
    finish(b, b->up);
}

static void download(const bench *b, void *host, const void *device, size_t bytes)
{
    must(b->api->copy_to_host(b->down, host, device, bytes));
    finish(b, b->down);
}

static td_tensor vector(void *data, int64_t n)
{
    return (td_tensor){.kind = TD_DENSE, .dtype = TD_F32, .rank = 1, .dims = {n}, .data = data};
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

static void memory_is_zeroed_aligned_and_limited(const case_of *which)
{
    bench b = open_bench(which);
    void *memory = allocate(&b, 1000), *other = NULL, *nothing = NULL;
    assert_int_equal((uintptr_t)memory % 64, 0);
    char host[1000];
    memset(host, 1, sizeof host);
    download(&b, host, memory, sizeof host);
    for (size_t i = 0; i < sizeof host; i++)
        assert_int_equal(host[i], 0);
    must(b.api->allocate(b.device, 0, &nothing));
    assert_non_null(nothing);
    must_fail(b.api->allocate(b.device, 1 << 20, &other), TD_OUT_OF_MEMORY,
              "1048576 bytes asked for, 1047576 of 1048576 free");
    assert_null(other);
    must_fail(b.api->allocate(b.device, SIZE_MAX, &other), TD_OUT_OF_MEMORY, "asked for");
    b.api->release(b.device, memory);
    memory = allocate(&b, 1 << 20); /* all of it, now that it is free again */
    if (b.api->memory_in_use) {
        uint64_t now = 0, peak = 0;
        b.api->memory_in_use(b.device, &now, &peak);
        assert_int_equal(now, 1 << 20);
        assert_int_equal(peak, 1 << 20);
        b.api->release(b.device, memory);
        b.api->memory_in_use(b.device, &now, &peak);
        assert_int_equal(now, 0);
        assert_int_equal(peak, 1 << 20);
        memory = NULL;
    }
    b.api->release(b.device, memory);
    b.api->release(b.device, nothing);
    b.api->release(b.device, NULL);
    close_bench(&b);
}

static void properties_say_what_the_device_is(const case_of *which)
{
    bench b = open_bench(which);
    td_device_properties properties = {.struct_size = sizeof properties};
    b.api->device_properties(b.device, &properties);
    assert_int_equal(properties.memory_bytes, 1 << 20);
    assert_true(strlen(properties.description) > 0);
    bool is_host = properties.flags & TD_DEVICE_HOST_MEMORY;
    assert_int_equal(is_host, properties.link_bytes_per_s == 0);
    /* An engine that knows fewer fields gets no more than those. */
    td_device_properties shorter;
    memset(&shorter, 0x5a, sizeof shorter);
    shorter.struct_size = offsetof(td_device_properties, flops_per_s);
    b.api->device_properties(b.device, &shorter);
    assert_int_equal(shorter.memory_bytes, 1 << 20);
    unsigned char untouched[sizeof shorter.description];
    memset(untouched, 0x5a, sizeof untouched);
    assert_memory_equal(shorter.description, untouched, sizeof untouched);
    close_bench(&b);
}

static void options_are_checked(const case_of *which)
{
    const td_backend_api *api = NULL;
    td_device *device = NULL;
    must(td_backend_find(which->backend, &api));
    must_fail(api->device_open(td_backend_host(), "memroy=1MiB", &device), TD_INVALID_ARGUMENT, "memroy");
    assert_null(device);
}

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

static void copies_keep_every_byte_at_any_size_and_alignment(const case_of *which)
{
    bench b = open_bench(which);
    enum { BYTES = 5000 };
    char *device = allocate(&b, BYTES);
    unsigned char host[BYTES], back[BYTES];
    for (int i = 0; i < BYTES; i++)
        host[i] = (unsigned char)(i * 7 + i / 251);
    static const size_t sizes[] = {0, 1, 2, 3, 63, 64, 65, 4095, 4096, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (size_t offset = 0; offset < 4; offset++) {
            memset(back, 0xee, sizeof back);
            upload(&b, device + offset, host + 3 * offset, sizes[s]);
            download(&b, back + offset * 5, device + offset, sizes[s]);
            assert_memory_equal(back + offset * 5, host + 3 * offset, sizes[s]);
            assert_int_equal(back[offset * 5 + sizes[s]], 0xee);
        }
    }
    must(b.api->copy_to_device(b.up, NULL, NULL, 0));
    finish(&b, b.up);
    b.api->release(b.device, device);
    close_bench(&b);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------------ */

typedef struct prepared {
    td_kernel *kernel;
    td_kernel_call call;
} prepared;

static prepared prepare(const bench *b, const char *op, const td_tensor *inputs, int32_t n_inputs,
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

static void kernels_run_at_extents_up_to_capacity(const case_of *which)
{
    bench b = open_bench(which);
    enum { CAPACITY = 40000 };
    float *x = allocate(&b, CAPACITY * sizeof *x), *y = allocate(&b, CAPACITY * sizeof *y);
    static float host[CAPACITY], back[CAPACITY];
    for (int i = 0; i < CAPACITY; i++)
        host[i] = (float)((i * 37) % 1001 - 500);
    upload(&b, x, host, sizeof host);
    td_tensor input = vector(NULL, CAPACITY), output = vector(NULL, CAPACITY);
    static const char *const ops[] = {"relu", "test_scaling"};
    for (int32_t o = 0; o < 2; o++) {
        float factor = -1;
        td_tensor inputs[2] = {input, {.kind = TD_SCALAR, .dtype = TD_F32, .rank = 1, .dims = {1}, .data = NULL}};
        char reason[64];
        td_kernel_call asked = {.struct_size = sizeof asked,
                                .op = ops[o],
                                .inputs = inputs,
                                .n_inputs = o + 1,
                                .outputs = &output,
                                .n_outputs = 1};
        if (!b.api->supports(b.device, &asked, reason, sizeof reason))
            continue; /* a plug-in need not have a relu of its own, and this test has no reference of it */
        prepared p = prepare(&b, ops[o], inputs, o + 1, &output);
        static const int64_t extents[] = {CAPACITY, 0, 1, 17, 16384, 16385, 39999};
        for (size_t e = 0; e < sizeof extents / sizeof extents[0]; e++) {
            memset(back, 0, sizeof back);
            upload(&b, y, back, sizeof back);
            td_tensor arguments[2] = {vector(x, extents[e]), inputs[1]}, result = vector(y, extents[e]);
            arguments[1].data = &factor;
            td_kernel_call call = p.call;
            call.inputs = arguments;
            call.outputs = &result;
            must(b.api->kernel_run(b.compute, p.kernel, &call));
            /* Nothing the call points to need outlive it. */
            memset(arguments, 0xff, sizeof arguments);
            memset(&result, 0xff, sizeof result);
            factor = 1e30f;
            finish(&b, b.compute);
            factor = -1;
            download(&b, back, y, sizeof back);
            for (int64_t i = 0; i < CAPACITY; i++) {
                float expected = o == 0 ? (host[i] > 0 ? host[i] : 0) : -host[i];
                assert_true(back[i] == (i < extents[e] ? expected : 0));
            }
        }
        b.api->kernel_release(b.device, p.kernel);
    }
    b.api->release(b.device, x);
    b.api->release(b.device, y);
    close_bench(&b);
}

static void an_unknown_op_is_refused_with_a_reason(const case_of *which)
{
    bench b = open_bench(which);
    td_tensor x = vector(NULL, 4);
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = "no_such_op",
                           .name = "n",
                           .inputs = &x,
                           .n_inputs = 1,
                           .outputs = &x,
                           .n_outputs = 1};
    char reason[128] = "";
    assert_false(b.api->supports(b.device, &call, reason, sizeof reason));
    assert_non_null(strstr(reason, "no_such_op"));
    assert_false(b.api->supports(b.device, &call, NULL, 0));
    td_kernel *kernel = NULL;
    size_t scratch = 0;
    must_fail(b.api->kernel_prepare(b.device, &call, &kernel, &scratch), TD_UNSUPPORTED, "no_such_op");
    assert_null(kernel);
    close_bench(&b);
}

static void the_first_error_reaches_whoever_waits_and_work_goes_on_after_it(const case_of *which)
{
    bench b = open_bench(which);
    td_tensor x = vector(NULL, 4);
    prepared p = prepare(&b, "test_failing", &x, 1, &x);
    float *memory = allocate(&b, 16);
    td_tensor actual = vector(memory, 4);
    p.call.inputs = p.call.outputs = &actual;
    td_event *ran = NULL, *copied = NULL;
    must(b.api->event_create(b.device, &ran));
    must(b.api->event_create(b.device, &copied));
    td_status *at_submission = b.api->kernel_run(b.compute, p.kernel, &p.call);
    must(b.api->event_record(ran, b.compute));
    if (at_submission) { /* a device that runs at once may say so at once */
        must_fail(at_submission, TD_DATA_ERROR, "an id is outside its table");
        must(b.api->event_wait(ran));
    } else {
        /* Also through another queue, and to everybody who waits. */
        float back[4];
        must(b.api->queue_wait(b.down, ran));
        must(b.api->copy_to_host(b.down, back, memory, sizeof back));
        must(b.api->event_record(copied, b.down));
        must_fail(b.api->event_wait(copied), TD_DATA_ERROR, "an id is outside its table");
        must_fail(b.api->event_wait(ran), TD_DATA_ERROR, "an id is outside its table");
    }
    float host[4] = {1, 2, 3, 4}, back[4] = {0};
    upload(&b, memory, host, sizeof host);
    finish(&b, b.compute);
    download(&b, back, memory, sizeof back);
    assert_memory_equal(back, host, sizeof host);
    b.api->event_destroy(ran);
    b.api->event_destroy(copied);
    b.api->kernel_release(b.device, p.kernel);
    b.api->release(b.device, memory);
    close_bench(&b);
}

/* ---- events -------------------------------------------------------------------------------------------------------------------- */

static void an_event_starts_signalled(const case_of *which)
{
    bench b = open_bench(which);
    td_event *event = NULL;
    must(b.api->event_create(b.device, &event));
    must(b.api->event_wait(event));
    must(b.api->queue_wait(b.compute, event));
    finish(&b, b.compute);
    b.api->event_destroy(event);
    close_bench(&b);
}

/* Each step uploads a number, scales it twice and downloads it, ordered by events alone; three steps are in flight. */
static void ten_thousand_steps_of_queues_and_events_keep_their_order(const case_of *which)
{
    bench b = open_bench(which);
    enum { STEPS = 10000, FLIGHT = 3, N = 5 };
    float *x[FLIGHT], *y[FLIGHT];
    td_event *uploaded[FLIGHT], *computed[FLIGHT], *downloaded[FLIGHT];
    float host[FLIGHT][N], back[FLIGHT][N];
    td_tensor inputs[2] = {vector(NULL, N), {.kind = TD_SCALAR, .dtype = TD_F32, .rank = 1, .dims = {1}}};
    td_tensor output = vector(NULL, N);
    prepared p = prepare(&b, "test_scaling", inputs, 2, &output);
    for (int f = 0; f < FLIGHT; f++) {
        x[f] = allocate(&b, sizeof host[f]);
        y[f] = allocate(&b, sizeof host[f]);
        must(b.api->event_create(b.device, &uploaded[f]));
        must(b.api->event_create(b.device, &computed[f]));
        must(b.api->event_create(b.device, &downloaded[f]));
    }
    for (int step = 0; step < STEPS + FLIGHT; step++) {
        int f = step % FLIGHT;
        must(b.api->event_wait(downloaded[f]));
        if (step >= FLIGHT)
            for (int i = 0; i < N; i++)
                assert_true(back[f][i] == (float)(step - FLIGHT + i) * 6);
        if (step >= STEPS)
            continue;
        for (int i = 0; i < N; i++)
            host[f][i] = (float)(step + i);
        must(b.api->queue_wait(b.up, computed[f]));
        must(b.api->copy_to_device(b.up, x[f], host[f], sizeof host[f]));
        must(b.api->event_record(uploaded[f], b.up));
        must(b.api->queue_wait(b.compute, uploaded[f]));
        must(b.api->queue_wait(b.compute, downloaded[f]));
        for (int half = 0; half < 2; half++) {
            float factor = half == 0 ? 2 : 3;
            td_tensor arguments[2] = {vector(half == 0 ? x[f] : y[f], N), inputs[1]}, result = vector(y[f], N);
            arguments[1].data = &factor;
            td_kernel_call call = p.call;
            call.inputs = arguments;
            call.outputs = &result;
            must(b.api->kernel_run(b.compute, p.kernel, &call));
        }
        must(b.api->event_record(computed[f], b.compute));
        must(b.api->queue_wait(b.down, computed[f]));
        must(b.api->copy_to_host(b.down, back[f], y[f], sizeof back[f]));
        must(b.api->event_record(downloaded[f], b.down));
    }
    for (int f = 0; f < FLIGHT; f++) {
        b.api->release(b.device, x[f]);
        b.api->release(b.device, y[f]);
        b.api->event_destroy(uploaded[f]);
        b.api->event_destroy(computed[f]);
        b.api->event_destroy(downloaded[f]);
    }
    b.api->kernel_release(b.device, p.kernel);
    close_bench(&b);
}

static void closing_a_queue_drains_it(const case_of *which)
{
    bench b = open_bench(which);
    enum { BYTES = 4096, COPIES = 100 };
    char *device = allocate(&b, BYTES);
    static char host[COPIES][BYTES];
    static char back[BYTES];
    for (int i = 0; i < COPIES; i++) {
        memset(host[i], i + 1, BYTES);
        must(b.api->copy_to_device(b.up, device, host[i], BYTES));
    }
    b.api->queue_close(b.up);
    download(&b, back, device, BYTES);
    assert_memory_equal(back, host[COPIES - 1], BYTES);
    b.up = open_queue(&b, TD_QUEUE_TO_DEVICE);
    b.api->release(b.device, device);
    close_bench(&b);
}

/* More work than the queue has room for: the submitter waits, nothing is lost. */
static void a_full_queue_makes_the_submitter_wait(const case_of *which)
{
    bench b = open_bench(which);
    enum { SUBMISSIONS = 40000 };
    float *x = allocate(&b, sizeof *x);
    float one = 1, back = 0;
    td_tensor inputs[2] = {vector(NULL, 1), {.kind = TD_SCALAR, .dtype = TD_F32, .rank = 1, .dims = {1}}};
    td_tensor output = vector(NULL, 1);
    prepared p = prepare(&b, "test_scaling", inputs, 2, &output);
    upload(&b, x, &one, sizeof one);
    for (int i = 0; i < SUBMISSIONS; i++) {
        float factor = i % 2 == 0 ? 4 : 0.5f;
        td_tensor arguments[2] = {vector(x, 1), inputs[1]}, result = vector(x, 1);
        arguments[1].data = &factor;
        td_kernel_call call = p.call;
        call.inputs = arguments;
        call.outputs = &result;
        must(b.api->kernel_run(b.compute, p.kernel, &call));
        if (i % 200 == 199) { /* 2^200 would not fit: bring it back */
            float down = 0x1p-100f;
            arguments[0] = result = vector(x, 1);
            arguments[1] = inputs[1];
            arguments[1].data = &down;
            must(b.api->kernel_run(b.compute, p.kernel, &call));
        }
    }
    finish(&b, b.compute);
    download(&b, &back, x, sizeof back);
    assert_true(back == 1);
    b.api->kernel_release(b.device, p.kernel);
    b.api->release(b.device, x);
    close_bench(&b);
}

/* Many events, each destroyed at once when it is signalled. */
static void an_event_may_be_destroyed_as_soon_as_it_is_signalled(const case_of *which)
{
    bench b = open_bench(which);
    for (int i = 0; i < 3000; i++)
        finish(&b, b.compute);
    close_bench(&b);
}

/* ---- out of memory ------------------------------------------------------------------------------------------------------------- */

static td_status *open_and_prepare(const case_of *which, const td_backend_api *api)
{
    td_device *device = NULL;
    td_queue *queue = NULL;
    td_event *event = NULL;
    td_kernel *kernel = NULL;
    void *memory = NULL;
    size_t scratch = 0;
    int64_t ints[2] = {1, 2};
    td_attr attrs[2] = {{.key = "a", .type = TD_ATTR_STRING, .s = "text"},
                        {.key = "b", .type = TD_ATTR_INTS, .n_ints = 2, .ints = ints}};
    td_tensor x[2] = {vector(NULL, 4), vector(NULL, 4)};
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = "test_scaling",
                           .name = "n",
                           .attrs = attrs,
                           .n_attrs = 2,
                           .inputs = x,
                           .n_inputs = 2,
                           .outputs = x,
                           .n_outputs = 1};
    td_queue_options options = {.struct_size = sizeof options, .kind = TD_QUEUE_COMPUTE, .threads = 2};
    td_status *status = NULL;
    TD_TRY_OR(status, done, api->device_open(td_backend_host(), which->options, &device));
    TD_TRY_OR(status, done, api->queue_open(device, &options, &queue));
    TD_TRY_OR(status, done, api->event_create(device, &event));
    TD_TRY_OR(status, done, api->allocate(device, 100, &memory));
    TD_TRY_OR(status, done, api->kernel_prepare(device, &call, &kernel, &scratch));
done:
    if (device) {
        api->kernel_release(device, kernel);
        api->release(device, memory);
        if (event)
            api->event_destroy(event);
        if (queue)
            api->queue_close(queue);
        api->device_close(device);
    }
    return status;
}

static void every_failed_allocation_is_an_error_without_a_leak(const case_of *which)
{
    const td_backend_api *api = NULL;
    td_backend_set_reference(find_reference);
    must(td_backend_find(which->backend, &api));
    uint64_t before = td_memory_read().bytes_now;
    for (uint64_t n = 1;; n++) {
        td_memory_fail_after(n);
        td_status *status = open_and_prepare(which, api);
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        if (failed)
            assert_int_equal(td_status_code(status), TD_OUT_OF_MEMORY);
        else
            must(status);
        td_status_destroy(status);
        assert_int_equal(td_memory_read().bytes_now, before);
        if (!failed)
            break;
    }
}

/* ---- the emulated device alone --------------------------------------------------------------------------------------------------- */

/* What a process of its own does to be ended by a trap, or not. */
static void touch_host(void)
{
    static char host;
    *(volatile char *)&host = 1;
}

static void touch_device(void)
{
    bench b = open_bench(&cases[1]);
    *(volatile char *)allocate(&b, 64) = 1;
}

static void compute_on_the_hosts_memory(void)
{
    bench b = open_bench(&cases[1]);
    static float host[4];
    td_tensor x = vector(host, 4);
    td_kernel *kernel = NULL;
    size_t scratch = 0;
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = "relu",
                           .name = "n",
                           .inputs = &x,
                           .n_inputs = 1,
                           .outputs = &x,
                           .n_outputs = 1};
    must(b.api->kernel_prepare(b.device, &call, &kernel, &scratch));
    must(b.api->kernel_run(b.compute, kernel, &call));
    finish(&b, b.compute);
}

static void copy_from_the_hosts_memory_as_if_it_were_the_devices(void)
{
    bench b = open_bench(&cases[1]);
    static char host[64], back[64];
    download(&b, back, host, sizeof back);
}

static void (*const touches[])(void) = {touch_host, touch_device, compute_on_the_hosts_memory,
                                        copy_from_the_hosts_memory_as_if_it_were_the_devices};

/* Whether a trap ends a process that does this. It runs this program again, since a fork alone may not start threads. */
static bool traps(int touch)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%d", touch);
    pid_t child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "test_device", number, (char *)NULL);
        _exit(9);
    }
    int result = 0;
    assert_true(waitpid(child, &result, 0) == child);
    assert_false(WIFEXITED(result) && WEXITSTATUS(result) != 0);
    return WIFSIGNALED(result) && (WTERMSIG(result) == SIGSEGV || WTERMSIG(result) == SIGBUS);
}

static int run_touch(const char *number)
{
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL); /* sanitizers would report it and exit */
    (void)signal(SIGBUS, SIG_DFL);
    touches[atoi(number)]();
    _exit(0);
}

static void test_touching_the_wrong_side_traps(void **state)
{
    (void)state;
    assert_false(traps(0));
    for (int touch = 1; touch < (int)(sizeof touches / sizeof touches[0]); touch++)
        assert_true(traps(touch));
}

static void test_copied_bytes_are_counted_per_direction(void **state)
{
    (void)state;
    bench b = open_bench(&cases[1]);
    char host[100] = {0};
    void *device = allocate(&b, 100);
    upload(&b, device, host, 100);
    upload(&b, device, host, 7);
    download(&b, host, device, 30);
    uint64_t up = 0, down = 0;
    td_emulated_copied(b.device, &up, &down);
    assert_int_equal(up, 107);
    assert_int_equal(down, 30);
    must_fail(b.api->copy_to_host(b.up, host, device, 1), TD_INTERNAL, "other direction");
    must_fail(b.api->copy_to_device(b.down, device, host, 1), TD_INTERNAL, "other direction");
    b.api->release(b.device, device);
    close_bench(&b);
}

/* ---- running them -------------------------------------------------------------------------------------------------------------------- */

#define OVER_ALL(promise)                                                                                              \
    static void test_##promise(void **state)                                                                           \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for (int i = 0; i < N_CASES; i++) {                                                                            \
            print_message("  %s\n", cases[i].name);                                                                    \
            promise(&cases[i]);                                                                                        \
        }                                                                                                              \
    }
OVER_ALL(memory_is_zeroed_aligned_and_limited)
OVER_ALL(properties_say_what_the_device_is)
OVER_ALL(options_are_checked)
OVER_ALL(copies_keep_every_byte_at_any_size_and_alignment)
OVER_ALL(kernels_run_at_extents_up_to_capacity)
OVER_ALL(an_unknown_op_is_refused_with_a_reason)
OVER_ALL(the_first_error_reaches_whoever_waits_and_work_goes_on_after_it)
OVER_ALL(an_event_starts_signalled)
OVER_ALL(ten_thousand_steps_of_queues_and_events_keep_their_order)
OVER_ALL(closing_a_queue_drains_it)
OVER_ALL(a_full_queue_makes_the_submitter_wait)
OVER_ALL(an_event_may_be_destroyed_as_soon_as_it_is_signalled)
OVER_ALL(every_failed_allocation_is_an_error_without_a_leak)

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_touch(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_zeroed_aligned_and_limited),
        cmocka_unit_test(test_properties_say_what_the_device_is),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_copies_keep_every_byte_at_any_size_and_alignment),
        cmocka_unit_test(test_kernels_run_at_extents_up_to_capacity),
        cmocka_unit_test(test_an_unknown_op_is_refused_with_a_reason),
        cmocka_unit_test(test_the_first_error_reaches_whoever_waits_and_work_goes_on_after_it),
        cmocka_unit_test(test_an_event_starts_signalled),
        cmocka_unit_test(test_ten_thousand_steps_of_queues_and_events_keep_their_order),
        cmocka_unit_test(test_closing_a_queue_drains_it),
        cmocka_unit_test(test_a_full_queue_makes_the_submitter_wait),
        cmocka_unit_test(test_an_event_may_be_destroyed_as_soon_as_it_is_signalled),
        cmocka_unit_test(test_every_failed_allocation_is_an_error_without_a_leak),
        cmocka_unit_test(test_touching_the_wrong_side_traps),
        cmocka_unit_test(test_copied_bytes_are_counted_per_direction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
