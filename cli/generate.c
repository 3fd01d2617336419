/* Generating: see cli/generate.h. Each character is one evaluation of the last characters that fit the context; what stands
 * behind them in the window does not matter, since no position sees one after it. */
#include "cli/generate.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/philox.h"

/* A text in the making, as ids. */
typedef struct writer {
    const td_schema_field *field;
    int64_t *ids; /* [n of capacity] */
    int64_t n, context;
    int64_t *window; /* [context + 1] */
    double *weights; /* [symbols] */
    double temperature;
    uint64_t seed;
} writer;

static td_status *check_model(const td_setup *setup)
{
    const td_schema_field *field = setup->dataset ? td_schema_find(td_dataset_schema(setup->dataset), "ids") : NULL;
    if (setup->model.next.id >= 0 && field && field->symbols)
        return NULL;
    return TD_SECTION_ERROR(setup->root, "model.name", "--generate needs a model that predicts characters, like gpt");
}

td_status *td_generation_plan(td_setup *setup, const td_store *store, td_plan **out_plan)
{
    TD_TRY(check_model(setup));
    return td_plan_evaluate(setup->graph, &setup->model.next, 1, &setup->options, store, out_plan);
}

static td_status *read_prompt(writer *w, const char *prompt)
{
    for (const char *c = prompt; *c; c++) {
        int64_t id = 0;
        while (id < w->field->table_rows && w->field->symbols[id] != (unsigned char)*c)
            id++;
        if (id == w->field->table_rows)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "--generate: character %lld of the text (byte %d) does not occur in the training text",
                            (long long)(c - prompt) + 1, (unsigned char)*c);
        w->ids[w->n++] = id;
    }
    if (w->n == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "--generate: give at least one character to begin with");
    return NULL;
}

/* A symbol drawn with probability e^(score / temperature), by the i-th number of the seed. */
static int64_t draw(const writer *w, const float *scores, int64_t i)
{
    const int64_t n = w->field->table_rows;
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        best = scores[k] > scores[best] ? k : best;
    if (w->temperature == 0)
        return best;
    double total = 0;
    for (int64_t k = 0; k < n; k++)
        total += w->weights[k] = exp(((double)scores[k] - (double)scores[best]) / w->temperature);
    uint32_t bits[4];
    td_philox_block(td_philox_key_of(w->seed, "generate", ""), (uint64_t)i, 0, bits);
    double left = (double)td_philox_uniform(bits[0]) * total;
    int64_t chosen = 0;
    for (; chosen + 1 < n && left >= w->weights[chosen]; chosen++)
        left -= w->weights[chosen];
    return chosen;
}

static td_status *write_next(writer *w, td_session *session)
{
    const int64_t shown = w->n < w->context ? w->n : w->context;
    memset(w->window, 0, (size_t)(w->context + 1) * sizeof *w->window);
    memcpy(w->window, w->ids + w->n - shown, (size_t)shown * sizeof *w->window);
    const td_field field = {
        "ids", {.kind = TD_DENSE, .dtype = TD_I64, .rank = 2, .dims = {1, w->context + 1}, .data = w->window}};
    const td_batch batch = {.samples = 1, .n_fields = 1, .fields = &field};
    td_step_report report;
    TD_TRY(td_session_step(session, &batch, &report));
    const float *scores = (const float *)report.outputs[0].data + (shown - 1) * w->field->table_rows;
    w->ids[w->n] = draw(w, scores, w->n);
    w->n++;
    return NULL;
}

static td_status *write_all(writer *w, td_session *session, const td_generation *generation, char **out_text)
{
    TD_TRY(read_prompt(w, generation->prompt));
    for (int64_t i = 0; i < generation->length; i++)
        TD_TRY(write_next(w, session));
    TD_TRY(TD_NEW(*out_text, w->n + 1));
    for (int64_t i = 0; i < w->n; i++)
        (*out_text)[i] = (char)w->field->symbols[w->ids[i]];
    return NULL;
}

td_status *td_generate(td_setup *setup, td_store *store, const td_generation *generation, char **out_text)
{
    *out_text = NULL;
    TD_TRY(check_model(setup));
    writer w = {.field = td_schema_find(td_dataset_schema(setup->dataset), "ids"),
                .temperature = generation->temperature,
                .seed = (uint64_t)td_section_int(setup->root, "train.seed")};
    w.context = w.field->width - 1;
    td_plan *plan = NULL;
    td_session *session = NULL;
    td_status *status = TD_NEW(w.ids, (int64_t)strlen(generation->prompt) + generation->length + 1);
    if (!status)
        status = TD_NEW(w.window, w.context + 1);
    if (!status)
        status = TD_NEW(w.weights, w.field->table_rows);
    if (!status)
        status = td_generation_plan(setup, store, &plan);
    if (!status)
        status = td_session_create(plan, store, &session);
    if (!status)
        status = write_all(&w, session, generation, out_text);
    td_session_destroy(session);
    td_plan_release(plan);
    td_free(w.ids);
    td_free(w.window);
    td_free(w.weights);
    return status;
}
