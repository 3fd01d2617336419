/* td_store_load: a checkpoint into a store. Everything is checked (every shard's checksum; every name, dtype and shape; whether the
 * numbers fit where they are to be rounded) before the first byte of the store changes. See checkpoint.h. */
#include <inttypes.h>
#include <string.h>

#include "base/convert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/units.h"
#include "runtime/checkpoint_files.h"
#include "runtime/checkpoint_owners.h"
#include "runtime/checkpoint_rows.h"

enum { PIECE_BYTES = 4 << 20 };

typedef struct loading {
    td_store *store;
    const char *directory;
    json_t *manifest, *base_manifest; /* base: what this one adds changes to; NULL: it is whole */
    td_checkpoint_files files, base;
    bool has_state;      /* the store has optimizer state: every parameter of the checkpoint must have a place */
    int32_t n_converted; /* entries whose dtype is another than the file's */
    const char *converted;
    td_dtype from, to; /* of the first one, `converted` */
} loading;

/* ---- matching ------------------------------------------------------------------------------------------------------------------- */

static td_status *refuse_shape(const char *name, const td_safetensors_tensor *tensor, const td_store_entry *entry)
{
    char *found = td_source_type_text(tensor->dtype, tensor->rank, tensor->dims);
    char *wanted = td_source_type_text(entry->tensor.dtype, entry->tensor.rank, entry->tensor.dims);
    td_status *status =
        found && wanted
            ? TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\" is %s, the model's is %s: it was written by another configuration",
                       name, found, wanted)
            : td_checkpoint_no_memory();
    td_free(found);
    td_free(wanted);
    return status;
}

static const json_t *table_of(const loading *l, const char *tensor)
{
    return json_object_get(json_object_get(l->manifest, "tables"), tensor);
}

/* Where a file has only some rows of an entry, their indices. */
static td_status *find_rows(const td_store_entry *entry, const char *name, td_packed *out)
{
    const td_safetensors_tensor *tensor = out->source.tensor;
    char *rows = td_checkpoint_rows_name(entry);
    if (!rows)
        return td_checkpoint_no_memory();
    out->rows_file = out->source.file;
    out->rows = td_safetensors_find(out->rows_file, rows);
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

/* The tensors of an entry, checked: one, or of a table by rows as many as files have some of its rows. */
typedef struct matched {
    td_packed *items;
    int32_t n;
} matched;

static td_status *match_file(const loading *l, const td_store_entry *entry, const char *name,
                             const td_safetensors *file, matched *out)
{
    const json_t *table = table_of(l, name);
    td_packed *packed = &out->items[out->n];
    *packed = (td_packed){.source = {file, td_safetensors_find(file, name), entry->tensor.dtype}};
    if (!packed->source.tensor || (out->n && !table))
        return NULL;
    if (table)
        TD_TRY(find_rows(entry, name, packed));
    if (!types_agree(packed, entry, table))
        return refuse_shape(name, packed->source.tensor, entry);
    out->n++;
    return NULL;
}

static td_status *match_files(const loading *l, const td_store_entry *entry, const td_checkpoint_files *files,
                              matched *out)
{
    char *name = td_checkpoint_tensor_name(entry);
    *out = (matched){0};
    td_status *status = name ? TD_NEW(out->items, files->n + 1) : td_checkpoint_no_memory();
    for (size_t f = 0; f < files->n && !status; f++)
        status = match_file(l, entry, name, files->items[f], out);
    if (!status && !out->n)
        status = TD_ERROR(TD_NOT_FOUND,
                          "it has no \"%s\", which the model needs: it was written by another configuration", name);
    td_free(name);
    if (status) {
        td_free(out->items);
        *out = (matched){0};
    }
    return status;
}

/* *out: whether this checkpoint has only the changes of an entry. */
static td_status *find_changed(const loading *l, const td_store_entry *entry, bool *out)
{
    *out = false;
    if (!l->base_manifest)
        return NULL;
    char *name = td_checkpoint_tensor_name(entry);
    if (!name)
        return td_checkpoint_no_memory();
    *out = json_is_true(json_object_get(table_of(l, name), "owned"));
    td_free(name);
    return NULL;
}

/* A parameter that the model does not have: the checkpoint is of another model. */
static td_status *refuse_strangers(const loading *l)
{
    static const char *const others[] = {"rows/", "used/", "counts/", "waiting/", "waiting_rows/", "windows/", "gone/"};
    for (size_t f = 0; f < l->files.n && l->has_state; f++)
        for (int64_t i = 0; i < td_safetensors_count(l->files.items[f]); i++) {
            const char *name = td_safetensors_at(l->files.items[f], i)->name;
            bool parameter = strncmp(name, "param/", 6) == 0, known = parameter || strncmp(name, "state/", 6) == 0;
            for (size_t o = 0; o < sizeof others / sizeof *others; o++)
                known = known || strncmp(name, others[o], strlen(others[o])) == 0;
            if (!known)
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

/* A hash table takes any ids in any order; what others take ascends from file to file. */
static td_status *check_rows(const loading *l, const td_store_entry *entry, const matched *packs)
{
    int64_t before = -1;
    if (entry->is_hashed || !packs->items[0].rows)
        return NULL;
    char *name = td_checkpoint_tensor_name(entry);
    if (!name)
        return td_checkpoint_no_memory();
    const bool was_hashed = json_is_true(json_object_get(table_of(l, name), "hash"));
    td_free(name);
    if (was_hashed)
        return td_status_help(TD_ERROR(TD_DATA_ERROR, "\"%s\" was a hash table, and is an array here", entry->name),
                              "name it in tables.hash");
    for (int32_t p = 0; p < packs->n; p++)
        TD_TRY(td_checkpoint_check_rows(&packs->items[p], entry->tensor.dims[0], &before));
    return NULL;
}

static td_status *check_files(loading *l, const td_store_entry *entry, const td_checkpoint_files *files)
{
    matched packs;
    TD_TRY(match_files(l, entry, files, &packs));
    td_status *status = NULL;
    for (int32_t p = 0; p < packs.n && !status; p++)
        status = td_source_check(&packs.items[p].source);
    if (!status)
        status = check_rows(l, entry, &packs);
    if (!status)
        note_conversion(l, &packs.items[0].source);
    td_free(packs.items);
    return status;
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
    for (int32_t i = 0; i < l->store->n_entries; i++) {
        const td_store_entry *entry = &l->store->entries[i];
        bool changed = false;
        l->has_state = l->has_state || !entry->is_parameter;
        if (has_nothing(l, entry))
            continue;
        TD_TRY(check_files(l, entry, &l->files));
        TD_TRY(find_changed(l, entry, &changed));
        if (changed)
            TD_TRY(td_status_prefix(check_files(l, entry, &l->base), "what it adds to"));
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

static td_status *load_whole(const loading *l, int32_t index, const td_packed *packed, void *piece)
{
    const td_store_entry *entry = &l->store->entries[index];
    int64_t most = PIECE_BYTES / (int64_t)td_dtype_bytes(entry->tensor.dtype);
    TD_TRY(td_store_whole_rows(entry, &most));
    for (int64_t first = 0, n = td_tensor_elements(&entry->tensor); first < n; first += most) {
        int64_t count = n - first < most ? n - first : most;
        TD_TRY(td_source_read(&packed->source, first, count, piece));
        TD_TRY(td_store_write(l->store, index, first, count, piece));
    }
    return NULL;
}

static td_status *load_entry(const loading *l, int32_t index, const td_checkpoint_files *files, bool changes,
                             void *piece)
{
    matched packs;
    const td_store_entry *entry = &l->store->entries[index];
    if (has_nothing(l, entry) || (entry->is_remote && !l->store->remote->leads))
        return NULL; /* the first worker loads for all */
    TD_TRY(match_files(l, entry, files, &packs));
    td_status *status = NULL;
    if (!packs.items[0].rows)
        status = load_whole(l, index, &packs.items[0], piece);
    else if (changes)
        status = td_checkpoint_change_rows(l->store, index, packs.items, packs.n);
    else
        status = td_checkpoint_read_rows(l->store, index, packs.items, packs.n);
    td_free(packs.items);
    return status;
}

/* The rows of a whole checkpoint, then those that changed; hash tables remember how their ids were used. */
static td_status *load_entries(const loading *l, void *piece)
{
    td_store *store = l->store;
    bool changed = false;
    TD_TRY(td_checkpoint_set_windows(store, &l->files));
    for (int32_t i = 0; i < store->n_entries; i++) {
        TD_TRY(find_changed(l, &store->entries[i], &changed));
        TD_TRY(load_entry(l, i, changed ? &l->base : &l->files, false, piece));
    }
    if (l->base_manifest) {
        TD_TRY(td_checkpoint_read_use(store, &l->base));
        TD_TRY(td_checkpoint_forget_gone(store, &l->files));
    }
    for (int32_t i = 0; i < store->n_entries; i++) {
        TD_TRY(find_changed(l, &store->entries[i], &changed));
        if (changed)
            TD_TRY(load_entry(l, i, &l->files, true, piece));
    }
    TD_TRY(td_checkpoint_read_use(store, &l->files));
    return td_checkpoint_read_waiting(store, &l->files);
}

/* The whole checkpoint that this one adds changes to: beside it, and still what it was. */
static td_status *open_base(loading *l)
{
    const json_t *base = json_object_get(l->manifest, "base");
    const char *name = json_string_value(json_object_get(base, "directory"));
    const char *wanted = json_string_value(json_object_get(base, "checksum"));
    if (!base)
        return NULL;
    if (!name || !wanted || strchr(name, '/'))
        return td_manifest_damaged("what it adds to has no name or checksum");
    char *path = td_format("%s/../%s", l->directory, name);
    td_status *status = path ? td_manifest_read(path, &l->base_manifest) : td_checkpoint_no_memory();
    if (!status && strcmp(td_manifest_checksum(l->base_manifest), wanted) != 0)
        status = TD_ERROR(TD_DATA_ERROR, "it is of step %lld of another run, or was written again",
                          (long long)json_integer_value(json_object_get(l->base_manifest, "steps")));
    if (!status)
        status = td_checkpoint_files_open(path, l->base_manifest, &l->base);
    td_free(path);
    return td_status_prefix(status, "what it adds changes to, %s", name);
}

static td_status *load_all(loading *l)
{
    TD_TRY(td_checkpoint_files_open(l->directory, l->manifest, &l->files));
    TD_TRY(open_base(l));
    TD_TRY(check_all(l));
    TD_TRY(take_initials(l));
    td_store_clear_tables(l->store);
    TD_TRY(td_store_clear_remote(l->store));
    l->store->whole[0] = 0;
    void *piece = td_calloc(1, PIECE_BYTES);
    td_status *status = piece ? load_entries(l, piece) : td_checkpoint_no_memory();
    td_free(piece);
    return status;
}

static void say_conversions(const loading *l)
{
    if (l->n_converted)
        td_log(TD_LOG_INFO, "checkpoint %s: %d of %s converted (\"%s\" from %s to %s), %s", l->directory,
               l->n_converted, TD_COUNTED(l->store->n_entries, "tensor"), l->converted, td_dtype_name(l->from),
               td_dtype_name(l->to), l->to == TD_F32 ? "which is exact" : "each number once, to nearest, ties to even");
}

td_status *td_store_load(td_store *store, const char *directory, td_data_position *out_position)
{
    loading l = {.store = store, .directory = directory};
    td_status *status = td_manifest_read(directory, &l.manifest);
    if (!status)
        status = load_all(&l);
    if (!status) {
        td_manifest_take(l.manifest, store, out_position);
        say_conversions(&l);
    }
    td_checkpoint_files_close(&l.files);
    td_checkpoint_files_close(&l.base);
    json_decref(l.manifest);
    json_decref(l.base_manifest);
    return td_checkpoint_prefix(status, directory);
}
