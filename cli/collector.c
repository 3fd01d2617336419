/* Event files of a training: see cli/collector.h. */
#include "cli/collector.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/glob.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "graph/graph.h"

enum { MOST_ELEMENTS = 1 << 20, FLUSH_NS = 1000000000 };

static td_event_stamp stamp_at(int64_t step)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (td_event_stamp){(double)now.tv_sec + (double)now.tv_nsec / 1e9, step};
}

/* After the first failure nothing is collected. */
static void settle(td_collector *c, td_status *status)
{
    if (!status)
        return;
    td_log(TD_LOG_WARNING, "no charts from here on: %s", td_status_message(status));
    td_status_destroy(status);
    td_event_writer_close(c->writer);
    c->writer = NULL;
}

static bool wanted(const td_collector *c, const char *key, const char *name)
{
    int32_t n = td_section_count(c->setup->root, key);
    for (int32_t i = 0; i < n; i++)
        if (td_glob_match(td_section_string_at(c->setup->root, key, i), name))
            return true;
    return false;
}

/* ---- before planning ------------------------------------------------------------------------------------------------------ */

void td_collector_mark(const td_setup *setup)
{
    const td_collector c = {.setup = setup};
    for (int32_t v = 0; v < setup->graph->n_values; v++) {
        const td_value_info *value = &setup->graph->values[v];
        bool made = value->producer >= 0 && value->kind == TD_DENSE && value->dtype == TD_F32;
        if (made && wanted(&c, "summary.activations", value->name))
            td_output((td_value){setup->graph, v});
    }
}

/* ---- at the start --------------------------------------------------------------------------------------------------------- */

static td_status *write_graph(td_collector *c, const td_plan *plan)
{
    char *text = NULL, *graph = NULL;
    size_t bytes = 0;
    TD_TRY(td_plan_json(plan, &text));
    json_t *json = json_loads(text, 0, NULL);
    td_text_free(text);
    td_status *status =
        json ? td_graph_def(json, &graph, &bytes) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the graph");
    if (!status)
        status = td_event_graph(c->writer, stamp_at(0), graph, bytes);
    td_free(graph);
    json_decref(json);
    return status;
}

/* As a block of Markdown. */
static td_status *write_configuration(td_collector *c)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream) {
        fputs("```yaml\n", stream);
        td_config_print(c->setup->root.config, stream);
        fputs("```\n", stream);
    }
    td_status *status = !stream || fclose(stream) ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the configuration")
                                                  : td_event_text(c->writer, stamp_at(0), "configuration", text);
    free(text); /* the C library's own allocation */
    return status;
}

void td_collector_open(td_collector *collector, const td_setup *setup, const td_plan *plan, const char *run)
{
    td_collector *c = collector;
    *c = (td_collector){.setup = setup,
                        .plan = plan,
                        .scalars = td_section_int(setup->root, "summary.scalars"),
                        .every = td_section_int(setup->root, "summary.every"),
                        .parameters = td_section_count(setup->root, "summary.parameters") > 0,
                        .tensors = td_section_count(setup->root, "summary.tensors") > 0,
                        .images = td_section_int(setup->root, "summary.images") > 0,
                        .texts = td_section_int(setup->root, "summary.texts") > 0};
    if (!c->scalars && !c->every)
        return;
    td_status *status = td_event_writer_open(run, stamp_at(0).seconds, &c->writer);
    if (!status)
        status = write_configuration(c);
    if (!status)
        status = write_graph(c, plan);
    if (!status)
        status = td_event_writer_flush(c->writer);
    settle(c, status);
}

/* ---- steps ---------------------------------------------------------------------------------------------------------------- */

static td_status *write_scalars(td_collector *c, const td_step_report *report)
{
    const char *tags[5];
    double values[5];
    int32_t n = 0;
    if (!report->skipped) {
        tags[n] = "train/loss";
        values[n++] = (double)report->loss;
    }
    tags[n] = "time/step_ms";
    values[n++] = report->seconds * 1e3;
    tags[n] = "time/samples_per_s";
    values[n++] = report->seconds > 0 ? (double)report->samples / report->seconds : 0;
    tags[n] = "time/data_wait_ms";
    values[n++] = report->wait_data_s * 1e3;
    if (report->gradient_norm == report->gradient_norm) { /* NaN: none is asked for */
        tags[n] = "train/gradient_norm";
        values[n++] = (double)report->gradient_norm;
    }
    return td_event_scalars(c->writer, stamp_at(report->step), tags, values, n);
}

/* One sample [channels, height, width] as pixels, the range of its numbers from black to white. */
static td_status *write_image(td_collector *c, int64_t step, const char *tag, const float *x, const int64_t *dims)
{
    int64_t area = dims[1] * dims[2], n = dims[0] * area;
    int32_t channels = dims[0] == 3 ? 3 : 1;
    uint8_t *pixels = NULL;
    float least = x[0], greatest = x[0];
    for (int64_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        greatest = x[i] > greatest ? x[i] : greatest;
    }
    float scale = greatest > least ? 255.0f / (greatest - least) : 0;
    TD_TRY(TD_NEW(pixels, area * channels));
    for (int64_t i = 0; i < area * channels; i++) {
        float shade = (x[i % channels * area + i / channels] - least) * scale;
        pixels[i] = shade > 0 ? (uint8_t)(shade + 0.5f) : 0; /* NaN is black */
    }
    td_status *status = td_event_image(c->writer, stamp_at(step), tag, pixels, dims[1], dims[2], channels);
    td_free(pixels);
    return status;
}

static td_status *write_images(td_collector *c, const td_step_report *report)
{
    int64_t most = td_section_int(c->setup->root, "summary.images");
    for (int32_t f = 0; f < report->batch->n_fields; f++) {
        const td_tensor *tensor = &report->batch->fields[f].tensor;
        if (tensor->rank != 4 || tensor->dtype != TD_F32 || !tensor->data)
            continue;
        int64_t n = tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
        for (int64_t i = 0; n && i < most && i < tensor->dims[0]; i++) {
            char tag[160];
            snprintf(tag, sizeof tag, "batch/%.100s/%lld", report->batch->fields[f].name, (long long)i);
            TD_TRY(write_image(c, report->step, tag, (const float *)tensor->data + i * n, tensor->dims + 1));
        }
    }
    return NULL;
}

/* One row of characters, as a block of Markdown; bytes of no character, as where a window begins in the middle of one, as "?". */
static td_status *write_text(td_collector *c, int64_t step, const char *tag, const int64_t *ids,
                             const td_schema_field *field)
{
    td_string text = {0};
    char *bytes = NULL, *finished = NULL;
    TD_TRY(TD_NEW(bytes, field->width + 1));
    for (int64_t i = 0; i < field->width; i++)
        bytes[i] = ids[i] >= 0 && ids[i] < field->table_rows ? (char)field->symbols[ids[i]] : '\0';
    td_string_append(&text, "```\n");
    for (int64_t i = 0; i < field->width;) {
        size_t n = td_text_character(bytes + i, (size_t)(field->width - i));
        td_string_append_bytes(&text, n && bytes[i] ? bytes + i : "?", n ? n : 1);
        i += n ? (int64_t)n : 1;
    }
    td_string_append(&text, "\n```\n");
    td_free(bytes);
    td_status *status = td_string_finish(&text, &finished);
    if (!status)
        status = td_event_text(c->writer, stamp_at(step), tag, finished);
    td_free(finished);
    return status;
}

static td_status *write_texts(td_collector *c, const td_step_report *report)
{
    int64_t most = td_section_int(c->setup->root, "summary.texts");
    for (int32_t f = 0; f < report->batch->n_fields; f++) {
        const td_tensor *tensor = &report->batch->fields[f].tensor;
        const td_schema_field *field =
            td_schema_find(td_dataset_schema(c->setup->dataset), report->batch->fields[f].name);
        if (!field || !field->symbols || tensor->rank != 2 || tensor->dims[1] != field->width || !tensor->data)
            continue;
        for (int64_t i = 0; i < most && i < tensor->dims[0]; i++) {
            char tag[160];
            snprintf(tag, sizeof tag, "batch/%.100s/%lld", field->name, (long long)i);
            TD_TRY(write_text(c, report->step, tag, (const int64_t *)tensor->data + i * field->width, field));
        }
    }
    return NULL;
}

static td_status *write_output(td_collector *c, int64_t step, const char *name, const td_tensor *tensor)
{
    const char *end = strstr(name, ":gradient");
    td_histogram histogram;
    int64_t n = 1;
    for (int32_t d = 0; d < tensor->rank; d++)
        n *= tensor->dims[d];
    char *tag = end ? td_format("gradients/%.*s", (int)(end - name), name) : td_format("activations/%s", name);
    if (!tag)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a tag");
    td_histogram_of(tensor->data, n, &histogram);
    td_status *status = td_event_histogram(c->writer, stamp_at(step), tag, &histogram);
    td_free(tag);
    return status;
}

static td_status *write_outputs(td_collector *c, const td_step_report *report)
{
    for (int32_t i = 0; i < report->n_outputs; i++) {
        const td_tensor *tensor = &report->outputs[i];
        const char *name = td_plan_output_name(c->plan, i);
        bool asked = name && (strstr(name, ":gradient") || wanted(c, "summary.activations", name));
        if (asked && tensor->dtype == TD_F32 && tensor->data)
            TD_TRY(write_output(c, report->step, name, tensor));
    }
    return NULL;
}

void td_collector_step(td_collector *collector, const td_step_report *report)
{
    td_collector *c = collector;
    td_status *status = NULL;
    if (c->writer && c->scalars && report->step % c->scalars == 0)
        status = write_scalars(c, report);
    if (!status && c->writer && c->images && c->every && report->step % c->every == 0)
        status = write_images(c, report);
    if (!status && c->writer && c->texts && c->every && report->step % c->every == 0)
        status = write_texts(c, report);
    if (!status && c->writer && c->every && report->step % c->every == 0)
        status = write_outputs(c, report);
    int64_t now = td_clock_ns();
    if (!status && c->writer && now - c->flushed_ns > FLUSH_NS) {
        status = td_event_writer_flush(c->writer);
        c->flushed_ns = now;
    }
    settle(c, status);
}

void td_collector_scalar(td_collector *collector, int64_t step, const char *tag, double value)
{
    if (collector->writer)
        settle(collector, td_event_scalars(collector->writer, stamp_at(step), &tag, &value, 1));
}

/* ---- parameters ----------------------------------------------------------------------------------------------------------- */

int64_t td_collector_next_stop(const td_collector *collector, int64_t step)
{
    bool looks = collector->writer && collector->every && (collector->parameters || collector->tensors);
    return looks ? (step / collector->every + 1) * collector->every : INT64_MAX;
}

/* Up to MOST_ELEMENTS elements: of a larger parameter, blocks spread evenly over it. */
static td_status *read_sample(const td_store *store, int32_t index, int64_t n, float *out)
{
    enum { BLOCK = 1024 };
    if (n <= MOST_ELEMENTS)
        return td_store_read(store, index, 0, n, out);
    const int64_t blocks = MOST_ELEMENTS / BLOCK;
    for (int64_t b = 0; b < blocks; b++)
        TD_TRY(td_store_read(store, index, (n - BLOCK) / (blocks - 1) * b, BLOCK, out + b * BLOCK));
    return NULL;
}

static td_status *write_histogram(td_collector *c, const td_store *store, int32_t index, int64_t n, float *room)
{
    char *tag = td_format("parameters/%s", td_store_name(store, index));
    td_histogram histogram;
    td_status *status =
        tag ? read_sample(store, index, n, room) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a tag");
    if (!status) {
        td_histogram_of(room, n < MOST_ELEMENTS ? n : MOST_ELEMENTS, &histogram);
        status = td_event_histogram(c->writer, stamp_at(td_store_steps(store)), tag, &histogram);
    }
    td_free(tag);
    return status;
}

/* The first rows that have at most summary.tensor_elements elements together. */
static td_status *write_tensor(td_collector *c, const td_store *store, int32_t index, const td_tensor *shape,
                               float *room)
{
    int64_t most = td_section_int(c->setup->root, "summary.tensor_elements"), row = 1, dims[TD_MAX_RANK];
    memcpy(dims, shape->dims, sizeof *dims * (size_t)shape->rank);
    for (int32_t i = 1; i < shape->rank; i++)
        row *= dims[i];
    if (shape->rank && dims[0] * row > most)
        dims[0] = row <= most ? most / row : 0;
    int64_t n = shape->rank ? dims[0] * row : 1;
    char *tag = n ? td_format("parameters/%s", td_store_name(store, index)) : NULL;
    if (!tag)
        return n ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a tag") : NULL;
    td_status *status = td_store_read(store, index, 0, n, room);
    if (!status)
        status = td_event_tensor(c->writer, stamp_at(td_store_steps(store)), tag, room, dims, shape->rank);
    td_free(tag);
    return status;
}

static td_status *write_parameters(td_collector *c, const td_store *store)
{
    float *room = NULL;
    TD_TRY(TD_NEW(room, MOST_ELEMENTS));
    td_status *status = NULL;
    for (int32_t i = 0; !status && i < td_store_count(store); i++) {
        td_tensor shape;
        bool is_parameter;
        const char *device;
        status = td_store_describe(store, i, &shape, &is_parameter, &device);
        if (status || !is_parameter || shape.dtype != TD_F32)
            continue;
        int64_t n = 1;
        for (int32_t d = 0; d < shape.rank; d++)
            n *= shape.dims[d];
        if (n && wanted(c, "summary.parameters", td_store_name(store, i)))
            status = write_histogram(c, store, i, n, room);
        if (!status && n && wanted(c, "summary.tensors", td_store_name(store, i)))
            status = write_tensor(c, store, i, &shape, room);
    }
    td_free(room);
    return status;
}

void td_collector_store(td_collector *collector, const td_store *store)
{
    td_collector *c = collector;
    if (c->writer && c->every && (c->parameters || c->tensors) && td_store_steps(store) % c->every == 0)
        settle(c, write_parameters(c, store));
}

void td_collector_close(td_collector *collector)
{
    if (collector->writer)
        settle(collector, td_event_writer_flush(collector->writer));
    td_event_writer_close(collector->writer);
    collector->writer = NULL;
}
