/* td_store_save: every entry of a store into shards, a piece of a few MiB at a time, then the manifest. See checkpoint.h. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/record.h"
#include "runtime/checkpoint_files.h"
#include "runtime/checkpoint_owners.h"
#include "runtime/checkpoint_rows.h"

static const int64_t shard_bytes = (int64_t)2 << 30; /* a larger parameter has a shard of its own */

td_status *td_checkpoint_no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
}

char *td_checkpoint_tensor_name(const td_store_entry *entry)
{
    return td_format("%s/%s", entry->is_parameter ? "param" : "state", entry->name);
}

char *td_checkpoint_rows_name(const td_store_entry *entry)
{
    const char *slot = entry->is_parameter ? NULL : strrchr(entry->name, '/');
    return td_format("rows/%.*s", (int)(slot ? slot - entry->name : (long)strlen(entry->name)), entry->name);
}

static int64_t size_of(const td_store_entry *entry)
{
    return (int64_t)td_dtype_bytes(entry->tensor.dtype);
}

static int64_t data_bytes(const td_store_entry *entry)
{
    if (entry->is_remote)
        return 0; /* its owners write it */
    if (td_checkpoint_by_rows(entry))
        return entry->table->n_there * (td_checkpoint_row_bytes(entry) + 8 * entry->is_parameter);
    return td_tensor_elements(&entry->tensor) * size_of(entry);
}

/* ---- declaring ---------------------------------------------------------------------------------------------------------------- */

/* A table of which only some rows are there, and, with its parameter, which ones. */
static td_status *declare_rows(td_safetensors_writer *writer, const td_store_entry *entry, const char *name)
{
    int64_t dims[TD_MAX_RANK];
    memcpy(dims, entry->tensor.dims, sizeof dims);
    dims[0] = entry->table->n_there;
    TD_TRY(td_safetensors_declare(writer, name, entry->tensor.dtype, entry->tensor.rank, dims));
    if (!entry->is_parameter)
        return NULL;
    char *rows = td_checkpoint_rows_name(entry);
    td_status *status = rows ? td_safetensors_declare(writer, rows, TD_I64, 1, dims) : td_checkpoint_no_memory();
    td_free(rows);
    return status;
}

static td_status *declare_entries(td_safetensors_writer *writer, const td_store *store, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end; i++) {
        const td_store_entry *entry = &store->entries[i];
        if (entry->is_remote)
            continue;
        char *name = td_checkpoint_tensor_name(entry);
        td_status *status = NULL;
        if (!name)
            status = td_checkpoint_no_memory();
        else if (td_checkpoint_by_rows(entry))
            status = declare_rows(writer, entry, name);
        else
            status = td_safetensors_declare(writer, name, entry->tensor.dtype, entry->tensor.rank, entry->tensor.dims);
        td_free(name);
        TD_TRY(status);
    }
    return NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------ */

static td_status *write_rows(td_safetensors_writer *writer, const td_store_entry *entry)
{
    char *name = td_checkpoint_tensor_name(entry), *rows = td_checkpoint_rows_name(entry);
    td_status *status = name && rows ? td_checkpoint_write_rows(writer, entry, name, entry->is_parameter ? rows : NULL)
                                     : td_checkpoint_no_memory();
    td_free(name);
    td_free(rows);
    return status;
}

static td_status *write_entry(td_safetensors_writer *writer, const td_store *store, int32_t index, void *piece)
{
    const td_store_entry *entry = &store->entries[index];
    if (entry->is_remote)
        return NULL;
    if (td_checkpoint_by_rows(entry))
        return write_rows(writer, entry);
    int64_t size = size_of(entry), n = td_tensor_elements(&entry->tensor), most = TD_CHECKPOINT_PIECE / size;
    char *name = td_checkpoint_tensor_name(entry);
    td_status *status = name ? NULL : td_checkpoint_no_memory();
    for (int64_t first = 0; first < n && !status; first += most) {
        int64_t count = n - first < most ? n - first : most;
        status = entry->shard ? td_store_read_shard(store, entry, first, count, true, piece)
                              : td_store_read(store, index, first, count, piece);
        if (!status)
            status = td_safetensors_write(writer, name, first * size, count * size, piece);
    }
    td_free(name);
    return status;
}

static td_status *write_shard(const td_store *store, const char *path, int32_t begin, int32_t end, void *piece)
{
    td_safetensors_writer *writer = NULL;
    TD_TRY(td_safetensors_create(path, &writer));
    td_status *status = declare_entries(writer, store, begin, end);
    for (int32_t i = begin; i < end && !status; i++)
        status = write_entry(writer, store, i, piece);
    if (status) {
        td_safetensors_discard(writer);
        return status;
    }
    return td_safetensors_commit(writer);
}

static td_status *add_shard(const td_store *store, const char *directory, int32_t begin, int32_t end, void *piece,
                            json_t *shards)
{
    char file[32];
    uint64_t hash = 0;
    int64_t bytes = 0;
    (void)snprintf(file, sizeof file, "shard-%04zu.safetensors", json_array_size(shards));
    char *path = td_format("%s/%s", directory, file);
    td_status *status = path ? write_shard(store, path, begin, end, piece) : td_checkpoint_no_memory();
    if (!status)
        status = td_file_hash(path, &hash);
    if (!status)
        status = td_file_size(path, &bytes);
    td_free(path);
    return status ? status : td_manifest_list_shard(shards, file, bytes, hash);
}

static td_status *write_shards(const td_store *store, const char *directory, json_t *shards)
{
    void *piece = td_calloc(1, TD_CHECKPOINT_PIECE);
    td_status *status = piece ? NULL : td_checkpoint_no_memory();
    for (int32_t begin = 0, end; begin < store->n_entries && !status; begin = end) {
        int64_t bytes = data_bytes(&store->entries[begin]);
        for (end = begin + 1; end < store->n_entries && bytes + data_bytes(&store->entries[end]) <= shard_bytes; end++)
            bytes += data_bytes(&store->entries[end]);
        status = add_shard(store, directory, begin, end, piece, shards);
    }
    td_free(piece);
    return status;
}

/* `base` (NULL: a whole one): the manifest of the checkpoint at `base_path` that changes are added to. */
static td_status *save(const td_store *store, const char *directory, td_data_position position, const json_t *base,
                       const char *base_path, bool track, char out_checksum[17])
{
    const char *slash = base ? strrchr(base_path, '/') : NULL;
    TD_TRY(td_directory_create(directory));
    uint64_t from = td_record_begin();
    json_t *shards = json_array();
    td_status *status = shards ? write_shards(store, directory, shards) : td_checkpoint_no_memory();
    if (!status)
        status = td_checkpoint_save_owned(store, directory, base != NULL, track, shards);
    if (!status)
        status =
            td_manifest_write(store, directory, position, shards, base, slash ? slash + 1 : base_path, out_checksum);
    json_decref(shards);
    td_record_end(TD_RECORD_CHECKPOINT, 0, (uint32_t)store->steps, from, 0);
    return status;
}

td_status *td_store_save(const td_store *store, const char *directory, td_data_position position)
{
    char checksum[17];
    return td_checkpoint_prefix(save(store, directory, position, NULL, NULL, false, checksum), directory);
}

/* The manifest at `base`, if it is the series' last whole checkpoint and all changes since are known. */
static td_status *find_base(const td_store *store, const char *base, json_t **out_manifest)
{
    bool known = false;
    *out_manifest = NULL;
    if (!base || !store->whole[0] || !td_checkpoint_has_owners(store))
        return NULL;
    TD_TRY(store->remote->tracks(store->remote->self, &known));
    td_status *status = known ? td_manifest_read(base, out_manifest) : NULL;
    if (status || (*out_manifest && strcmp(td_manifest_checksum(*out_manifest), store->whole) != 0)) {
        td_status_destroy(status); /* it is not there any more, or another's: a whole one needs it not */
        json_decref(*out_manifest);
        *out_manifest = NULL;
    }
    return NULL;
}

td_status *td_store_save_changes(td_store *store, const char *directory, const char *base, td_data_position position,
                                 bool *out_whole)
{
    json_t *manifest = NULL;
    char checksum[17];
    *out_whole = false;
    td_status *status = find_base(store, base, &manifest);
    if (!status)
        status = save(store, directory, position, manifest, base, true, checksum);
    if (!status && !manifest) {
        *out_whole = true;
        memcpy(store->whole, checksum, sizeof checksum);
    }
    json_decref(manifest);
    return td_checkpoint_prefix(status, directory);
}
