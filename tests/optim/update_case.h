/* A call of an optimizer op or of embedding_update on random data, for tests that compare two ways to compute it. */
#ifndef TANDEM_TESTS_OPTIM_UPDATE_CASE_H
#define TANDEM_TESTS_OPTIM_UPDATE_CASE_H

#include "tests/base/check.h"

#include "graph/op.h"
#include "optim/rule.h"

enum { UPDATE_MOST_INPUTS = 5 + TD_MAX_SLOTS, UPDATE_GUARD = 16 };

/* Every buffer has guard elements on both sides, which a kernel must leave alone. */
typedef struct update_case {
    const td_rule *rule;
    td_optimizer settings;
    const td_slot *slots;
    int32_t n_slots;
    int64_t rows, dim, skew;          /* skew: elements that buffers are moved off their alignment by */
    float *buffers[1 + TD_MAX_SLOTS]; /* parameter and states */
    int64_t elements[1 + TD_MAX_SLOTS];
    float *written[1 + TD_MAX_SLOTS]; /* where in the buffers they begin */
    float coefficients[TD_COEFFICIENTS];
    td_tensor inputs[UPDATE_MOST_INPUTS];
    td_attr attrs[3];
    td_kernel_call call;
} update_case;

static uint64_t update_random_state = 88172645463325252u;

static inline uint64_t update_random(void)
{
    update_random_state ^= update_random_state << 13;
    update_random_state ^= update_random_state >> 7;
    update_random_state ^= update_random_state << 17;
    return update_random_state;
}

/* Mostly in (-1, 1), now and then exactly 0, tiny or large. */
static inline float update_random_float(void)
{
    uint64_t bits = update_random();
    float x = (float)((double)(bits >> 40) * 0x1p-23 - 1);
    switch (bits & 31) {
    case 0:
        return 0;
    case 1:
        return x * 1e-20f;
    case 2:
        return x * 1e4f;
    default:
        return x;
    }
}

static inline td_tensor update_dense(td_dtype dtype, void *data, int32_t rank, int64_t d0, int64_t d1)
{
    return (td_tensor){.kind = TD_DENSE, .dtype = dtype, .rank = rank, .dims = {d0, d1}, .data = data};
}

static inline void update_fill(update_case *c, int32_t index)
{
    bool squares = index > 0 && strcmp(c->slots[index - 1].name, "momentum") != 0 &&
                   strcmp(c->slots[index - 1].name, "m") != 0 && strcmp(c->slots[index - 1].name, "z") != 0;
    for (int64_t i = 0; i < c->elements[index] + 2 * UPDATE_GUARD + c->skew; i++) {
        float x = update_random_float();
        c->buffers[index][i] = squares ? x * x + 1e-3f : x;
    }
}

/* Parameter [rows, dim] with the states of a rule; the caller sets the other inputs. States begin at input `first`. */
static inline void update_case_init(update_case *c, td_optimizer given, int64_t rows, int64_t dim, int64_t skew,
                                    int32_t first)
{
    *c = (update_case){.rule = td_rule_find(given.name), .rows = rows, .dim = dim, .skew = skew};
    assert_non_null(c->rule);
    assert_ok(td_rule_resolve(c->rule, &given, &c->settings));
    c->n_slots = td_rule_slots(c->rule, &c->settings, &c->slots);
    c->rule->coefficients(&c->settings, c->settings.lr, 3, 0.7, c->coefficients);
    for (int32_t i = 0; i <= c->n_slots; i++) {
        bool per_row = i > 0 && c->slots[i - 1].per_row;
        c->elements[i] = per_row ? rows : rows * dim;
        c->buffers[i] = td_calloc((size_t)(c->elements[i] + 2 * UPDATE_GUARD + skew), sizeof(float));
        assert_non_null(c->buffers[i]);
        update_fill(c, i);
        c->written[i] = c->buffers[i] + UPDATE_GUARD + skew;
        c->inputs[i ? first + i - 1 : 0] = update_dense(TD_F32, c->written[i], per_row ? 1 : 2, rows, dim);
    }
    c->call = (td_kernel_call){.struct_size = sizeof c->call,
                               .op = c->rule->name,
                               .name = "test",
                               .attrs = c->attrs,
                               .inputs = c->inputs,
                               .n_inputs = first + c->n_slots};
}

static inline td_tensor update_coefficients(const update_case *c)
{
    return (td_tensor){.kind = TD_SCALAR,
                       .dtype = TD_F32,
                       .rank = 1,
                       .dims = {TD_COEFFICIENTS},
                       .data = (void *)(uintptr_t)c->coefficients};
}

static inline void update_case_deinit(update_case *c)
{
    for (int32_t i = 0; i <= c->n_slots; i++)
        td_free(c->buffers[i]);
}

/* Copies of the buffers, guards included. */
static inline void update_save(const update_case *c, float *saved[1 + TD_MAX_SLOTS])
{
    for (int32_t i = 0; i <= c->n_slots; i++) {
        size_t bytes = (size_t)(c->elements[i] + 2 * UPDATE_GUARD + c->skew) * sizeof(float);
        if (!saved[i])
            saved[i] = td_calloc(1, bytes);
        assert_non_null(saved[i]);
        memcpy(saved[i], c->buffers[i], bytes);
    }
}

static inline void update_restore(update_case *c, float *const saved[1 + TD_MAX_SLOTS])
{
    for (int32_t i = 0; i <= c->n_slots; i++)
        memcpy(c->buffers[i], saved[i], (size_t)(c->elements[i] + 2 * UPDATE_GUARD + c->skew) * sizeof(float));
}

static inline void update_free(float *saved[1 + TD_MAX_SLOTS])
{
    for (int32_t i = 0; i <= TD_MAX_SLOTS; i++)
        td_free(saved[i]);
}

/* All buffers bit for bit, guards included. `what` is for the message. */
static inline void update_assert_equal(const update_case *c, float *const expected[1 + TD_MAX_SLOTS], const char *what)
{
    for (int32_t i = 0; i <= c->n_slots; i++)
        for (int64_t k = 0; k < c->elements[i] + 2 * UPDATE_GUARD + c->skew; k++)
            if (memcmp(&c->buffers[i][k], &expected[i][k], sizeof(float)) != 0)
                fail_msg("%s %s [%lld, %lld]: %s[%lld] is %.9g, not %.9g", what, c->rule->name, (long long)c->rows,
                         (long long)c->dim, i ? c->slots[i - 1].name : "parameter",
                         (long long)(k - UPDATE_GUARD - c->skew), (double)c->buffers[i][k], (double)expected[i][k]);
}

/* Every rule that takes row-sparse gradients too, with settings that use all of its terms. */
static const td_optimizer update_settings[] = {
    td_sgd(0.1),
    td_sgd(0.1, .weight_decay = 0.01, .momentum = 0.9),
    td_sgd(0.1, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true),
    td_adagrad(0.1, .epsilon = 1e-3),
    td_rowwise_adagrad(0.1, .epsilon = 1e-3),
    td_rmsprop(0.1),
    td_adam(0.01, .weight_decay = 0.1),
    td_adamw(0.01, .weight_decay = 0.1),
    td_adam_weight_decay(0.01, .weight_decay = 0.1),
    td_lion(0.01, .weight_decay = 0.1),
    td_lazy_adam(0.01),
    td_ftrl(0.05, .l1 = 0.5, .l2 = 0.1),
    td_ftrl(0.05, .l1 = 0.1, .l2 = 0.1, .lr_power = -0.7),
};
enum { UPDATE_SETTINGS = sizeof update_settings / sizeof *update_settings };

#endif
