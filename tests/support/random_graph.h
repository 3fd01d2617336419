/* Random models for property tests: a recipe drawn from a seed, and the graph that it builds.
 *
 * A recipe is a list of steps (inputs, parameters, ops) that always ends in one valid loss. The same recipe can be built in any
 * order in which each step comes after what it reads; names are the recipe's own, so two such graphs differ in the order of
 * their nodes alone. It has fan-out, dead ends, several inputs, ragged and dense ids, shared tables, tied weights, views (of
 * parameters too), outputs of all kinds, sizes from 1 on, and targets.
 *
 *     random_recipe recipe;
 *     random_recipe_draw(&recipe, seed);
 *     td_value loss;
 *     td_graph *graph = random_graph_build(&recipe, (random_build){.order = 7}, &loss);     // may carry an error
 *
 * The same seed gives the same recipe on every machine. */
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_GRAPH_H
#define TANDEM_TESTS_SUPPORT_RANDOM_GRAPH_H

#include "tandem/graph.h"
#include "tandem/ops.h"

/* ---- random numbers ------------------------------------------------------------------------------------------------------ */

typedef struct random_numbers {
    uint64_t state;
} random_numbers;

uint64_t random_next(random_numbers *r);
/* In [0, n); 0 where n < 1. */
int64_t random_below(random_numbers *r, int64_t n);
/* True in `percent` of 100 draws. */
bool random_chance(random_numbers *r, int percent);

/* ---- recipes --------------------------------------------------------------------------------------------------------------- */

enum { RANDOM_STEPS = 160, RANDOM_VALUES = 200, RANDOM_INPUTS = 5, RANDOM_RANK = 4, RANDOM_NAME = 24 };

typedef enum random_kind {
    RANDOM_INPUT = 0, /* f32 [B, ..] */
    RANDOM_IDS,       /* i64 or i32 [B] or [B, length], below `limit` */
    RANDOM_BAGS,      /* ragged ids below `limit` */
    RANDOM_WEIGHTS,   /* f32, one per id of the ragged input inputs[0] */
    RANDOM_LABEL,     /* f32 like inputs[0], or class numbers [B] below `limit` */
    RANDOM_PARAMETER,
    RANDOM_SCALAR,
    RANDOM_LINEAR,
    RANDOM_LINEAR_WITH,
    RANDOM_MATMUL,
    RANDOM_ADD,
    RANDOM_SUB,
    RANDOM_MUL,
    RANDOM_DIV,
    RANDOM_SCALE,
    RANDOM_SCALE_BY,
    RANDOM_RELU,
    RANDOM_GELU,
    RANDOM_SIGMOID,
    RANDOM_TANH,
    RANDOM_SOFTMAX,
    RANDOM_CONCAT,
    RANDOM_SLICE,
    RANDOM_SPLIT,
    RANDOM_RESHAPE,
    RANDOM_TRANSPOSE,
    RANDOM_REDUCE_SUM,
    RANDOM_REDUCE_MEAN,
    RANDOM_LAYER_NORM,
    RANDOM_DROPOUT,
    RANDOM_GATHER,
    RANDOM_EMBEDDING,
    RANDOM_EMBEDDING_BAG,
    RANDOM_DOT_INTERACTION,
    RANDOM_CROSS_LAYER,
    RANDOM_COPY,
    RANDOM_HOST_CALL,
    RANDOM_BCE,
    RANDOM_MSE,
    RANDOM_CROSS_ENTROPY,
    RANDOM_KINDS
} random_kind;

/* n, or n * B. */
typedef struct random_dim {
    int64_t n;
    bool batch;
} random_dim;

typedef struct random_value {
    int32_t step, rank, uses;
    random_dim dims[RANDOM_RANK];
    bool activation; /* f32 [B, ..], made by an op or an input */
    bool output;     /* td_output */
} random_value;

typedef struct random_step {
    random_kind kind;
    char name[RANDOM_NAME];
    char target[8];                                                   /* a device's name, or "" */
    int32_t inputs[RANDOM_INPUTS], n_inputs, first_output, n_outputs; /* values */
    random_dim shape[RANDOM_RANK];                                    /* of sources and reshapes */
    int32_t rank;
    int64_t a, b, limit; /* axis and size, width, begin; see random_build.c */
    double factor;
    bool flag, other;
    bool frozen, reaches_loss;
} random_step;

typedef struct random_recipe {
    uint64_t seed;
    int64_t batch; /* capacity of extent "B" */
    random_step steps[RANDOM_STEPS];
    int32_t n_steps;
    random_value values[RANDOM_VALUES];
    int32_t n_values;
    int32_t loss; /* value */
    int32_t n_host_calls;
} random_recipe;

/* `host_calls`: whether dead ends may be host functions (plans with them are not cached). */
void random_recipe_draw(random_recipe *recipe, uint64_t seed, bool host_calls);

/* ---- graphs ------------------------------------------------------------------------------------------------------------------- */

/* What a host call has seen: how often it ran, and a hash of all it read, step after step. */
typedef struct random_witness {
    int64_t calls;
    uint64_t hash;
} random_witness;

typedef struct random_build {
    uint64_t order;  /* 0: as drawn; else steps are made in an order shuffled by this */
    int32_t devices; /* with primitive_target where the recipe has one and there are so many devices; 0: without */
    random_witness *witnesses; /* one per step; needed where the recipe has host calls */
} random_build;

/* Never NULL unless there is no memory; an error of building waits in the graph. */
td_graph *random_graph_build(const random_recipe *recipe, random_build how, td_value *out_loss);

#endif
