/* A recipe in the making: what random_graph.c and random_ops.c share. Tests include random_graph.h. */
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_MAKER_H
#define TANDEM_TESTS_SUPPORT_RANDOM_MAKER_H

#include "tests/support/random_graph.h"

typedef struct maker {
    random_recipe *recipe;
    random_numbers r;
} maker;

extern const random_dim maker_batch_dim;
random_dim maker_constant(int64_t n);
int64_t maker_draw_width(maker *m);
/* A step is added, given its inputs and outputs, and finished, which names it; the result is its first value. */
random_step *maker_add_step(maker *m, random_kind kind);
random_value *maker_add_value(maker *m, random_step *step, int32_t rank, const random_dim *dims);
void maker_read_value(maker *m, random_step *step, int32_t value);
int32_t maker_finish(maker *m, random_step *step);
/* All of that for a step of one output; then for one that has the shape of its only input. */
int32_t maker_add_op(maker *m, random_kind kind, int32_t n, const int32_t *inputs, int32_t rank,
                     const random_dim *dims);
int32_t maker_add_unary(maker *m, random_kind kind, int32_t x);
random_step *maker_last_step(maker *m);

int64_t maker_elements_per_sample(const random_value *v);
bool maker_same_shape(const random_value *a, const random_value *b, int32_t but_axis);
/* An activation of a rank in [low, high], new ones more often than old ones; -1: none came up. */
int32_t maker_pick(maker *m, int32_t low, int32_t high);
/* Another activation shaped like x but for one axis; x itself when none comes up. */
int32_t maker_pick_like(maker *m, int32_t x, int32_t but_axis);
int32_t maker_flatten(maker *m, int32_t x);

int32_t maker_add_source(maker *m, random_kind kind, int32_t rank, const random_dim *dims, int64_t limit, bool flag);
int32_t maker_add_parameter(maker *m, int32_t rank, const random_dim *dims, bool table);
/* A parameter of this shape: one that is there already (tied) or a new one. */
int32_t maker_parameter(maker *m, int32_t rank, const random_dim *dims);

/* One more op, unless it finds no fitting input. */
void maker_draw_op(maker *m, bool host_calls);

#endif
