/* Evaluating: one pass over a part in order, logits to the metrics batch by batch: see cli/evaluation.h. */
#include "cli/evaluation.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

typedef struct watcher {
    const td_setup *setup;
    td_metric **metrics; /* td_metric_count() of them */
    td_metric *seen;     /* auc over samples of known users; NULL without such a mask */
    double loss_sum;
    int64_t samples;
    int32_t logit_output, scores_output, loss_output; /* -1: none */
    int64_t right;                                    /* samples whose class has the largest score */
    bool (*stops)(void);
    td_status *error;
} watcher;

static const td_tensor *field_of(const td_batch *batch, const char *name)
{
    for (int32_t i = 0; i < batch->n_fields; i++)
        if (!strcmp(batch->fields[i].name, name))
            return &batch->fields[i].tensor;
    return NULL;
}

/* Rows whose largest score, the first of equal ones, is that of the label. */
static int64_t count_right(const td_tensor *scores, const int64_t *labels)
{
    const int64_t classes = scores->dims[1];
    int64_t right = 0;
    for (int64_t i = 0; i < scores->dims[0]; i++) {
        const float *row = (const float *)scores->data + i * classes;
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            best = row[k] > row[best] ? k : best;
        right += best == labels[i];
    }
    return right;
}

static td_status *add_batch(watcher *w, const td_step_report *report)
{
    int64_t n = report->samples;
    if (w->loss_output >= 0)
        w->loss_sum += (double)*(const float *)report->outputs[w->loss_output].data * (double)n;
    w->samples += n;
    const char *name = td_dataset_schema(w->setup->dataset)->label;
    const td_tensor *label = name ? field_of(report->batch, name) : NULL;
    if (w->scores_output >= 0 && label && label->dtype == TD_I64)
        w->right += count_right(&report->outputs[w->scores_output], label->data);
    if (w->logit_output < 0 || !label || label->dtype != TD_F32)
        return NULL;
    const float *logits = report->outputs[w->logit_output].data;
    for (int32_t i = 0; i < td_metric_count(); i++)
        TD_TRY(td_metric_add(w->metrics[i], logits, label->data, NULL, n));
    const td_tensor *mask = w->seen ? field_of(report->batch, "seen_user") : NULL;
    return mask ? td_metric_add(w->seen, logits, label->data, mask->data, n) : NULL;
}

static bool on_step(void *context, const td_step_report *report)
{
    watcher *w = context;
    if (!w->error) /* steps in flight are reported after the one that failed */
        w->error = add_batch(w, report);
    if (!w->error && w->stops && w->stops())
        w->error = TD_ERROR(TD_CANCELLED, "the evaluation was stopped");
    return !w->error;
}

static void add_value(td_evaluation *evaluation, const char *name, double value)
{
    evaluation->names[evaluation->n] = name;
    evaluation->values[evaluation->n++] = value;
}

/* A metric that is not defined on the data (auc of one class) is left out; other errors count. */
static td_status *finish_metric(td_metric *metric, const char *name, td_evaluation *evaluation)
{
    double value;
    td_status *status = td_metric_finish(metric, &value);
    if (!status)
        add_value(evaluation, name, value);
    if (td_status_code(status) == TD_DATA_ERROR) {
        td_status_destroy(status);
        status = NULL;
    }
    return status;
}

static td_status *finish(watcher *w, td_evaluation *evaluation)
{
    evaluation->samples = w->samples;
    if (!w->samples)
        return NULL;
    for (int32_t i = 0; w->logit_output >= 0 && i < td_metric_count(); i++)
        TD_TRY(finish_metric(w->metrics[i], td_metric_name(i), evaluation));
    if (w->logit_output >= 0 && w->seen)
        TD_TRY(finish_metric(w->seen, "auc_seen_users", evaluation));
    if (w->scores_output >= 0)
        add_value(evaluation, "accuracy", (double)w->right / (double)w->samples);
    if (w->loss_output >= 0)
        add_value(evaluation, "val_loss", w->loss_sum / (double)w->samples);
    return NULL;
}

static td_status *create_metrics(watcher *w)
{
    TD_TRY(TD_NEW(w->metrics, td_metric_count()));
    for (int32_t i = 0; i < td_metric_count(); i++)
        TD_TRY(td_metric_create(td_metric_name(i), &w->metrics[i]));
    if (td_schema_find(td_dataset_schema(w->setup->dataset), "seen_user"))
        TD_TRY(td_metric_create("auc", &w->seen));
    return NULL;
}

static td_status *run_over(watcher *w, td_plan *plan, td_store *store, td_part part)
{
    td_session *session = NULL;
    td_loader *loader = NULL;
    td_status *status = td_setup_evaluation_loader(w->setup, part, &loader);
    if (!status)
        status = td_session_create(plan, store, &session);
    if (!status) {
        td_source source = td_loader_source(loader);
        status = td_session_run(session, &source, 0, on_step, w);
    }
    td_session_destroy(session);
    td_loader_destroy(loader);
    if (!status)
        return w->error;
    td_status_destroy(w->error);
    return status;
}

static bool part_is_empty(const td_setup *setup, td_part part)
{
    const td_schema *schema = td_dataset_schema(setup->dataset);
    return (part == TD_PART_TEST ? schema->test_rows : schema->train_rows) == 0;
}

static int32_t list_outputs(const td_setup *setup, td_value outputs[3], watcher *w)
{
    int32_t n = 0;
    w->logit_output = setup->model.logit.id >= 0 ? n : -1;
    if (w->logit_output >= 0)
        outputs[n++] = setup->model.logit;
    w->scores_output = setup->model.scores.id >= 0 ? n : -1;
    if (w->scores_output >= 0)
        outputs[n++] = setup->model.scores;
    w->loss_output = n;
    outputs[n++] = setup->model.loss;
    return n;
}

td_status *td_evaluation_plan(td_setup *setup, const td_store *store, td_plan **out_plan)
{
    td_value outputs[3];
    watcher w = {.setup = setup};
    int32_t n = list_outputs(setup, outputs, &w);
    return td_plan_evaluate(setup->graph, outputs, n, &setup->options, store, out_plan);
}

td_status *td_evaluate_with(td_setup *setup, td_plan *plan, td_store *store, td_part part, bool (*stops)(void),
                            td_evaluation *out_evaluation)
{
    *out_evaluation = (td_evaluation){0};
    if (!setup->dataset || part_is_empty(setup, part))
        return NULL;
    watcher w = {.setup = setup, .stops = stops};
    td_value outputs[3];
    (void)list_outputs(setup, outputs, &w);
    td_status *status = create_metrics(&w);
    if (!status)
        status = run_over(&w, plan, store, part);
    if (!status)
        status = finish(&w, out_evaluation);
    for (int32_t i = 0; w.metrics && i < td_metric_count(); i++)
        td_metric_destroy(w.metrics[i]);
    td_free(w.metrics);
    td_metric_destroy(w.seen);
    return status;
}

td_status *td_evaluate(td_setup *setup, td_store *store, td_part part, bool (*stops)(void),
                       td_evaluation *out_evaluation)
{
    *out_evaluation = (td_evaluation){0};
    if (!setup->dataset || part_is_empty(setup, part))
        return NULL;
    td_plan *plan = NULL;
    TD_TRY(td_evaluation_plan(setup, store, &plan));
    td_status *status = td_evaluate_with(setup, plan, store, part, stops, out_evaluation);
    td_plan_release(plan);
    return status;
}

bool td_evaluation_value(const td_evaluation *evaluation, const char *name, double *out_value)
{
    for (int32_t i = 0; i < evaluation->n; i++)
        if (!strcmp(evaluation->names[i], name)) {
            *out_value = evaluation->values[i];
            return true;
        }
    return false;
}

json_t *td_evaluation_json(const td_evaluation *evaluation)
{
    json_t *json = json_object();
    for (int32_t i = 0; i < evaluation->n; i++)
        json_object_set_new(json, evaluation->names[i],
                            isfinite(evaluation->values[i]) ? json_real(evaluation->values[i]) : json_null());
    return json;
}
