/* A part of update_mixed, which early_update and settle_update have one of: where its inputs are, and what of them is checked and computed
 * alike. Not an op. */
#ifndef TANDEM_GRAPH_OPS_UPDATE_PART_H
#define TANDEM_GRAPH_OPS_UPDATE_PART_H

#include <string.h>

#include "graph/ops/elements.h"
#include "graph/ops/rules.h"
#include "graph/ops/update_rules.h"

enum {
    MIXED_PARAMETER,
    MIXED_GRADIENT,
    MIXED_SUM,
    MIXED_MICRO,
    MIXED_FACTOR,
    MIXED_COEFFICIENTS,
    MIXED_STATES,
    MIXED_INPUTS = MIXED_STATES + TD_MAX_SLOTS
};
/* What settle_update reads after those. */
enum { SETTLE_SPECULATED = MIXED_INPUTS, SETTLE_FIRST, SETTLE_LOG, SETTLE_COPY, SETTLE_INPUTS };

/* TD_F32: the attribute "copy" names no 16-bit dtype. */
static inline td_dtype mixed_copy_dtype(const td_infer *infer)
{
    const char *name = td_attr_string(infer->attrs, infer->n_attrs, "copy", "");
    return strcmp(name, "bf16") == 0 ? TD_BF16 : strcmp(name, "f16") == 0 ? TD_F16 : TD_F32;
}

/* The optimizer that the attribute "rule" names. */
static inline td_status *mixed_require_rule(const td_infer *infer, const td_rule **out_rule)
{
    const char *name = td_attr_string(infer->attrs, infer->n_attrs, "rule", "");
    *out_rule = td_rule_find(name);
    if (!*out_rule)
        return TD_SHAPE_ERROR(infer, "there is no optimizer \"%s\"; did you mean \"%s\"?", name, td_rule_nearest(name));
    if (!td_rule_is_elementwise(*out_rule))
        return TD_SHAPE_ERROR(infer, "%s works on more than one element at a time", name);
    return NULL;
}

static inline int32_t mixed_count_states(const td_type *part)
{
    int32_t n = 0;
    while (n < TD_MAX_SLOTS && part[MIXED_STATES + n].kind != TD_NONE)
        n++;
    return n;
}

/* All but the parameter's own type, of the part whose inputs begin at `first`. */
static inline td_status *mixed_require_part(const td_infer *infer, const td_rule *rule, int32_t first)
{
    const td_type *part = &infer->inputs[first];
    const td_shape *parameter = &part[MIXED_PARAMETER].shape, *factor = &part[MIXED_FACTOR].shape;
    TD_TRY(update_require_coefficients(infer, first + MIXED_COEFFICIENTS));
    TD_TRY(td_infer_dense(infer, first + MIXED_GRADIENT, TD_FLOATS));
    if (parameter->rank < 1 || !td_shape_equal(parameter, &part[MIXED_GRADIENT].shape))
        return TD_SHAPE_ERROR(infer, "parameter and gradient must have one shape");
    TD_TRY(td_infer_summed_gradient(infer, first + MIXED_GRADIENT));
    if (part[MIXED_FACTOR].kind != TD_NONE) {
        TD_TRY(td_infer_require(infer, first + MIXED_FACTOR, TD_DENSE, TD_F32));
        if (factor->rank != 1 || !td_dim_is(factor->dims[0], 1))
            return TD_SHAPE_ERROR(infer, "the factor must be one number");
    }
    td_infer states = *infer; /* the rule's own number of them, without what is left absent */
    states.n_inputs = first + MIXED_STATES + mixed_count_states(part);
    return update_require_states(&states, rule, first + MIXED_STATES, parameter);
}

/* The gradient that the rule is to see, of elements first .. first + n - 1. */
static inline void mixed_make_gradient(const td_tensor *part, float factor, int64_t first, int64_t n, float *out)
{
    enum { SUMMED = 3 }; /* gradient, sum, micro */
    for (int64_t i = 0; i < n; i++)
        out[i] = factor * td_get_summed(&part[MIXED_GRADIENT], SUMMED, first + i);
}

#endif
