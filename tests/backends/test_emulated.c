/* The emulated device alone: touching the wrong side's memory traps, copied bytes are counted, a list of copies is one. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/emulated/emulated.h"
#include "base/clock.h"
#include "tests/backends/device_bench.h"

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
        (void)execl("/proc/self/exe", "test_emulated", number, (char *)NULL);
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

/* A latency of 50 ms, 100 times, would be 5 s. */
static void test_a_list_of_copies_takes_the_latency_once(void **state)
{
    (void)state;
    enum { RANGES = 100 };
    const case_of which = {"emulated", "emulated", "memory=1MiB,link=100GB/s,latency=50ms", 0};
    bench b = open_bench(&which);
    unsigned char host[RANGES], back[RANGES] = {0};
    unsigned char *device = allocate(&b, RANGES);
    td_copy_range there[RANGES];
    for (int i = 0; i < RANGES; i++) {
        host[i] = (unsigned char)(i + 1);
        there[i] = (td_copy_range){device + i, host + i, 1};
    }
    const int64_t begin = td_clock_ns();
    must(b.api->copy_ranges(b.up, there, RANGES));
    finish(&b, b.up);
    const int64_t took = td_clock_ns() - begin;
    assert_true(took >= 50000000);
    assert_true(took < 2500000000);
    must(b.api->copy_ranges(b.down, &(td_copy_range){back, device, RANGES}, 1));
    finish(&b, b.down);
    assert_memory_equal(back, host, RANGES);
    uint64_t up = 0, down = 0;
    td_emulated_copied(b.device, &up, &down);
    assert_int_equal(up, RANGES);
    assert_int_equal(down, RANGES);
    must_fail(b.api->copy_ranges(b.compute, there, RANGES), TD_INTERNAL, "compute queue");
    b.api->release(b.device, device);
    close_bench(&b);
}

/* A list longer than the queue's ring goes as several. */
static void test_a_list_may_be_longer_than_the_ring(void **state)
{
    (void)state;
    enum { RANGES = 100000 };
    for (int flags = 0; flags <= TD_QUEUE_SUBMITTER_WAITS; flags += TD_QUEUE_SUBMITTER_WAITS) {
        const case_of which = {"emulated", "emulated", "memory=1MiB,link=100GB/s,latency=0us", (uint32_t)flags};
        bench b = open_bench(&which);
        unsigned char *device = allocate(&b, RANGES), *host = malloc(2 * RANGES), *back = host + RANGES;
        td_copy_range *ranges = malloc(RANGES * sizeof *ranges);
        for (int i = 0; i < RANGES; i++) {
            host[i] = (unsigned char)(i % 251);
            ranges[i] = (td_copy_range){device + i, host + i, 1};
        }
        must(b.api->copy_ranges(b.up, ranges, RANGES));
        finish(&b, b.up);
        download(&b, back, device, RANGES);
        assert_memory_equal(back, host, RANGES);
        free(ranges);
        free(host);
        b.api->release(b.device, device);
        close_bench(&b);
    }
}

static int threads_now(void)
{
    char line[128];
    int n = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) && sscanf(line, "Threads: %d", &n) != 1)
        ;
    fclose(file);
    return n;
}

static void test_a_submitter_that_waits_does_the_work_itself(void **state)
{
    (void)state;
    case_of which = {"emulated", "emulated", "memory=1MiB,cores=1,link=100GB/s", 0};
    int before = threads_now();
    bench b = open_bench(&which);
    assert_int_equal(threads_now(), before + 3);
    close_bench(&b);
    which.flags = TD_QUEUE_SUBMITTER_WAITS;
    b = open_bench(&which);
    assert_int_equal(threads_now(), before);
    char host[4] = "abc", back[4] = "";
    void *device = allocate(&b, sizeof host);
    must(b.api->copy_to_device(b.up, device, host, sizeof host));
    must(b.api->copy_to_host(b.down, back, device, sizeof back));
    assert_string_equal(back, host); /* nobody has waited */
    b.api->release(b.device, device);
    close_bench(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_touch(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_touching_the_wrong_side_traps),
        cmocka_unit_test(test_copied_bytes_are_counted_per_direction),
        cmocka_unit_test(test_a_list_of_copies_takes_the_latency_once),
        cmocka_unit_test(test_a_list_may_be_longer_than_the_ring),
        cmocka_unit_test(test_a_submitter_that_waits_does_the_work_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
