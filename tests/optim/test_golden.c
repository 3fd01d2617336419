/* Every rule against values that were computed in FP64 and, where torch has the rule, checked with torch. The cases,
 * with a vector of 257 elements and gradients from 1e-12 to 1e4, are in tests/golden/optimizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tests/optim/golden.h"

typedef struct golden_case {
    const char *file, *rule;
} golden_case;

typedef struct run {
    const td_rule *rule;
    const td_slot *slots;
    int32_t n_slots;
    td_optimizer settings;
    float *parameter, *states[TD_MAX_SLOTS], *gradient;
} run;

static void begin(run *r, const golden *file)
{
    r->rule = td_rule_find(file->given.name);
    assert_non_null(r->rule);
    td_status *status = td_rule_resolve(r->rule, &file->given, &r->settings);
    assert_string_equal(td_status_message(status), "");
    r->n_slots = td_rule_slots(r->rule, &r->settings, &r->slots);
    r->parameter = td_calloc((size_t)file->n, sizeof(float));
    r->gradient = td_calloc((size_t)file->n, sizeof(float));
    for (int64_t i = 0; i < file->n; i++)
        r->parameter[i] = (float)file->start[i];
    for (int32_t s = 0; s < r->n_slots; s++) {
        r->states[s] = td_calloc((size_t)file->n, sizeof(float));
        for (int64_t i = 0; r->slots[s].from_initial_accumulator && i < file->n; i++)
            r->states[s][i] = (float)r->settings.initial_accumulator;
    }
}

static void end(run *r)
{
    td_free(r->parameter);
    td_free(r->gradient);
    for (int32_t s = 0; s < r->n_slots; s++)
        td_free(r->states[s]);
}

static void compare(const golden *file, const char *case_name, const char *key, int step, const float *found)
{
    double *expected = golden_values(file, key), *tolerance = golden_tolerance(file, key);
    for (int64_t i = 0; i < file->n; i++) {
        double wanted = expected[step * file->n + i];
        if (!(fabs((double)found[i] - wanted) <= tolerance[step]))
            fail_msg("%s: %s[%lld] after step %d is %.9g, not %.9g (within %g)", case_name, key, (long long)i, step + 1,
                     (double)found[i], wanted, tolerance[step]);
    }
    td_free(expected);
    td_free(tolerance);
}

/* Gradients are given `scale` times too small where a step is to scale them back (a power of two: exact). */
static void check_case(const golden_case *c, float scale)
{
    golden file;
    golden_open(&file, c->file, c->rule);
    run r = {0};
    begin(&r, &file);
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        float coefficients[TD_COEFFICIENTS] = {0};
        r.rule->coefficients(&r.settings, r.settings.lr, step + 1, scale, coefficients);
        for (int64_t i = 0; i < file.n; i++)
            r.gradient[i] = (float)file.gradients[step * file.n + i] / scale;
        if (r.rule->whole_tensor)
            assert_null(r.rule->reference_tensor(r.parameter, r.states, r.gradient, file.n, coefficients));
        else
            r.rule->reference(r.parameter, r.states, r.gradient, file.n, coefficients);
        compare(&file, c->file, "p", step, r.parameter);
        for (int32_t s = 0; s < r.n_slots; s++)
            compare(&file, c->file, r.slots[s].name, step, r.states[s]);
    }
    end(&r);
    golden_close(&file);
}

static const golden_case cases[] = {{"sgd", "sgd"},
                                    {"momentum", "sgd"},
                                    {"nesterov", "sgd"},
                                    {"sgd_weight_decay", "sgd"},
                                    {"adagrad", "adagrad"},
                                    {"rmsprop", "rmsprop"},
                                    {"adam", "adam"},
                                    {"adamw", "adamw"},
                                    {"adam_weight_decay", "adam_weight_decay"},
                                    {"lamb", "lamb"},
                                    {"lion", "lion"},
                                    {"ftrl", "ftrl"}};
enum { CASES = sizeof cases / sizeof *cases };

static void test_each_rule_follows_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        check_case(&cases[i], 1);
}

static void test_each_rule_scales_its_gradient_first(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        check_case(&cases[i], 0.125f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_rule_follows_its_formula),
                                       cmocka_unit_test(test_each_rule_scales_its_gradient_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
