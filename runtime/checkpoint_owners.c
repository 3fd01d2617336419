/* See checkpoint_owners.h. */
#include "runtime/checkpoint_owners.h"
#include "base/memory.h"

enum { PIECE = 1 << 18 }; /* ids at a time */

/* ---- saving -------------------------------------------------------------------------------------------------------------------- */

bool td_checkpoint_has_owners(const td_store *store)
{
    for (int32_t i = 0; i < store->n_entries; i++)
        if (store->entries[i].is_remote)
            return true;
    return false;
}

td_status *td_checkpoint_save_owned(const td_store *store, const char *directory, bool changes, bool track,
                                    json_t *shards)
{
    const td_remote *remote = store->remote;
    td_remote_file *files = NULL;
    if (!td_checkpoint_has_owners(store))
        return NULL;
    TD_TRY(TD_NEW(files, remote->owners));
    td_status *status = remote->save(remote->self, directory, store->steps, changes, track, files);
    for (int32_t i = 0; i < remote->owners && !status; i++)
        status = td_manifest_list_shard(shards, files[i].name, files[i].bytes, files[i].xxh64);
    td_free(files);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------------------------------------------- */

/* Whether a table is a hash table whose owners this process tells. */
static bool is_told(const td_store *store, const td_store_entry *entry)
{
    return entry->is_remote && entry->is_parameter && entry->is_hashed && store->remote->leads;
}

static const td_safetensors_tensor *find(const td_safetensors *file, const char *prefix, const td_store_entry *entry,
                                         td_dtype dtype, td_status **out_status)
{
    char *name = td_format("%s/%s", prefix, entry->name);
    const td_safetensors_tensor *tensor = name ? td_safetensors_find(file, name) : NULL;
    if (!name)
        *out_status = td_checkpoint_no_memory();
    else if (tensor && (tensor->dtype != dtype || tensor->rank < 1))
        *out_status = TD_ERROR(TD_DATA_ERROR, "\"%s\" is not of the type that it should be", name);
    td_free(name);
    return *out_status ? NULL : tensor;
}

/* Ids with numbers of `width` bytes each, from a file to the owners. */
static td_status *tell(const td_store *store, const td_store_entry *entry, const td_safetensors *file, int32_t what,
                       const td_safetensors_tensor *ids, const td_safetensors_tensor *marks, int64_t width)
{
    const td_remote *remote = store->remote;
    int64_t *room = NULL;
    char *data = td_calloc(PIECE, 8);
    td_status *status = data ? TD_NEW(room, PIECE) : td_checkpoint_no_memory();
    if (!status && (ids->rank != 1 || (marks && marks->bytes != ids->elements * width)))
        status = TD_ERROR(TD_DATA_ERROR, "\"%s\" does not fit its ids", ids->name);
    for (int64_t done = 0; !status && done < ids->elements; done += PIECE) {
        const int64_t n = ids->elements - done < PIECE ? ids->elements - done : PIECE;
        status = td_safetensors_read(file, ids, done * 8, n * 8, room);
        if (!status && marks)
            status = td_safetensors_read(file, marks, done * width, n * width, data);
        if (!status)
            status = remote->write(remote->self, entry->remote_table, what, room, n, data);
    }
    td_free(data);
    td_free(room);
    return status;
}

/* One kind of knowledge of one table in one file, if it is there. */
typedef struct kind {
    const char *marks, *ids;
    int32_t what;
    int64_t width;
} kind;

static td_status *tell_kind(const td_store *store, const td_store_entry *entry, const td_safetensors *file,
                            const kind *k)
{
    td_status *status = NULL;
    const td_safetensors_tensor *marks = k->marks ? find(file, k->marks, entry, TD_I32, &status) : NULL;
    const td_safetensors_tensor *ids = status ? NULL : find(file, k->ids, entry, TD_I64, &status);
    if (status || !ids || (k->marks && !marks))
        return status;
    return tell(store, entry, file, k->what, ids, marks, k->width);
}

static td_status *tell_all(const td_store *store, const td_checkpoint_files *files, const kind *k)
{
    for (int32_t i = 0; i < store->n_entries; i++)
        for (size_t f = 0; f < files->n && is_told(store, &store->entries[i]); f++)
            TD_TRY(tell_kind(store, &store->entries[i], files->items[f], k));
    return NULL;
}

td_status *td_checkpoint_read_use(const td_store *store, const td_checkpoint_files *files)
{
    TD_TRY(tell_all(store, files, &(kind){"used", "rows", TD_REMOTE_USED, 4}));
    return tell_all(store, files, &(kind){"counts", "rows", TD_REMOTE_COUNTS, 4});
}

td_status *td_checkpoint_forget_gone(const td_store *store, const td_checkpoint_files *files)
{
    return tell_all(store, files, &(kind){NULL, "gone", TD_REMOTE_GONE, 0});
}

td_status *td_checkpoint_read_waiting(const td_store *store, const td_checkpoint_files *files)
{
    return tell_all(store, files, &(kind){"waiting", "waiting_rows", TD_REMOTE_WAITING, 8});
}

td_status *td_checkpoint_set_windows(const td_store *store, const td_checkpoint_files *files)
{
    for (int32_t i = 0; i < store->n_entries; i++) {
        const td_store_entry *entry = &store->entries[i];
        const int64_t no_id = 0;
        int64_t windows = 0;
        td_status *status = NULL;
        for (size_t f = 0; f < files->n && !windows && is_told(store, entry); f++) {
            const td_safetensors_tensor *tensor = find(files->items[f], "windows", entry, TD_I64, &status);
            if (!status && tensor && tensor->elements == 1)
                status = td_safetensors_read(files->items[f], tensor, 0, 8, &windows);
            if (status)
                return status;
        }
        if (is_told(store, entry))
            TD_TRY(
                store->remote->write(store->remote->self, entry->remote_table, TD_REMOTE_WINDOWS, &no_id, 1, &windows));
    }
    return NULL;
}
