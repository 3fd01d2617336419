/* Drawing the ops of a recipe: every one that is drawn is valid; one that finds no fitting input is not drawn. */
#include "tests/support/random_maker.h"

#include <string.h>

enum { SMALL_ELEMENTS = 400 };

/* ---- ops ------------------------------------------------------------------------------------------------------------------------------ */

static void draw_linear(maker *m)
{
    int32_t x = maker_pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int64_t in = shape.dims[shape.rank - 1].n, out = maker_draw_width(m);
    shape.dims[shape.rank - 1] = maker_constant(out);
    if (random_chance(&m->r, 50)) {
        (void)maker_add_op(m, RANDOM_LINEAR, 1, &x, shape.rank, shape.dims);
        maker_last_step(m)->frozen = random_chance(&m->r, 8);
    } else {
        const random_dim weight[2] = {maker_constant(out), maker_constant(in)}, bias[1] = {maker_constant(out)};
        int32_t inputs[3] = {x, maker_parameter(m, 2, weight), -1}, n = 2;
        if (random_chance(&m->r, 60))
            inputs[n++] = maker_parameter(m, 1, bias);
        (void)maker_add_op(m, RANDOM_LINEAR_WITH, n, inputs, shape.rank, shape.dims);
    }
}

static void draw_matmul(maker *m)
{
    bool transpose = random_chance(&m->r, 50);
    if (random_chance(&m->r, 40)) { /* each sample's matrix with itself */
        int32_t x = maker_pick(m, 3, 3);
        if (x < 0)
            return;
        random_value shape = m->recipe->values[x];
        int64_t size = shape.dims[transpose ? 1 : 2].n;
        const random_dim dims[3] = {maker_batch_dim, maker_constant(size), maker_constant(size)};
        (void)maker_add_op(m, RANDOM_MATMUL, 2, (int32_t[]){x, x}, 3, dims);
        maker_last_step(m)->flag = !transpose;
        maker_last_step(m)->other = transpose;
        return;
    }
    int32_t x = maker_pick(m, 2, 3);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int64_t in = shape.dims[shape.rank - 1].n, out = maker_draw_width(m);
    const random_dim weight[2] = {maker_constant(transpose ? out : in), maker_constant(transpose ? in : out)};
    shape.dims[shape.rank - 1] = maker_constant(out);
    (void)maker_add_op(m, RANDOM_MATMUL, 2, (int32_t[]){x, maker_parameter(m, 2, weight)}, shape.rank, shape.dims);
    maker_last_step(m)->other = transpose;
}

/* The other operand of an elementwise op: alike, a parameter over the last axes, or one with axes of size 1. */
static int32_t operand(maker *m, int32_t x)
{
    random_value shape = m->recipe->values[x];
    int64_t how = random_below(&m->r, 4);
    if (how == 0 || shape.rank < 2)
        return maker_pick_like(m, x, -1);
    random_dim dims[2] = {maker_constant(1), shape.dims[shape.rank - 1]};
    if (how == 1)
        return maker_parameter(m, 1, &dims[1]);
    if (how == 2) { /* a view of a parameter, shared with whoever reads it plain */
        int32_t flat = maker_parameter(m, 1, &dims[1]);
        int32_t view = maker_add_op(m, RANDOM_RESHAPE, 1, &flat, 2, dims);
        random_step *step = maker_last_step(m);
        step->rank = 2;
        memcpy(step->shape, dims, sizeof dims);
        return view;
    }
    int32_t axis = (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    shape.dims[axis] = maker_constant(1);
    int32_t sum = maker_add_op(m, RANDOM_REDUCE_MEAN, 1, &x, shape.rank, shape.dims);
    maker_last_step(m)->a = axis;
    maker_last_step(m)->flag = true;
    return sum;
}

static void draw_binary(maker *m)
{
    static const random_kind kinds[] = {RANDOM_ADD, RANDOM_SUB, RANDOM_MUL, RANDOM_DIV};
    random_kind kind = kinds[random_below(&m->r, 4)];
    int32_t x = maker_pick(m, 1, RANDOM_RANK);
    if (x < 0)
        return;
    int32_t y = operand(m, x);
    if (kind == RANDOM_DIV) { /* by something in (1/2, 1) */
        y = maker_add_unary(m, RANDOM_SIGMOID, y);
        y = maker_add_unary(m, RANDOM_SIGMOID, y);
    }
    bool swap = kind != RANDOM_DIV && random_chance(&m->r, 40);
    random_value shape = m->recipe->values[x];
    (void)maker_add_op(m, kind, 2, swap ? (int32_t[]){y, x} : (int32_t[]){x, y}, shape.rank, shape.dims);
}

static void draw_unary(maker *m)
{
    static const random_kind kinds[] = {RANDOM_RELU, RANDOM_GELU,  RANDOM_SIGMOID, RANDOM_TANH,      RANDOM_SOFTMAX,
                                        RANDOM_COPY, RANDOM_SCALE, RANDOM_DROPOUT, RANDOM_LAYER_NORM};
    random_kind kind = kinds[random_below(&m->r, 9)];
    int32_t x = maker_pick(m, kind == RANDOM_SOFTMAX || kind == RANDOM_LAYER_NORM ? 2 : 1, RANDOM_RANK);
    if (x < 0)
        return;
    (void)maker_add_unary(m, kind, x);
    random_step *step = maker_last_step(m);
    step->flag = random_chance(&m->r, 50);
    step->factor = kind == RANDOM_DROPOUT ? 0.1 * (double)(1 + random_below(&m->r, 5))
                                          : 0.25 * (double)(random_below(&m->r, 9) - 4);
    step->frozen = kind == RANDOM_LAYER_NORM && random_chance(&m->r, 8);
}

static void draw_scale_by(maker *m)
{
    int32_t x = maker_pick(m, 1, RANDOM_RANK);
    const random_dim one[1] = {maker_constant(1)};
    if (x < 0)
        return;
    int32_t scalar = maker_add_source(m, RANDOM_SCALAR, 1, one, 0, false);
    maker_last_step(m)->factor = 0.5 + 0.25 * (double)random_below(&m->r, 5);
    random_value shape = m->recipe->values[x];
    (void)maker_add_op(m, RANDOM_SCALE_BY, 2, (int32_t[]){x, scalar}, shape.rank, shape.dims);
}

static void draw_concat(maker *m)
{
    int32_t inputs[RANDOM_INPUTS], n = (int32_t)(2 + random_below(&m->r, 3));
    int32_t x = inputs[0] = maker_pick(m, 1, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int32_t axis = (int32_t)(shape.rank == 1 || random_chance(&m->r, 15) ? 0 : 1 + random_below(&m->r, shape.rank - 1));
    for (int32_t i = 1; i < n; i++) {
        inputs[i] = maker_pick_like(m, x, axis ? axis : -1);
        shape.dims[axis].n += m->recipe->values[inputs[i]].dims[axis].n;
    }
    if (maker_elements_per_sample(&shape) > SMALL_ELEMENTS)
        return;
    int32_t whole = maker_add_op(m, RANDOM_CONCAT, n, inputs, shape.rank, shape.dims);
    maker_last_step(m)->a = axis;
    if (axis)
        return;
    random_step *split = maker_add_step(m, RANDOM_SPLIT); /* over the batch: [n * B, ..] is cut into [B, ..] again */
    maker_read_value(m, split, whole);
    split->a = 0;
    shape.dims[0] = maker_batch_dim;
    for (int32_t i = 0; i < n; i++)
        (void)maker_add_value(m, split, shape.rank, shape.dims);
    (void)maker_finish(m, split);
}

static void draw_slice(maker *m)
{
    int32_t x = maker_pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int32_t axis = (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    int64_t n = shape.dims[axis].n, size = 1 + random_below(&m->r, n);
    shape.dims[axis].n = size;
    (void)maker_add_op(m, RANDOM_SLICE, 1, &x, shape.rank, shape.dims);
    maker_last_step(m)->a = axis;
    maker_last_step(m)->b = random_below(&m->r, n - size + 1);
    maker_last_step(m)->limit = size;
}

static void draw_split(maker *m)
{
    int32_t x = maker_pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int32_t axis = (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    int64_t parts = 2 + random_below(&m->r, 3);
    if (shape.dims[axis].n % parts)
        return;
    random_step *step = maker_add_step(m, RANDOM_SPLIT);
    maker_read_value(m, step, x);
    step->a = axis;
    shape.dims[axis].n /= parts;
    for (int64_t i = 0; i < parts; i++)
        (void)maker_add_value(m, step, shape.rank, shape.dims);
    (void)maker_finish(m, step);
}

static void draw_reshape(maker *m)
{
    int32_t x = maker_pick(m, 1, RANDOM_RANK);
    if (x < 0)
        return;
    random_value from = m->recipe->values[x];
    int64_t n = maker_elements_per_sample(&from);
    if (from.rank != 2 || random_chance(&m->r, 30)) {
        (void)maker_flatten(m, x);
        return;
    }
    int64_t part = 1 + random_below(&m->r, 4);
    if (n % part)
        part = 1;
    const random_dim dims[3] = {maker_batch_dim, maker_constant(part), maker_constant(n / part)};
    (void)maker_add_op(m, RANDOM_RESHAPE, 1, &x, 3, dims);
    memcpy(maker_last_step(m)->shape, dims, sizeof dims);
    maker_last_step(m)->rank = 3;
}

static void draw_transpose(maker *m)
{
    int32_t x = maker_pick(m, 3, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    random_dim swapped = shape.dims[1];
    shape.dims[1] = shape.dims[2];
    shape.dims[2] = swapped;
    (void)maker_add_op(m, RANDOM_TRANSPOSE, 1, &x, shape.rank, shape.dims);
}

static void draw_reduce(maker *m)
{
    int32_t x = maker_pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x], whole = shape;
    bool over_batch = random_chance(&m->r, 15), keep = over_batch || random_chance(&m->r, 50);
    int32_t axis = over_batch ? 0 : (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    shape.dims[axis] = maker_constant(1);
    for (int32_t i = axis; !keep && i + 1 < shape.rank; i++)
        shape.dims[i] = shape.dims[i + 1];
    shape.rank -= !keep;
    int32_t y = maker_add_op(m, random_chance(&m->r, 50) ? RANDOM_REDUCE_SUM : RANDOM_REDUCE_MEAN, 1, &x, shape.rank,
                             shape.dims);
    maker_last_step(m)->a = axis;
    maker_last_step(m)->flag = keep;
    if (over_batch) /* each sample less the batch's */
        (void)maker_add_op(m, RANDOM_SUB, 2, (int32_t[]){x, y}, whole.rank, whole.dims);
}

/* What an optimizer takes away: the same op again, a transpose and back, a factor of one, reshapes in a row. */
static void draw_redundant(maker *m)
{
    static const random_kind kinds[] = {RANDOM_GELU, RANDOM_SIGMOID, RANDOM_TANH, RANDOM_RELU};
    int64_t how = random_below(&m->r, 4);
    int32_t x = maker_pick(m, how == 1 ? 3 : 1, RANDOM_RANK);
    if (x < 0)
        return;
    random_kind kind = kinds[random_below(&m->r, 4)];
    if (how == 0) {
        for (int32_t again = 0; again < 2; again++)
            (void)maker_add_unary(m, kind, x);
    } else if (how == 1) {
        random_value from = m->recipe->values[x], to = from;
        to.dims[1] = from.dims[2];
        to.dims[2] = from.dims[1];
        int32_t y = maker_add_op(m, RANDOM_TRANSPOSE, 1, &x, to.rank, to.dims);
        (void)maker_add_op(m, RANDOM_TRANSPOSE, 1, &y, from.rank, from.dims);
    } else if (how == 2) {
        (void)maker_add_unary(m, RANDOM_SCALE, maker_add_unary(m, RANDOM_COPY, x));
        maker_last_step(m)->factor = 1;
    } else {
        (void)maker_flatten(m, maker_flatten(m, x));
    }
}

/* ---- lookups -------------------------------------------------------------------------------------------------------------------------- */

/* A table, known or new. */
static int32_t pick_table(maker *m)
{
    for (int32_t v = 0; v < m->recipe->n_values; v++) {
        const random_step *step = &m->recipe->steps[m->recipe->values[v].step];
        if (step->kind == RANDOM_PARAMETER && step->flag && random_chance(&m->r, 35))
            return v;
    }
    const random_dim dims[2] = {maker_constant(1 + random_below(&m->r, 60)), maker_constant(maker_draw_width(m))};
    return maker_add_parameter(m, 2, dims, true);
}

/* Ids below `limit`, known or new. */
static int32_t pick_ids(maker *m, random_kind kind, int64_t limit, int32_t rank)
{
    for (int32_t v = 0; v < m->recipe->n_values; v++) {
        const random_step *step = &m->recipe->steps[m->recipe->values[v].step];
        if (step->kind == kind && step->limit <= limit && step->rank == rank && random_chance(&m->r, 35))
            return v;
    }
    const random_dim dims[2] = {maker_batch_dim, maker_constant(1 + random_below(&m->r, 4))};
    return maker_add_source(m, kind, rank, dims, limit, random_chance(&m->r, 30));
}

static void draw_embedding(maker *m)
{
    int32_t table = pick_table(m), rank = random_chance(&m->r, 70) ? 1 : 2;
    const random_value t = m->recipe->values[table];
    bool gather = random_chance(&m->r, 20);
    int64_t offset = gather ? 0 : random_below(&m->r, t.dims[0].n);
    int32_t ids = pick_ids(m, RANDOM_IDS, t.dims[0].n - offset, rank);
    random_dim dims[3] = {maker_batch_dim, m->recipe->values[ids].dims[1], t.dims[1]};
    dims[rank] = t.dims[1];
    (void)maker_add_op(m, gather ? RANDOM_GATHER : RANDOM_EMBEDDING, 2, (int32_t[]){table, ids}, rank + 1, dims);
    maker_last_step(m)->a = offset;
}

static void draw_embedding_bag(maker *m)
{
    int32_t table = pick_table(m), inputs[3] = {table}, n = 2;
    const random_value t = m->recipe->values[table];
    int64_t offset = random_below(&m->r, t.dims[0].n);
    bool ragged = random_chance(&m->r, 70);
    inputs[1] = ragged ? pick_ids(m, RANDOM_BAGS, t.dims[0].n - offset, 1)
                       : pick_ids(m, RANDOM_IDS, t.dims[0].n - offset, random_chance(&m->r, 60) ? 2 : 1);
    if (ragged && random_chance(&m->r, 25)) {
        random_step *step = maker_add_step(m, RANDOM_WEIGHTS);
        maker_read_value(m, step, inputs[1]);
        (void)maker_add_value(m, step, 0, NULL);
        inputs[n++] = maker_finish(m, step);
        m->recipe->values[inputs[2]].output = false;
    }
    const random_dim dims[2] = {maker_batch_dim, t.dims[1]};
    (void)maker_add_op(m, RANDOM_EMBEDDING_BAG, n, inputs, 2, dims);
    maker_last_step(m)->a = offset;
    maker_last_step(m)->flag = random_chance(&m->r, 50);
}

static void draw_interaction(maker *m)
{
    int32_t inputs[RANDOM_INPUTS], n = (int32_t)(2 + random_below(&m->r, 3)), x = inputs[0] = maker_pick(m, 2, 2);
    if (x < 0)
        return;
    for (int32_t i = 1; i < n; i++)
        inputs[i] = maker_pick_like(m, x, -1);
    const random_dim dims[2] = {maker_batch_dim, maker_constant(n * (n - 1) / 2)};
    (void)maker_add_op(m, RANDOM_DOT_INTERACTION, n, inputs, 2, dims);
}

static void draw_cross(maker *m)
{
    int32_t x = maker_pick(m, 2, 2);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    (void)maker_add_op(m, RANDOM_CROSS_LAYER, 2, (int32_t[]){maker_pick_like(m, x, -1), x}, 2, shape.dims);
    maker_last_step(m)->frozen = random_chance(&m->r, 8);
}

static void draw_host_call(maker *m)
{
    int32_t inputs[2] = {maker_pick(m, 1, RANDOM_RANK), maker_pick(m, 1, RANDOM_RANK)};
    const random_dim one[1] = {maker_constant(1)};
    if (inputs[0] < 0 || inputs[1] < 0)
        return;
    (void)maker_add_op(m, RANDOM_HOST_CALL, 1 + (int32_t)random_below(&m->r, 2), inputs, 1, one);
    maker_last_step(m)->target[0] = '\0';
    m->recipe->n_host_calls++;
}

void maker_draw_op(maker *m, bool host_calls)
{
    static void (*const draws[])(maker *) = {
        draw_linear,    draw_linear,    draw_linear,        draw_matmul,        draw_binary,      draw_binary,
        draw_binary,    draw_unary,     draw_unary,         draw_unary,         draw_scale_by,    draw_concat,
        draw_concat,    draw_slice,     draw_split,         draw_reshape,       draw_transpose,   draw_reduce,
        draw_embedding, draw_embedding, draw_embedding_bag, draw_embedding_bag, draw_interaction, draw_cross,
        draw_redundant, draw_redundant,
    };
    if (host_calls && random_chance(&m->r, 6))
        draw_host_call(m);
    else
        draws[random_below(&m->r, (int64_t)(sizeof draws / sizeof *draws))](m);
}
