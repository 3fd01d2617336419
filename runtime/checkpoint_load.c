/* td_store_load: a checkpoint into a store. Everything is checked (every shard's checksum; every name, dtype and shape; whether the
 * numbers fit where they are to be rounded) before the first byte of the store changes. See checkpoint.h. */
#include <inttypes.h>
#include <string.h>

#include "base/convert.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "runtime/checkpoint_rows.h"

enum { PIECE_BYTES = 4 << 20 };

typedef struct loading {
    td_store *store;
    const char *directory;
    const json_t *manifest;
    td_safetensors **files;
    size_t n_files;
    bool has_state;      /* the store has optimizer state: every parameter of the checkpoint must have a place */
    int32_t n_converted; /* entries whose dtype is another than the file's */
    const char *converted;
    td_dtype from, to; /* of the first one, `converted` */
} loading;

/* ---- shards --------------------------------------------------------------------------------------------------------------------- */

static td_status *check_shard(const char *path, const char *file, const json_t *shard)
{
    const json_t *bytes = json_object_get(shard, "bytes");
    const char *checksum = json_string_value(json_object_get(shard, "xxh64"));
    char found[17];
    uint64_t hash = 0;
    int64_t length = 0;
    TD_TRY(td_file_require_regular(path));
    TD_TRY(td_file_size(path, &length));
    if (json_is_integer(bytes) && json_integer_value(bytes) != length)
        return TD_ERROR(TD_DATA_ERROR,
                        "%s has %" PRId64 " bytes, the manifest says %lld: it is cut off or of another one", file,
                        length, (long long)json_integer_value(bytes));
    TD_TRY(td_file_hash(path, &hash));
    (void)snprintf(found, sizeof found, "%016" PRIx64, hash);
    if (strcmp(found, checksum) == 0)
        return NULL;
    return TD_ERROR(TD_DATA_ERROR,
                    "%s: checksum %s, the manifest says %.32s: the file is damaged or of another checkpoint", file,
                    found, checksum);
}

static td_status *open_shard(loading *l, const json_t *shard)
{
    const char *file = json_string_value(json_object_get(shard, "file"));
    if (!file || !json_string_value(json_object_get(shard, "xxh64")) || strchr(file, '/'))
        return td_manifest_damaged("a shard without file name or checksum");
    char *path = td_format("%s/%s", l->directory, file);
    td_status *status = path ? check_shard(path, file, shard) : td_checkpoint_no_memory();
    if (!status)
        status = td_safetensors_open(path, &l->files[l->n_files]);
    if (!status)
        l->n_files++;
    td_free(path);
    return status;
}

static td_status *open_shards(loading *l, const json_t *shards)
{
    TD_TRY(TD_NEW(l->files, json_array_size(shards) + 1));
    for (size_t i = 0; i < json_array_size(shards); i++)
        TD_TRY(open_shard(l, json_array_get(shards, i)));
    return NULL;
}

static const td_safetensors_tensor *find_tensor(const loading *l, const char *name, const td_safetensors **out_file)
{
    for (size_t i = 0; i < l->n_files; i++) {
        const td_safetensors_tensor *tensor = td_safetensors_find(l->files[i], name);
        *out_file = l->files[i];
        if (tensor)
            return tensor;
    }
    return NULL;
}

/* ---- matching ------------------------------------------------------------------------------------------------------------------- */

static td_status *refuse_shape(const char *name, const td_safetensors_tensor *tensor, const td_store_entry *entry)
{
    char *found = td_source_type_text(tensor->dtype, tensor->rank, tensor->dims);
    char *wanted = td_source_type_text(entry->tensor.dtype, entry->tensor.rank, entry->tensor.dims);
    td_status *status =
        found && wanted
            ? TD_ERROR(TD_DATA_ERROR, "\"%s\" is %s, the model's is %s: it was written by another configuration", name,
                       found, wanted)
            : td_checkpoint_no_memory();
    td_free(found);
    td_free(wanted);
    return status;
}

static const json_t *table_of(const loading *l, const char *tensor)
{
    return json_object_get(json_object_get(l->manifest, "tables"), tensor);
}

/* Where the checkpoint has only some rows of an entry, their indices. */
static td_status *find_rows(const loading *l, const td_store_entry *entry, const char *name, td_packed *out)
{
    const td_safetensors_tensor *tensor = out->source.tensor;
    if (!table_of(l, name))
        return NULL;
    char *rows = td_checkpoint_rows_name(entry);
    if (!rows)
        return td_checkpoint_no_memory();
    out->rows = find_tensor(l, rows, &out->rows_file);
    td_status *status = NULL;
    if (!out->rows || out->rows->dtype != TD_I64 || out->rows->rank != 1 || tensor->rank < 1 ||
        tensor->dims[0] != out->rows->elements)
        status = TD_ERROR(TD_DATA_ERROR, "\"%s\" has no \"%s\" that fits it", name, rows);
    td_free(rows);
    return status;
}

static bool types_agree(const td_packed *packed, const td_store_entry *entry, const json_t *table)
{
    const td_safetensors_tensor *tensor = packed->source.tensor;
    int64_t dims[TD_MAX_RANK];
    bool converts = td_dtype_converts(tensor->dtype) && td_dtype_converts(entry->tensor.dtype);
    if ((tensor->dtype != entry->tensor.dtype && !converts) || tensor->rank != entry->tensor.rank)
        return false;
    memcpy(dims, tensor->dims, sizeof dims);
    if (packed->rows)
        dims[0] = json_integer_value(json_object_get(table, "rows"));
    return memcmp(dims, entry->tensor.dims, (size_t)tensor->rank * sizeof *dims) == 0;
}

/* The tensor of an entry, checked. */
static td_status *match_entry(const loading *l, const td_store_entry *entry, td_packed *out)
{
    char *name = td_checkpoint_tensor_name(entry);
    *out = (td_packed){.source.dtype = entry->tensor.dtype};
    if (!name)
        return td_checkpoint_no_memory();
    out->source.tensor = find_tensor(l, name, &out->source.file);
    td_status *status =
        out->source.tensor ? NULL : TD_ERROR(TD_NOT_FOUND, "it has no \"%s\", which the model needs", name);
    if (!status)
        status = find_rows(l, entry, name, out);
    if (!status && !types_agree(out, entry, table_of(l, name)))
        status = refuse_shape(name, out->source.tensor, entry);
    td_free(name);
    return status;
}

/* A parameter that the model does not have: the checkpoint is of another model. */
static td_status *refuse_strangers(const loading *l)
{
    for (size_t f = 0; f < l->n_files && l->has_state; f++)
        for (int64_t i = 0; i < td_safetensors_count(l->files[f]); i++) {
            const char *name = td_safetensors_at(l->files[f], i)->name;
            bool parameter = strncmp(name, "param/", 6) == 0, state = strncmp(name, "state/", 6) == 0;
            if (!parameter && !state && strncmp(name, "rows/", 5) != 0)
                return TD_ERROR(TD_DATA_ERROR, "\"%s\" is neither a parameter nor a state", name);
            if (parameter && td_store_find(l->store, name + 6) < 0)
                return TD_ERROR(TD_DATA_ERROR, "the model has no parameter \"%s\": this checkpoint is of another model",
                                name + 6);
        }
    return NULL;
}

static void note_conversion(loading *l, const td_source_tensor *source)
{
    if (source->tensor->dtype == source->dtype)
        return;
    if (!l->n_converted++) {
        l->converted = source->tensor->name;
        l->from = source->tensor->dtype;
        l->to = source->dtype;
    }
}

/* A hash table takes any ids in any order; what others take ascends. */
static td_status *check_rows(const loading *l, const td_store_entry *entry, const td_packed *packed)
{
    char *name = entry->is_hashed || !packed->rows ? NULL : td_checkpoint_tensor_name(entry);
    if (!name)
        return entry->is_hashed || !packed->rows ? NULL : td_checkpoint_no_memory();
    const bool was_hashed = json_is_true(json_object_get(table_of(l, name), "hash"));
    td_free(name);
    if (was_hashed)
        return td_status_help(TD_ERROR(TD_DATA_ERROR, "\"%s\" was a hash table, and is an array here", entry->name),
                              "name it in tables.hash");
    return td_checkpoint_check_rows(packed, entry->tensor.dims[0]);
}

/* A gradient that would wait for its update, of a checkpoint in which none does. */
static bool has_nothing(const loading *l, const td_store_entry *entry)
{
    return entry->is_pending && !json_object_get(l->manifest, "pending");
}

/* Dropping the update that is still to be made would be a step that never was. */
static td_status *check_pending(const loading *l)
{
    bool waits = json_object_get(l->manifest, "pending"), has_room = false;
    for (int32_t i = 0; i < l->store->n_entries; i++)
        has_room = has_room || l->store->entries[i].is_pending;
    if (!waits || has_room || !l->has_state)
        return NULL;
    return td_status_help(TD_ERROR(TD_DATA_ERROR,
                                   "its last update is still to be made (offload.delayed), which an exact "
                                   "training has no place for"),
                          "go on with offload.delayed: true");
}

static td_status *check_all(loading *l)
{
    td_packed packed;
    for (int32_t i = 0; i < l->store->n_entries; i++) {
        const td_store_entry *entry = &l->store->entries[i];
        l->has_state = l->has_state || !entry->is_parameter;
        if (has_nothing(l, entry))
            continue;
        TD_TRY(match_entry(l, entry, &packed));
        TD_TRY(td_source_check(&packed.source));
        TD_TRY(check_rows(l, entry, &packed));
        note_conversion(l, &packed.source);
    }
    TD_TRY(check_pending(l));
    return refuse_strangers(l);
}

/* ---- taking ---------------------------------------------------------------------------------------------------------------------- */

/* What rows that the checkpoint does not list hold, and what the checksum of tables leaves out: the checkpoint's seed counts. */
static td_status *find_initial(const loading *l, const td_store_entry *entry, td_initial *out)
{
    char *name = td_checkpoint_tensor_name(entry);
    if (!name)
        return td_checkpoint_no_memory();
    const json_t *table = table_of(l, name), *seed = json_object_get(l->manifest, "seed");
    td_initializer how = entry->initial.how;
    td_free(name);
    if (table)
        how = (td_initializer){(td_initializer_kind)json_integer_value(json_object_get(table, "kind")),
                               json_number_value(json_object_get(table, "a")),
                               json_number_value(json_object_get(table, "b"))};
    if (how.kind < TD_INIT_CONSTANT || how.kind > TD_INIT_NORMAL)
        return td_manifest_damaged("a table's initial values are of no known kind");
    td_initial initial = entry->initial;
    if (seed)
        initial = td_initial_of((uint64_t)json_integer_value(seed), entry->name, entry->tensor.dtype, how);
    if (entry->is_remote && memcmp(&entry->initial.key, &initial.key, sizeof initial.key) != 0)
        return TD_ERROR(TD_UNSUPPORTED,
                        "its tables were begun with train.seed %lld, which served tables must be resumed with",
                        (long long)json_integer_value(seed));
    *out = initial;
    return NULL;
}

/* All are looked at before the first is taken: a checkpoint that is refused changes nothing. */
static td_status *take_initials(const loading *l)
{
    td_store *store = l->store;
    td_initial *found = NULL;
    TD_TRY(TD_NEW(found, store->n_entries + 1));
    td_status *status = NULL;
    for (int32_t i = 0; i < store->n_entries && !status; i++)
        status = find_initial(l, &store->entries[i], &found[i]);
    for (int32_t i = 0; i < store->n_entries && !status; i++) {
        td_store_entry *entry = &store->entries[i];
        entry->initial = found[i];
        if (entry->table)
            entry->table->arrays[entry->array].initial = found[i];
    }
    td_free(found);
    return status;
}

static td_status *load_entry(const loading *l, int32_t index, void *piece)
{
    td_packed packed;
    const td_store_entry *entry = &l->store->entries[index];
    int64_t most = PIECE_BYTES / (int64_t)td_dtype_bytes(entry->tensor.dtype);
    TD_TRY(td_store_whole_rows(entry, &most));
    if (has_nothing(l, entry))
        return NULL;
    TD_TRY(match_entry(l, entry, &packed));
    if (entry->is_remote && !l->store->remote->leads)
        return NULL; /* the first worker loads for all */
    if (packed.rows)
        return td_checkpoint_read_rows(l->store, index, &packed);
    for (int64_t first = 0; first < packed.source.tensor->elements; first += most) {
        int64_t left = packed.source.tensor->elements - first, count = left < most ? left : most;
        TD_TRY(td_source_read(&packed.source, first, count, piece));
        TD_TRY(td_store_write(l->store, index, first, count, piece));
    }
    return NULL;
}

static td_status *load_all(loading *l)
{
    TD_TRY(open_shards(l, json_object_get(l->manifest, "shards")));
    TD_TRY(check_all(l));
    TD_TRY(take_initials(l));
    td_store_clear_tables(l->store);
    TD_TRY(td_store_clear_remote(l->store));
    void *piece = td_calloc(1, PIECE_BYTES);
    td_status *status = piece ? NULL : td_checkpoint_no_memory();
    for (int32_t i = 0; i < l->store->n_entries && !status; i++)
        status = load_entry(l, i, piece);
    td_free(piece);
    return status;
}

static void say_conversions(const loading *l)
{
    if (l->n_converted)
        td_log(TD_LOG_INFO, "checkpoint %s: %d of %d tensors converted (\"%s\" from %s to %s), %s", l->directory,
               l->n_converted, l->store->n_entries, l->converted, td_dtype_name(l->from), td_dtype_name(l->to),
               l->to == TD_F32 ? "which is exact" : "each number once, to nearest, ties to even");
}

td_status *td_store_load(td_store *store, const char *directory, td_data_position *out_position)
{
    loading l = {.store = store, .directory = directory};
    json_t *root = NULL;
    td_status *status = td_manifest_read(directory, &root);
    l.manifest = root;
    if (!status)
        status = load_all(&l);
    if (!status) {
        td_manifest_take(root, store, out_position);
        say_conversions(&l);
    }
    for (size_t i = 0; i < l.n_files; i++)
        td_safetensors_close(l.files[i]);
    td_free(l.files);
    json_decref(root);
    return td_status_prefix(status, "checkpoint %s", directory);
}
