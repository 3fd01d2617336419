/* Checks optimizer rules on one vector. See rule.h.
 *
 * The gradient is given: of the sum over p * x it is x. So the engine makes the same nodes as for any model, and the update
 * sees the file's numbers to the bit. As a table of one column of which each row is looked up once, the same vector has a
 * row-sparse gradient. */
#include "tests/tools/golden_check/rule.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "optim/rule.h"

typedef struct rule_case {
    json_t *root;
    td_optimizer optimizer;
    int64_t n, steps;
    float *start, *gradients; /* [n], [steps, n] */
    int64_t *ids;             /* [n]: 0, 1, .. */
} rule_case;

/* ---- reading --------------------------------------------------------------------------------------------------------------------- */

/* Files are named after what they show; these three are settings of one rule. */
static const char *rule_of(const char *file)
{
    static const char *const sgd[] = {"momentum", "nesterov", "sgd_weight_decay"};
    for (size_t i = 0; i < sizeof sgd / sizeof *sgd; i++)
        if (strcmp(sgd[i], file) == 0)
            return "sgd";
    return file;
}

static td_status *read_vector(const json_t *array, int64_t n, float *out)
{
    if ((int64_t)json_array_size(array) != n)
        return TD_ERROR(TD_DATA_ERROR, "a vector has %zu numbers, not %lld", json_array_size(array), (long long)n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)json_number_value(json_array_get(array, (size_t)i));
    return NULL;
}

static td_status *read_vectors(rule_case *c)
{
    json_t *start, *gradients;
    double n = 0;
    TD_TRY(golden_json_number(c->root, "elements", &n));
    TD_TRY(golden_json_get(c->root, "p0", JSON_ARRAY, &start));
    TD_TRY(golden_json_get(c->root, "gradients", JSON_ARRAY, &gradients));
    c->n = (int64_t)json_array_size(start);
    c->steps = (int64_t)json_array_size(gradients);
    if (n != (double)c->n || !c->n || !c->steps)
        return TD_ERROR(TD_DATA_ERROR, "%lld steps of %g elements, where p0 has %lld", (long long)c->steps, n,
                        (long long)c->n);
    TD_TRY(TD_NEW(c->start, c->n + 1));
    TD_TRY(TD_NEW(c->gradients, c->n * c->steps + 1));
    TD_TRY(TD_NEW(c->ids, c->n + 1));
    TD_TRY(read_vector(start, c->n, c->start));
    for (int64_t s = 0; s < c->steps; s++)
        TD_TRY(read_vector(json_array_get(gradients, (size_t)s), c->n, c->gradients + s * c->n));
    for (int64_t i = 0; i < c->n; i++)
        c->ids[i] = i;
    return NULL;
}

static td_status *rule_open(rule_case *c, const char *path)
{
    json_t *name, *settings;
    TD_TRY(golden_json_load(path, &c->root));
    TD_TRY(golden_json_get(c->root, "optimizer", JSON_STRING, &name));
    TD_TRY(golden_json_get(c->root, "settings", JSON_OBJECT, &settings));
    TD_TRY(golden_optimizer(rule_of(json_string_value(name)), settings, &c->optimizer));
    c->optimizer.nesterov = strcmp(json_string_value(name), "nesterov") == 0;
    return read_vectors(c);
}

static void rule_close(rule_case *c)
{
    json_decref(c->root);
    td_free(c->start);
    td_free(c->gradients);
    td_free(c->ids);
}

/* ---- running --------------------------------------------------------------------------------------------------------------------- */

static td_value build(const rule_case *c, bool row_sparse, td_graph *graph)
{
    td_shape shape = row_sparse ? TD_SHAPE(c->n, 1) : TD_SHAPE(c->n);
    td_value x = td_input(graph, "x", TD_F32, shape);
    td_value p = td_parameter(graph, "p", TD_F32, shape, td_init_constant(0));
    if (row_sparse)
        p = td_embedding(p, td_input(graph, "ids", TD_I64, TD_SHAPE(c->n)), (td_embedding_options){0});
    return td_reduce_sum(td_mul(p, x), 0, !row_sparse);
}

static td_status *step(const rule_case *c, int64_t s, bool row_sparse, td_session *session)
{
    td_tensor x = {.kind = TD_DENSE, .dtype = TD_F32, .rank = row_sparse ? 2 : 1, .dims = {c->n, 1}};
    td_tensor ids = {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {c->n}, .data = c->ids};
    x.dims[1] = row_sparse;
    x.data = c->gradients + s * c->n;
    td_field fields[] = {{"x", x}, {"ids", ids}};
    td_batch batch = {.samples = 1, .index = s, .n_fields = row_sparse ? 2 : 1, .fields = fields};
    td_step_report report;
    return td_session_step(session, &batch, &report);
}

static void compare(const char *form, const char *key, int64_t s, const golden_tensor *t, const json_t *expected,
                    double tolerance, golden_deviations *deviations)
{
    if (!t || (int64_t)json_array_size(expected) != t->elements) {
        golden_deviate(deviations, "%s: the store has no %s of %zu elements", form, key, json_array_size(expected));
        return;
    }
    for (int64_t i = 0; i < t->elements; i++) {
        double found = (double)t->data[i], wanted = json_number_value(json_array_get(expected, (size_t)i));
        if (!(fabs(found - wanted) <= tolerance))
            golden_deviate(deviations, "%s: step %lld: %s[%lld] is %.9g, expected %.9g within %.3g", form, (long long)s,
                           key, (long long)i, found, wanted, tolerance);
    }
}

static td_status *compare_key(const rule_case *c, const char *form, const char *key, const json_t *history, int64_t s,
                              const golden_snapshot *now, golden_deviations *deviations)
{
    json_t *atol, *tolerances;
    TD_TRY(golden_json_get(c->root, "atol", JSON_OBJECT, &atol));
    TD_TRY(golden_json_get(atol, key, JSON_ARRAY, &tolerances));
    compare(form, key, s, golden_snapshot_find(now, "p", strcmp(key, "p") == 0 ? NULL : key),
            json_array_get(history, (size_t)s), json_number_value(json_array_get(tolerances, (size_t)s)), deviations);
    return NULL;
}

static td_status *compare_step(const rule_case *c, const char *form, int64_t s, const golden_snapshot *now,
                               golden_deviations *deviations, int32_t *compared)
{
    json_t *p, *states, *history;
    const char *key;
    TD_TRY(golden_json_get(c->root, "p", JSON_ARRAY, &p));
    TD_TRY(golden_json_get(c->root, "state", JSON_OBJECT, &states));
    TD_TRY(compare_key(c, form, "p", p, s, now, deviations));
    json_object_foreach(states, key, history) TD_TRY(compare_key(c, form, key, history, s, now, deviations));
    *compared += 1 + (int32_t)json_object_size(states);
    return NULL;
}

static td_status *run(const rule_case *c, bool row_sparse, golden_devices devices, golden_engine *engine,
                      golden_snapshot *now, golden_deviations *deviations, int32_t *compared)
{
    const char *form = row_sparse ? "row-sparse" : "dense";
    TD_TRY(td_graph_create(&engine->graph));
    if (devices != GOLDEN_CPU)
        td_add_device(&engine->options, "accel", "emulated:memory=16MiB,cores=1");
    if (devices == GOLDEN_OFFLOAD) {
        engine->options.offload_embedding = true;
        engine->options.offload_optimizer = TD_OFFLOAD_CPU;
    }
    td_group(&engine->options, "p", c->optimizer);
    TD_TRY(golden_engine_start(engine, build(c, row_sparse, engine->graph)));
    TD_TRY(td_store_write(engine->store, td_store_find(engine->store, "p"), 0, c->n, c->start));
    for (int64_t s = 0; s < c->steps; s++) {
        TD_TRY(step(c, s, row_sparse, engine->session));
        TD_TRY(golden_snapshot_take(engine->store, now));
        TD_TRY(compare_step(c, form, s, now, deviations, compared));
    }
    return NULL;
}

static td_status *run_once(const rule_case *c, bool row_sparse, golden_devices devices, golden_snapshot *now,
                           golden_deviations *deviations, int32_t *compared)
{
    golden_engine engine = {.options = td_train_defaults()};
    td_status *status = run(c, row_sparse, devices, &engine, now, deviations, compared);
    golden_engine_stop(&engine);
    return status;
}

static td_status *check_form(const rule_case *c, bool row_sparse, golden_devices devices, golden_deviations *deviations,
                             int32_t *compared)
{
    golden_snapshot now = {0}, host = {0};
    golden_deviations unused = {0};
    const char *first;
    int32_t ignored = 0;
    td_status *status = run_once(c, row_sparse, devices, &now, deviations, compared);
    if (!status && devices != GOLDEN_CPU)
        status = run_once(c, row_sparse, GOLDEN_CPU, &host, &unused, &ignored);
    if (!status && devices != GOLDEN_CPU && !golden_snapshot_equal(&now, &host, &first))
        golden_deviate(deviations, "%s: %s differs from the host's; the bits must be equal",
                       row_sparse ? "row-sparse" : "dense", first);
    golden_snapshot_deinit(&now);
    golden_snapshot_deinit(&host);
    return status;
}

td_status *golden_rule_check(const char *path, golden_devices devices, golden_deviations *deviations,
                             int32_t *out_compared)
{
    rule_case c = {0};
    td_status *status = rule_open(&c, path);
    const td_rule *rule = status ? NULL : td_rule_find(c.optimizer.name);
    if (!status && !rule)
        status = TD_ERROR(TD_NOT_FOUND, "there is no optimizer \"%s\"", c.optimizer.name);
    if (!status && !rule->refuses_dense)
        status = check_form(&c, false, devices, deviations, out_compared);
    if (!status && !rule->refuses_row_sparse)
        status = check_form(&c, true, devices, deviations, out_compared);
    rule_close(&c);
    return status;
}
