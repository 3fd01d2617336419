/* Weights of a training at the steps that the section landscape names, each as a file of its own below the run's folder:
 * landscape/step-000000120.safetensors, parameters under their names in the dtype that they are kept in. `tandem landscape` draws
 * from them. Keeping them never changes a result and never stops a training: where one cannot be written, that is said once and
 * none is kept any more. */
#ifndef TANDEM_CLI_SNAPSHOTS_H
#define TANDEM_CLI_SNAPSHOTS_H

#include "base/safetensors.h"
#include "cli/setup.h"
#include "tandem/session.h"

typedef struct td_snapshots {
    char *folder;   /* NULL: none is kept */
    int64_t *steps; /* ascending */
    int32_t n;
    bool last; /* of the end too, whichever step that is */
} td_snapshots;

/* One interval of landscape.intervals as steps, ascending; td_free *out_steps. *out_units: the numbers as they stand there. An
 * error about the key where they are no numbers, do not ascend, or are beyond the training's end (where setup->steps says it). */
td_status *td_snapshots_interval(const td_setup *setup, int32_t interval, int64_t **out_steps, int64_t **out_units,
                                 int32_t *out_n) TD_MUST_USE;
/* Whether the end of training is to be kept: landscape.create_landscape.result. */
bool td_snapshots_want_result(td_section root);

/* The errors that opening would give. */
td_status *td_snapshots_check(const td_setup *setup) TD_MUST_USE;
/* Nothing is kept where the section names nothing. Only errors of the configuration. */
td_status *td_snapshots_open(td_snapshots *snapshots, const td_setup *setup, const char *run) TD_MUST_USE;
/* The next step after `step` that is to be kept; INT64_MAX: none. */
int64_t td_snapshots_next_stop(const td_snapshots *snapshots, int64_t step);
/* Keeps the store's parameters where this step is one to keep, or `end` and the end is. No session is running. */
void td_snapshots_keep(td_snapshots *snapshots, const td_store *store, bool end);
void td_snapshots_close(td_snapshots *snapshots);

/* The weights kept at a step; td_safetensors_close them. TD_NOT_FOUND where there are none, TD_DATA_ERROR where they are not the ones
 * that were kept: the file's header has their checksum ("xxh64"). */
td_status *td_snapshot_open(const char *run, int64_t step, td_safetensors **out_file) TD_MUST_USE;
/* "RUN/landscape/step-000000120.safetensors"; td_free it. NULL: out of memory. */
char *td_snapshot_path(const char *run, int64_t step);

#endif
