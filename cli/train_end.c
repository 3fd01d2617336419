/* What a training does and says after its last step: its report, or why it stopped and how it goes on. See cli/train_job.h. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "cli/json.h"
#include "cli/profiling.h"
#include "cli/shell_word.h"
#include "cli/signals.h"
#include "cli/summary.h"
#include "cli/train_job.h"

/* ---- one that stopped ------------------------------------------------------------------------------------------------------- */

/* " --set KEY=VALUE" for each that was given, for commands that go on from this one: without them other numbers would come out. */
static void add_settings(const td_train_job *j, td_string *line)
{
    for (int32_t i = 0; i < j->arguments->n_given; i++) {
        if (strcmp(j->arguments->given[i].option->name, "--set") != 0)
            continue;
        td_string_append(line, " --set ");
        td_shell_word(line, j->arguments->given[i].value);
    }
}

/* "tandem COMMAND CONFIG OPTION RUN", the settings behind it. The caller frees it; NULL: no memory. */
static char *command_with(const td_train_job *j, const char *command, const char *option, const char *more)
{
    td_string line = {0};
    char *text = NULL;
    td_string_format(&line, "tandem %s ", command);
    td_shell_word(&line, td_config_origin(j->config));
    td_string_format(&line, " %s ", option);
    td_shell_word(&line, j->run);
    td_string_append(&line, more);
    add_settings(j, &line);
    td_status_destroy(td_string_finish(&line, &text));
    return text;
}

/* NULL: no memory. */
static char *resume_command(const td_train_job *j)
{
    char *alone = command_with(j, "train", "--run", " --resume");
    if (!alone || !j->distributed.job)
        return alone;
    char *text = td_format("mpirun --oversubscribe -n %d %s", td_job_ranks(j->distributed.job), alone);
    td_free(alone);
    return text;
}

static td_status *say_how_to_go_on(const td_train_job *j, td_status *status, const char *which)
{
    char *text = resume_command(j);
    status = td_status_help(status, "the checkpoint %s %s; go on with: %s", j->training.last_checkpoint, which,
                            text ? text : "--resume");
    td_free(text);
    return status;
}

td_status *td_train_interrupted(const td_train_job *j)
{
    const long long done = (long long)j->training.steps, all = (long long)j->setup.steps;
    td_status *status = done ? TD_ERROR(TD_CANCELLED, "%s after step %lld of %lld", td_signals_reason(), done, all)
                             : TD_ERROR(TD_CANCELLED, "%s before step 1 of %lld", td_signals_reason(), all);
    if (!j->distributed.leads)
        return status;
    if (!j->training.last_checkpoint)
        return td_status_help(status, "no checkpoint was written: checkpoint.keep is 0");
    return say_how_to_go_on(j, status, "is there");
}

/* Its checkpoint is written; the summary is left to --resume, which evaluates first. Takes `status`. */
static td_status *explain_left_out(const td_train_job *j, td_status *status)
{
    if (td_status_code(status) != TD_CANCELLED)
        return status;
    td_status_destroy(status);
    status = TD_ERROR(TD_CANCELLED, "%s after the last step: training is done, the evaluation was left out",
                      td_signals_reason());
    if (!j->training.checkpoints)
        return td_status_help(status, "no checkpoint was written: checkpoint.keep is 0");
    char *eval = command_with(j, "eval", "--checkpoint", ""), *resume = resume_command(j);
    if (eval && resume) {
        status = td_status_help(status, "evaluate with: %s", eval);
        status = td_status_help(status, "or, with %s/summary.json: %s", j->run, resume);
    }
    td_free(eval);
    td_free(resume);
    return status;
}

td_status *td_train_explain(const td_train_job *j, td_status *status)
{
    td_status *of_job = j->distributed.job ? td_job_failure(j->distributed.job) : NULL;
    if (of_job) { /* in the words that all ranks have for it, not those of the op that waited */
        td_status_destroy(status);
        status = of_job;
    }
    if (td_status_code(status) == TD_CANCELLED)
        return status; /* it has said how to go on */
    if (td_status_code(status) == TD_NOT_FINITE && j->setup.options.precision == TD_MIXED_FP16)
        status =
            td_status_help(status, "try: train.precision: bf16, which has the range of f32, a smaller optimizer[].lr, "
                                   "or train.keep_fp32 for the ops whose numbers are large");
    else if (td_status_code(status) == TD_NOT_FINITE)
        status = td_status_help(status, "try: a smaller optimizer[].lr, data.transform for inputs of great size, or "
                                        "train.on_nan: skip");
    if (!j->training.last_checkpoint)
        return status;
    return say_how_to_go_on(j, status, "is from before");
}

/* A training that skipped whatever it met has trained nothing, however short it was. */
td_status *td_train_check_progress(const td_train_job *j, int64_t steps_before, int64_t updates_before)
{
    const int64_t steps = td_store_steps(j->training.store) - steps_before;
    if (steps == 0 || td_store_updates(j->training.store) > updates_before)
        return NULL;
    return TD_ERROR(TD_NOT_FINITE,
                    "no update was made in %s: loss or gradients were no finite numbers, and each was skipped",
                    TD_COUNTED(steps, "step"));
}

/* ---- one that is done ------------------------------------------------------------------------------------------------------- */

static double generator_auc(const td_train_job *j)
{
    double auc = NAN;
    bool generated = !strcmp(td_dataset_schema(j->setup.dataset)->format, "synthetic");
    bool tested = td_dataset_schema(j->setup.dataset)->test_rows > 0;
    td_status *status = generated && tested ? td_dataset_true_auc(j->setup.dataset, TD_PART_TEST, &auc) : NULL;
    if (status)
        auc = NAN;
    td_status_destroy(status);
    return auc;
}

/* Metrics of the test part as scalars of the last step. */
static void collect_metrics(td_train_job *j)
{
    json_t *metrics = td_evaluation_json(&j->evaluation), *value;
    const char *name;
    json_object_foreach(metrics, name, value)
    {
        char tag[80];
        snprintf(tag, sizeof tag, "test/%s", name);
        if (json_is_number(value))
            td_collector_scalar(&j->training.collector, j->training.steps, tag, json_number_value(value));
    }
    json_decref(metrics);
}

/* What the default device would need for all of it. Not an error when that cannot be said. */
static void measure_single(td_train_job *j)
{
    td_train_options options;
    td_plan *plan = NULL;
    bool lifted = false;
    if (td_plan_summarize(j->training.plan).devices < 2 || j->distributed.job)
        return;
    td_status *status = td_setup_single(j->setup.root, j->setup.steps, NULL, &options, &j->single_name, &lifted);
    if (status) {
        td_status_destroy(status);
        return;
    }
    status = td_plan_train(j->setup.graph, j->setup.model.loss, &options, &plan);
    for (int32_t i = 0; !status && i < td_plan_summarize(plan).devices; i++) {
        td_plan_device_summary device = td_plan_device(plan, i);
        if (!strcmp(device.name, j->single_name) && !device.is_host)
            j->single_bytes = (int64_t)device.peak_bytes;
    }
    td_status_destroy(status);
    td_plan_release(plan);
    td_train_options_deinit(&options);
}

/* Its summary stays as it is. */
td_status *td_train_repeat_report(const td_train_job *j)
{
    if (j->talk)
        fprintf(j->talk, "%s ended after step %lld; train.epochs or train.steps makes it longer\n", j->run,
                (long long)td_store_steps(j->training.store));
    if (!td_argument_flag(j->arguments, "--json"))
        return NULL;
    char *path = td_format("%s/summary.json", j->run);
    json_t *json = path ? json_load_file(path, 0, NULL) : NULL;
    td_free(path);
    if (!json)
        return TD_ERROR(TD_IO, "%s/summary.json: cannot be read", j->run);
    return td_json_print(json, j->arguments->out); /* takes it */
}

td_status *td_train_report(td_train_job *j)
{
    td_status *evaluated =
        td_evaluate(&j->setup, j->training.store, TD_PART_TEST, td_signals_ask_to_stop, &j->evaluation);
    if (evaluated)
        return explain_left_out(j, evaluated);
    collect_metrics(j);
    measure_single(j);
    td_summary summary = {.training = &j->training,
                          .evaluation = &j->evaluation,
                          .generator_auc = generator_auc(j),
                          .single_bytes = j->single_bytes,
                          .single_name = j->single_name,
                          .run = j->run};
    json_t *json = NULL;
    summary.pulls = j->distributed.job && td_plan_served_table(j->training.plan, 0, &(td_plan_served_summary){0});
    if (summary.pulls)
        TD_TRY(td_job_staleness(j->distributed.job, summary.staleness));
    TD_TRY(td_summary_json(&summary, &json));
    td_status *status = td_json_write(json_incref(json), j->run, "summary.json");
    td_signals_release(); /* what is left is to print it */
    char *again = command_with(j, "eval", "--checkpoint", "");
    summary.evaluate = again ? again : "tandem eval";
    if (!status && j->talk)
        status = td_summary_print(&summary, j->talk);
    td_free(again);
    if (!status && j->talk)
        td_profiling_print(j->profiler, j->run, j->talk);
    if (!status && td_argument_flag(j->arguments, "--json"))
        return td_json_print(json, j->arguments->out);
    json_decref(json);
    return status;
}
