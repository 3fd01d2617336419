/* Shards against a simple model: a plain array of rows by id, updated with the rules' references. Random operations in a
 * random order: pull, push, write, remove, read, checkpoint into a new shard of the other kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/rows16.h"
#include "ps/shard.h"
#include "tests/base/check.h"

enum { KEYS = 300, DIM = 5, MOST = 40, FIRST = 1000 };

static uint64_t random_state = 1;

static int64_t below(int64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

static float number(void)
{
    return (float)(below(2001) - 1000) / 1000.0F;
}

/* What a shard should hold. */
typedef struct model {
    const td_rule *rule;
    td_shard_definition definition;
    bool begun[KEYS];
    float rows[KEYS][DIM], states[KEYS][TD_MAX_SLOTS][DIM];
} model;

static int64_t id_of(const model *m, int64_t key)
{
    if (m->definition.kind == TD_SHARD_HASH) /* far apart, and more than 32 bits */
        return (int64_t)((uint64_t)key * UINT64_C(0x1000000000001) + 5) & INT64_MAX;
    return FIRST + key;
}

static td_shard_definition define(td_shard_kind kind, const char *rule_name, td_dtype dtype)
{
    const td_rule *rule = td_rule_find(rule_name);
    td_shard_definition d = {.name = "table.0.weight",
                             .kind = (int32_t)kind,
                             .dtype = (int32_t)dtype,
                             .first = FIRST,
                             .rows = KEYS,
                             .dim = DIM,
                             .seed = 7,
                             .initial = {TD_INIT_UNIFORM, -0.5, 0.5}};
    td_optimizer settings;
    const td_slot *slots = NULL;
    assert_ok(td_rule_resolve(rule, &(td_optimizer){.name = rule_name, .lr = 0.1}, &settings));
    d.n_states = td_rule_slots(rule, &settings, &slots);
    strcpy(d.rule, rule_name);
    for (int32_t s = 0; s < d.n_states; s++) {
        strcpy(d.state_names[s], slots[s].name);
        d.state_per_row[s] = slots[s].per_row;
        d.state_initial[s] = slots[s].from_initial_accumulator ? 0.25 : 0;
    }
    return d;
}

static float rounded(const model *m, float value)
{
    switch (m->definition.dtype) {
    case TD_BF16:
        return td_bf16_to_f32(td_f32_to_bf16(value));
    case TD_F16:
        return td_f16_to_f32(td_f32_to_f16(value));
    default:
        return value;
    }
}

static void initial_row(const model *m, int64_t key, float *out)
{
    td_random_fill(out, id_of(m, key) * DIM, DIM, td_philox_key_of(7, "initial", "table.0.weight"), TD_RANDOM_UNIFORM,
                   -0.5, 0.5);
    for (int k = 0; k < DIM; k++)
        out[k] = rounded(m, out[k]);
}

static void begin(model *m, int64_t key)
{
    if (m->begun[key])
        return;
    m->begun[key] = true;
    initial_row(m, key, m->rows[key]);
    for (int s = 0; s < m->definition.n_states; s++)
        for (int k = 0; k < DIM; k++)
            m->states[key][s][k] = (float)m->definition.state_initial[s];
}

/* Different keys, ascending. */
static int64_t pick(int64_t *keys)
{
    int64_t n = below(MOST), key = -1, count = 0;
    for (int64_t i = 0; i < n; i++) {
        key += 1 + below(2 * KEYS / MOST);
        if (key >= KEYS)
            break;
        keys[count++] = key;
    }
    return count;
}

/* What a pull or a push calls the id. */
static int64_t wire_key(const model *m, int64_t id)
{
    return m->definition.kind == TD_SHARD_HASH ? td_key_of_id(id) : id;
}

static void wire_keys_of(const model *m, const int64_t *keys, int64_t n, int64_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = wire_key(m, id_of(m, keys[i]));
}

static void ids_of(const model *m, const int64_t *keys, int64_t n, int64_t *ids)
{
    for (int64_t i = 0; i < n; i++)
        ids[i] = id_of(m, keys[i]);
}

static void as_floats(const model *m, const void *rows, int64_t n, float *out)
{
    if (m->definition.dtype == TD_F32)
        memcpy(out, rows, (size_t)n * sizeof *out);
    else
        td_widen_row(rows, (td_dtype)m->definition.dtype, n, out);
}

static void check_pull(td_shard *shard, model *m)
{
    int64_t keys[MOST], ids[MOST] = {0}, n = pick(keys);
    float rows[MOST * DIM], want[DIM];
    char raw[MOST * DIM * 4];
    bool begins = below(2);
    wire_keys_of(m, keys, n, ids);
    assert_ok(td_shard_pull(shard, ids, n, begins, raw));
    as_floats(m, raw, n * DIM, rows);
    for (int64_t i = 0; i < n; i++) {
        if (begins && m->definition.kind == TD_SHARD_ARRAY)
            begin(m, keys[i]);
        memcpy(want, m->rows[keys[i]], sizeof want);
        if (!m->begun[keys[i]])
            initial_row(m, keys[i], want);
        assert_memory_equal(rows + i * DIM, want, sizeof want);
    }
}

static void check_push(td_shard *shard, model *m, int64_t update)
{
    int64_t keys[MOST], ids[MOST] = {0}, n = pick(keys);
    float gradients[MOST * DIM], coefficients[TD_COEFFICIENTS] = {0};
    td_optimizer settings;
    assert_ok(td_rule_resolve(m->rule, &(td_optimizer){.name = m->rule->name, .lr = 0.1}, &settings));
    m->rule->coefficients(&settings, 0.1, update, 0.5, coefficients);
    wire_keys_of(m, keys, n, ids);
    for (int64_t i = 0; i < n * DIM; i++)
        gradients[i] = number();
    assert_ok(td_shard_push(shard, ids, n, gradients, coefficients));
    for (int64_t i = 0; i < n; i++) {
        int64_t key = keys[i];
        begin(m, key);
        float *slots[TD_MAX_SLOTS] = {m->states[key][0], m->states[key][1], m->states[key][2]};
        m->rule->reference(m->rows[key], slots, gradients + i * DIM, DIM, coefficients);
        for (int k = 0; k < DIM; k++)
            m->rows[key][k] = rounded(m, m->rows[key][k]);
    }
}

static void check_remove(td_shard *shard, model *m)
{
    int64_t keys[MOST], ids[MOST] = {0}, n = pick(keys);
    ids_of(m, keys, n, ids);
    assert_ok(td_shard_remove(shard, ids, n));
    for (int64_t i = 0; i < n; i++)
        m->begun[keys[i]] = false;
}

static int64_t key_of(const model *m, int64_t id)
{
    for (int64_t key = 0; key < KEYS; key++)
        if (id_of(m, key) == id)
            return key;
    fail_msg("a row of id %lld was never written", (long long)id);
    return -1;
}

/* Every begun row of every array, in pieces, and no other. */
static void check_all(const td_shard *shard, const model *m)
{
    int64_t want = 0;
    for (int64_t key = 0; key < KEYS; key++)
        want += m->begun[key];
    assert_int_equal(shard->n, want);
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        int64_t ids[MOST], count = 0, elements = shard->arrays[a].row_elements;
        char raw[MOST * DIM * 4];
        float rows[MOST * DIM];
        for (int64_t cursor = 0; cursor >= 0;) {
            int64_t n = td_shard_read(shard, a, &cursor, 1 + below(MOST), ids, raw);
            if (a)
                memcpy(rows, raw, (size_t)(n * elements) * sizeof *rows);
            else
                as_floats(m, raw, n * DIM, rows);
            for (int64_t i = 0; i < n; i++) {
                int64_t key = key_of(m, ids[i]);
                assert_true(m->begun[key]);
                assert_memory_equal(rows + i * elements, a ? m->states[key][a - 1] : m->rows[key],
                                    (size_t)elements * sizeof *rows);
            }
            count += n;
        }
        assert_int_equal(count, want);
    }
}

/* A checkpoint, and a new shard that loads it. */
static td_shard *moved(td_shard *shard)
{
    td_shard *other = NULL;
    assert_ok(td_shard_create(&shard->definition, &other));
    for (int32_t a = 0; a < shard->n_arrays; a++) {
        int64_t ids[MOST];
        char raw[MOST * DIM * 4];
        for (int64_t cursor = 0; cursor >= 0;) {
            int64_t n = td_shard_read(shard, a, &cursor, MOST, ids, raw);
            assert_ok(td_shard_write(other, a, ids, n, raw));
        }
    }
    uint64_t before = 0, after = 1;
    assert_ok(td_shard_checksum(shard, &before));
    assert_ok(td_shard_checksum(other, &after));
    assert_int_equal(before, after);
    td_shard_destroy(shard);
    return other;
}

static void run_operations(td_shard_kind kind, const char *rule, td_dtype dtype, int64_t operations)
{
    static model m;
    td_shard *shard = NULL;
    m = (model){.rule = td_rule_find(rule), .definition = define(kind, rule, dtype)};
    assert_ok(td_shard_create(&m.definition, &shard));
    for (int64_t i = 0; i < operations; i++) {
        int64_t what = below(1000);
        if (what < 450)
            check_pull(shard, &m);
        else if (what < 950)
            check_push(shard, &m, i + 1);
        else if (what < 990)
            check_remove(shard, &m);
        else if (what < 998)
            check_all(shard, &m);
        else
            shard = moved(shard);
    }
    check_all(shard, &m);
    assert_ok(td_shard_clear(shard));
    memset(m.begun, 0, sizeof m.begun);
    check_all(shard, &m);
    check_push(shard, &m, 1);
    check_all(shard, &m);
    td_shard_destroy(shard);
}

static void test_random_operations_on_both_kinds_with_every_rule_match_a_simple_model(void **state)
{
    (void)state;
    for (int32_t r = 0; r < td_rule_count(); r++) {
        const td_rule *rule = td_rule_at(r);
        if (rule->refuses_row_sparse)
            continue;
        run_operations(TD_SHARD_ARRAY, rule->name, TD_F32, 1500);
        run_operations(TD_SHARD_HASH, rule->name, TD_F32, 1500);
    }
}

static void test_random_operations_on_16_bit_rows_match_a_simple_model(void **state)
{
    (void)state;
    run_operations(TD_SHARD_ARRAY, "lazy_adam", TD_BF16, 1500);
    run_operations(TD_SHARD_HASH, "rowwise_adagrad", TD_F16, 1500);
}

static void test_initial_values_do_not_depend_on_who_comes_first(void **state)
{
    (void)state;
    td_shard_definition d = define(TD_SHARD_HASH, "sgd", TD_F32);
    td_shard *a = NULL, *b = NULL;
    assert_ok(td_shard_create(&d, &a));
    assert_ok(td_shard_create(&d, &b));
    const int64_t up[3] = {td_key_of_id(3), td_key_of_id(INT64_MIN), td_key_of_id(1 + (INT64_C(1) << 33))},
                  down[3] = {up[2], up[1], up[0]};
    float x[3][DIM], y[3][DIM];
    assert_ok(td_shard_pull(a, up, 3, true, x));
    assert_ok(td_shard_pull(b, down, 3, true, y));
    for (int i = 0; i < 3; i++)
        assert_memory_equal(x[i], y[2 - i], sizeof x[i]);
    td_shard_destroy(a);
    td_shard_destroy(b);
}

static void test_an_id_of_another_owner_is_refused_and_named(void **state)
{
    (void)state;
    td_shard_definition d = define(TD_SHARD_ARRAY, "sgd", TD_F32);
    td_shard *shard = NULL;
    float row[DIM];
    const int64_t id = FIRST + KEYS;
    assert_ok(td_shard_create(&d, &shard));
    td_status *status = td_shard_pull(shard, &id, 1, true, row);
    assert_int_equal(td_status_code(status), TD_DATA_ERROR);
    assert_non_null(strstr(td_status_message(status), "1300"));
    td_status_destroy(status);
    td_shard_destroy(shard);
}

/* It would move what the uses of all rows are counted from. */
static void test_a_use_that_is_yet_to_come_is_refused(void **state)
{
    (void)state;
    td_shard_definition d = define(TD_SHARD_HASH, "sgd", TD_F32);
    td_shard *shard = NULL;
    const int64_t none = 0, id = 7, windows = 5;
    const uint32_t last = 5, next = 6, waiting[2] = {6, 1};
    const float row[DIM] = {1};
    d.hash = (td_hash_options){.live = 3, .admit_count = 2};
    assert_ok(td_shard_create(&d, &shard));
    assert_ok(td_shard_write(shard, TD_SHARD_WINDOWS, &none, 1, &windows));
    assert_ok(td_shard_write(shard, 0, &id, 1, row));
    assert_ok(td_shard_write(shard, TD_SHARD_USED, &id, 1, &last));
    assert_error(td_shard_write(shard, TD_SHARD_USED, &id, 1, &next), TD_DATA_ERROR,
                 "id 7 was named in window 6, of 5");
    assert_error(td_shard_write(shard, TD_SHARD_WAITING, &id, 1, waiting), TD_DATA_ERROR,
                 "id 7 was named in window 6, of 5");
    td_shard_destroy(shard);
}

static void test_an_optimizer_that_takes_no_rows_is_refused_with_its_reason(void **state)
{
    (void)state;
    td_shard_definition d = define(TD_SHARD_ARRAY, "sgd", TD_F32);
    td_shard *shard = NULL;
    strcpy(d.rule, "lamb");
    td_status *status = td_shard_create(&d, &shard);
    assert_int_equal(td_status_code(status), TD_UNSUPPORTED);
    assert_null(shard);
    td_status_destroy(status);
}

/* Whatever the rules, and however narrow the rows: two bytes here, without state. Beyond that, 192 bytes for each part of the keys,
 * and room for what a window adds before other rows go; of a few thousand
 * rows more are empty. */
static void test_a_hash_shard_takes_at_most_16_bytes_and_15_percent_beyond_its_rows(void **state)
{
    (void)state;
    enum { WINDOWS = 150, FEW = 5, NAMED = 1000, CAPACITY = 100000, LIVE = 90, PART = 192 };
    static const td_hash_options rules[] = {
        {0},
        {.capacity = CAPACITY},
        {.live = LIVE},
        {.capacity = CAPACITY, .live = LIVE},
        {.capacity = CAPACITY, .evict = TD_EVICT_LEAST_OFTEN},
        {.capacity = CAPACITY, .live = LIVE, .evict = TD_EVICT_LEAST_OFTEN},
    };
    static int64_t keys[NAMED];
    static float gradients[NAMED], coefficients[TD_COEFFICIENTS];
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        td_shard_definition d = define(TD_SHARD_HASH, "sgd", TD_BF16);
        td_shard *shard = NULL;
        d.dim = 1;
        d.hash = rules[r];
        assert_ok(td_shard_create(&d, &shard));
        for (int64_t window = 0; window < WINDOWS; window++) {
            int64_t raw, more;
            for (int64_t i = 0; i < NAMED; i++)
                keys[i] = td_key_of_id((window * NAMED + i) * INT64_C(1000003));
            assert_ok(td_shard_push(shard, keys, NAMED, gradients, coefficients));
            td_shard_bytes(shard, &raw, &more);
            assert_int_equal(raw, shard->n * 2);
            const int64_t rows = shard->n + (d.hash.capacity || d.hash.live ? NAMED : 0);
            const int32_t parts = d.hash.capacity ? shard->keys.policy.parts : 1;
            if (window >= FEW)
                assert_true((double)more <= (16 + 0.15 * 2) * (double)rows + (double)PART * parts);
        }
        assert_true(shard->n >= CAPACITY * 4 / 5);
        td_shard_destroy(shard);
    }
}

static void test_a_table_larger_than_any_address_space_is_refused(void **state)
{
    (void)state;
    td_shard_definition d = define(TD_SHARD_ARRAY, "sgd", TD_F32);
    td_shard *shard = NULL;
    d.rows = INT64_MAX / 4;
    assert_error(td_shard_create(&d, &shard), TD_OUT_OF_MEMORY, "no address space for 2305843009213693951 rows");
    assert_null(shard);
}

static int64_t slots_of(const td_shard_definition *d)
{
    td_shard *shard = NULL;
    assert_ok(td_shard_create(d, &shard));
    const int64_t slots = shard->most_slots;
    td_shard_destroy(shard);
    return slots;
}

static void test_a_capacity_beyond_all_rows_that_fit_bounds_nothing(void **state)
{
    (void)state;
    td_shard_definition d = define(TD_SHARD_HASH, "sgd", TD_F32);
    const int64_t slots = slots_of(&d);
    d.hash.capacity = INT64_MAX;
    assert_int_equal(slots_of(&d), slots);
}

/* In a message, rows of f32 may follow an odd number of 16-bit ones. */
static void test_rows_are_pulled_to_any_even_address(void **state)
{
    (void)state;
    enum { N = 7, WIDE = 150 };
    static float aligned[N * WIDE];
    static _Alignas(16) char room[N * WIDE * sizeof(float) + 2];
    static const int64_t keys[N] = {0, 3, 4, 9, 20, 33, 41};
    const td_shard_kind kinds[] = {TD_SHARD_ARRAY, TD_SHARD_HASH};
    for (int k = 0; k < 2; k++)
        for (int64_t dim = DIM; dim <= WIDE; dim += WIDE - DIM) {
            td_shard_definition d = define(kinds[k], "adagrad", TD_F32);
            td_shard *shard = NULL;
            d.first = 0;
            d.dim = dim;
            assert_ok(td_shard_create(&d, &shard));
            assert_ok(td_shard_pull(shard, keys, N, false, aligned));
            assert_ok(td_shard_pull(shard, keys, N, false, room + 2));
            assert_memory_equal(room + 2, aligned, (size_t)(N * dim) * sizeof(float));
            td_shard_destroy(shard);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_on_both_kinds_with_every_rule_match_a_simple_model),
        cmocka_unit_test(test_random_operations_on_16_bit_rows_match_a_simple_model),
        cmocka_unit_test(test_rows_are_pulled_to_any_even_address),
        cmocka_unit_test(test_initial_values_do_not_depend_on_who_comes_first),
        cmocka_unit_test(test_an_id_of_another_owner_is_refused_and_named),
        cmocka_unit_test(test_a_use_that_is_yet_to_come_is_refused),
        cmocka_unit_test(test_an_optimizer_that_takes_no_rows_is_refused_with_its_reason),
        cmocka_unit_test(test_a_hash_shard_takes_at_most_16_bytes_and_15_percent_beyond_its_rows),
        cmocka_unit_test(test_a_table_larger_than_any_address_space_is_refused),
        cmocka_unit_test(test_a_capacity_beyond_all_rows_that_fit_bounds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
