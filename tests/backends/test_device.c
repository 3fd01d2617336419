/* The backend ABI, asked of every device here in the same words: memory, properties, options, copies, kernels, errors. */
#include "tests/backends/device_bench.h"

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

OVER_ALL(memory_is_zeroed_aligned_and_limited)
OVER_ALL(properties_say_what_the_device_is)
OVER_ALL(options_are_checked)
OVER_ALL(copies_keep_every_byte_at_any_size_and_alignment)
OVER_ALL(kernels_run_at_extents_up_to_capacity)
OVER_ALL(an_unknown_op_is_refused_with_a_reason)
OVER_ALL(the_first_error_reaches_whoever_waits_and_work_goes_on_after_it)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_zeroed_aligned_and_limited),
        cmocka_unit_test(test_properties_say_what_the_device_is),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_copies_keep_every_byte_at_any_size_and_alignment),
        cmocka_unit_test(test_kernels_run_at_extents_up_to_capacity),
        cmocka_unit_test(test_an_unknown_op_is_refused_with_a_reason),
        cmocka_unit_test(test_the_first_error_reaches_whoever_waits_and_work_goes_on_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
