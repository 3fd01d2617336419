/* The conformance suite notices what it is there to notice: a device that is wrong in one bit, one that writes too far, one
 * that takes bad ids, and a gradient that is not the slope. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/base/check.h"
#include "tests/conformance/conformance.h"

static conformance_device device;
static td_backend_api real, crooked;

static int open_device(void **state)
{
    (void)state;
    assert_ok(device_open("cpu", &device));
    real = *device.api;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_deinit(&device);
    return 0;
}

/* check_forward of one case at its capacity, with the table `crooked` in place of the device's own. */
static td_status *forward(const conformance_case *c)
{
    built_case built;
    conformance_device tested = device;
    const int64_t extents[N_EXTENTS] = {c->batch, c->entries};
    tested.api = &crooked;
    assert_ok(case_build(c, NULL, &built));
    td_status *status = check_forward(&tested, NULL, &built, extents);
    case_deinit(&built);
    return status;
}

static const conformance_case bag = {"embedding_bag", "f32[50,16] i64[B]{N}<50", NULL, 9, 40, 0};
static const conformance_case bad_bag = {"embedding_bag", "f32[50,16] i64[B]{N}<50:bad", NULL, 9, 40, CASE_FAILS};
static const conformance_case step = {"sgd", "f32[37,5] f32[37,5] f32*16:coefficients", NULL, 1, 0, 0};
static const conformance_case gradient = {"embedding_bag_gradient", "i64[B]{N}<50 f32[B,16]", "rows=50", 9, 40, 0};

static void test_an_honest_device_passes(void **state)
{
    (void)state;
    crooked = real;
    assert_ok(forward(&bag));
    assert_ok(forward(&bad_bag));
    assert_ok(forward(&step));
    assert_ok(forward(&gradient));
}

static td_status *flip_last_bit(td_queue *queue, void *host, const void *memory, size_t bytes)
{
    TD_TRY(real.copy_to_host(queue, host, memory, bytes));
    ((unsigned char *)host)[0] ^= 1;
    return NULL;
}

static void test_one_wrong_bit_is_noticed(void **state)
{
    (void)state;
    crooked = real;
    crooked.copy_to_host = flip_last_bit;
    assert_error(forward(&bag), TD_INTERNAL, "output 0: element 0 of 144");
    assert_error(forward(&step), TD_INTERNAL, "input 0: element 0 of 185");
    assert_error(forward(&gradient), TD_INTERNAL, "output 0: it has");
}

static td_status *write_behind(td_queue *queue, void *host, const void *memory, size_t bytes)
{
    TD_TRY(real.copy_to_host(queue, host, memory, bytes));
    ((unsigned char *)host)[bytes - 64] = 0;
    return NULL;
}

static void test_a_byte_written_behind_the_output_is_noticed(void **state)
{
    (void)state;
    crooked = real;
    crooked.copy_to_host = write_behind;
    assert_error(forward(&bag), TD_INTERNAL, "byte 576 was written, but the output ends at 576");
}

static td_status *run_nothing(td_queue *queue, td_kernel *kernel, const td_kernel_call *call)
{
    (void)queue;
    (void)kernel;
    (void)call;
    return NULL;
}

static void test_taking_a_bad_id_is_noticed(void **state)
{
    (void)state;
    crooked = real;
    crooked.kernel_run = run_nothing;
    assert_error(forward(&bad_bag), TD_INTERNAL, "the device took data that it must refuse");
    assert_error(forward(&bag), TD_INTERNAL, "output 0");
}

static void test_a_slope_that_differs_is_noticed(void **state)
{
    (void)state;
    int64_t checked = 0;
    const conformance_case smooth = {"tanh", "f32[B,13]", NULL, 9, 0, 0};
    assert_ok(check_gradient(&smooth, &checked));
    assert_int_equal(checked, 59);
    /* Beside its pole a quotient bends so much that finite differences are off. */
    const conformance_case bent = {"div", "f32[B,13] f32[B,13]:positive", NULL, 9, 0, 0};
    assert_error(check_gradient(&bent, &checked), TD_INTERNAL, "gradient of input1, element");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_honest_device_passes),
        cmocka_unit_test(test_one_wrong_bit_is_noticed),
        cmocka_unit_test(test_a_byte_written_behind_the_output_is_noticed),
        cmocka_unit_test(test_taking_a_bad_id_is_noticed),
        cmocka_unit_test(test_a_slope_that_differs_is_noticed),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
