/* Rules of admission and eviction, each alone and together: see rules.h. tests/ps/test_rules_millions.c has millions of operations. */
#include "tests/ps/rules.h"

enum { OPERATIONS = 1500 };

static void test_without_rules_rows_stay(void **state)
{
    (void)state;
    run_rules((td_hash_options){0}, "lazy_adam", OPERATIONS);
}

static void test_a_row_begins_with_the_window_that_makes_its_count(void **state)
{
    (void)state;
    run_rules((td_hash_options){.admit_count = 3}, "rowwise_adagrad", OPERATIONS);
}

static void test_a_row_begins_by_chance_drawn_from_its_id_and_the_window(void **state)
{
    (void)state;
    run_rules((td_hash_options){.admit_probability = 0.3}, "sgd", OPERATIONS);
}

static void test_rows_that_no_window_names_for_long_go(void **state)
{
    (void)state;
    run_rules((td_hash_options){.live = 9}, "adagrad", OPERATIONS);
}

static void test_beyond_the_capacity_the_least_recent_or_least_often_named_go(void **state)
{
    (void)state;
    run_rules((td_hash_options){.capacity = 80}, "ftrl", OPERATIONS);
    run_rules((td_hash_options){.capacity = 270, .evict = TD_EVICT_LEAST_RECENT}, "sgd", OPERATIONS);
    run_rules((td_hash_options){.capacity = 270, .evict = TD_EVICT_LEAST_OFTEN}, "lazy_adam", OPERATIONS);
}

static void test_all_rules_together(void **state)
{
    (void)state;
    td_hash_options all = {.admit_count = 2, .admit_probability = 0.6, .capacity = 150, .live = 40};
    run_rules(all, "lazy_adam", OPERATIONS);
    all.evict = TD_EVICT_LEAST_OFTEN;
    run_rules(all, "rowwise_adagrad", OPERATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_rules_rows_stay),
        cmocka_unit_test(test_a_row_begins_with_the_window_that_makes_its_count),
        cmocka_unit_test(test_a_row_begins_by_chance_drawn_from_its_id_and_the_window),
        cmocka_unit_test(test_rows_that_no_window_names_for_long_go),
        cmocka_unit_test(test_beyond_the_capacity_the_least_recent_or_least_often_named_go),
        cmocka_unit_test(test_all_rules_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
