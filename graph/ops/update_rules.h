/* What the optimizer ops and embedding_update share: checks of their states, and a rule at work on some rows. Not an
 * op. */
#ifndef TANDEM_GRAPH_OPS_UPDATE_RULES_H
#define TANDEM_GRAPH_OPS_UPDATE_RULES_H

#include "base/memory.h"
#include "graph/op.h"
#include "base/rows16.h"
#include "optim/rule.h"

#define UPDATE_ROUNDING_ATTR                                                                                           \
    {                                                                                                                  \
        .name = "rounding", .type = TD_ATTR_INT,                                                                       \
        .help = "of a 16-bit parameter: 0 to nearest, else the key of stochastic rounding"                             \
    }

static inline int32_t update_most_slots(const td_rule *rule)
{
    int32_t count = 0;
    while (rule->slots[count].name)
        count++;
    return count;
}

/* Slots that no setting takes away. */
static inline int32_t update_least_slots(const td_rule *rule)
{
    int32_t count = 0;
    while (rule->slots[count].name && !rule->slots[count].only_with)
        count++;
    return count;
}

static inline td_status *update_require_state(const td_infer *infer, int32_t index, const td_slot *slot,
                                              const td_shape *parameter)
{
    TD_TRY(td_infer_require(infer, index, TD_DENSE, TD_F32));
    td_shape expected = *parameter;
    if (slot->per_row)
        expected.rank = 1;
    if (td_shape_equal(&infer->inputs[index].shape, &expected))
        return NULL;
    char have[128], want[128];
    return TD_SHAPE_ERROR(infer, "state %s must be %s, not %s", slot->name,
                          td_shape_text(infer->graph, &expected, want, sizeof want),
                          td_shape_text(infer->graph, &infer->inputs[index].shape, have, sizeof have));
}

/* Inputs from `first` on are the rule's states for a parameter of this shape, all or, where a setting decides, fewer.
 */
static inline td_status *update_require_states(const td_infer *infer, const td_rule *rule, int32_t first,
                                               const td_shape *parameter)
{
    int32_t given = infer->n_inputs > first ? infer->n_inputs - first : 0;
    int32_t least = update_least_slots(rule), most = update_most_slots(rule);
    if (given < least || given > most)
        return TD_SHAPE_ERROR(infer, "%d states are given, rule %s has %d%s", given, rule->name, most,
                              least < most ? " at most" : "");
    for (int32_t s = 0; s < given; s++)
        TD_TRY(update_require_state(infer, first + s, &rule->slots[s], parameter));
    return NULL;
}

static inline td_status *update_require_coefficients(const td_infer *infer, int32_t index)
{
    TD_TRY(td_infer_require(infer, index, TD_SCALAR, TD_F32));
    const td_shape *shape = &infer->inputs[index].shape;
    if (shape->rank != 1 || !td_dim_is(shape->dims[0], TD_COEFFICIENTS))
        return TD_SHAPE_ERROR(infer, "the coefficients must be %d numbers", TD_COEFFICIENTS);
    return NULL;
}

/* A rule bound to a parameter and its states. */
typedef struct update_target {
    const td_rule *rule;
    void *parameter;
    td_dtype dtype;   /* of the parameter */
    int64_t rounding; /* of a 16-bit one: see base/rows16.h */
    float *states[TD_MAX_SLOTS];
    int32_t n_states;
    int64_t dim; /* elements per row: all dimensions but the first */
    const float *coefficients;
} update_target;

/* Of a call whose input 0 is the parameter and whose states begin at input `first`. */
static inline update_target update_bind(const td_rule *rule, const td_kernel_call *call, int32_t coefficients,
                                        int32_t first)
{
    const td_tensor *parameter = &call->inputs[0];
    update_target target = {.rule = rule,
                            .parameter = parameter->data,
                            .dtype = parameter->dtype,
                            .rounding = td_attr_int(call->attrs, call->n_attrs, "rounding", 0),
                            .dim = 1,
                            .coefficients = call->inputs[coefficients].data};
    for (int32_t axis = 1; axis < parameter->rank; axis++)
        target.dim *= parameter->dims[axis];
    for (int32_t i = first; i < call->n_inputs; i++)
        target.states[target.n_states++] = call->inputs[i].data;
    return target;
}

/* Updates one row of the parameter; a 16-bit one widened, and rounded when it is done. */
static inline td_status *update_row(const update_target *target, int64_t row, const float *gradient)
{
    float *states[TD_MAX_SLOTS] = {NULL}, *wide = NULL;
    const int64_t first = row * target->dim;
    for (int32_t s = 0; s < target->n_states; s++)
        states[s] = target->states[s] + (target->rule->slots[s].per_row ? row : first);
    if (target->dtype == TD_F32) {
        target->rule->reference((float *)target->parameter + first, states, gradient, target->dim,
                                target->coefficients);
        return NULL;
    }
    uint16_t *narrow = (uint16_t *)target->parameter + first;
    TD_TRY(TD_NEW(wide, target->dim + 1));
    td_widen_row(narrow, target->dtype, target->dim, wide);
    target->rule->reference(wide, states, gradient, target->dim, target->coefficients);
    td_narrow_row(wide, target->dtype, first, target->dim, target->rounding, td_update_of(target->coefficients),
                  narrow);
    td_free(wide);
    return NULL;
}

/* Bytes of one row with its states: read once and written once by an update. */
static inline double update_row_bytes(const td_rule *rule, td_dtype dtype, int32_t n_states, int64_t dim)
{
    double bytes = (double)td_dtype_bytes(dtype) * (double)dim;
    for (int32_t s = 0; s < n_states; s++)
        bytes += rule->slots[s].per_row ? 4.0 : 4.0 * (double)dim;
    return bytes;
}

/* An estimate: what the arithmetic of one element costs, divisions and roots included. */
enum { UPDATE_FLOPS = 12 };

#endif
