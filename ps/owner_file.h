/* An owner's file of a checkpoint: the rows of all its shards with their ids and state, and what is known of their use. Every owner
 * writes its own, from its own memory, a piece of a few MiB at a time; the manifest that makes them a checkpoint is another's
 * work (runtime/checkpoint_owners.c, which reads them too).
 *
 *     param/<name> [n, dim]  rows/<name> i64 [n]  state/<name>/<slot>       as in any checkpoint by rows
 *     used/<name>, counts/<name>  i32 [n]                                   of hash tables whose rules need them
 *     waiting/<name> i32 [w, 2]  waiting_rows/<name> i64 [w]                ids that are not admitted yet
 *     windows/<name> i64 [1]                                                of hash tables
 *     gone/<name> i64 [g]                                                   only beside changes: ids to forget before */
#ifndef TANDEM_PS_OWNER_FILE_H
#define TANDEM_PS_OWNER_FILE_H

#include "ps/shard.h"

#define TD_OWNER_FILE "owner-%04d.safetensors" /* of owner i */

/* `changes`: only what changed since the shards were tracked; otherwise all, and with `track` they are tracked from here on.
 * `steps`: for messages about files of different checkpoints. */
td_status *td_owner_file_write(td_shard *const *shards, int64_t n, const char *path, int64_t steps, bool changes,
                               bool track, int64_t *out_bytes, uint64_t *out_xxh64) TD_MUST_USE;

#endif
