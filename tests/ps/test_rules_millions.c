/* Some millions of rows named by random operations, under all rules together: see rules.h. */
#include "tests/ps/rules.h"

static void test_millions_of_operations_match_a_simple_model(void **state)
{
    (void)state;
    enum { OPERATIONS = 120000 }; /* of some 17 rows each: two millions */
    td_hash_options all = {.admit_count = 2, .admit_probability = 0.6, .capacity = 300, .live = 60};
    run_rules(all, "lazy_adam", OPERATIONS);
    all.evict = TD_EVICT_LEAST_OFTEN;
    run_rules(all, "rowwise_adagrad", OPERATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_millions_of_operations_match_a_simple_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
