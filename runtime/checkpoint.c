/* Checkpoints: td_store_save and td_store_load.
 *
 * A directory of safetensors shards (`param/<name>`, `state/<parameter>/<slot>`) and manifest.json, written last, so that a
 * directory with a manifest is whole: it holds counters, data position, and size and checksum of every shard. Nothing in it
 * depends on where parameters lived, save that tables which were not simply in memory have only their rows that are there
 * (checkpoint_rows.h, version 2); any store loads either. Saving and loading go through one piece of a few MiB. Loading checks everything (every
 * shard's checksum, every name, dtype and shape) before the first byte of the store changes. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/rows16.h"
#include "base/safetensors.h"
#include "base/string.h"
#include "runtime/checkpoint_rows.h"

#define MANIFEST "manifest.json"
static const char format_name[] = "tandem-checkpoint";
enum { FORMAT_VERSION = 1, VERSION_WITH_ROWS = 2, PIECE_BYTES = 4 << 20 };
static const int64_t shard_bytes = (int64_t)2 << 30; /* a larger parameter has a shard of its own */

static char *tensor_name(const td_store_entry *entry)
{
    return td_format("%s/%s", entry->is_parameter ? "param" : "state", entry->name);
}

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
}

/* "rows/<parameter>", for a parameter as for its state ("<parameter>/<slot>"). */
static char *rows_name(const td_store_entry *entry)
{
    const char *slot = entry->is_parameter ? NULL : strrchr(entry->name, '/');
    return td_format("rows/%.*s", (int)(slot ? slot - entry->name : (long)strlen(entry->name)), entry->name);
}

static bool is_narrow(const td_store_entry *entry)
{
    return entry->tensor.dtype == TD_BF16 || entry->tensor.dtype == TD_F16;
}

/* What a file holds of an entry: 16-bit rows are widened, which is exact, so that any precision can go on from it. */
static td_dtype file_dtype(const td_store_entry *entry)
{
    return is_narrow(entry) ? TD_F32 : entry->tensor.dtype;
}

static int64_t data_bytes(const td_store_entry *entry)
{
    if (entry->table)
        return entry->table->n_there * (entry->table->arrays[entry->array].row_bytes + 8 * entry->is_parameter);
    return td_tensor_elements(&entry->tensor) * (int64_t)td_dtype_bytes(file_dtype(entry));
}

/* A piece of a file, and behind it room for the same elements in 16 bit. */
static void *piece_create(void)
{
    return td_calloc(1, PIECE_BYTES + PIECE_BYTES / 2);
}

static uint16_t *narrow_of(void *piece)
{
    return (uint16_t *)(void *)((char *)piece + PIECE_BYTES);
}

static td_status *read_piece(const td_store *store, int32_t index, int64_t first, int64_t count, void *piece)
{
    const td_store_entry *entry = &store->entries[index];
    if (!is_narrow(entry))
        return td_store_read(store, index, first, count, piece);
    TD_TRY(td_store_read(store, index, first, count, narrow_of(piece)));
    td_widen_row(narrow_of(piece), entry->tensor.dtype, count, piece);
    return NULL;
}

static td_status *write_piece(td_store *store, int32_t index, int64_t first, int64_t count, void *piece)
{
    const td_store_entry *entry = &store->entries[index];
    if (!is_narrow(entry))
        return td_store_write(store, index, first, count, piece);
    td_narrow_row_to_nearest(piece, entry->tensor.dtype, count, narrow_of(piece));
    return td_store_write(store, index, first, count, narrow_of(piece));
}

/* ---- saving -------------------------------------------------------------------------------------------------------------------- */

/* A table of which only some rows are there, and, with its parameter, which ones. */
static td_status *declare_rows(td_safetensors_writer *writer, const td_store_entry *entry, const char *name)
{
    int64_t dims[TD_MAX_RANK];
    memcpy(dims, entry->tensor.dims, sizeof dims);
    dims[0] = entry->table->n_there;
    TD_TRY(td_safetensors_declare(writer, name, entry->tensor.dtype, entry->tensor.rank, dims));
    if (!entry->is_parameter)
        return NULL;
    char *rows = rows_name(entry);
    td_status *status = rows ? td_safetensors_declare(writer, rows, TD_I64, 1, dims) : no_memory();
    td_free(rows);
    return status;
}

static td_status *declare_entries(td_safetensors_writer *writer, const td_store *store, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end; i++) {
        const td_store_entry *entry = &store->entries[i];
        char *name = tensor_name(entry);
        td_status *status = NULL;
        if (!name)
            status = no_memory();
        else if (entry->table)
            status = declare_rows(writer, entry, name);
        else
            status = td_safetensors_declare(writer, name, file_dtype(entry), entry->tensor.rank, entry->tensor.dims);
        td_free(name);
        TD_TRY(status);
    }
    return NULL;
}

static td_status *write_rows(td_safetensors_writer *writer, const td_store_entry *entry)
{
    char *name = tensor_name(entry), *rows = rows_name(entry);
    td_status *status =
        name && rows ? td_checkpoint_write_rows(writer, entry, name, entry->is_parameter ? rows : NULL) : no_memory();
    td_free(name);
    td_free(rows);
    return status;
}

static td_status *write_entry(td_safetensors_writer *writer, const td_store *store, int32_t index, void *piece)
{
    const td_store_entry *entry = &store->entries[index];
    if (entry->table)
        return write_rows(writer, entry);
    int64_t size = (int64_t)td_dtype_bytes(file_dtype(entry)), n = td_tensor_elements(&entry->tensor);
    char *name = tensor_name(entry);
    td_status *status = name ? NULL : no_memory();
    for (int64_t first = 0; first < n && !status; first += PIECE_BYTES / size) {
        int64_t count = n - first < PIECE_BYTES / size ? n - first : PIECE_BYTES / size;
        status = read_piece(store, index, first, count, piece);
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
    char file[32], checksum[32];
    uint64_t hash = 0;
    (void)snprintf(file, sizeof file, "shard-%04zu.safetensors", json_array_size(shards));
    char *path = td_format("%s/%s", directory, file);
    td_status *status = path ? write_shard(store, path, begin, end, piece) : no_memory();
    if (!status)
        status = td_file_hash(path, &hash);
    td_free(path);
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, hash);
    if (!status && json_array_append_new(shards, json_pack("{s:s, s:s}", "file", file, "xxh64", checksum)) != 0)
        status = no_memory();
    return status;
}

static td_status *write_shards(const td_store *store, const char *directory, json_t *shards)
{
    void *piece = piece_create();
    td_status *status = piece ? NULL : no_memory();
    for (int32_t begin = 0, end; begin < store->n_entries && !status; begin = end) {
        int64_t bytes = data_bytes(&store->entries[begin]);
        for (end = begin + 1; end < store->n_entries && bytes + data_bytes(&store->entries[end]) <= shard_bytes; end++)
            bytes += data_bytes(&store->entries[end]);
        status = add_shard(store, directory, begin, end, piece, shards);
    }
    td_free(piece);
    return status;
}

/* For every tensor of which only some rows are written: how many there are in all, and what the others hold. NULL: no memory. */
static json_t *list_tables(const td_store *store)
{
    json_t *tables = json_object();
    for (int32_t i = 0; tables && i < store->n_entries; i++) {
        const td_store_entry *entry = &store->entries[i];
        char *name = entry->table ? tensor_name(entry) : NULL;
        const td_initializer *how = &entry->initial.how;
        json_t *one = entry->table ? json_pack("{s:I, s:i, s:f, s:f}", "rows", (json_int_t)entry->tensor.dims[0],
                                               "kind", (int)how->kind, "a", how->a, "b", how->b)
                                   : NULL;
        bool good = !entry->table || (name && one && json_object_set(tables, name, one) == 0);
        json_decref(one);
        td_free(name);
        if (!good) {
            json_decref(tables);
            tables = NULL;
        }
    }
    return tables;
}

static td_status *write_manifest(const td_store *store, const char *directory, td_data_position position,
                                 json_t *shards)
{
    json_t *tables = list_tables(store);
    int version = json_object_size(tables) ? VERSION_WITH_ROWS : FORMAT_VERSION;
    json_t *root = tables ? json_pack("{s:s, s:i, s:I, s:I, s:I, s:{s:I, s:I}, s:O}", "format", format_name, "version",
                                      version, "steps", (json_int_t)store->steps, "updates", (json_int_t)store->updates,
                                      "seed", (json_int_t)store->seed, "position", "epoch", (json_int_t)position.epoch,
                                      "batch", (json_int_t)position.batch, "shards", shards)
                          : NULL;
    if (root && isfinite(store->last_loss) && json_object_set_new(root, "loss", json_real(store->last_loss)) != 0) {
        json_decref(root);
        root = NULL;
    }
    bool listed = root && (version == FORMAT_VERSION || json_object_set(root, "tables", tables) == 0);
    char *text = listed ? json_dumps(root, JSON_INDENT(1)) : NULL, *path = td_format("%s/" MANIFEST, directory);
    td_status *status = text && path ? td_file_write(path, text, strlen(text)) : no_memory();
    free(text); /* jansson's own allocation */
    td_free(path);
    json_decref(root);
    json_decref(tables);
    return status;
}

td_status *td_store_save(const td_store *store, const char *directory, td_data_position position)
{
    TD_TRY(td_directory_create(directory));
    json_t *shards = json_array();
    td_status *status = shards ? write_shards(store, directory, shards) : no_memory();
    if (!status)
        status = write_manifest(store, directory, position, shards);
    json_decref(shards);
    return td_status_prefix(status, "checkpoint %s", directory);
}

/* ---- loading --------------------------------------------------------------------------------------------------------------------- */

typedef struct loading {
    td_store *store;
    const char *directory;
    const json_t *manifest;
    td_safetensors **files;
    size_t n_files;
    bool has_state; /* the store has optimizer state: every parameter of the checkpoint must have a place */
} loading;

static td_status *damaged(const char *what)
{
    return TD_ERROR(TD_DATA_ERROR, MANIFEST " is not a whole checkpoint's: %s", what);
}

static bool is_count(const json_t *number)
{
    return json_is_integer(number) && json_integer_value(number) >= 0;
}

static td_status *check_counts(const json_t *root)
{
    const json_t *steps = json_object_get(root, "steps"), *updates = json_object_get(root, "updates"),
                 *position = json_object_get(root, "position");
    if (!is_count(steps) || !is_count(updates))
        return damaged("its steps and updates are no counts");
    if (json_integer_value(updates) > json_integer_value(steps))
        return damaged("it counts more updates than steps");
    if (!is_count(json_object_get(position, "epoch")) || !is_count(json_object_get(position, "batch")))
        return damaged("it has no position in the data");
    return NULL;
}

static td_status *read_manifest(const char *directory, json_t **out_root)
{
    char *path = td_format("%s/" MANIFEST, directory), *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    *out_root = NULL;
    td_status *status = path ? td_file_read(path, &text, &bytes) : no_memory();
    td_free(path);
    if (status)
        return status;
    json_t *root = json_loadb(text, bytes, 0, &error);
    td_free(text);
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!root)
        return TD_ERROR(TD_DATA_ERROR, MANIFEST ":%d:%d: %s", error.line, error.column, error.text);
    if (!format || strcmp(format, format_name) != 0)
        status = damaged("\"format\" does not say so");
    else if (json_integer_value(json_object_get(root, "version")) < FORMAT_VERSION ||
             json_integer_value(json_object_get(root, "version")) > VERSION_WITH_ROWS)
        status = TD_ERROR(TD_UNSUPPORTED, MANIFEST ": version %lld; this program reads up to %d",
                          (long long)json_integer_value(json_object_get(root, "version")), (int)VERSION_WITH_ROWS);
    else if (!json_is_array(json_object_get(root, "shards")))
        status = damaged("it lists no shards");
    else
        status = check_counts(root);
    if (status) {
        json_decref(root);
        return status;
    }
    *out_root = root;
    return NULL;
}

static td_status *open_shard(loading *l, const json_t *shard)
{
    const char *file = json_string_value(json_object_get(shard, "file"));
    const char *checksum = json_string_value(json_object_get(shard, "xxh64"));
    char found[32];
    uint64_t hash = 0;
    if (!file || !checksum || strchr(file, '/'))
        return damaged("a shard without file name or checksum");
    char *path = td_format("%s/%s", l->directory, file);
    td_status *status = path ? td_file_hash(path, &hash) : no_memory();
    (void)snprintf(found, sizeof found, "%016" PRIx64, hash);
    if (!status && strcmp(found, checksum) != 0)
        status = TD_ERROR(TD_DATA_ERROR,
                          "%s: checksum %s, the manifest says %s: the file is damaged or of another checkpoint", file,
                          found, checksum);
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

static void append_type(td_string *text, td_dtype dtype, int32_t rank, const int64_t *dims)
{
    td_string_format(text, "%s[", td_dtype_name(dtype));
    for (int32_t i = 0; i < rank; i++)
        td_string_format(text, "%s%" PRId64, i ? ", " : "", dims[i]);
    td_string_append(text, "]");
}

static td_status *refuse_shape(const char *name, const td_safetensors_tensor *tensor, const td_store_entry *entry)
{
    td_string text = {0};
    char *types = NULL;
    append_type(&text, tensor->dtype, tensor->rank, tensor->dims);
    td_string_append(&text, ", the model's is ");
    append_type(&text, file_dtype(entry), entry->tensor.rank, entry->tensor.dims);
    TD_TRY(td_string_finish(&text, &types));
    td_status *status = TD_ERROR(TD_DATA_ERROR, "\"%s\" is %s: it was written by another configuration", name, types);
    td_free(types);
    return status;
}

static const json_t *table_of(const loading *l, const char *tensor)
{
    return json_object_get(json_object_get(l->manifest, "tables"), tensor);
}

/* Where the checkpoint has only some rows of an entry, their indices. */
static td_status *find_rows(const loading *l, const td_store_entry *entry, const char *name, td_packed *out)
{
    const json_t *table = table_of(l, name);
    if (!table)
        return NULL;
    char *rows = rows_name(entry);
    if (!rows)
        return no_memory();
    out->rows = find_tensor(l, rows, &out->rows_file);
    td_status *status = NULL;
    if (!out->rows || out->rows->dtype != TD_I64 || out->rows->rank != 1 || out->tensor->rank < 1 ||
        out->tensor->dims[0] != out->rows->elements)
        status = TD_ERROR(TD_DATA_ERROR, "\"%s\" has no \"%s\" that fits it", name, rows);
    td_free(rows);
    return status;
}

static bool shapes_agree(const td_packed *packed, const td_store_entry *entry, const json_t *table)
{
    const td_safetensors_tensor *tensor = packed->tensor;
    int64_t dims[TD_MAX_RANK];
    td_dtype dtype = packed->rows ? entry->tensor.dtype : file_dtype(entry); /* packed rows are as the table has them */
    if (tensor->dtype != dtype || tensor->rank != entry->tensor.rank)
        return false;
    memcpy(dims, tensor->dims, sizeof dims);
    if (packed->rows)
        dims[0] = json_integer_value(json_object_get(table, "rows"));
    return memcmp(dims, entry->tensor.dims, (size_t)tensor->rank * sizeof *dims) == 0;
}

/* The tensor of an entry, checked. */
static td_status *match_entry(const loading *l, const td_store_entry *entry, td_packed *out)
{
    char *name = tensor_name(entry);
    *out = (td_packed){0};
    if (!name)
        return no_memory();
    out->tensor = find_tensor(l, name, &out->file);
    td_status *status = out->tensor ? NULL : TD_ERROR(TD_NOT_FOUND, "it has no \"%s\", which the model needs", name);
    if (!status)
        status = find_rows(l, entry, name, out);
    if (!status && !shapes_agree(out, entry, table_of(l, name)))
        status = refuse_shape(name, out->tensor, entry);
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

static td_status *check_all(loading *l)
{
    td_packed packed;
    for (int32_t i = 0; i < l->store->n_entries; i++) {
        const td_store_entry *entry = &l->store->entries[i];
        l->has_state = l->has_state || !entry->is_parameter;
        TD_TRY(match_entry(l, entry, &packed));
        if (packed.rows)
            TD_TRY(td_checkpoint_check_rows(&packed, entry->tensor.dims[0]));
    }
    return refuse_strangers(l);
}

/* What rows that the checkpoint does not list hold, and what the checksum of tables leaves out: the checkpoint's seed counts. */
static td_status *take_initial(const loading *l, td_store_entry *entry)
{
    char *name = tensor_name(entry);
    if (!name)
        return no_memory();
    const json_t *table = table_of(l, name), *seed = json_object_get(l->manifest, "seed");
    td_initializer how = entry->initial.how;
    td_free(name);
    if (table)
        how = (td_initializer){(td_initializer_kind)json_integer_value(json_object_get(table, "kind")),
                               json_number_value(json_object_get(table, "a")),
                               json_number_value(json_object_get(table, "b"))};
    if (how.kind < TD_INIT_CONSTANT || how.kind > TD_INIT_NORMAL)
        return damaged("a table's initial values are of no known kind");
    if (seed)
        entry->initial = td_initial_of((uint64_t)json_integer_value(seed), entry->name, entry->tensor.dtype, how);
    if (entry->table)
        entry->table->arrays[entry->array].initial = entry->initial;
    return NULL;
}

static td_status *load_entry(const loading *l, int32_t index, void *piece)
{
    td_packed packed;
    const td_store_entry *entry = &l->store->entries[index];
    int64_t size = (int64_t)td_dtype_bytes(file_dtype(entry));
    TD_TRY(match_entry(l, entry, &packed));
    if (packed.rows)
        return td_checkpoint_read_rows(l->store, index, &packed);
    for (int64_t first = 0; first < packed.tensor->elements; first += PIECE_BYTES / size) {
        int64_t left = packed.tensor->elements - first, count = left < PIECE_BYTES / size ? left : PIECE_BYTES / size;
        TD_TRY(td_safetensors_read(packed.file, packed.tensor, first * size, count * size, piece));
        TD_TRY(write_piece(l->store, index, first, count, piece));
    }
    return NULL;
}

static td_status *load_all(loading *l, const json_t *root)
{
    TD_TRY(open_shards(l, json_object_get(root, "shards")));
    TD_TRY(check_all(l));
    for (int32_t i = 0; i < l->store->n_entries; i++)
        TD_TRY(take_initial(l, &l->store->entries[i]));
    td_store_clear_tables(l->store);
    void *piece = piece_create();
    td_status *status = piece ? NULL : no_memory();
    for (int32_t i = 0; i < l->store->n_entries && !status; i++)
        status = load_entry(l, i, piece);
    td_free(piece);
    return status;
}

td_status *td_store_load(td_store *store, const char *directory, td_data_position *out_position)
{
    loading l = {.store = store, .directory = directory};
    json_t *root = NULL;
    td_status *status = read_manifest(directory, &root);
    l.manifest = root;
    if (!status)
        status = load_all(&l, root);
    if (!status) {
        const json_t *position = json_object_get(root, "position");
        store->steps = json_integer_value(json_object_get(root, "steps"));
        store->updates = json_integer_value(json_object_get(root, "updates"));
        const json_t *loss = json_object_get(root, "loss");
        store->last_loss = json_is_number(loss) ? json_number_value(loss) : NAN;
        *out_position = (td_data_position){json_integer_value(json_object_get(position, "epoch")),
                                           json_integer_value(json_object_get(position, "batch"))};
    }
    for (size_t i = 0; i < l.n_files; i++)
        td_safetensors_close(l.files[i]);
    td_free(l.files);
    json_decref(root);
    return td_status_prefix(status, "checkpoint %s", directory);
}
