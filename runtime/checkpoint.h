/* What the parts of checkpoints share: names, the manifest, and tensors of a file as a store wants them.
 *
 * A checkpoint is a directory of safetensors shards (`param/<name>`, `state/<parameter>/<slot>`) and manifest.json, written last,
 * so that a directory with a manifest is whole. Every entry of the store is written in the dtype that it is kept in: f32, and for
 * tables of 16-bit rows those rows, which are no copies of anything; whoever loads it converts (base/convert.h). Nothing in it
 * depends on where parameters lived, save that tables which were not simply in memory have only their rows that are there. */
#ifndef TANDEM_RUNTIME_CHECKPOINT_H
#define TANDEM_RUNTIME_CHECKPOINT_H

#include <jansson.h>

#include "base/safetensors.h"
#include "runtime/store.h"

td_status *td_checkpoint_no_memory(void);
/* "param/<name>" or "state/<parameter>/<slot>"; NULL: no memory; td_free it. */
char *td_checkpoint_tensor_name(const td_store_entry *entry);
/* "rows/<parameter>", for a parameter as for its state. */
char *td_checkpoint_rows_name(const td_store_entry *entry);

/* ---- checkpoint_manifest.c -------------------------------------------------------------------------------------------------- */

/* Adds a file of the checkpoint to those that its manifest is to list. */
td_status *td_manifest_list_shard(json_t *shards, const char *file, int64_t bytes, uint64_t xxh64) TD_MUST_USE;
/* Counters, position, shards (borrowed), and how tables begin of which only some rows are written; `base` (borrowed; NULL: it is whole):
 * the manifest of the checkpoint called `base_name` that its tables are changes to; last of all its own checksum, which
 * out_checksum gets too. */
td_status *td_manifest_write(const td_store *store, const char *directory, td_data_position position, json_t *shards,
                             const json_t *base, const char *base_name, char out_checksum[17]) TD_MUST_USE;
/* "": it is of a version that has none. */
const char *td_manifest_checksum(const json_t *root);
/* Checked: format, version, checksum, counters. *out_root: json_decref it. */
td_status *td_manifest_read(const char *directory, json_t **out_root) TD_MUST_USE;
/* Sets the store's counters; the position. */
void td_manifest_take(const json_t *root, td_store *store, td_data_position *out_position);
td_status *td_manifest_damaged(const char *what) TD_MUST_USE;

/* ---- checkpoint_source.c ---------------------------------------------------------------------------------------------------- */

/* A tensor of a file, to be read in the dtype of an entry. */
typedef struct td_source_tensor {
    const td_safetensors *file;
    const td_safetensors_tensor *tensor;
    td_dtype dtype; /* of the entry; differs only where td_dtype_converts both */
} td_source_tensor;

/* Elements [first, first + n), converted. Thread-safe. */
td_status *td_source_read(const td_source_tensor *source, int64_t first, int64_t n, void *out) TD_MUST_USE;
/* Every number has a finite counterpart in the entry's dtype, if it is finite itself. Reads all of it where that is in doubt. */
td_status *td_source_check(const td_source_tensor *source) TD_MUST_USE;
/* TD_DATA_ERROR that names the first element which is an infinity or NaN. Reads all of it. */
td_status *td_source_check_finite(const td_source_tensor *source) TD_MUST_USE;
/* "f32[9, 7]" for messages; td_free it. NULL: no memory. */
char *td_source_type_text(td_dtype dtype, int32_t rank, const int64_t *dims);

#endif
