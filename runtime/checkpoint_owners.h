/* What owners of tables (runtime/remote.h) have to do with a checkpoint: their files, which they write themselves (ps/owner_file.h),
 * and what those have beyond rows, which goes back to whoever owns the tables now. The first worker does this for all. */
#ifndef TANDEM_RUNTIME_CHECKPOINT_OWNERS_H
#define TANDEM_RUNTIME_CHECKPOINT_OWNERS_H

#include "runtime/checkpoint_files.h"

/* Whether any table has owners. */
bool td_checkpoint_has_owners(const td_store *store);
/* The owners' files into a directory and a manifest's list of shards; nothing where there are no owners. */
td_status *td_checkpoint_save_owned(const td_store *store, const char *directory, bool changes, bool track,
                                    json_t *shards) TD_MUST_USE;

/* In this order, with the rows in between: */
/* How many windows there were: before any row. */
td_status *td_checkpoint_set_windows(const td_store *store, const td_checkpoint_files *files) TD_MUST_USE;
/* Last uses and counts of rows that are there. */
td_status *td_checkpoint_read_use(const td_store *store, const td_checkpoint_files *files) TD_MUST_USE;
/* Of a whole checkpoint's rows those go that the changes say have gone: before the rows that changed. */
td_status *td_checkpoint_forget_gone(const td_store *store, const td_checkpoint_files *files) TD_MUST_USE;
td_status *td_checkpoint_read_waiting(const td_store *store, const td_checkpoint_files *files) TD_MUST_USE;

#endif
