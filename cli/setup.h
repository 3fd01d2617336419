/* From a configuration to what the library takes: data set, loader, graph, options. Each error names the place in the file.
 *
 *     td_setup setup;
 *     TD_TRY(td_setup_open(config, &setup));    // data set, graph, options: nothing large is allocated
 *     ... td_plan_train(setup.graph, setup.model.loss, &setup.options, &plan) ...
 *     td_setup_close(&setup);                    // after the plans, stores and sessions */
#ifndef TANDEM_CLI_SETUP_H
#define TANDEM_CLI_SETUP_H

#include "cli/config.h"
#include "cli/distributed.h"
#include "cli/model.h"
#include "tandem/data.h"
#include "tandem/session.h"
#include "tandem/plan.h"

typedef struct td_setup {
    td_section root;
    td_dataset *dataset; /* NULL when there is no data section */
    td_graph *graph;
    td_model model;
    td_train_options options;
    char name[64]; /* of the model: "dlrm", or the graph file's name without folder and ending */
    int64_t batch;
    int64_t batches_per_epoch, steps_per_epoch; /* 0 without data; steps: of the first epoch */
    const td_distributed *distributed;          /* NULL: this process is alone */
    td_own_tables *own;                         /* hash tables of a process that is alone; NULL: there are none */
    int64_t steps; /* of the whole training: epochs and train.steps, whichever ends first; 0: not known */
} td_setup;

td_status *td_setup_open(const td_config *config, td_setup *out_setup) TD_MUST_USE;
/* After it, to look at what a job has trained: tables that servers had are this process's. */
td_status *td_setup_serve_none(td_setup *setup) TD_MUST_USE;
/* The same for a worker of a job, whose windows have a batch for each worker. */
td_status *td_setup_open_worker(const td_config *config, const td_distributed *distributed,
                                td_setup *out_setup) TD_MUST_USE;
void td_setup_close(td_setup *setup);

/* One by one, for tests and for commands that need a part. */
td_status *td_setup_dataset(td_section root, td_dataset **out_dataset) TD_MUST_USE;
/* Options for the whole machine of the configuration. `steps`: where schedules end that do not say. */
td_status *td_setup_options(td_section root, int64_t steps, td_train_options *out_options) TD_MUST_USE;
/* How many micro-batches make a step: the keys train.accumulate, accumulate_from, replicas, reduction. */
td_status *td_setup_windows(td_section root, td_train_options *options) TD_MUST_USE;
/* Steps in so many epochs: a window ends with its epoch. INT64_MAX: more. */
int64_t td_setup_count_steps(td_section root, int64_t batches_per_epoch, int64_t epochs);
/* The same for a run that has done so many steps and goes on from this place, perhaps with other windows than before. */
int64_t td_setup_count_steps_from(td_section root, int64_t batches_per_epoch, int64_t epochs, int64_t done,
                                  td_data_position at);
/* Everything on one device: `device` by name, or NULL: the default device, its memory limit lifted (*out_lifted: it had
 * one). *out_device: its name, td_free'd by the caller. */
td_status *td_setup_single(td_section root, int64_t steps, const char *device, td_train_options *out_options,
                           char **out_device, bool *out_lifted) TD_MUST_USE;
/* The training part in the configuration's batches and order, all epochs from `start_epoch`, `start_batch` on. */
td_status *td_setup_training_loader(const td_setup *setup, int64_t start_epoch, int64_t start_batch, td_deal *deal,
                                    td_loader **out_loader) TD_MUST_USE;
/* Every row of a part once, in order. */
td_status *td_setup_evaluation_loader(const td_setup *setup, td_part part, td_loader **out_loader) TD_MUST_USE;

#endif
