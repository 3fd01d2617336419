/* How a checkpoint holds a table of which only some rows are there (paged_table.h): `param/<name>` and `state/<name>/<slot>` with
 * these rows alone, in order, and `rows/<name>` with their indices. All others have their initial values, which the manifest's
 * seed and "initial" define. Whoever loads it may keep the table in memory, sparse or in a file. */
#ifndef TANDEM_RUNTIME_CHECKPOINT_ROWS_H
#define TANDEM_RUNTIME_CHECKPOINT_ROWS_H

#include "runtime/checkpoint.h"

/* An entry's tensor in a file, and where it has only some rows, which. */
typedef struct td_packed {
    td_source_tensor source;
    const td_safetensors *rows_file;
    const td_safetensors_tensor *rows; /* i64 [n]; NULL: the tensor is whole */
} td_packed;

/* Whether an entry is written row by row: its table is sparse, in a file, or on other ranks, which then write it. */
static inline bool td_checkpoint_by_rows(const td_store_entry *entry)
{
    return entry->table || entry->is_remote;
}
int64_t td_checkpoint_row_bytes(const td_store_entry *entry);

/* Writes the rows of one array as `tensor`, and with `rows` not NULL their indices. */
td_status *td_checkpoint_write_rows(td_safetensors_writer *writer, const td_store_entry *entry, const char *tensor,
                                    const char *rows) TD_MUST_USE;
/* The indices ascend from *before on, within [0, table_rows). */
td_status *td_checkpoint_check_rows(const td_packed *packed, int64_t table_rows, int64_t *before) TD_MUST_USE;
/* Replaces what the entry holds, in pieces, by the rows of n tensors, ascending together. entry.initial is what rows that are not
 * listed have. */
td_status *td_checkpoint_read_rows(td_store *store, int32_t index, const td_packed *packs, int32_t n) TD_MUST_USE;
/* Replaces the listed rows alone. */
td_status *td_checkpoint_change_rows(td_store *store, int32_t index, const td_packed *packs, int32_t n) TD_MUST_USE;

#endif
