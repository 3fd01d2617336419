/* The registry of rules: what settings become, what is refused and how, which slots there are. */
#include "tests/base/check.h"

#include <math.h>

#include "base/nearest.h"
#include "optim/rule.h"

static td_optimizer resolved(td_optimizer given)
{
    td_optimizer settings;
    const td_rule *rule = td_rule_find(given.name);
    assert_non_null(rule);
    assert_ok(td_rule_resolve(rule, &given, &settings));
    return settings;
}

static void test_rules_are_found_by_name(void **state)
{
    (void)state;
    assert_true(td_rule_count() >= 10);
    for (int32_t i = 0; i < td_rule_count(); i++) {
        const td_rule *rule = td_rule_at(i);
        assert_ptr_equal(td_rule_find(rule->name), rule);
        assert_non_null(rule->summary);
        assert_true(rule->whole_tensor ? rule->reference_tensor != NULL : rule->reference != NULL);
    }
    assert_null(td_rule_find("sgdd"));
    assert_string_equal(td_rule_nearest("lazyadam"), "lazy_adam");
    assert_string_equal(td_rule_nearest("ADAMW"), "adamw");
    assert_string_equal(td_rule_nearest("ftlr"), "ftrl");
}

static void test_defaults_fill_what_was_not_given(void **state)
{
    (void)state;
    td_optimizer adamw = resolved(td_adamw(1e-3));
    assert_true(adamw.lr == 1e-3 && adamw.beta1 == 0.9 && adamw.beta2 == 0.999 && adamw.epsilon == 1e-8);
    assert_true(adamw.weight_decay == 0.01);
    td_optimizer ftrl = resolved(td_ftrl(0.05, .l1 = 0.5));
    assert_true(ftrl.l1 == 0.5 && ftrl.l2 == 0 && ftrl.lr_power == -0.5 && ftrl.initial_accumulator == 0.1);
}

static void test_an_explicit_zero_is_kept(void **state)
{
    (void)state;
    td_optimizer settings = resolved(td_adamw(1e-3, .weight_decay = TD_ZERO, .beta1 = TD_ZERO));
    assert_true(settings.weight_decay == 0 && !signbit(settings.weight_decay));
    assert_true(settings.beta1 == 0 && !signbit(settings.beta1));
    assert_true(resolved(td_sgd(TD_ZERO)).lr == 0);
}

static void refuse(td_optimizer given, const char *says)
{
    td_optimizer settings = {.lr = 42};
    assert_error(td_rule_resolve(td_rule_find(given.name), &given, &settings), TD_INVALID_ARGUMENT, says);
    assert_true(settings.lr == 42); /* untouched */
}

static void test_refusals_name_the_rule_the_setting_and_what_is_known(void **state)
{
    (void)state;
    refuse(td_sgd(0.1, .beta1 = 0.9),
           "optimizer sgd: it has no setting beta1; it knows lr, momentum, nesterov, weight_decay");
    refuse(td_adam(0.1, .nesterov = true), "optimizer adam: it has no setting nesterov");
    refuse(td_adagrad(0.1, .weight_decay = TD_ZERO), "optimizer adagrad: it has no setting weight_decay");
    refuse(td_adam(0.1, .beta2 = 1), "optimizer adam: beta2 is 1 but must be from 0 to 0.99999999");
    refuse(td_adam(0.1, .epsilon = -1e-8), "optimizer adam: epsilon is -1e-08 but must be from 1e-30 to 1");
    refuse(td_adam(0.1, .epsilon = NAN), "optimizer adam: epsilon is nan");
    refuse(td_adam(0), "optimizer adam: no learning rate is given; set lr");
    refuse(td_adam(-1), "optimizer adam: lr is -1 but must be from 0");
    refuse(td_adam(NAN), "optimizer adam: lr is nan");
    refuse(td_sgd(0.1, .nesterov = true), "optimizer sgd: nesterov needs a momentum");
    refuse(td_ftrl(TD_ZERO), "optimizer ftrl: it divides by the learning rate, which is 0");
    refuse(td_ftrl(0.1, .schedule = {.kind = TD_SCHEDULE_COSINE, .total_steps = 10}),
           "set the schedule's final_factor");
    refuse(td_sgd(0.1, .schedule = {.kind = TD_SCHEDULE_STEP}), "optimizer sgd: schedule step: every is 0");
}

static void test_sgd_keeps_a_momentum_only_when_it_has_one(void **state)
{
    (void)state;
    const td_slot *slots;
    td_optimizer plain = resolved(td_sgd(0.1)), heavy = resolved(td_sgd(0.1, .momentum = 0.9));
    assert_int_equal(td_rule_slots(td_rule_find("sgd"), &plain, &slots), 0);
    assert_int_equal(td_rule_slots(td_rule_find("sgd"), &heavy, &slots), 1);
    assert_string_equal(slots[0].name, "momentum");
    td_optimizer adam = resolved(td_adam(0.1)), rowwise = resolved(td_rowwise_adagrad(0.1));
    assert_int_equal(td_rule_slots(td_rule_find("adam"), &adam, &slots), 2);
    assert_string_equal(slots[1].name, "v");
    assert_int_equal(td_rule_slots(td_rule_find("rowwise_adagrad"), &rowwise, &slots), 1);
    assert_true(slots[0].per_row);
}

/* By the definition, in double: p and acc after one row of 5 elements. */
static void test_rowwise_adagrad_follows_its_formula(void **state)
{
    (void)state;
    const td_rule *rule = td_rule_find("rowwise_adagrad");
    td_optimizer settings = resolved(td_rowwise_adagrad(0.1, .epsilon = 1e-3, .initial_accumulator = 0.25));
    float p[5] = {1, -2, 3, 0.5f, 0}, g[5] = {0.5f, 1, -1.5f, 0, 2}, accumulator = 0.25f, *slots[1] = {&accumulator};
    float coefficients[TD_COEFFICIENTS];
    rule->coefficients(&settings, settings.lr, 1, 1, coefficients);
    double mean = 0.25 + (0.25 + 1 + 2.25 + 0 + 4) / 5;
    float before[5];
    memcpy(before, p, sizeof p);
    rule->reference(p, slots, g, 5, coefficients);
    assert_true(fabs((double)accumulator - mean) < 1e-6);
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)p[i] - ((double)before[i] - 0.1 * (double)g[i] / (sqrt(mean) + 1e-3))) < 1e-6);
    assert_true(p[3] == before[3]);
}

/* As torch.optim.SparseAdam; here epsilon is large, so that its place shows. */
static void test_lazy_adam_does_not_scale_epsilon(void **state)
{
    (void)state;
    const td_rule *rule = td_rule_find("lazy_adam");
    td_optimizer settings = resolved(td_lazy_adam(0.01, .epsilon = 0.1));
    float p = 1, m = 0.5f, v = 0.25f, g = -2, *slots[2] = {&m, &v}, coefficients[TD_COEFFICIENTS];
    double new_m = 0.9 * 0.5 + 0.1 * -2, new_v = 0.999 * 0.25 + 0.001 * 4;
    double step = 0.01 * sqrt(1 - 0.999 * 0.999 * 0.999) / (1 - 0.9 * 0.9 * 0.9);
    rule->coefficients(&settings, settings.lr, 3, 1, coefficients);
    rule->reference(&p, slots, &g, 1, coefficients);
    assert_true(fabs((double)m - new_m) < 1e-7 && fabs((double)v - new_v) < 1e-7);
    assert_true(fabs((double)p - (1 - step * new_m / (sqrt(new_v) + 0.1))) < 1e-7);
}

/* lr_power -0.5 has a path of its own; powers close to it must agree with it, and others with pow. */
static void test_ftrl_takes_any_power(void **state)
{
    (void)state;
    const td_rule *rule = td_rule_find("ftrl");
    static const double powers[] = {-1, -0.75, -0.500001, -0.5, -0.25, TD_ZERO};
    for (size_t k = 0; k < sizeof powers / sizeof *powers; k++) {
        td_optimizer settings = resolved(td_ftrl(0.05, .l1 = 0.125, .l2 = 0.25, .lr_power = powers[k]));
        float p = 0.75f, sum = 0.1f, z = -0.5f, g = -1.5f, *slots[2] = {&sum, &z}, coefficients[TD_COEFFICIENTS];
        double a = -powers[k], n = (double)0.1f + 2.25, root = pow(n, a);
        double new_z = -0.5 - 1.5 - (root - pow((double)0.1f, a)) / 0.05 * 0.75;
        double new_p = -(new_z - copysign(0.125, new_z)) / (root / 0.05 + 0.25);
        rule->coefficients(&settings, settings.lr, 1, 1, coefficients);
        rule->reference(&p, slots, &g, 1, coefficients);
        assert_true(fabs((double)z - new_z) < 2e-6 * fabs(new_z) && fabs((double)p - new_p) < 2e-6 * fabs(new_p));
    }
}

static void test_ftrl_sets_a_row_with_nothing_to_say_to_zero(void **state)
{
    (void)state;
    const td_rule *rule = td_rule_find("ftrl");
    td_optimizer settings = resolved(td_ftrl(0.05));
    float p = 0.75f, sum = 0.1f, z = 0, g = 0, *slots[2] = {&sum, &z}, coefficients[TD_COEFFICIENTS];
    rule->coefficients(&settings, settings.lr, 1, 1, coefficients);
    rule->reference(&p, slots, &g, 1, coefficients);
    assert_true(p == 0 && z == 0 && sum == 0.1f);
}

/* Its ratio is 1 where a norm is 0: a parameter of zeros moves by lr times its direction. */
static void test_lamb_moves_a_parameter_of_zeros(void **state)
{
    (void)state;
    const td_rule *rule = td_rule_find("lamb");
    td_optimizer settings = resolved(td_lamb(0.125));
    float p[3] = {0, 0, 0}, m[3] = {0}, v[3] = {0}, g[3] = {1, -1, 0}, *slots[2] = {m, v};
    float coefficients[TD_COEFFICIENTS];
    rule->coefficients(&settings, settings.lr, 1, 1, coefficients);
    assert_ok(rule->reference_tensor(p, slots, g, 3, coefficients));
    assert_true(fabs((double)p[0] + 0.125) < 1e-5 && fabs((double)p[1] - 0.125) < 1e-5 && p[2] == 0);
}

/* A gradient that is broken must be seen, not turned into a step of 0. */
static void test_a_nan_gradient_reaches_the_parameter(void **state)
{
    (void)state;
    for (int32_t i = 0; i < td_rule_count(); i++) {
        const td_rule *rule = td_rule_at(i);
        td_optimizer given = {.name = rule->name, .lr = 0.1}, settings = resolved(given);
        float p[2] = {1, 1}, states[TD_MAX_SLOTS][2] = {{0.5f, 0.5f}, {0.5f, 0.5f}, {0.5f, 0.5f}}, g[2] = {NAN, 1};
        float *slots[TD_MAX_SLOTS] = {NULL}, coefficients[TD_COEFFICIENTS];
        const td_slot *known;
        for (int32_t s = td_rule_slots(rule, &settings, &known) - 1; s >= 0; s--)
            slots[s] = states[s];
        rule->coefficients(&settings, settings.lr, 1, 1, coefficients);
        if (rule->whole_tensor)
            assert_ok(rule->reference_tensor(p, slots, g, 2, coefficients));
        else
            rule->reference(p, slots, g, 2, coefficients);
        assert_true(isnan(p[0]));
    }
}

static void test_nearest_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(td_edit_distance("", ""), 0);
    assert_int_equal(td_edit_distance("", "abc"), 3);
    assert_int_equal(td_edit_distance("adam", "Adam"), 0);
    assert_int_equal(td_edit_distance("adma", "adam"), 1);
    assert_int_equal(td_edit_distance("kitten", "sitting"), 3);
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(td_edit_distance(longer, ""), 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules_are_found_by_name),
                                       cmocka_unit_test(test_defaults_fill_what_was_not_given),
                                       cmocka_unit_test(test_an_explicit_zero_is_kept),
                                       cmocka_unit_test(test_refusals_name_the_rule_the_setting_and_what_is_known),
                                       cmocka_unit_test(test_sgd_keeps_a_momentum_only_when_it_has_one),
                                       cmocka_unit_test(test_rowwise_adagrad_follows_its_formula),
                                       cmocka_unit_test(test_lazy_adam_does_not_scale_epsilon),
                                       cmocka_unit_test(test_ftrl_takes_any_power),
                                       cmocka_unit_test(test_ftrl_sets_a_row_with_nothing_to_say_to_zero),
                                       cmocka_unit_test(test_lamb_moves_a_parameter_of_zeros),
                                       cmocka_unit_test(test_a_nan_gradient_reaches_the_parameter),
                                       cmocka_unit_test(test_nearest_counts_edits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
