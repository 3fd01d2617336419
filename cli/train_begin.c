/* What a training does before its first step: its folder, the checkpoint it goes on from, its files. See cli/train_job.h. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "cli/idle_keys.h"
#include "cli/idle_patterns.h"
#include "cli/json.h"
#include "cli/profiling.h"
#include "cli/resumed_settings.h"
#include "cli/signals.h"
#include "cli/summary.h"
#include "cli/terminal.h"
#include "cli/train_job.h"
#include "cli/weights.h"

/* ---- the run's folder ------------------------------------------------------------------------------------------------------- */

/* Every worker knows the run's folder: the first one may be lost, and another write in its place. Those of its own choosing are
 * numbered below runs/. */
static td_status *share_folders(td_train_job *j)
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

static td_status *choose_folders(td_train_job *j)
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

/* ---- where it begins -------------------------------------------------------------------------------------------------------- */

static td_status *load_newest(td_train_job *j)
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

/* Windows may have another size than before the checkpoint; each batch that is left is trained on all the same. */
static void count_what_is_left(td_train_job *j)
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
static td_status *choose_checkpoint(const td_train_job *j, int64_t *out_steps)
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

static td_status *roll_back(td_train_job *j)
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

/* Where a run that is begun or resumed begins. */
static td_status *find_beginning(td_train_job *j)
{
    j->training.marks = (td_saved_marks){TD_SAVED_NONE, TD_SAVED_NONE};
    if (!j->resumed) /* before there is a folder: the file may be refused */
        TD_TRY(td_weights_import(j->setup.root, j->training.store));
    if (!j->distributed.job)
        td_signals_catch(); /* what has a folder ends as a run does */
    TD_TRY(choose_folders(j));
    if (!j->resumed)
        return NULL;
    TD_TRY(td_resumed_settings_check(j->run, j->setup.root));
    TD_TRY(load_newest(j));
    count_what_is_left(j);
    const int64_t steps = td_store_steps(j->training.store);
    if (steps)
        j->training.marks = (td_saved_marks){steps, steps};
    return NULL;
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static td_status *watch(td_train_job *j)
{
    const char *name = td_argument(j->arguments, "--watch");
    if (!name)
        return NULL;
    td_value value = td_graph_find(j->setup.graph, name);
    if (value.id < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "--watch %s: the model has no value of that name (tandem plan CONFIG --tdg FILE writes all)",
                        name);
    if (td_value_kind(value) != TD_DENSE || td_value_dtype(value) != TD_F32)
        return TD_ERROR(TD_INVALID_ARGUMENT, "--watch %s: only dense f32 values can be watched", name);
    td_output(value);
    j->training.watch = name;
    return NULL;
}

/* Whatever the options, a run without a step is a mistake. */
static td_status *check_steps(const td_train_job *j)
{
    if (j->setup.steps > 0)
        return NULL;
    const td_schema *schema = td_dataset_schema(j->setup.dataset);
    const int64_t rows = schema->train_rows;
    if (!rows) /* files without any were refused when they were read */
        return td_status_help(TD_SECTION_ERROR(j->setup.root, "data.train_share",
                                               "data.train_share: %g of the %s of %s leaves none to train on",
                                               td_section_float(j->setup.root, "data.train_share"),
                                               TD_COUNTED(schema->test_rows, "row"),
                                               td_section_string(j->setup.root, "data.train")),
                              "try: data.train_share: 1, or a data.test of its own");
    return td_status_help(TD_SECTION_ERROR(j->setup.root, "data.drop_remainder",
                                           "of %s no batch of %lld can be made, and short batches are left out",
                                           TD_COUNTED(rows, "row"), (long long)j->setup.batch),
                          "try: data.batch: %lld, or data.drop_remainder: false", (long long)rows);
}

static void set_progress(td_train_job *j)
{
    td_progress *progress = &j->training.progress;
    progress->stream = j->talk;
    progress->terminal = td_stream_is_terminal(j->talk);
    progress->epochs = td_section_int(j->setup.root, "train.epochs");
    progress->steps_per_epoch = j->setup.steps_per_epoch;
    progress->steps = j->setup.steps;
    progress->every = td_section_int(j->setup.root, "train.log_every");
}

/* A resumed run that had ended already, and is to be no longer now. */
bool td_train_ended_before(const td_train_job *j)
{
    return j->resumed && !j->again && td_store_steps(j->training.store) >= j->setup.steps && !td_run_is_open(j->run);
}

/* run.json; a summary of what is now to be longer goes. */
static td_status *begin_files(td_train_job *j)
{
    char *path = td_format("%s/summary.json", j->run);
    if (!path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    remove(path);
    td_free(path);
    json_t *json = NULL;
    TD_TRY(td_lineage_json(j->config, &j->training, j->resumed, &json));
    return td_json_write(json, j->run, "run.json");
}

td_status *td_train_prepare(td_train_job *j)
{
    if (!j->distributed.job) /* mpirun ends the ranks of a job that cannot begin, and they do not speak of that */
        td_signals_end_at_once(td_argument_flag(j->arguments, "--resume")
                                   ? " before the first step: the run is as it was"
                                   : " before the first step: no run was begun");
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
    const td_profiling_recovery recovery = {j->loss, j->lost_ns, td_store_steps(j->training.store),
                                            j->training.is_further};
    TD_TRY(td_profiling_open(&j->setup, j->run, td_argument_flag(j->arguments, "--profile"),
                             j->again ? &recovery : NULL, &j->profiler));
    if (!td_train_ended_before(j) && j->distributed.leads) {
        TD_TRY(begin_files(j));
        if (!j->again)
            td_warn_of_idle_keys(j->setup.root);
        td_warn_of_idle_summaries(&j->setup);
        td_collector_open(&j->training.collector, &j->setup, j->training.plan, j->run);
        TD_TRY(td_snapshots_open(&j->training.snapshots, &j->setup, j->run));
    }
    set_progress(j);
    j->training.errors = j->talk ? j->arguments->errors : NULL;
    return NULL;
}

/* ---- what is said ----------------------------------------------------------------------------------------------------------- */

static void print_notes(const td_train_job *j)
{
    const char *note;
    for (int32_t i = 0; (note = td_dataset_note(j->setup.dataset, i)); i++)
        fprintf(j->talk, "data: %s\n", note);
}

static void print_where(const td_train_job *j, const char *what)
{
    const long long steps = (long long)td_store_steps(j->training.store);
    if (steps)
        fprintf(j->talk, "%s after step %lld\n", what, steps);
    else
        fprintf(j->talk, "%s before the first step\n", what);
}

void td_train_print_start(const td_train_job *j)
{
    td_plan_summary plan = td_plan_summarize(j->training.plan);
    char traffic[TD_UNIT_TEXT];
    if (j->again) {
        print_where(j, "going on");
        return;
    }
    print_notes(j);
    fprintf(j->talk, "%s on ", j->setup.name);
    for (int32_t i = 0; i < plan.devices; i++)
        fprintf(j->talk, "%s%s", i ? " + " : "", td_plan_device(j->training.plan, i).name);
    fprintf(j->talk, ": %s, %s, %s copied a step   run %s\n", TD_COUNTED(plan.subgraphs, "subgraph"),
            TD_COUNTED(plan.cut_edges, "cut edge"),
            td_format_traffic(traffic, (double)(plan.to_device_bytes_per_step + plan.to_host_bytes_per_step)), j->run);
    if (plan.delayed)
        fprintf(j->talk, "updates are made one step late (offload.delayed): results are not those of exact updates\n");
    if (j->resumed)
        print_where(j, "resumed");
}
