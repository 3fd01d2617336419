/* Who of a distributed job's workers updates what of a parameter (ps.shard_optimizer): shares of parameters and their state.
 *
 * A bucket's dense parameters lie one after another in one vector (exchange.c), and each worker has a stretch of it: it adds up the
 * replicas' gradients there, updates the parameters and keeps their state; then all gather what the others have updated (gather.c).
 *
 *     bucket     | W1              | W2    | W3                       |
 *     worker     |      0       |      1       |         2            |
 *
 * A stretch ends at a multiple of TD_BLOCK of a parameter, so that sums of squares have the bits that they have without (contract f);
 * within no parameter whose update looks at more than one element at a time. */
#ifndef TANDEM_PARTITION_SHARD_H
#define TANDEM_PARTITION_SHARD_H

#include "partition/plan.h"

typedef struct td_plan_shard_state {
    char *name;
    td_shape shape;
    td_initializer initial;
} td_plan_shard_state;

/* A parameter that the workers share. */
typedef struct td_plan_shard {
    int32_t parameter; /* value, while the plan is built */
    int32_t bucket;
    int64_t *bounds; /* [workers + 1]: worker w has the elements [bounds[w], bounds[w + 1]) */
    int64_t elements;
    int32_t squares; /* value, while the plan is built: of all of its gradient; -1: nobody asks */
    td_plan_shard_state states[TD_MAX_SLOTS];
    int32_t n_states;
} td_plan_shard;

/* Whether this plan's workers share optimizer state. */
static inline bool td_plan_is_sharded(const td_plan *plan)
{
    return plan->shard_workers > 1;
}
/* NULL: every worker has all of it. */
td_plan_shard *td_plan_shard_of(const td_plan *plan, int32_t parameter);
/* Of the worker that plans: its first element and how many. */
static inline int64_t td_shard_begin(const td_plan *plan, const td_plan_shard *shard)
{
    return shard->bounds[plan->shard_worker];
}
static inline int64_t td_shard_size(const td_plan *plan, const td_plan_shard *shard)
{
    return shard->bounds[plan->shard_worker + 1] - shard->bounds[plan->shard_worker];
}
/* The same of a state, which has as many elements as its parameter or one for each row. */
int64_t td_shard_state_bound(const td_plan_shard *shard, int64_t state_elements, int32_t worker);

/* Where the workers' stretches of a vector begin: bounds [workers + 1], of n parameters of so many elements, none of which is cut but
 * at multiples of its grain. */
void td_shard_cut(const int64_t *elements, const int64_t *grains, int32_t n, int32_t workers, int64_t *bounds);
/* At which multiples a parameter with a dense gradient may be cut: its number of elements means not at all. */
int64_t td_shard_grain(const td_plan *plan, const td_plan_request *request, int32_t parameter, int64_t elements);
/* Notes a parameter of a bucket, which begins at element `at` of it. */
td_status *td_shard_add(td_plan *plan, int32_t parameter, int32_t bucket, int64_t at, int64_t elements,
                        const int64_t *bucket_bounds) TD_MUST_USE;
/* Notes a state of a parameter. */
td_status *td_shard_add_state(td_plan_shard *shard, const char *name, td_shape shape,
                              td_initializer initial) TD_MUST_USE;
/* values[i], flags or sums of squares of a sharded parameter's gradient here, become those of all workers. `name` of the node. */
td_status *td_shard_combine(td_plan *plan, const char *name, td_value *const *values, int32_t n) TD_MUST_USE;
void td_plan_drop_shards(td_plan *plan);

#endif
