/* An embedding_update call on random bags of ids, and the same work as two ops: the lookup's gradient, then the rule. */
#ifndef TANDEM_TESTS_OPTIM_LOOKUP_CASE_H
#define TANDEM_TESTS_OPTIM_LOOKUP_CASE_H

#include "tests/optim/update_case.h"

enum { LOOKUP_TABLE, LOOKUP_GRADIENT, LOOKUP_IDS, LOOKUP_WEIGHTS, LOOKUP_COEFFICIENTS, LOOKUP_STATES };

typedef struct lookup_shape {
    int64_t rows, dim, bags, longest; /* longest: ids of a ragged bag; 0: dense ids */
    int64_t length;                   /* dense ids: per bag; 0: pooling none, one row per id */
    const char *pooling;
    bool weighted, narrow; /* narrow: int32 ids */
    int64_t offset;
    int skew_bits; /* ids concentrate on low rows */
} lookup_shape;

typedef struct lookup_case {
    update_case update;
    lookup_shape shape;
    int64_t count;
    int64_t *wide_ids, *offsets;
    int32_t *narrow_ids;
    float *gradient, *weights;
} lookup_case;

static inline int64_t lookup_draw(const lookup_shape *shape)
{
    uint64_t row = update_random() % (uint64_t)shape->rows;
    if (shape->skew_bits)
        row = (row >> (update_random() % (uint64_t)shape->skew_bits)) % (uint64_t)shape->rows;
    return (int64_t)row - shape->offset;
}

static inline void lookup_ids(lookup_case *c)
{
    const lookup_shape *shape = &c->shape;
    c->offsets = td_calloc((size_t)shape->bags + 1, sizeof *c->offsets);
    for (int64_t bag = 0; bag < shape->bags; bag++) {
        int64_t length = shape->longest ? (int64_t)(update_random() % (uint64_t)(shape->longest + 1))
                                        : (shape->length ? shape->length : 1);
        c->offsets[bag + 1] = c->offsets[bag] + length;
    }
    c->count = c->offsets[shape->bags];
    c->wide_ids = td_calloc((size_t)c->count + 1, sizeof *c->wide_ids);
    c->narrow_ids = td_calloc((size_t)c->count + 1, sizeof *c->narrow_ids);
    c->weights = td_calloc((size_t)c->count + 1, sizeof *c->weights);
    for (int64_t i = 0; i < c->count; i++) {
        c->wide_ids[i] = lookup_draw(shape);
        c->narrow_ids[i] = (int32_t)c->wide_ids[i];
        c->weights[i] = update_random() % 4 ? update_random_float() : 1;
    }
}

static inline void lookup_case_init(lookup_case *c, td_optimizer given, const lookup_shape *shape)
{
    *c = (lookup_case){.shape = *shape};
    lookup_ids(c);
    c->gradient = td_calloc((size_t)(shape->bags * shape->dim) + 1, sizeof *c->gradient);
    for (int64_t i = 0; i < shape->bags * shape->dim; i++)
        c->gradient[i] = update_random_float();
    update_case *u = &c->update;
    update_case_init(u, given, shape->rows, shape->dim, 0, LOOKUP_STATES);
    u->call.op = "embedding_update";
    td_dtype dtype = shape->narrow ? TD_I32 : TD_I64;
    void *ids = shape->narrow ? (void *)c->narrow_ids : (void *)c->wide_ids;
    u->inputs[LOOKUP_GRADIENT] = update_dense(TD_F32, c->gradient, 2, shape->bags, shape->dim);
    u->inputs[LOOKUP_IDS] = update_dense(dtype, ids, shape->length ? 2 : 1, shape->bags, shape->length);
    if (shape->longest)
        u->inputs[LOOKUP_IDS] = (td_tensor){.kind = TD_RAGGED,
                                            .dtype = dtype,
                                            .rank = 1,
                                            .dims = {shape->bags},
                                            .entries = c->count,
                                            .data = ids,
                                            .index = c->offsets};
    if (shape->weighted)
        u->inputs[LOOKUP_WEIGHTS] = shape->longest ? update_dense(TD_F32, c->weights, 1, c->count, 0)
                                                   : update_dense(TD_F32, c->weights, 2, shape->bags, shape->length);
    u->inputs[LOOKUP_COEFFICIENTS] = update_coefficients(u);
    u->attrs[0] = TD_STRING("rule", u->rule->name);
    u->attrs[1] = TD_STRING("pooling", shape->pooling);
    u->attrs[2] = TD_INT("offset", shape->offset);
    u->call.n_attrs = 3;
}

static inline void lookup_case_deinit(lookup_case *c)
{
    update_case_deinit(&c->update);
    td_free(c->wide_ids);
    td_free(c->narrow_ids);
    td_free(c->offsets);
    td_free(c->gradient);
    td_free(c->weights);
}

/* The lookup's row-sparse gradient, then the rule's op, by their reference kernels. */
static inline void lookup_two_ops(lookup_case *c)
{
    update_case *u = &c->update;
    bool plain = strcmp(c->shape.pooling, "none") == 0;
    int64_t rows = 0;
    td_tensor gradient = {.kind = TD_ROW_SPARSE,
                          .dtype = TD_F32,
                          .rank = 2,
                          .dims = {c->shape.rows, c->shape.dim},
                          .entries = c->count,
                          .count = &rows};
    gradient.data = td_calloc((size_t)(c->count * c->shape.dim) + 1, sizeof(float));
    gradient.index = td_calloc((size_t)c->count + 1, sizeof(int64_t));
    td_tensor inputs[3] = {u->inputs[LOOKUP_IDS], u->inputs[LOOKUP_GRADIENT], u->inputs[LOOKUP_WEIGHTS]};
    td_attr attrs[3] = {TD_INT("rows", c->shape.rows), TD_INT("offset", c->shape.offset),
                        TD_STRING("pooling", c->shape.pooling)};
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = plain ? "embedding_gradient" : "embedding_bag_gradient",
                           .name = "test",
                           .attrs = attrs,
                           .n_attrs = plain ? 2 : 3,
                           .inputs = inputs,
                           .n_inputs = plain ? 2 : 3,
                           .outputs = &gradient,
                           .n_outputs = 1};
    assert_ok(td_op_reference(call.op)(&call));
    td_tensor update_inputs[UPDATE_MOST_INPUTS] = {u->inputs[LOOKUP_TABLE], gradient, u->inputs[LOOKUP_COEFFICIENTS]};
    for (int32_t s = 0; s < u->n_slots; s++)
        update_inputs[3 + s] = u->inputs[LOOKUP_STATES + s];
    call = (td_kernel_call){.struct_size = sizeof call,
                            .op = u->rule->name,
                            .name = "test",
                            .inputs = update_inputs,
                            .n_inputs = 3 + u->n_slots};
    assert_ok(td_op_reference(call.op)(&call));
    td_free(gradient.data);
    td_free(gradient.index);
}

/* Ragged, dense and plain; with and without weights; few and many ids per row; long and short rows. */
static const lookup_shape lookup_shapes[] = {
    {.rows = 50, .dim = 16, .bags = 0, .longest = 3, .pooling = "sum"},
    {.rows = 1, .dim = 5, .bags = 40, .longest = 4, .pooling = "sum", .narrow = true},
    {.rows = 1000, .dim = 1, .bags = 300, .longest = 6, .pooling = "mean", .skew_bits = 8},
    {.rows = 100, .dim = 17, .bags = 200, .longest = 5, .pooling = "mean", .weighted = true, .offset = 7},
    {.rows = 3000, .dim = 16, .bags = 700, .length = 4, .pooling = "sum", .weighted = true, .narrow = true},
    {.rows = 200, .dim = 33, .bags = 150, .length = 3, .pooling = "mean", .offset = -2},
    {.rows = 500, .dim = 8, .bags = 600, .pooling = "none", .skew_bits = 6},
    {.rows = 100000, .dim = 3, .bags = 12000, .longest = 3, .pooling = "sum", .skew_bits = 16},
};
enum { LOOKUP_SHAPES = sizeof lookup_shapes / sizeof *lookup_shapes };

#endif
