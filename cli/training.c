/* Running the steps of a training: see cli/training.h.
 *
 * The session pulls batches ahead of the steps, but none beyond the steps that it is asked for: it is asked for those up to the
 * next checkpoint, so that no batch is pulled and then lost; after a signal the position of the last step that was done counts. */
#include "cli/training.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/command.h"
#include "cli/run_directory.h"
#include "cli/signals.h"

static void print_watched(const td_training *training, const td_step_report *report)
{
    enum { SHOWN = 6 };
    int32_t index = 0;
    const char *name;
    while ((name = td_plan_output_name(training->plan, index)) && strcmp(name, training->watch) != 0)
        index++;
    if (index >= report->n_outputs)
        return;
    const td_tensor *tensor = &report->outputs[index];
    int64_t n = 1;
    for (int32_t i = 0; i < tensor->rank; i++)
        n *= tensor->dims[i];
    FILE *stream = training->progress.stream;
    if (!stream || tensor->dtype != TD_F32 || !n)
        return;
    const float *x = tensor->data;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    fprintf(stream, "step %lld  %s: mean %.5g, deviation %.5g;", (long long)report->step, training->watch, mean,
            sqrt(variance > 0 ? variance : 0));
    for (int64_t i = 0; i < n && i < SHOWN; i++)
        fprintf(stream, " %.5g", (double)x[i]);
    fputs(n > SHOWN ? " ...\n" : "\n", stream);
}

static void advance(td_training *training, const td_step_report *report)
{
    training->position.batch += report->micro_batches;
    training->step_of_epoch++;
    if (training->position.batch < training->setup->batches_per_epoch)
        return;
    training->position = (td_data_position){training->position.epoch + 1, 0};
    training->step_of_epoch = 0;
}

static bool on_step(void *context, const td_step_report *report)
{
    td_training *training = context;
    training->samples += report->samples;
    training->loss = report->skipped ? training->loss : report->loss;
    if (report->step == 1 && !report->skipped)
        training->first_loss = report->loss;
    if (report->overflowed) {
        training->overflowed = report->overflowed;
        training->overflowed_step = report->step;
    }
    training->wait_data_s += report->wait_data_s;
    int64_t step_of_epoch = training->step_of_epoch;
    advance(training, report);
    if (!training->step_error) /* steps in flight are reported after the one that failed */
        training->step_error =
            td_statistics_add(&training->statistics, step_of_epoch, report->samples, report->seconds);
    if (training->watch && report->n_outputs > 0 && report->step % training->progress.every == 0) {
        td_progress_end(&training->progress);
        print_watched(training, report);
    }
    td_collector_step(&training->collector, report);
    td_progress_step(&training->progress, report->batch->epoch, step_of_epoch, report->samples, training->loss,
                     td_clock_ns());
    training->windows++;
    if (!training->setup->distributed || !training->setup->distributed->job)
        return !training->step_error && !td_signals_came();
    td_job *job = training->setup->distributed->job;
    training->stopped = td_job_stops_at(job) && td_job_stops_at(job) <= training->windows;
    return !training->step_error && !training->stopped;
}

/* Up to `steps` steps in one go. */
static td_status *run_stretch(td_training *training, td_loader *loader, int64_t steps)
{
    td_job *job = training->setup->distributed ? training->setup->distributed->job : NULL;
    td_source source = training->dealt.plan ? td_dealt_source_of(&training->dealt) : td_loader_source(loader);
    td_signals_stop_session(training->session);
    td_status *status =
        td_signals_came() && !job ? NULL : td_session_run(training->session, &source, steps, on_step, training);
    td_signals_stop_session(NULL);
    training->stopped = job ? training->stopped : td_signals_came();
    if (!status) {
        status = training->step_error;
        training->step_error = NULL;
    }
    return status;
}

static td_status *save_alone(td_training *training)
{
    if (!training->checkpoints)
        return NULL;
    char *path = NULL;
    training->series.keep = td_section_int(training->setup->root, "checkpoint.keep");
    training->series.incremental = td_section_int(training->setup->root, "checkpoint.incremental");
    TD_TRY(td_checkpoint_save(training->store, training->checkpoints, training->position, &training->series, &path));
    td_free(training->last_checkpoint);
    training->last_checkpoint = path;
    training->saved_steps = td_store_steps(training->store);
    return NULL;
}

/* In a job the first worker writes, while the others give it what it has not, and wait: what is written is what all have after the same window. */
static td_status *save(td_training *training)
{
    const bool kept = td_section_int(training->setup->root, "checkpoint.keep") > 0;
    if (!training->setup->distributed)
        return save_alone(training);
    training->marks.begun = kept ? td_store_steps(training->store) : TD_SAVED_NONE;
    TD_TRY(td_distributed_meet(training->setup->distributed));
    if (training->setup->distributed->leads)
        TD_TRY(save_alone(training));
    else if (kept)
        TD_TRY(td_store_lend(training->store));
    TD_TRY(td_distributed_meet(training->setup->distributed));
    training->marks.whole = training->marks.begun;
    return NULL;
}

/* A checkpoint may take long, and it is the last moment to do without it. */
static void announce_checkpoint(td_training *training)
{
    const long long steps = (long long)td_store_steps(training->store);
    char when[48] = "before the first step";
    if (!training->errors || !training->checkpoints)
        return;
    if (steps)
        (void)snprintf(when, sizeof when, "after step %lld", steps);
    td_progress_end(&training->progress);
    td_status *said = TD_ERROR(TD_CANCELLED, "%s %s: writing a checkpoint; another %s ends without it",
                               td_signals_reason(), when, td_signals_another());
    td_program_say(said, training->errors);
    td_status_destroy(said);
}

/* What was trained before an error is not lost with it. */
static td_status *rescue(td_training *training, td_status *error)
{
    bool good = td_session_is_usable(training->session);
    bool shared =
        training->setup->distributed && training->setup->distributed->job; /* the others do not come any more */
    if (!good || shared || !training->checkpoints || td_store_steps(training->store) <= training->saved_steps)
        return error;
    td_status *status = save(training);
    if (status)
        error =
            td_status_help(error, "no checkpoint of the steps before could be written: %s", td_status_message(status));
    td_status_destroy(status);
    return error;
}

static td_status *run_all(td_training *training, td_loader *loader)
{
    int64_t every = td_section_int(training->setup->root, "checkpoint.every"), end = training->setup->steps;
    bool saved = false;
    if (!td_store_steps(training->store))
        td_snapshots_keep(&training->snapshots, training->store, false);
    for (int64_t step = td_store_steps(training->store); step < end && !training->stopped;) {
        int64_t stretch = every && every - step % every < end - step ? every - step % every : end - step;
        int64_t stop = td_collector_next_stop(&training->collector, step);
        int64_t keep = td_snapshots_next_stop(&training->snapshots, step);
        stop = keep < stop ? keep : stop;
        stretch = stop - step < stretch ? stop - step : stretch;
        td_status *status = run_stretch(training, loader, stretch);
        if (status)
            return rescue(training, status);
        int64_t now = td_store_steps(training->store);
        if (training->stopped && now < end)
            announce_checkpoint(training);
        td_collector_store(&training->collector, training->store);
        td_snapshots_keep(&training->snapshots, training->store, now >= end);
        saved = every && now % every == 0 && now > step;
        if (saved)
            TD_TRY(save(training));
        if (now < step + stretch)
            break; /* stopped, or the data ended */
        step = now;
    }
    return saved ? NULL : save(training);
}

static td_status *finish(td_training *training)
{
    training->n_devices = td_session_devices(training->session);
    TD_TRY(TD_NEW(training->devices, training->n_devices));
    for (int32_t i = 0; i < training->n_devices; i++) {
        training->devices[i] = td_session_device(training->session, i);
        training->devices[i].name = td_plan_device(training->plan, i).name;
    }
    training->counters = td_session_read_counters(training->session);
    training->steps = td_store_steps(training->store);
    td_session_destroy(training->session);
    training->session = NULL;
    return NULL;
}

td_status *td_training_run(td_training *training)
{
    td_loader *loader = NULL;
    int64_t first = td_store_steps(training->store), started = td_clock_ns();
    bool anything = first < training->setup->steps;
    td_job *job = training->setup->distributed ? training->setup->distributed->job : NULL;
    training->dealt = (td_dealt_source){.wanted = {.plan = training->plan, .job = job, .step = first}};
    if (anything)
        TD_TRY(td_setup_training_loader(training->setup, training->position.epoch, training->position.batch,
                                        job ? &training->dealt.wanted : NULL, &loader));
    training->saved_steps = first;
    training->step_of_epoch = training->position.batch / td_plan_window(training->plan, first + 1);
    training->loss = (float)td_store_last_loss(training->store);
    td_progress_start(&training->progress, first, started);
    if (anything && (job || td_distributed_window(NULL, &training->setup->options) > 1)) {
        training->dealt.inner = td_loader_source(loader);
        training->dealt.plan = training->plan;
        training->dealt.job = job;
        training->dealt.step = first;
    }
    if (job)
        td_job_set_step(job, first);
    td_status *status = anything ? run_all(training, loader) : NULL;
    td_dealt_source_deinit(&training->dealt);
    td_progress_end(&training->progress);
    training->seconds = (double)(td_clock_ns() - started) / 1e9;
    td_loader_destroy(loader);
    return status ? status : finish(training);
}

void td_training_deinit(td_training *training)
{
    td_collector_close(&training->collector);
    td_snapshots_close(&training->snapshots);
    td_session_destroy(training->session);
    td_store_release(training->store);
    td_plan_release(training->plan);
    td_statistics_deinit(&training->statistics);
    td_status_destroy(training->step_error);
    td_free(training->last_checkpoint);
    td_checkpoint_series_deinit(&training->series);
    td_free(training->devices);
    *training = (td_training){0};
}
