/* The folder of a run: runs/<name>-0001 and so on, with summary.json, run.json and checkpoints/. */
#ifndef TANDEM_CLI_RUN_DIRECTORY_H
#define TANDEM_CLI_RUN_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/session.h"

/* A new folder: `wanted` if given (made, parents too; an error if it holds a run already), else the next free number below
 * runs/. *out_path is td_free'd by the caller. */
td_status *td_run_create(const char *name, const char *wanted, char **out_path) TD_MUST_USE;
/* The folder to go on with: `wanted`, or the newest of that name that has a checkpoint. An error when there is none. */
td_status *td_run_find(const char *name, const char *wanted, char **out_path) TD_MUST_USE;

/* True when the run was begun and has not ended: it has run.json and no summary.json. */
bool td_run_is_open(const char *run);
/* Keeps other processes from training into the folder until this one ends or closes *out_lock (-1: nothing is held; where
 * folders cannot be locked, none is). An error when another process holds it. */
td_status *td_run_lock(const char *run, int *out_lock) TD_MUST_USE;

/* Makes the folder for checkpoints and takes away what an earlier process left half-written there. */
td_status *td_checkpoint_prepare(const char *folder) TD_MUST_USE;
/* The checkpoints of a run, one after the other. */
typedef struct td_checkpoint_series {
    int64_t keep;        /* how many of the newest stay, with what they add to */
    int64_t incremental; /* how many in a row have only what changed since the whole one before */
    int64_t changes;     /* since then */
    char *base;          /* the last whole one; NULL: there is none yet */
} td_checkpoint_series;
void td_checkpoint_series_deinit(td_checkpoint_series *series);
/* Saves the store as <folder>/step-<updates>, complete or not at all, and then removes all that need not stay.
 * *out_path (may be NULL): the checkpoint. The folder is made. */
td_status *td_checkpoint_save(td_store *store, const char *folder, td_data_position position,
                              td_checkpoint_series *series, char **out_path) TD_MUST_USE;
/* The newest checkpoint in a folder; NULL when there is none. */
td_status *td_checkpoint_newest(const char *folder, char **out_path) TD_MUST_USE;
/* The path of the checkpoint of that many steps, and whether it is there, whole; and the steps of the newest, -1: there is none. */
char *td_checkpoint_path(const char *folder, int64_t steps);
bool td_checkpoint_is_there(const char *folder, int64_t steps);
int64_t td_checkpoint_newest_steps(const char *folder);
/* Where the checkpoint in `path` is: itself, or the newest in it or in its checkpoints/. An error when there is none. */
td_status *td_checkpoint_resolve(const char *path, char **out_path) TD_MUST_USE;

#endif
