/* Hash tables with rules of admission and eviction against a simple model: random windows of pushes and pulls on one to three owners,
 * whose tables move meanwhile to other numbers of owners as checkpoints do, whole and by what changed. */
#ifndef TANDEM_TESTS_PS_RULES_H
#define TANDEM_TESTS_PS_RULES_H

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ps/protocol.h"
#include "ps/shard.h"
#include "tests/base/check.h"

enum { KEYS = 700, DIM = 3, MOST_NAMED = 40, MOST_OWNERS = 3, MOST_RULE_STATES = 2 };

static uint64_t random_state = 1;

static int64_t below(int64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

typedef struct model_row {
    bool begun, waits;
    uint32_t used, count, waiting_used, waiting_count;
    float row[DIM], states[MOST_RULE_STATES][DIM];
} model_row;

typedef struct owners {
    td_shard *shards[MOST_OWNERS];
    int32_t n;
} owners;

typedef struct world {
    td_shard_definition definition;
    const td_rule *rule;
    model_row rows[KEYS];
    uint32_t window;
    owners live, copy; /* copy: of the last whole checkpoint, n 0: there is none */
} world;

static int64_t id_of(int64_t i)
{
    return (i % 3 - 1) * (INT64_C(1) << 40) + i * 7919;
}

/* ---- the model ----------------------------------------------------------------------------------------------------------------- */

static void begin_row(const world *w, int64_t i)
{
    model_row *row = (model_row *)&w->rows[i];
    const int64_t id = id_of(i);
    int64_t first = id * DIM;
    if (id < 0)
        first = (int64_t)(td_key_mix((uint64_t)id) >> 2) / DIM * DIM;
    td_random_fill(row->row, first, DIM, td_philox_key_of(7, "initial", "t"), TD_RANDOM_UNIFORM, -0.5, 0.5);
    for (int32_t s = 0; s < w->definition.n_states; s++)
        for (int k = 0; k < DIM; k++)
            row->states[s][k] = (float)w->definition.state_initial[s];
}

static bool admits(const world *w, model_row *row, int64_t id)
{
    const td_hash_options *hash = &w->definition.hash;
    uint32_t bits[4];
    if (hash->admit_count > 1) {
        row->waiting_count = row->waits ? row->waiting_count + 1 : 1;
        row->waiting_used = w->window;
        row->waits = true;
        if (row->waiting_count < hash->admit_count)
            return false;
    }
    td_philox_block(td_philox_key_of(7, "admission", "t"), (uint64_t)id, w->window, bits);
    if (hash->admit_probability > 0 && td_philox_uniform_double(bits[0], bits[1]) >= hash->admit_probability)
        return false;
    row->waits = false;
    return true;
}

static void update_row(world *w, int64_t i, const float *gradient, const float *coefficients)
{
    model_row *row = &w->rows[i];
    if (!row->begun) {
        if (!admits(w, row, id_of(i)))
            return;
        row->begun = true;
        row->count = 0;
        begin_row(w, i);
    }
    row->used = w->window;
    row->count += row->count < 255;
    float *slots[TD_MAX_SLOTS] = {row->states[0], row->states[1]};
    w->rule->reference(row->row, slots, gradient, DIM, coefficients);
}

/* Whether row a goes before row b: of those that wait, or of those that have begun. */
static bool goes_before(const world *w, int64_t a, int64_t b, bool waiting)
{
    const model_row *x = &w->rows[a], *y = &w->rows[b];
    if (!waiting && w->definition.hash.evict == TD_EVICT_LEAST_OFTEN && x->count != y->count)
        return x->count < y->count;
    const uint32_t used_x = waiting ? x->waiting_used : x->used, used_y = waiting ? y->waiting_used : y->used;
    return used_x != used_y ? used_x < used_y : td_key_of_id(id_of(a)) < td_key_of_id(id_of(b));
}

static bool *place_of(world *w, int64_t i, bool waiting)
{
    return waiting ? &w->rows[i].waits : &w->rows[i].begun;
}

static void end_part(world *w, int32_t part, int32_t parts, bool waiting)
{
    const int64_t capacity = w->definition.hash.capacity;
    const int64_t most = capacity * (part + 1) / parts - capacity * part / parts;
    for (;;) {
        int64_t n = 0, first = -1;
        for (int64_t i = 0; i < KEYS; i++) {
            if (!*place_of(w, i, waiting) || td_key_part(td_key_of_id(id_of(i)), parts) != part)
                continue;
            n++;
            if (first < 0 || goes_before(w, i, first, waiting))
                first = i;
        }
        if (n <= most)
            return;
        *place_of(w, first, waiting) = false;
    }
}

static void end_window(world *w)
{
    const td_hash_options *hash = &w->definition.hash;
    const int32_t parts = td_shard_parts(&w->definition);
    for (int64_t i = 0; i < KEYS && hash->live; i++) {
        w->rows[i].begun = w->rows[i].begun && w->rows[i].used + hash->live > w->window;
        w->rows[i].waits = w->rows[i].waits && w->rows[i].waiting_used + hash->live > w->window;
    }
    for (int32_t p = 0; p < parts && hash->capacity; p++) {
        end_part(w, p, parts, true);
        end_part(w, p, parts, false);
    }
}

/* ---- owners -------------------------------------------------------------------------------------------------------------------- */

static void create_owners(const world *w, int32_t n, owners *out)
{
    *out = (owners){.n = n};
    for (int32_t s = 0; s < n; s++)
        assert_ok(td_shard_create(&w->definition, &out->shards[s]));
}

static void destroy_owners(owners *o)
{
    for (int32_t s = 0; s < o->n; s++)
        td_shard_destroy(o->shards[s]);
    *o = (owners){0};
}

static td_shard *owner_of(const world *w, const owners *o, int64_t id)
{
    return o->shards[td_owner_of(&w->definition, td_key_of_id(id), o->n)];
}

typedef int64_t (*reader)(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                          void *out_rows);

static void copy_array(const world *w, const owners *from, const owners *to, int32_t array, reader read)
{
    enum { PIECE = 50 };
    int64_t ids[PIECE];
    char rows[PIECE * DIM * sizeof(float)];
    const int64_t bytes = td_shard_array_bytes(&w->definition, array);
    for (int32_t s = 0; s < from->n; s++)
        for (int64_t cursor = 0; cursor >= 0;) {
            const int64_t n = read(from->shards[s], array, &cursor, 1 + below(PIECE), ids, rows);
            for (int64_t i = 0; i < n; i++)
                assert_ok(td_shard_write(owner_of(w, to, ids[i]), array, &ids[i], 1, rows + i * bytes));
        }
}

/* Rows, state and use, as checkpoints order them. */
static void copy_rows(const world *w, const owners *from, const owners *to, reader read)
{
    const int64_t none = 0, windows = w->window;
    for (int32_t s = 0; s < to->n; s++)
        assert_ok(td_shard_write(to->shards[s], TD_SHARD_WINDOWS, &none, 1, &windows));
    for (int32_t a = 0; a <= w->definition.n_states; a++)
        copy_array(w, from, to, a, read);
    for (int32_t mark = TD_SHARD_USED; mark >= TD_SHARD_COUNTS; mark--)
        if (td_shard_has_mark(from->shards[0], mark))
            copy_array(w, from, to, mark, read);
}

static void copy_waiting(const world *w, const owners *from, const owners *to)
{
    if (td_shard_has_mark(from->shards[0], TD_SHARD_WAITING))
        copy_array(w, from, to, TD_SHARD_WAITING, td_shard_read);
}

/* To another number of owners. */
static void move(world *w)
{
    owners to;
    create_owners(w, 1 + (int32_t)below(MOST_OWNERS), &to);
    copy_rows(w, &w->live, &to, td_shard_read);
    copy_waiting(w, &w->live, &to);
    destroy_owners(&w->live);
    destroy_owners(&w->copy); /* what changed since is not known to the new ones */
    w->live = to;
}

/* A whole checkpoint, from which on changes are noted. */
static void save_whole(world *w)
{
    destroy_owners(&w->copy);
    create_owners(w, 1 + (int32_t)below(MOST_OWNERS), &w->copy);
    copy_rows(w, &w->live, &w->copy, td_shard_read);
    for (int32_t s = 0; s < w->live.n; s++)
        assert_ok(td_shard_track(w->live.shards[s]));
}

/* The whole one with what changed since takes the place of the live one. */
static void load_changes(world *w)
{
    if (!w->copy.n)
        return;
    for (int32_t s = 0; s < w->live.n; s++)
        assert_true(w->live.shards[s]->tracks);
    copy_array(w, &w->live, &w->copy, TD_SHARD_GONE, td_shard_read);
    copy_rows(w, &w->live, &w->copy, td_shard_read_changed);
    copy_waiting(w, &w->live, &w->copy);
    destroy_owners(&w->live);
    w->live = w->copy;
    w->copy = (owners){0};
}

/* ---- operations ------------------------------------------------------------------------------------------------------------------ */

/* Different ones, some more often than others. */
static int64_t pick(int64_t *out)
{
    bool named[KEYS] = {false};
    int64_t n = 0;
    for (int64_t i = 1 + below(MOST_NAMED); i > 0; i--) {
        const int64_t key = below(3) ? below(KEYS / 10) : below(KEYS);
        if (!named[key])
            out[n++] = key;
        named[key] = true;
    }
    return n;
}

static void push_window(world *w)
{
    int64_t named[MOST_NAMED];
    float gradients[MOST_NAMED * DIM], coefficients[TD_COEFFICIENTS] = {0};
    td_optimizer settings;
    w->window++;
    const int64_t n = pick(named);
    assert_ok(td_rule_resolve(w->rule, &(td_optimizer){.name = w->rule->name, .lr = 0.1}, &settings));
    w->rule->coefficients(&settings, 0.1, w->window, 0.5, coefficients);
    for (int64_t i = 0; i < n * DIM; i++)
        gradients[i] = (float)(below(2001) - 1000) / 1000.0F;
    for (int32_t s = 0; s < w->live.n; s++) {
        int64_t keys[MOST_NAMED], count = 0;
        float theirs[MOST_NAMED * DIM];
        for (int64_t i = 0; i < n; i++)
            if (owner_of(w, &w->live, id_of(named[i])) == w->live.shards[s]) {
                memcpy(theirs + count * DIM, gradients + i * DIM, DIM * sizeof *theirs);
                keys[count++] = td_key_of_id(id_of(named[i]));
            }
        assert_ok(td_shard_push(w->live.shards[s], keys, count, theirs, coefficients));
    }
    for (int64_t i = 0; i < n; i++)
        update_row(w, named[i], gradients + i * DIM, coefficients);
    end_window(w);
}

static void pull_some(world *w)
{
    int64_t named[MOST_NAMED];
    const int64_t n = pick(named);
    for (int64_t i = 0; i < n; i++) {
        float row[DIM];
        const int64_t key = td_key_of_id(id_of(named[i]));
        assert_ok(td_shard_pull(owner_of(w, &w->live, id_of(named[i])), &key, 1, below(2), row));
        if (!w->rows[named[i]].begun)
            begin_row(w, named[i]);
        assert_memory_equal(row, w->rows[named[i]].row, sizeof row);
    }
}

static void check_all(const world *w)
{
    int64_t rows = 0, waiting = 0, there = 0, there_waiting = 0;
    for (int32_t s = 0; s < w->live.n; s++) {
        there += w->live.shards[s]->n;
        there_waiting += w->live.shards[s]->waiting.index.n;
    }
    for (int64_t i = 0; i < KEYS; i++) {
        const td_shard *shard = owner_of(w, &w->live, id_of(i));
        const int64_t slot = td_key_index_find(&shard->keys.index, td_key_of_id(id_of(i)));
        assert_int_equal(slot >= 0, w->rows[i].begun);
        rows += w->rows[i].begun;
        waiting += w->rows[i].waits;
        if (slot < 0)
            continue;
        assert_memory_equal(shard->arrays[0].base + slot * shard->arrays[0].row_bytes, w->rows[i].row,
                            sizeof w->rows[i].row);
        for (int32_t a = 1; a < shard->n_arrays; a++)
            assert_memory_equal(shard->arrays[a].base + slot * shard->arrays[a].row_bytes, w->rows[i].states[a - 1],
                                (size_t)shard->arrays[a].row_bytes);
    }
    assert_int_equal(there, rows);
    assert_int_equal(there_waiting, waiting);
}

/* Returns how many keys were named. */
static void run_rules(td_hash_options hash, const char *rule, int64_t operations)
{
    static world w;
    const td_slot *slots = NULL;
    td_optimizer settings;
    w = (world){.rule = td_rule_find(rule),
                .definition = {.name = "t",
                               .kind = TD_SHARD_HASH,
                               .dtype = TD_F32,
                               .dim = DIM,
                               .seed = 7,
                               .initial = {TD_INIT_UNIFORM, -0.5, 0.5},
                               .hash = hash}};
    td_shard_definition *d = &w.definition;
    strcpy(d->rule, rule);
    assert_ok(td_rule_resolve(w.rule, &(td_optimizer){.name = rule, .lr = 0.1}, &settings));
    d->n_states = td_rule_slots(w.rule, &settings, &slots);
    assert_true(d->n_states <= MOST_RULE_STATES);
    for (int32_t s = 0; s < d->n_states; s++) {
        strcpy(d->state_names[s], slots[s].name);
        d->state_per_row[s] = slots[s].per_row;
    }
    create_owners(&w, 2, &w.live);
    for (int64_t i = 0; i < operations; i++) {
        const int64_t what = below(1000);
        if (what < 640)
            push_window(&w);
        else if (what < 980)
            pull_some(&w);
        else if (what < 985)
            move(&w);
        else if (what < 990)
            save_whole(&w);
        else if (what < 995)
            load_changes(&w);
        else
            check_all(&w);
    }
    check_all(&w);
    destroy_owners(&w.live);
    destroy_owners(&w.copy);
}

#endif
