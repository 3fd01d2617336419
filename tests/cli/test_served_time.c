/* The step of a job that `tandem plan` predicts, against the formula of docs/cluster.md by hand. */
#include "tests/cli/runs.h"

/* 64, 64 and 20 rows of 32 bytes at most, with 64 bytes of state: 148 ids. Figures so slow that what is computed is nothing. */
#define SLOW                                                                                                           \
    "plan", "x.yaml", "--set", "devices=[cpu]", "--set", "placement={default: cpu, rules: []}", "--set",               \
        "offload.embedding=ps", "--set", "ps.network=1kB/s", "--set", "ps.latency=1s", "--set", "ps.memory=1kB/s"

static void require_words(const char *words)
{
    if (!strstr(out, words))
        fail_msg("no \"%s\" in:\n%s", words, out);
}

static void test_one_worker_and_one_server_move_all_rows_one_after_another(void **state)
{
    (void)state;
    SUCCEED(SLOW);
    /* 2 + 148 x 40 / 1000 + 148 x 32 / 1000; 1 + 148 x 40 / 1000 + 2 x 148 x 96 / 1000 */
    require_words(" + pull 12.7 s + push 35.3 s + sums 0 s");
    require_words(
        "W = 1 (train.replicas, a worker each), S = 1, ps.network 1.00 kB/s, ps.latency 1.00 s, ps.memory 1.00 kB/s");
}

static void test_two_servers_serve_four_workers_at_half_the_speed_and_these_sum_up(void **state)
{
    (void)state;
    SUCCEED(SLOW, "--set", "train.replicas=4", "--set", "ps.servers=2");
    /* 2 + 148 x 40 x 2 / 1000 + 148 x 32 x 2 / 1000; 1 + 148 x 40 x 2 / 1000 + 2 x 148 x 96 x 2 / 1000;
     * 2 + 2 x 4 x 473 x 3/4 / 1000, of 4 x 16 + 16 + 16 x 8 + 8 numbers below and 14 x 16 + 16 + 16 + 1 above */
    require_words(" + pull 23.3 s + push 69.7 s + sums 4.84 s");
}

static void test_more_servers_than_workers_share_the_rows_but_not_a_workers_network(void **state)
{
    (void)state;
    SUCCEED(SLOW, "--set", "ps.servers=4");
    /* 2 + 148 x 40 / 1000 + 148 x 32 / 4 / 1000; 1 + 148 x 40 / 1000 + 2 x 148 x 96 / 4 / 1000 */
    require_words(" + pull 9.10 s + push 14.0 s + sums 0 s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_worker_and_one_server_move_all_rows_one_after_another, enter, leave),
        cmocka_unit_test_setup_teardown(test_two_servers_serve_four_workers_at_half_the_speed_and_these_sum_up, enter,
                                        leave),
        cmocka_unit_test_setup_teardown(test_more_servers_than_workers_share_the_rows_but_not_a_workers_network, enter,
                                        leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
