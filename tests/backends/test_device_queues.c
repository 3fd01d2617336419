/* The backend ABI, asked of every device here in the same words: events, the order of queues, and running out of memory. */
#include "base/memory.h"
#include "tests/backends/device_bench.h"

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
    td_queue_options options = {
        .struct_size = sizeof options, .kind = TD_QUEUE_COMPUTE, .threads = 2, .flags = which->flags};
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

OVER_ALL(an_event_starts_signalled)
OVER_ALL(ten_thousand_steps_of_queues_and_events_keep_their_order)
OVER_ALL(closing_a_queue_drains_it)
OVER_ALL(a_full_queue_makes_the_submitter_wait)
OVER_ALL(an_event_may_be_destroyed_as_soon_as_it_is_signalled)
OVER_ALL(every_failed_allocation_is_an_error_without_a_leak)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event_starts_signalled),
        cmocka_unit_test(test_ten_thousand_steps_of_queues_and_events_keep_their_order),
        cmocka_unit_test(test_closing_a_queue_drains_it),
        cmocka_unit_test(test_a_full_queue_makes_the_submitter_wait),
        cmocka_unit_test(test_an_event_may_be_destroyed_as_soon_as_it_is_signalled),
        cmocka_unit_test(test_every_failed_allocation_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
