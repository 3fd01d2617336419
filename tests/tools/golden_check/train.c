/* Trains a golden case through the public interface. See train.h. */
#include "tests/tools/golden_check/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* ---- optimizer groups: one pattern per parameter, as the case lists them -------------------------------------------------- */

typedef td_status *(*group_visitor)(void *context, const td_optimizer *optimizer, const char *parameter);

static td_status *each_parameter(const golden_case *c, group_visitor visit, void *context)
{
    json_t *optimizer, *groups, *group, *names, *name, *type;
    size_t i, k;
    TD_TRY(golden_json_get(c->expected, "optimizer", JSON_OBJECT, &optimizer));
    TD_TRY(golden_json_get(optimizer, "groups", JSON_ARRAY, &groups));
    json_array_foreach(groups, i, group)
    {
        td_optimizer settings;
        TD_TRY(golden_json_get(group, "type", JSON_STRING, &type));
        TD_TRY(golden_json_get(group, "parameters", JSON_ARRAY, &names));
        TD_TRY(golden_optimizer(json_string_value(type), group, &settings));
        json_array_foreach(names, k, name)
        {
            if (!json_is_string(name))
                return TD_ERROR(TD_DATA_ERROR, "expected.json: a group's parameters are names");
            TD_TRY(visit(context, &settings, json_string_value(name)));
        }
    }
    return NULL;
}

static td_status *add_group(void *context, const td_optimizer *optimizer, const char *parameter)
{
    td_group(context, parameter, *optimizer);
    return NULL;
}

/* ---- devices ------------------------------------------------------------------------------------------------------------------- */

static void place(const golden_case *c, const golden_model *model, td_train_options *options)
{
    td_add_device(options, "accel", "emulated:memory=256MiB,cores=1");
    for (int32_t i = 0; i < 2 && model->on_host[i]; i++)
        td_place(options, model->on_host[i], "cpu");
    if (model->on_host[0])
        return;
    json_t *sizes = json_object_get(json_object_get(c->expected, "model"), "sizes");
    char layer[64];
    (void)snprintf(layer, sizeof layer, "fc.%d*", (int)(json_array_size(sizes) - 1) / 2);
    td_place(options, layer, "cpu");
}

/* ---- initial parameters ---------------------------------------------------------------------------------------------------------- */

static td_status *write_initial(const golden_case *c, td_store *store, const td_safetensors_tensor *t)
{
    td_tensor shape;
    bool is_parameter;
    const char *device;
    int32_t index = td_store_find(store, t->name);
    if (index < 0)
        return TD_ERROR(TD_DATA_ERROR, "init.safetensors has \"%s\"; the model has no such parameter", t->name);
    TD_TRY(td_store_describe(store, index, &shape, &is_parameter, &device));
    if (!is_parameter || t->dtype != TD_F32 || t->rank != shape.rank ||
        memcmp(t->dims, shape.dims, sizeof t->dims) != 0)
        return TD_ERROR(TD_DATA_ERROR, "init.safetensors: \"%s\" has another shape or dtype than the model's", t->name);
    float *data = td_calloc((size_t)t->elements + 1, sizeof *data);
    if (!data)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for \"%s\"", t->name);
    td_status *status = td_safetensors_read(c->initial, t, 0, t->bytes, data);
    if (!status)
        status = td_store_write(store, index, 0, t->elements, data);
    td_free(data);
    return status;
}

static td_status *load_initial(const golden_case *c, td_store *store)
{
    int64_t parameters = 0;
    for (int64_t i = 0; i < td_safetensors_count(c->initial); i++)
        TD_TRY(write_initial(c, store, td_safetensors_at(c->initial, i)));
    for (int32_t i = 0; i < td_store_count(store); i++) {
        td_tensor shape;
        bool is_parameter;
        const char *device;
        TD_TRY(td_store_describe(store, i, &shape, &is_parameter, &device));
        parameters += is_parameter;
    }
    if (parameters == td_safetensors_count(c->initial))
        return NULL;
    return TD_ERROR(TD_DATA_ERROR, "the model has %" PRId64 " parameters, init.safetensors %" PRId64, parameters,
                    td_safetensors_count(c->initial));
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------------ */

/* Hands out copies and frees them when they are released, so that a checker of memory sees whoever reads a batch later. */
typedef struct case_source {
    const golden_case *c;
    int32_t at, out;
} case_source;

typedef struct batch_copy {
    td_field *fields;
    int32_t n;
} batch_copy;

static td_status *copy_bytes(const void *from, int64_t bytes, void **out)
{
    *out = td_calloc_aligned((size_t)bytes + 1);
    if (!*out)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a batch");
    memcpy(*out, from, (size_t)bytes);
    return NULL;
}

static td_status *copy_field(const td_field *from, td_field *out)
{
    const td_tensor *t = &from->tensor;
    int64_t elements = 1;
    for (int32_t i = 0; i < t->rank; i++)
        elements *= t->dims[i];
    *out = *from;
    out->tensor.data = out->tensor.index = NULL;
    TD_TRY(copy_bytes(t->data, (t->kind == TD_RAGGED ? t->entries : elements) * (int64_t)td_dtype_bytes(t->dtype),
                      &out->tensor.data));
    return t->index ? copy_bytes(t->index, (t->dims[0] + 1) * (int64_t)sizeof(int64_t), &out->tensor.index) : NULL;
}

static void batch_free(batch_copy *copy)
{
    for (int32_t i = 0; copy && i < copy->n; i++) {
        td_free(copy->fields[i].tensor.data);
        td_free(copy->fields[i].tensor.index);
    }
    if (copy)
        td_free(copy->fields);
    td_free(copy);
}

static td_status *copy_batch(const td_batch *from, batch_copy *copy)
{
    TD_TRY(TD_NEW(copy->fields, from->n_fields + 1));
    copy->n = from->n_fields;
    for (int32_t i = 0; i < copy->n; i++)
        TD_TRY(copy_field(&from->fields[i], &copy->fields[i]));
    return NULL;
}

static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    case_source *source = self;
    batch_copy *copy = NULL;
    *out_end = source->at == source->c->n_batches;
    if (*out_end)
        return NULL;
    TD_TRY(TD_NEW(copy, 1));
    const td_batch *batch = &source->c->batches[source->at];
    td_status *status = copy_batch(batch, copy);
    if (status) {
        batch_free(copy);
        return status;
    }
    *out_batch = *batch;
    out_batch->fields = copy->fields;
    out_batch->owner = copy;
    source->at++;
    source->out++;
    return NULL;
}

static void release_batch(void *self, td_batch *batch)
{
    case_source *source = self;
    batch_free(batch->owner);
    source->out--;
}

static bool keep_loss(void *context, const td_step_report *report)
{
    golden_trained *trained = context;
    trained->losses[trained->n++] = report->loss;
    return true;
}

static td_status *run_pipelined(const golden_case *c, td_session *session, golden_trained *trained)
{
    case_source batches = {.c = c};
    td_source source = {.self = &batches, .next = next_batch, .release = release_batch};
    TD_TRY(td_session_run(session, &source, 0, keep_loss, trained));
    return batches.out ? TD_ERROR(TD_INTERNAL, "%d batches were not released", batches.out) : NULL;
}

static td_status *run_step_by_step(const golden_case *c, td_session *session, golden_trained *trained)
{
    while (trained->n < c->n_steps) {
        td_step_report report;
        int32_t first = c->first[trained->n];
        TD_TRY(td_session_step_window(session, &c->batches[first], c->first[trained->n + 1] - first, &report));
        if (trained->gradient_norms)
            trained->gradient_norms[trained->n] = (double)report.gradient_norm;
        (void)keep_loss(trained, &report);
    }
    return NULL;
}

/* ---- all of it --------------------------------------------------------------------------------------------------------------------- */

static td_status *build(const golden_case *c, const golden_model *model, golden_devices devices, bool with_norms,
                        golden_engine *engine, td_value *out_loss);

/* What an accelerator must have for half of what an offload of all spares; where it spares nothing, more than all takes. */
static td_status *measure_half(const golden_case *c, const golden_model *model, bool with_norms, int64_t *out_bytes)
{
    golden_engine engine = {.options = td_train_defaults()};
    td_value loss = TD_NO_VALUE;
    td_ledger with, without = {0};
    int64_t all = 0, none = 0;
    td_status *status = build(c, model, GOLDEN_OFFLOAD, with_norms, &engine, &loss);
    if (!status)
        status = td_plan_train(engine.graph, loss, &engine.options, &engine.plan);
    if (!status) {
        with = td_plan_ledger(engine.plan, 1);
        (void)td_plan_ledger_without(engine.plan, 1, &without);
        for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++) {
            all += with.bytes[k];
            none += without.bytes[k];
        }
        *out_bytes = all < none ? (all + none) / 2 : 256 << 20;
    }
    golden_engine_stop(&engine);
    return status;
}

static td_status *offload(const golden_case *c, const golden_model *model, golden_devices devices, bool with_norms,
                          td_train_options *options)
{
    char accelerator[64];
    int64_t bytes = 256 << 20;
    if (devices == GOLDEN_AUTO)
        TD_TRY(measure_half(c, model, with_norms, &bytes));
    (void)snprintf(accelerator, sizeof accelerator, "emulated:memory=%" PRId64 ",cores=1", bytes);
    td_add_device(options, "accel", accelerator);
    options->offload_embedding = true;
    options->offload_optimizer = devices == GOLDEN_AUTO ? TD_OFFLOAD_AUTO : TD_OFFLOAD_CPU;
    options->offload_ratio = devices == GOLDEN_HALF ? 0.5 : 1;
    return NULL;
}

/* Norms are of gradients that are clipped. */
static td_status *build(const golden_case *c, const golden_model *model, golden_devices devices, bool with_norms,
                        golden_engine *engine, td_value *out_loss)
{
    json_t *description;
    TD_TRY(golden_json_get(c->expected, "model", JSON_OBJECT, &description));
    TD_TRY(td_graph_create(&engine->graph));
    TD_TRY(model->build(c, description, engine->graph, out_loss));
    TD_TRY(each_parameter(c, add_group, &engine->options));
    engine->options.clip_norm =
        json_number_value(json_object_get(json_object_get(c->expected, "optimizer"), "clip_norm"));
    if (with_norms && engine->options.clip_norm == 0)
        engine->options.clip_norm = 1e300;
    engine->options.accumulate = c->micro_batches;
    if (devices == GOLDEN_CUT)
        place(c, model, &engine->options);
    return devices >= GOLDEN_OFFLOAD ? offload(c, model, devices, with_norms, &engine->options) : NULL;
}

/* Bytes copied are those of the plan's formula at the batches' extents; no device held more than its plan says. */
static td_status *check_counters(const td_session *session, golden_devices devices)
{
    td_session_counters c = td_session_read_counters(session);
    if (c.to_device_bytes != c.planned_to_device_bytes || c.to_host_bytes != c.planned_to_host_bytes)
        return TD_ERROR(TD_INTERNAL,
                        "%" PRId64 " bytes were copied to the device and %" PRId64 " to the host; by the plan "
                        "%" PRId64 " and %" PRId64,
                        c.to_device_bytes, c.to_host_bytes, c.planned_to_device_bytes, c.planned_to_host_bytes);
    if (devices != GOLDEN_CPU && (!c.to_device_bytes || !c.to_host_bytes))
        return TD_ERROR(TD_INTERNAL, "the cut run copied nothing between its devices: it was not cut");
    for (int32_t i = 0; i < td_session_devices(session); i++) {
        td_device_counters d = td_session_device(session, i);
        if (d.peak_bytes > d.planned_peak_bytes)
            return TD_ERROR(TD_INTERNAL, "%s held %" PRIu64 " bytes; the plan says %" PRIu64, d.name, d.peak_bytes,
                            d.planned_peak_bytes);
    }
    return NULL;
}

static td_status *train(const golden_case *c, const golden_model *model, golden_devices devices, golden_manner manner,
                        golden_engine *engine, golden_trained *trained)
{
    td_value loss = TD_NO_VALUE;
    TD_TRY(TD_NEW(trained->losses, c->n_steps + 1));
    if (manner == GOLDEN_FOR_NORMS)
        TD_TRY(TD_NEW(trained->gradient_norms, c->n_steps + 1));
    TD_TRY(build(c, model, devices, manner == GOLDEN_FOR_NORMS, engine, &loss));
    TD_TRY(golden_engine_start(engine, loss));
    TD_TRY(load_initial(c, engine->store));
    TD_TRY(manner == GOLDEN_PIPELINED ? run_pipelined(c, engine->session, trained)
                                      : run_step_by_step(c, engine->session, trained));
    TD_TRY(check_counters(engine->session, devices));
    return golden_snapshot_take(engine->store, &trained->final);
}

td_status *golden_train(const golden_case *c, const golden_model *model, golden_devices devices, golden_manner manner,
                        golden_trained *out_trained)
{
    golden_engine engine = {.options = td_train_defaults()};
    *out_trained = (golden_trained){0};
    td_status *status = train(c, model, devices, manner, &engine, out_trained);
    golden_engine_stop(&engine);
    return status;
}

void golden_trained_deinit(golden_trained *trained)
{
    td_free(trained->losses);
    td_free(trained->gradient_norms);
    golden_snapshot_deinit(&trained->final);
    *trained = (golden_trained){0};
}
