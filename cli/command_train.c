/* tandem train: trains what a configuration says, and leaves a folder with summary.json, run.json and checkpoints. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "base/thread.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/idle_patterns.h"
#include "cli/json.h"
#include "cli/profiling.h"
#include "cli/resumed_settings.h"
#include "cli/run_directory.h"
#include "cli/summary.h"
#include "cli/terminal.h"
#include "cli/weights.h"

/* All of one run. */
typedef struct job {
    const td_arguments *arguments;
    const td_config *config;
    FILE *talk; /* progress and lines for people; NULL: nothing */
    td_setup setup;
    td_training training;
    td_evaluation evaluation;
    td_profiler *profiler;
    char *run, *checkpoints;
    char *single_name;
    int64_t single_bytes;
    td_distributed distributed;
    int lock; /* of the run's folder; -1: none */
    bool resumed;
    bool again; /* after a rank was lost */
} job;

/* ---- before the first step ------------------------------------------------------------------------------------------------- */

static td_status *watch(job *j)
{
    const char *name = td_argument(j->arguments, "--watch");
    if (!name)
        return NULL;
    td_value value = td_graph_find(j->setup.graph, name);
    if (value.id < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "--watch %s: the model has no value of that name (tandem plan --json has all)", name);
    if (td_value_kind(value) != TD_DENSE || td_value_dtype(value) != TD_F32)
        return TD_ERROR(TD_INVALID_ARGUMENT, "--watch %s: only dense f32 values can be watched", name);
    td_output(value);
    j->training.watch = name;
    return NULL;
}

/* The configuration that the run was begun with; NULL when it does not read, as one of another version may not. */
static td_config *begun_with(const job *j)
{
    char *path = td_format("%s/run.json", j->run);
    json_t *json = path ? json_load_file(path, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json, "configuration"));
    td_config *config = NULL;
    td_status *status = text ? td_config_parse(text, strlen(text), path, &config) : NULL;
    if (config && !status)
        status = td_config_resolve(config);
    if (status) {
        td_config_destroy(config);
        config = NULL;
    }
    if (!config)
        td_log(TD_LOG_WARNING,
               "%s/run.json does not read: that seed, batch and order of rows are the same is not checked", j->run);
    td_status_destroy(status);
    json_decref(json);
    td_free(path);
    return config;
}

/* Another precision goes on from the same parameters and moments, which are f32 in all of them. */
static void say_conversion(td_section before, td_section now)
{
    const char *was = td_section_string(before, "train.precision"), *is = td_section_string(now, "train.precision");
    if (strcmp(was, is) != 0)
        td_log(TD_LOG_INFO,
               "train.precision was %s and is %s now: parameters and optimizer state go on in f32; what is computed in "
               "16 bit is "
               "rounded from them, once, to nearest even",
               was, is);
}

/* A place in the data and random numbers mean nothing under another order of the rows or another seed. */
static td_status *check_order(const job *j)
{
    static const char *const keys[] = {"train.seed",          "data.batch",     "data.shuffle",
                                       "data.shuffle_buffer", "data.most_rows", "data.drop_remainder"};
    td_config *config = begun_with(j);
    td_status *status = NULL;
    for (size_t i = 0; config && !status && i < sizeof keys / sizeof *keys; i++) {
        td_section before = td_config_root(config), now = j->setup.root;
        bool flag = td_config_key_find(keys[i])->type == TD_CONFIG_BOOL;
        long long was = flag ? td_section_bool(before, keys[i]) : td_section_int(before, keys[i]);
        long long is = flag ? td_section_bool(now, keys[i]) : td_section_int(now, keys[i]);
        if (was != is && flag)
            status = TD_SECTION_ERROR(now, keys[i], "%s was %s when %s began, and must stay so to resume it", keys[i],
                                      was ? "true" : "false", j->run);
        else if (was != is)
            status = TD_SECTION_ERROR(now, keys[i], "%s was %lld when %s began, and must stay so to resume it", keys[i],
                                      was, j->run);
    }
    if (config && !status)
        say_conversion(td_config_root(config), j->setup.root);
    if (config && !status)
        status = td_resumed_settings_say(td_config_root(config), j->setup.root);
    td_config_destroy(config);
    return status;
}

static td_status *load_newest(job *j)
{
    char *path = NULL;
    TD_TRY(td_checkpoint_newest(j->checkpoints, &path));
    if (!path && td_run_is_open(j->run))
        return td_weights_import(j->setup.root,
                                 j->training.store); /* stopped before its first checkpoint: from the beginning */
    if (!path)
        return TD_ERROR(TD_INVALID_ARGUMENT, "--resume: %s holds no checkpoint", j->checkpoints);
    td_status *status = td_store_load(j->training.store, path, &j->training.position);
    if (td_status_code(status) == TD_DATA_ERROR)
        status = td_status_help(status, "to go on from the checkpoint before it, move this one away");
    td_free(path);
    return status;
}

/* Every worker knows the run's folder: the first one may be lost, and another write in its place. Those of its own choosing are
 * numbered below runs/. */
static td_status *share_folders(job *j)
{
    const char *wanted = td_argument(j->arguments, "--run"), *end = j->run ? strrchr(j->run, '-') : NULL;
    int64_t number = end && !wanted ? strtoll(end + 1, NULL, 10) : 0;
    if (j->distributed.job && td_job_recovers(j->distributed.job) && !wanted)
        TD_TRY(td_job_agree(j->distributed.job, number, &number));
    if (!j->run && wanted)
        j->run = td_strdup(wanted);
    else if (!j->run && number)
        j->run = td_format("runs/%s-%04lld", j->setup.name, (long long)number);
    else if (!j->run && j->again)
        TD_TRY(td_run_find(j->setup.name, NULL, &j->run)); /* who knew is gone */
    if (!j->run || j->checkpoints)
        return NULL;
    TD_TRY(td_section_path(j->setup.root, "checkpoint.directory", &j->checkpoints));
    if (!j->checkpoints)
        j->checkpoints = td_format("%s/checkpoints", j->run);
    return j->checkpoints ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
}

static td_status *choose_folders(job *j)
{
    const char *wanted = td_argument(j->arguments, "--run");
    if (!j->distributed.leads && !j->resumed)
        return share_folders(j); /* the first worker writes all files */
    if (j->resumed)
        TD_TRY(td_run_find(j->setup.name, wanted, &j->run));
    else
        TD_TRY(td_run_create(j->setup.name, wanted, &j->run));
    TD_TRY(share_folders(j));
    if (!j->distributed.leads)
        return NULL;
    TD_TRY(td_run_lock(j->run, &j->lock));
    if (td_section_int(j->setup.root, "checkpoint.keep") <= 0)
        return NULL;
    j->training.checkpoints = j->checkpoints;
    return td_checkpoint_prepare(j->checkpoints);
}

/* Whatever the options, a run without a step is a mistake. */
static td_status *check_steps(const job *j)
{
    if (j->setup.steps > 0)
        return NULL;
    int64_t rows = td_dataset_schema(j->setup.dataset)->train_rows;
    if (!rows)
        return TD_SECTION_ERROR(j->setup.root, "data", "there is no row to train on");
    return td_status_help(TD_SECTION_ERROR(j->setup.root, "data.drop_remainder",
                                           "%lld rows make no batch of %lld, and short batches are left out",
                                           (long long)rows, (long long)j->setup.batch),
                          "try: data.batch: %lld, or data.drop_remainder: false", (long long)rows);
}

static td_status *write_json(const char *folder, const char *name, json_t *json)
{
    char *path = td_format("%s/%s", folder, name);
    if (!path) {
        json_decref(json);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    }
    td_status *status = td_json_write(json, path);
    td_free(path);
    return status;
}

static td_status *write_lineage(job *j)
{
    json_t *json = NULL;
    TD_TRY(td_lineage_json(j->config, &j->training, j->resumed, &json));
    return write_json(j->run, "run.json", json);
}

/* What the default device would need for all of it. Not an error when that cannot be said. */
static void measure_single(job *j)
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

static void print_start(const job *j)
{
    td_plan_summary plan = td_plan_summarize(j->training.plan);
    char traffic[TD_UNIT_TEXT];
    if (j->again) {
        fprintf(j->talk, "going on after step %lld\n", (long long)td_store_steps(j->training.store));
        return;
    }
    fprintf(j->talk, "%s on ", j->setup.name);
    for (int32_t i = 0; i < plan.devices; i++)
        fprintf(j->talk, "%s%s", i ? " + " : "", td_plan_device(j->training.plan, i).name);
    fprintf(j->talk, ": %d subgraph%s, %d cut edge%s, %s copied a step   run %s\n", plan.subgraphs,
            plan.subgraphs == 1 ? "" : "s", plan.cut_edges, plan.cut_edges == 1 ? "" : "s",
            td_format_traffic(traffic, (double)(plan.to_device_bytes_per_step + plan.to_host_bytes_per_step)), j->run);
    if (plan.delayed)
        fprintf(j->talk, "updates are made one step late (offload.delayed): results are not those of exact updates\n");
    if (j->resumed)
        fprintf(j->talk, "resumed after step %lld\n", (long long)td_store_steps(j->training.store));
}

static void print_notes(const job *j)
{
    const char *note;
    for (int32_t i = 0; (note = td_dataset_note(j->setup.dataset, i)); i++)
        fprintf(j->talk, "data: %s\n", note);
}

static void set_progress(job *j)
{
    td_progress *progress = &j->training.progress;
    progress->stream = j->talk;
    progress->terminal = td_stream_is_terminal(j->talk);
    progress->epochs = td_section_int(j->setup.root, "train.epochs");
    progress->steps_per_epoch = j->setup.steps_per_epoch;
    progress->steps = j->setup.steps;
    progress->every = td_section_int(j->setup.root, "train.log_every");
}

/* Windows may have another size than before the checkpoint; each batch that is left is trained on all the same. */
static void count_what_is_left(job *j)
{
    td_section root = j->setup.root;
    int64_t most = td_section_int(root, "train.steps"), epochs = td_section_int(root, "train.epochs");
    int64_t steps = td_setup_count_steps_from(root, j->setup.batches_per_epoch, epochs,
                                              td_store_steps(j->training.store), j->training.position);
    if (epochs > 0)
        j->setup.steps = most && most < steps ? most : steps;
}

/* The steps of the checkpoint that all go back to; less than 0: to the beginning, whose values follow from the seed. The one that
 * was begun last counts where it is whole, for the one before it may have gone already. */
static td_status *choose_checkpoint(const job *j, int64_t *out_steps)
{
    td_saved_marks all;
    TD_TRY(td_job_agree(j->distributed.job, j->training.marks.begun, &all.begun));
    TD_TRY(td_job_agree(j->distributed.job, j->training.marks.whole, &all.whole));
    int64_t steps = TD_SAVED_UNKNOWN;
    if (j->distributed.leads && all.whole == TD_SAVED_UNKNOWN)
        steps = td_checkpoint_newest_steps(j->checkpoints);
    else if (j->distributed.leads && all.begun >= 0 && td_checkpoint_is_there(j->checkpoints, all.begun))
        steps = all.begun;
    else if (j->distributed.leads)
        steps = all.whole;
    return td_job_agree(j->distributed.job, steps, out_steps);
}

static td_status *roll_back(job *j)
{
    int64_t steps = 0;
    TD_TRY(share_folders(j));
    TD_TRY(choose_checkpoint(j, &steps));
    if (steps < 0) {
        j->training.marks = (td_saved_marks){TD_SAVED_NONE, TD_SAVED_NONE};
        TD_TRY(td_weights_import(j->setup.root, j->training.store));
    } else {
        char *path = td_checkpoint_path(j->checkpoints, steps);
        if (!path)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
        td_status *status = td_store_load(j->training.store, path, &j->training.position);
        td_free(path);
        TD_TRY(status);
        j->training.marks = (td_saved_marks){steps, steps};
        count_what_is_left(j);
    }
    if (j->distributed.leads && td_section_int(j->setup.root, "checkpoint.keep") > 0) {
        j->training.checkpoints = j->checkpoints;
        TD_TRY(td_checkpoint_prepare(j->checkpoints));
    }
    if (j->distributed.leads && j->lock < 0)
        td_status_destroy(td_run_lock(j->run, &j->lock)); /* one that was given up may hold it still */
    return NULL;
}

/* A resumed run that had ended already, and is to be no longer now. */
static bool ended_before(const job *j)
{
    return j->resumed && !j->again && td_store_steps(j->training.store) >= j->setup.steps && !td_run_is_open(j->run);
}

/* run.json; a summary of what is now to be longer goes. */
static td_status *begin_files(job *j)
{
    char *path = td_format("%s/summary.json", j->run);
    if (!path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    remove(path);
    td_free(path);
    return write_lineage(j);
}

/* Where a run that is begun or resumed begins. */
static td_status *find_beginning(job *j)
{
    j->training.marks = (td_saved_marks){TD_SAVED_NONE, TD_SAVED_NONE};
    if (!j->resumed) /* before there is a folder: the file may be refused */
        TD_TRY(td_weights_import(j->setup.root, j->training.store));
    TD_TRY(choose_folders(j));
    if (!j->resumed)
        return NULL;
    TD_TRY(check_order(j));
    TD_TRY(load_newest(j));
    count_what_is_left(j);
    const int64_t steps = td_store_steps(j->training.store);
    if (steps)
        j->training.marks = (td_saved_marks){steps, steps};
    return NULL;
}

static td_status *prepare(job *j)
{
    TD_TRY(td_setup_open_worker(j->config, &j->distributed, &j->setup));
    if (!j->setup.dataset)
        return TD_SECTION_ERROR(j->setup.root, "graph", "training needs data: a section data with format and train");
    j->training.setup = &j->setup;
    TD_TRY(check_steps(j));
    TD_TRY(td_snapshots_check(&j->setup)); /* before there is a folder */
    TD_TRY(watch(j));
    td_collector_mark(&j->setup);
    TD_TRY(td_plan_train(j->setup.graph, j->setup.model.loss, &j->setup.options, &j->training.plan));
    TD_TRY(td_store_create(j->training.plan, &j->training.store));
    TD_TRY(td_session_create(j->training.plan, j->training.store, &j->training.session));
    TD_TRY(j->again ? roll_back(j) : find_beginning(j));
    TD_TRY(td_distributed_meet(&j->distributed)); /* tables are loaded */
    if (!j->again)
        TD_TRY(td_profiling_open(&j->setup, j->run, td_argument_flag(j->arguments, "--profile"), &j->profiler));
    if (!ended_before(j) && j->distributed.leads) {
        TD_TRY(begin_files(j));
        td_warn_of_idle_summaries(&j->setup);
        td_collector_open(&j->training.collector, &j->setup, j->training.plan, j->run);
        TD_TRY(td_snapshots_open(&j->training.snapshots, &j->setup, j->run));
    }
    set_progress(j);
    return NULL;
}

/* ---- after the last ---------------------------------------------------------------------------------------------------------- */

/* The whole command, settings included: without them other numbers would come out. */
static td_status *say_how_to_go_on(const job *j, td_status *status, const char *which)
{
    td_string settings = {0};
    for (int32_t i = 0; i < j->arguments->n_given; i++)
        if (!strcmp(j->arguments->given[i].option->name, "--set"))
            td_string_format(&settings, " --set '%s'", j->arguments->given[i].value);
    char *text = NULL;
    td_status *lost = td_string_finish(&settings, &text);
    status = td_status_help(status, "the checkpoint %s %s; go on with: tandem train %s --run %s --resume%s",
                            j->training.last_checkpoint, which, td_config_origin(j->config), j->run, text ? text : "");
    td_status_destroy(lost);
    td_free(text);
    return status;
}

static td_status *interrupted(const job *j)
{
    td_status *status = TD_ERROR(TD_CANCELLED, "%s after step %lld of %lld", td_training_stop_reason(),
                                 (long long)j->training.steps, (long long)j->setup.steps);
    if (!j->distributed.leads)
        return status;
    if (!j->training.last_checkpoint)
        return td_status_help(status, "no checkpoint was written: checkpoint.keep is 0");
    return say_how_to_go_on(j, status, "is there");
}

static td_status *explain_failure(const job *j, td_status *status)
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

static double generator_auc(const job *j)
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

/* Its summary stays as it is. */
static td_status *repeat_report(const job *j)
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

/* Metrics of the test part as scalars of the last step. */
static void collect_metrics(job *j)
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

static td_status *report(job *j)
{
    TD_TRY(td_evaluate(&j->setup, j->training.store, TD_PART_TEST, &j->evaluation));
    collect_metrics(j);
    measure_single(j);
    td_summary summary = {.training = &j->training,
                          .evaluation = &j->evaluation,
                          .generator_auc = generator_auc(j),
                          .single_bytes = j->single_bytes,
                          .single_name = j->single_name,
                          .config = td_config_origin(j->config),
                          .run = j->run};
    json_t *json = NULL;
    summary.pulls = j->distributed.job && td_plan_served_table(j->training.plan, 0, &(td_plan_served_summary){0});
    if (summary.pulls)
        TD_TRY(td_job_staleness(j->distributed.job, summary.staleness));
    TD_TRY(td_summary_json(&summary, &json));
    td_status *status = write_json(j->run, "summary.json", json_incref(json));
    if (!status && j->talk)
        status = td_summary_print(&summary, j->talk);
    if (!status && j->talk)
        td_profiling_print(j->profiler, j->run, j->talk);
    if (!status && td_argument_flag(j->arguments, "--json"))
        return td_json_print(json, j->arguments->out);
    json_decref(json);
    return status;
}

/* A training that skipped whatever it met has trained nothing, however short it was. */
static td_status *check_progress(const job *j, int64_t steps_before, int64_t updates_before)
{
    const int64_t steps = td_store_steps(j->training.store) - steps_before;
    if (steps == 0 || td_store_updates(j->training.store) > updates_before)
        return NULL;
    return TD_ERROR(TD_NOT_FINITE,
                    "%s%lld step%s skipped: loss or gradients were no finite numbers, no update was made",
                    steps == 1 ? "the only " : "all ", (long long)steps, steps == 1 ? " was" : "s were");
}

static td_status *train(job *j)
{
    TD_TRY(prepare(j));
    if (ended_before(j))
        return j->distributed.leads ? repeat_report(j) : NULL;
    if (j->talk) {
        if (!j->again)
            print_notes(j);
        print_start(j);
        td_distributed_print(&j->distributed, j->talk);
    }
    if (!j->training.is_further)
        td_training_catch_signals();
    const int64_t steps = td_store_steps(j->training.store), updates = td_store_updates(j->training.store);
    td_status *status = td_training_run(&j->training);
    if (!status)
        status = check_progress(j, steps, updates);
    if (!status && j->training.steps < j->setup.steps && j->training.stopped)
        status = interrupted(j);
    if (!j->training.is_further)
        td_training_release_signals();
    td_profiling_finish(j->profiler, &j->setup, !status || td_status_code(status) == TD_CANCELLED);
    if (status)
        return explain_failure(j, status);
    return j->distributed.leads ? report(j) : NULL;
}

/* What is gone with a plan: everything but the run's folder and what is known of its checkpoints. */
static void clear(job *j)
{
    const td_saved_marks marks = j->training.marks;
    td_profiling_finish(j->profiler, &j->setup, false);
    td_training_deinit(&j->training);
    td_profiler_destroy(j->profiler);
    td_setup_close(&j->setup);
    j->training.marks = marks;
    j->profiler = NULL;
    td_free(j->single_name);
    j->single_name = NULL;
}

/* ---- the workers of a rank ------------------------------------------------------------------------------------------------------ */

/* A worker that this rank took over from one that is lost: it trains in a thread of its own, and says nothing. */
typedef struct further {
    job job;
    pthread_t thread;
    td_status *status;
    bool started;
} further;

static void *further_main(void *argument)
{
    further *f = argument;
    f->status = train(&f->job);
    if (!f->status || td_status_code(f->status) == TD_CANCELLED) {
        td_status_destroy(f->status);
        f->status = td_distributed_end(&f->job.distributed);
    }
    if (f->status)
        td_job_fail(f->job.distributed.job, f->status);
    clear(&f->job);
    return NULL;
}

static td_status *start_further(const job *j, int32_t index, further *f)
{
    f->job =
        (job){.arguments = j->arguments, .config = j->config, .lock = -1, .resumed = j->resumed, .again = j->again};
    f->job.setup.options = td_train_defaults();
    f->job.distributed.job = td_job_of_worker(j->distributed.job, index);
    f->job.training.marks = j->training.marks;
    f->job.training.is_further = true;
    f->job.run = j->run ? td_strdup(j->run) : NULL;
    if (td_thread_create(&f->thread, further_main, f) != 0)
        return TD_ERROR(TD_IO, "no thread for another worker");
    f->started = true;
    return NULL;
}

static void end_further(further *f)
{
    if (f->started)
        pthread_join(f->thread, NULL);
    td_status_destroy(f->status);
    td_free(f->job.run);
    td_free(f->job.checkpoints);
}

/* All workers of this rank; the first in this thread. What ends one of them ends all of the job. */
static td_status *work(job *j)
{
    const int32_t n = j->distributed.job ? td_job_workers_here(j->distributed.job) - 1 : 0;
    further *others = NULL;
    td_status *status = TD_NEW(others, n + 1);
    for (int32_t i = 0; i < n && !status; i++)
        status = start_further(j, 1 + i, &others[i]);
    if (!status)
        status = train(j);
    if (!status || td_status_code(status) == TD_CANCELLED) {
        td_status *ended = td_distributed_end(&j->distributed);
        if (status && !ended)
            ended = status;
        else
            td_status_destroy(status);
        status = ended;
    }
    if (status && td_status_code(status) != TD_CANCELLED && n)
        td_job_fail(j->distributed.job, status); /* the others do not wait for this one */
    for (int32_t i = 0; others && i < n; i++)
        end_further(&others[i]);
    td_free(others);
    return status;
}

static td_status *serve(const job *j)
{
    signal(
        SIGUSR1,
        SIG_IGN); /* records when the workers do: the signal that asks for it, which mpirun hands to all, is theirs */
    td_training_catch_signals(); /* the workers stop, then this rank may */
    td_training_stops(j->distributed.job);
    td_status *status = td_job_serve(j->distributed.job);
    td_training_stops(NULL);
    td_training_release_signals();
    return status;
}

static void begin_again(job *j)
{
    clear(j);
    j->again = true;
    j->setup.options = td_train_defaults();
}

static td_status *run(const td_arguments *arguments)
{
    td_config *config = NULL;
    TD_TRY(td_arguments_config(arguments, &config));
    td_log_level level = TD_LOG_INFO;
    td_log_level_parse(td_section_string(td_config_root(config), "log.level"), &level);
    job j = {.arguments = arguments,
             .config = config,
             .lock = -1,
             .resumed = td_argument_flag(arguments, "--resume"),
             .training.marks = {TD_SAVED_UNKNOWN, TD_SAVED_UNKNOWN}};
    j.setup.options = td_train_defaults();
    if (level <= TD_LOG_INFO)
        j.talk = td_argument_flag(arguments, "--json") ? stderr : arguments->out;
    FILE *talk = j.talk;
    td_status *status = td_distributed_open(config, &j.distributed);
    for (bool more = !status; more;) {
        bool serves_only = j.distributed.job && td_job_worker(j.distributed.job) < 0;
        j.talk = j.distributed.leads ? talk : NULL;
        status = serves_only ? serve(&j) : work(&j);
        begin_again(&j);
        more = td_distributed_go_on(&j.distributed, td_config_root(config), &status);
    }
    clear(&j);
    td_distributed_close(&j.distributed, status);
    td_free(j.run);
    td_free(j.checkpoints);
    if (j.lock >= 0)
        close(j.lock);
    td_config_destroy(config);
    return status;
}

static const td_command_option options[] = {
    TD_OPTION_SET,
    {"--run", "DIR", "the run's folder; without it runs/MODEL-0001 and so on"},
    {"--resume", NULL, "go on from the newest checkpoint (of --run, or of the newest run of this model)"},
    {"--watch", "NODE", "print a value of the model every train.log_every steps"},
    {"--profile", NULL, "record steps 6 to 15, or what section profile says, for tandem profile"},
    {"--json", NULL, "print summary.json; progress goes to standard error"},
    {NULL, NULL, NULL},
};

const td_command td_command_train = {
    .name = "train",
    .summary = "trains a model",
    .usage = "CONFIG [--set KEY=VALUE]... [--run DIR] [--resume] [--watch NODE] [--profile] [--json]",
    .least = 1,
    .most = 1,
    .options = options,
    .run = run,
};
