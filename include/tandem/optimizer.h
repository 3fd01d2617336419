/* Optimizers and learning-rate schedules, as data: which rule updates which parameters.
 *
 *     td_group(&options, "table.*", td_lazy_adam(1e-3));
 *     td_group(&options, "*", td_adamw(1e-3, .weight_decay = 0.01));
 *
 * A rule is named as in `tandem ops`; settings it does not have are refused when the plan is made. */
#ifndef TANDEM_OPTIMIZER_H
#define TANDEM_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum td_schedule_kind {
    TD_SCHEDULE_CONSTANT = 0,
    TD_SCHEDULE_COSINE, /* linear warm-up, then half a cosine down to final_factor at total_steps */
    TD_SCHEDULE_LINEAR, /* linear warm-up, then a line down to final_factor at total_steps */
    TD_SCHEDULE_STEP    /* linear warm-up, then times `factor` every `every` updates */
} td_schedule_kind;

/* All counts are in updates. The factor of update t (from 1) multiplies lr; warm-up: t / warmup_steps for t <= warmup. */
typedef struct td_schedule {
    td_schedule_kind kind;
    int64_t warmup_steps, total_steps, every;
    double factor, final_factor;
} td_schedule;

/* One rule with its settings. A setting that is 0 was not given and takes the rule's default; TD_ZERO asks for zero. */
typedef struct td_optimizer {
    const char *name; /* a rule of optim/optimizers.def; NULL: frozen, these parameters are not trained */
    double lr;
    double momentum, beta1, beta2, epsilon, weight_decay, alpha, l1, l2, lr_power, initial_accumulator;
    bool nesterov;
    td_schedule schedule;
} td_optimizer;
#define TD_ZERO (-0.0)

/* td_adamw(1e-3, .weight_decay = 0.01): the first argument is the learning rate. */
#define td_sgd(...) ((td_optimizer){.name = "sgd", .lr = __VA_ARGS__})
#define td_adagrad(...) ((td_optimizer){.name = "adagrad", .lr = __VA_ARGS__})
#define td_rowwise_adagrad(...) ((td_optimizer){.name = "rowwise_adagrad", .lr = __VA_ARGS__})
#define td_rmsprop(...) ((td_optimizer){.name = "rmsprop", .lr = __VA_ARGS__})
#define td_adam(...) ((td_optimizer){.name = "adam", .lr = __VA_ARGS__})
#define td_adamw(...) ((td_optimizer){.name = "adamw", .lr = __VA_ARGS__})
#define td_adam_weight_decay(...) ((td_optimizer){.name = "adam_weight_decay", .lr = __VA_ARGS__})
#define td_lamb(...) ((td_optimizer){.name = "lamb", .lr = __VA_ARGS__})
#define td_lion(...) ((td_optimizer){.name = "lion", .lr = __VA_ARGS__})
#define td_lazy_adam(...) ((td_optimizer){.name = "lazy_adam", .lr = __VA_ARGS__})
#define td_ftrl(...) ((td_optimizer){.name = "ftrl", .lr = __VA_ARGS__})
#define td_frozen() ((td_optimizer){.name = NULL})

#ifdef __cplusplus
}
#endif
#endif
