/* Recipes: what is common to all steps, sources, and the loss at the end. The ops between are in random_ops.c. */
#include "tests/support/random_maker.h"

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

enum { HEAD_ROOM = 24 };

const random_dim maker_batch_dim = {1, true};

random_dim maker_constant(int64_t n)
{
    return (random_dim){n, false};
}

int64_t maker_draw_width(maker *m)
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

random_step *maker_add_step(maker *m, random_kind kind)
{
    random_step *step = &m->recipe->steps[m->recipe->n_steps++];
    *step = (random_step){.kind = kind, .first_output = m->recipe->n_values};
    return step;
}

random_value *maker_add_value(maker *m, random_step *step, int32_t rank, const random_dim *dims)
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

void maker_read_value(maker *m, random_step *step, int32_t value)
{
    step->inputs[step->n_inputs++] = value;
    m->recipe->values[value].uses++;
}

int32_t maker_finish(maker *m, random_step *step)
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

int32_t maker_add_op(maker *m, random_kind kind, int32_t n, const int32_t *inputs, int32_t rank, const random_dim *dims)
{
    random_step *step = maker_add_step(m, kind);
    for (int32_t i = 0; i < n; i++)
        maker_read_value(m, step, inputs[i]);
    (void)maker_add_value(m, step, rank, dims);
    return maker_finish(m, step);
}

int32_t maker_add_unary(maker *m, random_kind kind, int32_t x)
{
    random_value shape = m->recipe->values[x];
    return maker_add_op(m, kind, 1, &x, shape.rank, shape.dims);
}

random_step *maker_last_step(maker *m)
{
    return &m->recipe->steps[m->recipe->n_steps - 1];
}

/* ---- choosing inputs -------------------------------------------------------------------------------------------------------------- */

int64_t maker_elements_per_sample(const random_value *v)
{
    int64_t n = 1;
    for (int32_t i = 0; i < v->rank; i++)
        n *= v->dims[i].n;
    return n;
}

int32_t maker_pick(maker *m, int32_t low, int32_t high)
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

bool maker_same_shape(const random_value *a, const random_value *b, int32_t but_axis)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (i != but_axis && (a->dims[i].n != b->dims[i].n || a->dims[i].batch != b->dims[i].batch))
            return false;
    return true;
}

int32_t maker_pick_like(maker *m, int32_t x, int32_t but_axis)
{
    for (int tries = 0; tries < 12; tries++) {
        int32_t v = maker_pick(m, 1, RANDOM_RANK);
        if (v >= 0 && v != x && maker_same_shape(&m->recipe->values[x], &m->recipe->values[v], but_axis))
            return v;
    }
    return x;
}

int32_t maker_flatten(maker *m, int32_t x)
{
    random_value from = m->recipe->values[x];
    const random_dim dims[2] = {maker_batch_dim, maker_constant(maker_elements_per_sample(&from))};
    int32_t y = maker_add_op(m, RANDOM_RESHAPE, 1, &x, 2, dims);
    memcpy(maker_last_step(m)->shape, dims, sizeof dims);
    maker_last_step(m)->rank = 2;
    return y;
}

/* ---- sources ---------------------------------------------------------------------------------------------------------------------- */

int32_t maker_add_source(maker *m, random_kind kind, int32_t rank, const random_dim *dims, int64_t limit, bool flag)
{
    random_step *step = maker_add_step(m, kind);
    step->rank = rank;
    step->limit = limit;
    step->flag = flag;
    for (int32_t i = 0; i < rank; i++)
        step->shape[i] = dims[i];
    (void)maker_add_value(m, step, rank, dims);
    return maker_finish(m, step);
}

int32_t maker_add_parameter(maker *m, int32_t rank, const random_dim *dims, bool table)
{
    int32_t value = maker_add_source(m, RANDOM_PARAMETER, rank, dims, 0, table);
    maker_last_step(m)->frozen = random_chance(&m->r, 8);
    return value;
}

int32_t maker_parameter(maker *m, int32_t rank, const random_dim *dims)
{
    random_value wanted = {.rank = rank};
    memcpy(wanted.dims, dims, (size_t)rank * sizeof *dims);
    for (int32_t v = 0; v < m->recipe->n_values; v++)
        if (m->recipe->steps[m->recipe->values[v].step].kind == RANDOM_PARAMETER &&
            maker_same_shape(&wanted, &m->recipe->values[v], -1) && random_chance(&m->r, 45))
            return v;
    return maker_add_parameter(m, rank, dims, false);
}

static void add_inputs(maker *m)
{
    int64_t n = 1 + random_below(&m->r, 3);
    for (int64_t i = 0; i < n; i++) {
        const random_dim dims[3] = {maker_batch_dim, maker_constant(maker_draw_width(m)),
                                    maker_constant(1 + random_below(&m->r, 4))};
        (void)maker_add_source(m, RANDOM_INPUT,
                               random_chance(&m->r, 15)  ? 3
                               : random_chance(&m->r, 8) ? 1
                                                         : 2,
                               dims, 0, false);
    }
}

/* ---- the loss -------------------------------------------------------------------------------------------------------------------------- */

/* One number per sample, or `classes`, of an activation. */
static int32_t head(maker *m, int32_t x, int64_t classes)
{
    const random_dim dims[2] = {maker_batch_dim, maker_constant(classes)};
    if (m->recipe->values[x].rank != 2)
        x = maker_flatten(m, x);
    return maker_add_op(m, RANDOM_LINEAR, 1, &x, 2, dims);
}

static void draw_loss(maker *m)
{
    int32_t n = m->recipe->n_values, total = -1, heads = 0;
    int64_t how = random_below(&m->r, 3), classes = how == 2 ? 2 + random_below(&m->r, 4) : 1;
    const random_dim dims[2] = {maker_batch_dim, maker_constant(classes)};
    for (int32_t v = n - 1; v >= 0 && heads < 4; v--) {
        const random_value *value = &m->recipe->values[v];
        if (!value->activation || value->uses || m->recipe->steps[value->step].kind == RANDOM_HOST_CALL)
            continue;
        if (total >= 0 && random_chance(&m->r, 20))
            continue; /* a dead end */
        int32_t part = head(m, v, classes);
        total = total < 0 ? part : maker_add_op(m, RANDOM_ADD, 2, (int32_t[]){total, part}, 2, dims);
        heads++;
    }
    if (total < 0)
        total = head(m, 0, classes); /* the first input */
    int32_t label = maker_add_source(m, RANDOM_LABEL, how == 2 ? 1 : 2, dims, how == 2 ? classes : 0, how == 2);
    const random_dim one[1] = {maker_constant(1)};
    static const random_kind losses[] = {RANDOM_BCE, RANDOM_MSE, RANDOM_CROSS_ENTROPY};
    m->recipe->loss = maker_add_op(m, losses[how], 2, (int32_t[]){total, label}, 1, one);
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
        maker_draw_op(&m, host_calls);
    draw_loss(&m);
    mark_reaching(recipe);
}
