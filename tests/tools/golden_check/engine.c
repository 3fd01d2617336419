/* Plan, store and session in one hand; snapshots of a store. See engine.h. */
#include "tests/tools/golden_check/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

td_status *golden_engine_start(golden_engine *engine, td_value loss)
{
    TD_TRY(td_plan_train(engine->graph, loss, &engine->options, &engine->plan));
    TD_TRY(td_store_create(engine->plan, &engine->store));
    return td_session_create(engine->plan, engine->store, &engine->session);
}

void golden_engine_stop(golden_engine *engine)
{
    td_session_destroy(engine->session);
    td_store_release(engine->store);
    td_plan_release(engine->plan);
    td_train_options_deinit(&engine->options);
    td_graph_destroy(engine->graph);
    *engine = (golden_engine){0};
}

/* ---- snapshots ----------------------------------------------------------------------------------------------------------------- */

static td_status *take_one(const td_store *store, int32_t index, golden_tensor *t)
{
    td_tensor shape;
    const char *device;
    TD_TRY(td_store_describe(store, index, &shape, &t->is_parameter, &device));
    if (!t->name) {
        t->name = td_strdup(td_store_name(store, index));
        t->rank = shape.rank;
        memcpy(t->dims, shape.dims, sizeof t->dims);
        t->elements = 1;
        for (int32_t i = 0; i < shape.rank; i++)
            t->elements *= shape.dims[i];
        TD_TRY(TD_NEW(t->data, t->elements + 1));
    }
    if (!t->name || shape.dtype != TD_F32)
        return TD_ERROR(TD_UNSUPPORTED, "%s is not f32", td_store_name(store, index));
    return td_store_read(store, index, 0, t->elements, t->data);
}

td_status *golden_snapshot_take(const td_store *store, golden_snapshot *out_snapshot)
{
    if (!out_snapshot->tensors) {
        TD_TRY(TD_NEW(out_snapshot->tensors, td_store_count(store) + 1));
        out_snapshot->n = td_store_count(store);
    }
    for (int32_t i = 0; i < out_snapshot->n; i++)
        TD_TRY(take_one(store, i, &out_snapshot->tensors[i]));
    return NULL;
}

void golden_snapshot_deinit(golden_snapshot *snapshot)
{
    for (int32_t i = 0; i < snapshot->n; i++) {
        td_free(snapshot->tensors[i].name);
        td_free(snapshot->tensors[i].data);
    }
    td_free(snapshot->tensors);
    *snapshot = (golden_snapshot){0};
}

const golden_tensor *golden_snapshot_find(const golden_snapshot *snapshot, const char *parameter, const char *slot)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s%s", parameter, slot ? "/" : "", slot ? slot : "");
    for (int32_t i = 0; i < snapshot->n; i++)
        if (strcmp(snapshot->tensors[i].name, name) == 0)
            return &snapshot->tensors[i];
    return NULL;
}

bool golden_snapshot_equal(const golden_snapshot *a, const golden_snapshot *b, const char **out_first)
{
    for (int32_t i = 0; i < a->n; i++) {
        const golden_tensor *x = &a->tensors[i], *y = golden_snapshot_find(b, x->name, NULL);
        *out_first = x->name;
        if (!y || x->elements != y->elements || memcmp(x->data, y->data, (size_t)x->elements * sizeof *x->data) != 0)
            return false;
    }
    *out_first = "the number of tensors";
    return a->n == b->n;
}

/* ---- deviations ---------------------------------------------------------------------------------------------------------------- */

void golden_deviate(golden_deviations *deviations, const char *format, ...)
{
    if (deviations->n++)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(deviations->first, sizeof deviations->first, format, arguments);
    va_end(arguments);
}

bool golden_deviate_error(golden_deviations *deviations, const char *where, td_status *status)
{
    if (!status)
        return false;
    golden_deviate(deviations, "%s%s%s", where, *where ? ": " : "", td_status_message(status));
    td_status_destroy(status);
    return true;
}
