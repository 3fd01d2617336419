/* What an optimizer is: slots, settings, the coefficients of a step, and the formula as a plain reference.
 *
 * One file in optim/ defines a rule; optim/optimizers.def lists it. Each rule is also an op of the same name
 * (graph/ops/ops.def includes optimizers.def): inputs `parameter` (written), `gradient` (dense or row-sparse),
 * `coefficients` (scalar, f32[16]), then one written state per slot. "embedding_update" runs the same rule fused with
 * an embedding's backward. Whatever depends on the step (learning rate, bias corrections, the gradient's scale) is
 * computed once per update on the host, in double, by `coefficients`; kernels see plain FP32 numbers.
 *
 * Expression order and every fma are part of a rule: kernels for any instruction set give the reference's bits. */
#ifndef TANDEM_OPTIM_RULE_H
#define TANDEM_OPTIM_RULE_H

#include "tandem/backend.h"
#include "tandem/optimizer.h"
#include "tandem/status.h"

enum { TD_COEFFICIENTS = 16, TD_MAX_SLOTS = 3 };

typedef struct td_slot {
    const char *name; /* "m", "v", "acc": as in checkpoints; NULL ends the list */
    bool per_row;     /* one number per row, f32 [first dimension of the parameter], rather than one per element */
    bool from_initial_accumulator; /* starts at the setting initial_accumulator instead of 0 */
    const char *only_with; /* a setting: the slot, and those after it, exist only where that is not 0; NULL: always */
} td_slot;

/* A setting that a rule knows: its name in configurations and its default. NULL ends the list. */
typedef struct td_setting {
    const char *name; /* "beta1", "weight_decay", ...: a field of td_optimizer */
    double fallback;
    double least, most; /* allowed range, inclusive */
} td_setting;

typedef struct td_rule {
    const char *name;
    const char *summary; /* formula in one line, with its source */
    td_slot slots[TD_MAX_SLOTS + 1];
    td_setting settings[9];
    const char *refuses_dense, *refuses_row_sparse; /* a reason, or NULL: takes it */
    /* Optional: what ranges cannot say about resolved settings. */
    td_status *(*check)(const td_optimizer *settings);
    bool whole_tensor; /* needs the norm of a whole parameter (LAMB): `reference_tensor` instead of `reference` */
    /* `settings`: every setting resolved (see td_rule_resolve). `lr`: after the schedule. `update`: from 1. `scale`:
     * what gradients are multiplied by, stored in out[0]. */
    void (*coefficients)(const td_optimizer *settings, double lr, int64_t update, double scale,
                         float out[TD_COEFFICIENTS]);
    /* n elements of one row (or any span, for element-wise rules). slots[i] points at n numbers, or at one if per_row.
     */
    void (*reference)(float *parameter, float *const *slots, const float *gradient, int64_t n,
                      const float *coefficients);
    td_status *(*reference_tensor)(float *parameter, float *const *slots, const float *gradient, int64_t n,
                                   const float *coefficients);
} td_rule;

int32_t td_rule_count(void);
const td_rule *td_rule_at(int32_t index);
const td_rule *td_rule_find(const char *name); /* NULL when there is none */
const char *td_rule_nearest(const char *name);
/* Whether an element's update depends on its own gradient and state alone: a parameter may then be cut anywhere. */
bool td_rule_is_elementwise(const td_rule *rule);
/* The rule's state slots for these settings (sgd keeps a momentum only when momentum is not 0): how many, into out. */
int32_t td_rule_slots(const td_rule *rule, const td_optimizer *settings, const td_slot **out_slots);
/* Checks `given` against the rule and fills in defaults (TD_ZERO becomes 0). Errors name the rule, the setting, the
 * value and the range, or the settings that the rule knows. */
td_status *td_rule_resolve(const td_rule *rule, const td_optimizer *given, td_optimizer *out_settings) TD_MUST_USE;

/* The learning-rate factor of update t (from 1). */
double td_schedule_factor(const td_schedule *schedule, int64_t update);
td_status *td_schedule_check(const td_schedule *schedule) TD_MUST_USE;
/* base^n by repeated squaring: the same bits on every machine. */
double td_power(double base, int64_t n);

#endif
