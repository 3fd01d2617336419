/* What CPU kernels of optimizers share: a rule as a function over a span, run over dense and row-sparse gradients.
 *
 * Each kernels/<rule>.c writes the formula of optim/<rule>.c again as a loop that vectorises, operation by operation, so
 * that the bits are the reference's; the function is compiled per instruction set, all around it here once. Elements (rows,
 * where a state has one number per row) are independent, so any cut over threads gives the same bits. */
#ifndef TANDEM_BACKENDS_CPU_UPDATE_H
#define TANDEM_BACKENDS_CPU_UPDATE_H

#include "backends/cpu/kernel.h"
#include "base/prefetch.h"
#include "base/record.h"
#include "base/rows16.h"

enum { TD_UPDATE_MOST_STATES = 3, TD_UPDATE_MOST_NARROW = 2048 /* elements of a 16-bit row, widened on the stack */ };

enum { TD_UPDATE_UNIT = 32 }; /* long spans are taken by so many elements */

/* A 16-bit gradient, and the 16-bit copy of the parameters that an update leaves. */
typedef struct td_update_narrow {
    const uint16_t *gradient;
    uint16_t *copy; /* NULL: none */
    bool is_bf16, copy_is_bf16;
    bool past;    /* the copy is 32-byte aligned, and is written past the caches */
    float factor; /* of the gradient, before the rule */
} td_update_narrow;

typedef struct td_update_rule {
    const char *name;
    int32_t least_states, most_states;
    bool per_row; /* its states have one number per row; else one per element */
    /* n elements, or one row if per_row: states[i] points at their numbers, or is NULL where the call has fewer. The arrays
     * do not overlap. */
    void (*update)(float *parameter, float *const *states, const float *gradient, int64_t n, const float *coefficients);
    /* Optional: the same for spans of any length, asking for what comes next. */
    void (*update_long)(float *parameter, float *const *states, const float *gradient, int64_t n,
                        const float *coefficients);
    /* Optional: the same from a 16-bit gradient and with a copy, for the whole pieces of 32 elements that n has. */
    void (*update_narrow)(float *parameter, float *const *states, const td_update_narrow *narrow, int64_t n,
                          const float *coefficients);
    /* Optional, for rules whose rows are each a long chain of operations: n distinct rows of `dim` elements, with the same bits.
     * Parameter and states are those of all rows, gradients [n, dim]; rows[n] to rows[known] come next, and are asked for. */
    void (*update_rows)(float *parameter, float *const *states, const int64_t *rows, int64_t n, int64_t known,
                        const float *gradients, int64_t dim, const float *coefficients);
} td_update_rule;

/* A parameter with its states, and how to update it. */
typedef struct td_update_target {
    const td_update_rule *rule;
    void *parameter;
    float *states[TD_UPDATE_MOST_STATES];
    td_dtype dtype;   /* of the parameter */
    int64_t rounding; /* of a 16-bit one: see base/rows16.h */
    int32_t n_states;
    int64_t rows, dim; /* dim: elements per row, all dimensions but the first */
    const float *coefficients;
} td_update_target;

/* Whether the states (from input `first` on) are f32 and of the rule's number, and the parameter (input 0) is f32, or 16-bit
 * with rows that fit the buffer below. */
bool td_update_takes(const td_update_rule *rule, const td_kernel_call *call, int32_t first);
void td_update_bind(td_update_target *target, const td_update_rule *rule, const td_kernel_call *call,
                    int32_t coefficients, int32_t first);

static inline void td_update_row(const td_update_target *target, int64_t row, const float *gradient)
{
    float *states[TD_UPDATE_MOST_STATES] = {NULL}, wide[TD_UPDATE_MOST_NARROW];
    const int64_t first = row * target->dim, dim = target->dim;
    for (int32_t s = 0; s < target->n_states; s++)
        states[s] = target->states[s] + (target->rule->per_row ? row : first);
    if (target->dtype == TD_F32) {
        target->rule->update((float *)target->parameter + first, states, gradient, dim, target->coefficients);
        return;
    }
    uint16_t *narrow = (uint16_t *)target->parameter + first;
    td_widen_row(narrow, target->dtype, dim, wide);
    target->rule->update(wide, states, gradient, dim, target->coefficients);
    td_narrow_row(wide, target->dtype, first, dim, target->rounding, td_update_of(target->coefficients), narrow);
}

/* Asks for the beginning of a row and its states, some rows ahead of their use. */
TD_PREFETCHES void td_update_prefetch(const td_update_target *target, int64_t row)
{
    const int64_t first = row * target->dim, size = target->dtype == TD_F32 ? 4 : 2, bytes = target->dim * 4;
    td_prefetch_row_to_write((const char *)target->parameter + first * size, target->dim * size);
    for (int32_t s = 0; s < target->n_states; s++)
        td_prefetch_row_to_write(target->states[s] + (target->rule->per_row ? row : first),
                                 target->rule->per_row ? 4 : bytes);
}
enum { TD_UPDATE_PREFETCH_ROWS = 12 };

/* td_cpu_for of an update of so many elements in n units: each thread's part is recorded as a chunk while the lane records its ops. */
void td_update_for(td_team *team, int64_t n, int64_t block, int64_t elements, td_cpu_range_fn fn, void *context);
/* The same for who cuts by himself: `tag` is td_record_current of the lane's thread. */
uint64_t td_update_record_begin(const td_record_tag *tag);
void td_update_record_end(const td_record_tag *tag, uint64_t from, int64_t elements);

/* `supports` and `run` of a rule's op. */
bool td_update_supports(const td_update_rule *rule, const td_kernel_call *call);
td_status *td_update_run(const td_update_rule *rule, const td_kernel_call *call, td_team *team);

/* The table of a rule's op, in kernels/<rule>.c; also exports the rule itself, for embedding_update. */
#define TD_UPDATE_KERNEL(symbol)                                                                                       \
    static bool supports(const td_kernel_call *call)                                                                   \
    {                                                                                                                  \
        return td_update_supports(&TD_KERNEL(update_##symbol), call);                                                  \
    }                                                                                                                  \
    static td_status *run(const td_kernel_call *call, td_team *team, void *state)                                      \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        return td_update_run(&TD_KERNEL(update_##symbol), call, team);                                                 \
    }

/* Rules that take row-sparse gradients. */
#define TD_UPDATE_RULES(X)                                                                                             \
    X(sgd) X(adagrad) X(rowwise_adagrad) X(rmsprop) X(adam) X(adamw) X(adam_weight_decay) X(lion) X(lazy_adam) X(ftrl)

#endif
