/* tandem train: trains what a configuration says, and leaves a folder with summary.json, run.json and checkpoints. What it does
 * before the first step is in train_begin.c, what after the last in train_end.c. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/record.h"
#include "base/string.h"
#include "base/thread.h"
#include "cli/command.h"
#include "cli/profiling.h"
#include "cli/signals.h"
#include "cli/train_job.h"

static td_status *train_until_signal(td_train_job *j)
{
    td_record_worker = j->distributed.job ? (uint32_t)(td_job_worker(j->distributed.job) + 1) : 0;
    TD_TRY(td_train_prepare(j));
    if (td_train_ended_before(j))
        return j->distributed.leads ? td_train_repeat_report(j) : NULL;
    if (j->talk) {
        td_train_print_start(j);
        td_distributed_print(&j->distributed, j->talk);
    }
    if (!j->training.is_further) {
        td_signals_stop_job(j->distributed.job);
        td_signals_catch();
    }
    const int64_t steps = td_store_steps(j->training.store), updates = td_store_updates(j->training.store);
    td_status *status = td_training_run(&j->training);
    if (!status)
        status = td_train_check_progress(j, steps, updates);
    if (!status && j->training.steps < j->setup.steps && j->training.stopped)
        status = td_train_interrupted(j);
    td_profiling_finish(j->profiler, &j->setup, status);
    if (status)
        return td_train_explain(j, status);
    return j->distributed.leads ? td_train_report(j) : NULL;
}

static td_status *train(td_train_job *j)
{
    td_status *status = train_until_signal(j);
    if (!j->distributed.job) /* a rank waits for the others, and a signal is for all of them */
        td_signals_release();
    return status;
}

/* What is gone with a plan: everything but the run's folder and what is known of its checkpoints. */
static void clear(td_train_job *j)
{
    const td_saved_marks marks = j->training.marks;
    td_profiling_abandon(j->profiler);
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
    td_train_job job;
    pthread_t thread;
    td_status *status;
    bool started;
} further;

static void *further_main(void *argument)
{
    further *f = argument;
    td_record_name_thread("run, worker %d", td_job_worker(f->job.distributed.job));
    f->status = train(&f->job);
    if (!f->status || td_status_code(f->status) == TD_CANCELLED) {
        td_status_destroy(f->status);
        f->status = td_distributed_meet(&f->job.distributed);
    }
    if (f->status)
        td_job_fail(f->job.distributed.job, f->status);
    clear(&f->job);
    return NULL;
}

static td_status *start_further(const td_train_job *j, int32_t index, further *f)
{
    f->job = (td_train_job){.arguments = j->arguments,
                            .config = j->config,
                            .lock = -1,
                            .resumed = j->resumed,
                            .again = j->again,
                            .loss = j->loss,
                            .lost_ns = j->lost_ns};
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
static td_status *work(td_train_job *j)
{
    const int32_t n = j->distributed.job ? td_job_workers_here(j->distributed.job) - 1 : 0;
    further *others = NULL;
    td_status *status = TD_NEW(others, n + 1);
    for (int32_t i = 0; i < n && !status; i++)
        status = start_further(j, 1 + i, &others[i]);
    if (!status)
        status = train(j);
    /* No worker leaves before all have done all: where a loss does not end the job work may come back to it, and a signal to any of
     * them reaches the one that still evaluates. */
    if (!status || td_status_code(status) == TD_CANCELLED) {
        td_status *ended = td_distributed_meet(&j->distributed);
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
    td_signals_stop_job(NULL);
    td_free(others);
    return status;
}

static td_status *serve(const td_train_job *j)
{
    signal(
        SIGUSR1,
        SIG_IGN); /* records when the workers do: the signal that asks for it, which mpirun hands to all, is theirs */
    td_signals_catch(); /* the workers stop, then this rank may */
    td_signals_stop_job(j->distributed.job);
    td_status *status = td_job_serve(j->distributed.job);
    td_signals_stop_job(NULL);
    td_signals_release();
    return status;
}

static void begin_again(td_train_job *j)
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
    td_train_job j = {.arguments = arguments,
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
        td_free(j.loss);
        j.lost_ns = td_clock_ns();
        more = td_distributed_go_on(&j.distributed, td_config_root(config), &status, &j.loss);
    }
    clear(&j);
    /* all ranks of a job that was stopped end with 130, at which mpirun may end the slowest: so who speaks does before they leave */
    if (j.distributed.job && j.distributed.leads && td_status_code(status) == TD_CANCELLED) {
        fflush(arguments->out);
        td_program_say(status, arguments->errors);
        *arguments->said = true;
    }
    td_distributed_close(&j.distributed, status);
    td_free(j.run);
    td_free(j.loss);
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
    .first = "the configuration",
    .options = options,
    .run = run,
};
