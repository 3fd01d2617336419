/* Drawing recipes: see random_graph.h. Every op that is drawn is valid; one that finds no fitting input is not drawn. */
#include "tests/support/random_graph.h"

#include <stdio.h>
#include <string.h>

/* ---- random numbers (SplitMix64, Steele et al. 2014) ------------------------------------------------------------------------ */

uint64_t random_next(random_numbers *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t random_below(random_numbers *r, int64_t n)
{
    uint64_t number = random_next(r);
    return n > 0 ? (int64_t)(number % (uint64_t)n) : 0;
}

bool random_chance(random_numbers *r, int percent)
{
    return random_below(r, 100) < percent;
}

/* ---- a recipe in the making --------------------------------------------------------------------------------------------------- */

enum { HEAD_ROOM = 24, SMALL_ELEMENTS = 400 };

typedef struct maker {
    random_recipe *recipe;
    random_numbers r;
} maker;

static const random_dim batch_dim = {1, true};

static random_dim constant(int64_t n)
{
    return (random_dim){n, false};
}

static int64_t draw_width(maker *m)
{
    static const int64_t widths[] = {1, 2, 3, 4, 5, 7, 8, 12, 13, 16};
    return widths[random_below(&m->r, (int64_t)(sizeof widths / sizeof *widths))];
}

static bool has_room(const maker *m)
{
    return m->recipe->n_steps + HEAD_ROOM < RANDOM_STEPS && m->recipe->n_values + HEAD_ROOM < RANDOM_VALUES;
}

/* Names carry numbers that say nothing of the order of steps, so that an order by name is another one. */
static void name_step(maker *m, random_step *step)
{
    static const char *const scopes[] = {"alpha", "beta", "gamma", "delta.0", "m/x"};
    int32_t index = (int32_t)(step - m->recipe->steps), number = (index * 37 + (int32_t)(m->recipe->seed % 97)) % 211;
    bool table = step->kind == RANDOM_PARAMETER && step->flag;
    const char *scope = scopes[random_below(&m->r, 5)];
    if (step->kind == RANDOM_INPUT || (step->kind >= RANDOM_IDS && step->kind <= RANDOM_LABEL))
        scope = "in";
    else if (step->kind == RANDOM_PARAMETER)
        scope = table ? "table" : "w";
    else if (step->kind == RANDOM_SCALAR)
        scope = "scalar";
    else if (step->kind == RANDOM_HOST_CALL)
        scope = "host";
    (void)snprintf(step->name, sizeof step->name, "%s.%d%s", scope, number, table ? ".weight" : "");
}

static random_step *add_step(maker *m, random_kind kind)
{
    random_step *step = &m->recipe->steps[m->recipe->n_steps++];
    *step = (random_step){.kind = kind, .first_output = m->recipe->n_values};
    return step;
}

static random_value *add_value(maker *m, random_step *step, int32_t rank, const random_dim *dims)
{
    random_value *value = &m->recipe->values[m->recipe->n_values++];
    *value = (random_value){.step = (int32_t)(step - m->recipe->steps), .rank = rank};
    for (int32_t i = 0; i < rank; i++)
        value->dims[i] = dims[i];
    value->activation = rank > 0 && dims[0].batch && dims[0].n == 1 && step->kind != RANDOM_IDS &&
                        step->kind != RANDOM_BAGS && step->kind != RANDOM_LABEL;
    step->n_outputs++;
    return value;
}

static void read_value(maker *m, random_step *step, int32_t value)
{
    step->inputs[step->n_inputs++] = value;
    m->recipe->values[value].uses++;
}

static int32_t finish(maker *m, random_step *step)
{
    name_step(m, step);
    if (step->kind >= RANDOM_LINEAR && random_chance(&m->r, 12)) {
        static const char *const targets[] = {"cpu", "CPU", "Device", "DEVICE", "d1", "D2", "d3", "d4"};
        (void)snprintf(step->target, sizeof step->target, "%s", targets[random_below(&m->r, 8)]);
    }
    for (int32_t i = 0; i < step->n_outputs; i++)
        m->recipe->values[step->first_output + i].output =
            step->kind != RANDOM_BAGS && step->kind != RANDOM_SCALAR && random_chance(&m->r, 4);
    return step->first_output;
}

/* One step, one output. */
static int32_t add_op(maker *m, random_kind kind, int32_t n, const int32_t *inputs, int32_t rank, const random_dim *dims)
{
    random_step *step = add_step(m, kind);
    for (int32_t i = 0; i < n; i++)
        read_value(m, step, inputs[i]);
    (void)add_value(m, step, rank, dims);
    return finish(m, step);
}

static int32_t add_unary(maker *m, random_kind kind, int32_t x)
{
    random_value shape = m->recipe->values[x];
    return add_op(m, kind, 1, &x, shape.rank, shape.dims);
}

static random_step *last_step(maker *m)
{
    return &m->recipe->steps[m->recipe->n_steps - 1];
}

/* ---- choosing inputs -------------------------------------------------------------------------------------------------------------- */

static int64_t elements_per_sample(const random_value *v)
{
    int64_t n = 1;
    for (int32_t i = 0; i < v->rank; i++)
        n *= v->dims[i].n;
    return n;
}

/* An activation of a rank in [low, high]; new ones more often than old ones. -1: none came up. */
static int32_t pick(maker *m, int32_t low, int32_t high)
{
    const random_recipe *recipe = m->recipe;
    for (int tries = 0; tries < 24; tries++) {
        int64_t n = recipe->n_values, recent = n < 10 ? n : 10;
        int32_t v = (int32_t)(random_chance(&m->r, 60) ? n - 1 - random_below(&m->r, recent) : random_below(&m->r, n));
        const random_value *value = &recipe->values[v];
        if (value->activation && value->rank >= low && value->rank <= high)
            return v;
    }
    return -1;
}

static bool same_shape(const random_value *a, const random_value *b, int32_t but_axis)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (i != but_axis && (a->dims[i].n != b->dims[i].n || a->dims[i].batch != b->dims[i].batch))
            return false;
    return true;
}

/* Another activation shaped like x but for one axis; x itself when none comes up. */
static int32_t pick_like(maker *m, int32_t x, int32_t but_axis)
{
    for (int tries = 0; tries < 12; tries++) {
        int32_t v = pick(m, 1, RANDOM_RANK);
        if (v >= 0 && v != x && same_shape(&m->recipe->values[x], &m->recipe->values[v], but_axis))
            return v;
    }
    return x;
}

/* ---- sources ---------------------------------------------------------------------------------------------------------------------- */

static int32_t add_source(maker *m, random_kind kind, int32_t rank, const random_dim *dims, int64_t limit, bool flag)
{
    random_step *step = add_step(m, kind);
    step->rank = rank;
    step->limit = limit;
    step->flag = flag;
    for (int32_t i = 0; i < rank; i++)
        step->shape[i] = dims[i];
    (void)add_value(m, step, rank, dims);
    return finish(m, step);
}

static int32_t add_parameter(maker *m, int32_t rank, const random_dim *dims, bool table)
{
    int32_t value = add_source(m, RANDOM_PARAMETER, rank, dims, 0, table);
    last_step(m)->frozen = random_chance(&m->r, 8);
    return value;
}

/* A parameter of this shape: one that is there already (tied) or a new one. */
static int32_t parameter(maker *m, int32_t rank, const random_dim *dims)
{
    random_value wanted = {.rank = rank};
    memcpy(wanted.dims, dims, (size_t)rank * sizeof *dims);
    for (int32_t v = 0; v < m->recipe->n_values; v++)
        if (m->recipe->steps[m->recipe->values[v].step].kind == RANDOM_PARAMETER &&
            same_shape(&wanted, &m->recipe->values[v], -1) && random_chance(&m->r, 45))
            return v;
    return add_parameter(m, rank, dims, false);
}

static void add_inputs(maker *m)
{
    int64_t n = 1 + random_below(&m->r, 3);
    for (int64_t i = 0; i < n; i++) {
        const random_dim dims[3] = {batch_dim, constant(draw_width(m)), constant(1 + random_below(&m->r, 4))};
        (void)add_source(m, RANDOM_INPUT, random_chance(&m->r, 15) ? 3 : random_chance(&m->r, 8) ? 1 : 2, dims, 0, false);
    }
}

/* ---- ops ------------------------------------------------------------------------------------------------------------------------------ */

static void draw_linear(maker *m)
{
    int32_t x = pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int64_t in = shape.dims[shape.rank - 1].n, out = draw_width(m);
    shape.dims[shape.rank - 1] = constant(out);
    if (random_chance(&m->r, 50)) {
        (void)add_op(m, RANDOM_LINEAR, 1, &x, shape.rank, shape.dims);
        last_step(m)->frozen = random_chance(&m->r, 8);
    } else {
        const random_dim weight[2] = {constant(out), constant(in)}, bias[1] = {constant(out)};
        int32_t inputs[3] = {x, parameter(m, 2, weight), -1}, n = 2;
        if (random_chance(&m->r, 60))
            inputs[n++] = parameter(m, 1, bias);
        (void)add_op(m, RANDOM_LINEAR_WITH, n, inputs, shape.rank, shape.dims);
    }
}

static void draw_matmul(maker *m)
{
    bool transpose = random_chance(&m->r, 50);
    if (random_chance(&m->r, 40)) { /* each sample's matrix with itself */
        int32_t x = pick(m, 3, 3);
        if (x < 0)
            return;
        random_value shape = m->recipe->values[x];
        int64_t size = shape.dims[transpose ? 1 : 2].n;
        const random_dim dims[3] = {batch_dim, constant(size), constant(size)};
        (void)add_op(m, RANDOM_MATMUL, 2, (int32_t[]){x, x}, 3, dims);
        last_step(m)->flag = !transpose;
        last_step(m)->other = transpose;
        return;
    }
    int32_t x = pick(m, 2, 3);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int64_t in = shape.dims[shape.rank - 1].n, out = draw_width(m);
    const random_dim weight[2] = {constant(transpose ? out : in), constant(transpose ? in : out)};
    shape.dims[shape.rank - 1] = constant(out);
    (void)add_op(m, RANDOM_MATMUL, 2, (int32_t[]){x, parameter(m, 2, weight)}, shape.rank, shape.dims);
    last_step(m)->other = transpose;
}

/* The other operand of an elementwise op: alike, a parameter over the last axes, or one with axes of size 1. */
static int32_t operand(maker *m, int32_t x)
{
    random_value shape = m->recipe->values[x];
    int64_t how = random_below(&m->r, 4);
    if (how == 0 || shape.rank < 2)
        return pick_like(m, x, -1);
    random_dim dims[2] = {constant(1), shape.dims[shape.rank - 1]};
    if (how == 1)
        return parameter(m, 1, &dims[1]);
    if (how == 2) { /* a view of a parameter, shared with whoever reads it plain */
        int32_t flat = parameter(m, 1, &dims[1]);
        int32_t view = add_op(m, RANDOM_RESHAPE, 1, &flat, 2, dims);
        random_step *step = last_step(m);
        step->rank = 2;
        memcpy(step->shape, dims, sizeof dims);
        return view;
    }
    int32_t axis = (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    shape.dims[axis] = constant(1);
    int32_t sum = add_op(m, RANDOM_REDUCE_MEAN, 1, &x, shape.rank, shape.dims);
    last_step(m)->a = axis;
    last_step(m)->flag = true;
    return sum;
}

static void draw_binary(maker *m)
{
    static const random_kind kinds[] = {RANDOM_ADD, RANDOM_SUB, RANDOM_MUL, RANDOM_DIV};
    random_kind kind = kinds[random_below(&m->r, 4)];
    int32_t x = pick(m, 1, RANDOM_RANK);
    if (x < 0)
        return;
    int32_t y = operand(m, x);
    if (kind == RANDOM_DIV) { /* by something in (1/2, 1) */
        y = add_unary(m, RANDOM_SIGMOID, y);
        y = add_unary(m, RANDOM_SIGMOID, y);
    }
    bool swap = kind != RANDOM_DIV && random_chance(&m->r, 40);
    random_value shape = m->recipe->values[x];
    (void)add_op(m, kind, 2, swap ? (int32_t[]){y, x} : (int32_t[]){x, y}, shape.rank, shape.dims);
}

static void draw_unary(maker *m)
{
    static const random_kind kinds[] = {RANDOM_RELU, RANDOM_GELU,  RANDOM_SIGMOID, RANDOM_TANH,    RANDOM_SOFTMAX,
                                        RANDOM_COPY, RANDOM_SCALE, RANDOM_DROPOUT, RANDOM_LAYER_NORM};
    random_kind kind = kinds[random_below(&m->r, 9)];
    int32_t x = pick(m, kind == RANDOM_SOFTMAX || kind == RANDOM_LAYER_NORM ? 2 : 1, RANDOM_RANK);
    if (x < 0)
        return;
    (void)add_unary(m, kind, x);
    random_step *step = last_step(m);
    step->flag = random_chance(&m->r, 50);
    step->factor = kind == RANDOM_DROPOUT ? 0.1 * (double)(1 + random_below(&m->r, 5)) : 0.25 * (double)(random_below(&m->r, 9) - 4);
    step->frozen = kind == RANDOM_LAYER_NORM && random_chance(&m->r, 8);
}

static void draw_scale_by(maker *m)
{
    int32_t x = pick(m, 1, RANDOM_RANK);
    const random_dim one[1] = {constant(1)};
    if (x < 0)
        return;
    int32_t scalar = add_source(m, RANDOM_SCALAR, 1, one, 0, false);
    last_step(m)->factor = 0.5 + 0.25 * (double)random_below(&m->r, 5);
    random_value shape = m->recipe->values[x];
    (void)add_op(m, RANDOM_SCALE_BY, 2, (int32_t[]){x, scalar}, shape.rank, shape.dims);
}

static void draw_concat(maker *m)
{
    int32_t inputs[RANDOM_INPUTS], n = (int32_t)(2 + random_below(&m->r, 3));
    int32_t x = inputs[0] = pick(m, 1, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int32_t axis = (int32_t)(shape.rank == 1 || random_chance(&m->r, 15) ? 0 : 1 + random_below(&m->r, shape.rank - 1));
    for (int32_t i = 1; i < n; i++) {
        inputs[i] = pick_like(m, x, axis ? axis : -1);
        shape.dims[axis].n += m->recipe->values[inputs[i]].dims[axis].n;
    }
    if (elements_per_sample(&shape) > SMALL_ELEMENTS)
        return;
    int32_t whole = add_op(m, RANDOM_CONCAT, n, inputs, shape.rank, shape.dims);
    last_step(m)->a = axis;
    if (axis)
        return;
    random_step *split = add_step(m, RANDOM_SPLIT); /* over the batch: [n * B, ..] is cut into [B, ..] again */
    read_value(m, split, whole);
    split->a = 0;
    shape.dims[0] = batch_dim;
    for (int32_t i = 0; i < n; i++)
        (void)add_value(m, split, shape.rank, shape.dims);
    (void)finish(m, split);
}

static void draw_slice(maker *m)
{
    int32_t x = pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int32_t axis = (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    int64_t n = shape.dims[axis].n, size = 1 + random_below(&m->r, n);
    shape.dims[axis].n = size;
    (void)add_op(m, RANDOM_SLICE, 1, &x, shape.rank, shape.dims);
    last_step(m)->a = axis;
    last_step(m)->b = random_below(&m->r, n - size + 1);
    last_step(m)->limit = size;
}

static void draw_split(maker *m)
{
    int32_t x = pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    int32_t axis = (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    int64_t parts = 2 + random_below(&m->r, 3);
    if (shape.dims[axis].n % parts)
        return;
    random_step *step = add_step(m, RANDOM_SPLIT);
    read_value(m, step, x);
    step->a = axis;
    shape.dims[axis].n /= parts;
    for (int64_t i = 0; i < parts; i++)
        (void)add_value(m, step, shape.rank, shape.dims);
    (void)finish(m, step);
}

static int32_t flatten(maker *m, int32_t x)
{
    random_value from = m->recipe->values[x];
    const random_dim dims[2] = {batch_dim, constant(elements_per_sample(&from))};
    int32_t y = add_op(m, RANDOM_RESHAPE, 1, &x, 2, dims);
    memcpy(last_step(m)->shape, dims, sizeof dims);
    last_step(m)->rank = 2;
    return y;
}

static void draw_reshape(maker *m)
{
    int32_t x = pick(m, 1, RANDOM_RANK);
    if (x < 0)
        return;
    random_value from = m->recipe->values[x];
    int64_t n = elements_per_sample(&from);
    if (from.rank != 2 || random_chance(&m->r, 30)) {
        (void)flatten(m, x);
        return;
    }
    int64_t part = 1 + random_below(&m->r, 4);
    if (n % part)
        part = 1;
    const random_dim dims[3] = {batch_dim, constant(part), constant(n / part)};
    (void)add_op(m, RANDOM_RESHAPE, 1, &x, 3, dims);
    memcpy(last_step(m)->shape, dims, sizeof dims);
    last_step(m)->rank = 3;
}

static void draw_transpose(maker *m)
{
    int32_t x = pick(m, 3, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    random_dim swapped = shape.dims[1];
    shape.dims[1] = shape.dims[2];
    shape.dims[2] = swapped;
    (void)add_op(m, RANDOM_TRANSPOSE, 1, &x, shape.rank, shape.dims);
}

static void draw_reduce(maker *m)
{
    int32_t x = pick(m, 2, RANDOM_RANK);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x], whole = shape;
    bool over_batch = random_chance(&m->r, 15), keep = over_batch || random_chance(&m->r, 50);
    int32_t axis = over_batch ? 0 : (int32_t)(1 + random_below(&m->r, shape.rank - 1));
    shape.dims[axis] = constant(1);
    for (int32_t i = axis; !keep && i + 1 < shape.rank; i++)
        shape.dims[i] = shape.dims[i + 1];
    shape.rank -= !keep;
    int32_t y = add_op(m, random_chance(&m->r, 50) ? RANDOM_REDUCE_SUM : RANDOM_REDUCE_MEAN, 1, &x, shape.rank, shape.dims);
    last_step(m)->a = axis;
    last_step(m)->flag = keep;
    if (over_batch) /* each sample less the batch's */
        (void)add_op(m, RANDOM_SUB, 2, (int32_t[]){x, y}, whole.rank, whole.dims);
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
    const random_dim dims[2] = {constant(1 + random_below(&m->r, 60)), constant(draw_width(m))};
    return add_parameter(m, 2, dims, true);
}

/* Ids below `limit`, known or new. */
static int32_t pick_ids(maker *m, random_kind kind, int64_t limit, int32_t rank)
{
    for (int32_t v = 0; v < m->recipe->n_values; v++) {
        const random_step *step = &m->recipe->steps[m->recipe->values[v].step];
        if (step->kind == kind && step->limit <= limit && step->rank == rank && random_chance(&m->r, 35))
            return v;
    }
    const random_dim dims[2] = {batch_dim, constant(1 + random_below(&m->r, 4))};
    return add_source(m, kind, rank, dims, limit, random_chance(&m->r, 30));
}

static void draw_embedding(maker *m)
{
    int32_t table = pick_table(m), rank = random_chance(&m->r, 70) ? 1 : 2;
    const random_value t = m->recipe->values[table];
    bool gather = random_chance(&m->r, 20);
    int64_t offset = gather ? 0 : random_below(&m->r, t.dims[0].n);
    int32_t ids = pick_ids(m, RANDOM_IDS, t.dims[0].n - offset, rank);
    random_dim dims[3] = {batch_dim, m->recipe->values[ids].dims[1], t.dims[1]};
    dims[rank] = t.dims[1];
    (void)add_op(m, gather ? RANDOM_GATHER : RANDOM_EMBEDDING, 2, (int32_t[]){table, ids}, rank + 1, dims);
    last_step(m)->a = offset;
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
        random_step *step = add_step(m, RANDOM_WEIGHTS);
        read_value(m, step, inputs[1]);
        (void)add_value(m, step, 0, NULL);
        inputs[n++] = finish(m, step);
        m->recipe->values[inputs[2]].output = false;
    }
    const random_dim dims[2] = {batch_dim, t.dims[1]};
    (void)add_op(m, RANDOM_EMBEDDING_BAG, n, inputs, 2, dims);
    last_step(m)->a = offset;
    last_step(m)->flag = random_chance(&m->r, 50);
}

static void draw_interaction(maker *m)
{
    int32_t inputs[RANDOM_INPUTS], n = (int32_t)(2 + random_below(&m->r, 3)), x = inputs[0] = pick(m, 2, 2);
    if (x < 0)
        return;
    for (int32_t i = 1; i < n; i++)
        inputs[i] = pick_like(m, x, -1);
    const random_dim dims[2] = {batch_dim, constant(n * (n - 1) / 2)};
    (void)add_op(m, RANDOM_DOT_INTERACTION, n, inputs, 2, dims);
}

static void draw_cross(maker *m)
{
    int32_t x = pick(m, 2, 2);
    if (x < 0)
        return;
    random_value shape = m->recipe->values[x];
    (void)add_op(m, RANDOM_CROSS_LAYER, 2, (int32_t[]){pick_like(m, x, -1), x}, 2, shape.dims);
    last_step(m)->frozen = random_chance(&m->r, 8);
}

static void draw_host_call(maker *m)
{
    int32_t inputs[2] = {pick(m, 1, RANDOM_RANK), pick(m, 1, RANDOM_RANK)};
    const random_dim one[1] = {constant(1)};
    if (inputs[0] < 0 || inputs[1] < 0)
        return;
    (void)add_op(m, RANDOM_HOST_CALL, 1 + (int32_t)random_below(&m->r, 2), inputs, 1, one);
    last_step(m)->target[0] = '\0';
    m->recipe->n_host_calls++;
}

static void draw_op(maker *m, bool host_calls)
{
    static void (*const draws[])(maker *) = {
        draw_linear,  draw_linear,    draw_linear,    draw_matmul,    draw_binary,        draw_binary,        draw_binary,
        draw_unary,   draw_unary,     draw_unary,     draw_scale_by,  draw_concat,        draw_concat,        draw_slice,
        draw_split,   draw_reshape,   draw_transpose, draw_reduce,    draw_embedding,     draw_embedding,     draw_embedding_bag,
        draw_embedding_bag, draw_interaction, draw_cross,
    };
    if (host_calls && random_chance(&m->r, 6))
        draw_host_call(m);
    else
        draws[random_below(&m->r, (int64_t)(sizeof draws / sizeof *draws))](m);
}

/* ---- the loss -------------------------------------------------------------------------------------------------------------------------- */

/* One number per sample, or `classes`, of an activation. */
static int32_t head(maker *m, int32_t x, int64_t classes)
{
    const random_dim dims[2] = {batch_dim, constant(classes)};
    if (m->recipe->values[x].rank != 2)
        x = flatten(m, x);
    return add_op(m, RANDOM_LINEAR, 1, &x, 2, dims);
}

static void draw_loss(maker *m)
{
    int32_t n = m->recipe->n_values, total = -1, heads = 0;
    int64_t how = random_below(&m->r, 3), classes = how == 2 ? 2 + random_below(&m->r, 4) : 1;
    const random_dim dims[2] = {batch_dim, constant(classes)};
    for (int32_t v = n - 1; v >= 0 && heads < 4; v--) {
        const random_value *value = &m->recipe->values[v];
        if (!value->activation || value->uses || m->recipe->steps[value->step].kind == RANDOM_HOST_CALL)
            continue;
        if (total >= 0 && random_chance(&m->r, 20))
            continue; /* a dead end */
        int32_t part = head(m, v, classes);
        total = total < 0 ? part : add_op(m, RANDOM_ADD, 2, (int32_t[]){total, part}, 2, dims);
        heads++;
    }
    if (total < 0)
        total = head(m, 0, classes); /* the first input */
    int32_t label = add_source(m, RANDOM_LABEL, how == 2 ? 1 : 2, dims, how == 2 ? classes : 0, how == 2);
    const random_dim one[1] = {constant(1)};
    static const random_kind losses[] = {RANDOM_BCE, RANDOM_MSE, RANDOM_CROSS_ENTROPY};
    m->recipe->loss = add_op(m, losses[how], 2, (int32_t[]){total, label}, 1, one);
}

/* Steps that the loss depends on; trainable parameters that it does not must be frozen. */
static void mark_reaching(random_recipe *recipe)
{
    recipe->steps[recipe->values[recipe->loss].step].reaches_loss = true;
    for (int32_t s = recipe->n_steps - 1; s >= 0; s--)
        for (int32_t i = 0; recipe->steps[s].reaches_loss && i < recipe->steps[s].n_inputs; i++)
            recipe->steps[recipe->values[recipe->steps[s].inputs[i]].step].reaches_loss = true;
}

void random_recipe_draw(random_recipe *recipe, uint64_t seed, bool host_calls)
{
    static const int64_t batches[] = {1, 2, 3, 5, 8, 9, 16, 17, 31};
    maker m = {recipe, {seed * 0x2545f4914f6cdd1du + 1}};
    *recipe = (random_recipe){.seed = seed, .loss = -1};
    recipe->batch = batches[random_below(&m.r, 9)];
    int64_t ops = 2 + random_below(&m.r, 1 + random_below(&m.r, 34));
    add_inputs(&m);
    for (int64_t i = 0; i < ops && has_room(&m); i++)
        draw_op(&m, host_calls);
    draw_loss(&m);
    mark_reaching(recipe);
}
