/* See owner_file.h. */
#include "ps/owner_file.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors.h"

enum { PIECE_BYTES = 4 << 20 };

typedef struct writing {
    td_safetensors_writer *writer;
    const td_shard *shard;
    bool changes;
    int64_t *ids; /* of a piece */
    char *rows;
} writing;

/* One kind of thing that a shard has a list of: its ids, its rows, each a tensor; NULL: it has none. */
typedef struct listing {
    int32_t array;
    const char *rows_prefix, *ids_prefix, *slot;
    td_dtype dtype;
    int64_t n, width; /* width 0: the rows are single numbers */
} listing;

static char *tensor_name(const char *prefix, const td_shard *shard, const char *slot)
{
    return td_format("%s/%s%s%s", prefix, shard->definition.name, slot ? "/" : "", slot ? slot : "");
}

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
}

/* ---- declaring ----------------------------------------------------------------------------------------------------------------- */

static td_status *declare(const writing *w, const char *prefix, const char *slot, td_dtype dtype, int64_t n,
                          int64_t width)
{
    const int64_t dims[2] = {n, width};
    if (!prefix)
        return NULL;
    char *name = tensor_name(prefix, w->shard, slot);
    td_status *status = name ? td_safetensors_declare(w->writer, name, dtype, width ? 2 : 1, dims) : no_memory();
    td_free(name);
    return status;
}

static td_status *declare_listing(const writing *w, const listing *l)
{
    TD_TRY(declare(w, l->rows_prefix, l->slot, l->dtype, l->n, l->width));
    return declare(w, l->ids_prefix, NULL, TD_I64, l->n, 0);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

static td_status *put(const writing *w, const char *prefix, const char *slot, int64_t first, int64_t n,
                      int64_t row_bytes, const void *data)
{
    if (!prefix || n == 0 || row_bytes == 0)
        return NULL;
    char *name = tensor_name(prefix, w->shard, slot);
    td_status *status =
        name ? td_safetensors_write(w->writer, name, first * row_bytes, n * row_bytes, data) : no_memory();
    td_free(name);
    return status;
}

static td_status *write_listing(const writing *w, const listing *l)
{
    const int64_t row_bytes = td_shard_array_bytes(&w->shard->definition, l->array);
    const int64_t most = PIECE_BYTES / (row_bytes > 8 ? row_bytes : 8) + 1;
    int64_t done = 0, cursor = 0, n;
    do {
        n = w->changes ? td_shard_read_changed(w->shard, l->array, &cursor, most, w->ids, w->rows)
                       : td_shard_read(w->shard, l->array, &cursor, most, w->ids, w->rows);
        TD_TRY(put(w, l->rows_prefix, l->slot, done, n, row_bytes, w->rows));
        TD_TRY(put(w, l->ids_prefix, NULL, done, n, (int64_t)sizeof *w->ids, w->ids));
        done += n;
    } while (cursor >= 0);
    return NULL;
}

/* ---- what a shard has ------------------------------------------------------------------------------------------------------------ */

typedef td_status *(*visitor)(const writing *w, const listing *l);

static td_status *each_listing(const writing *w, visitor visit)
{
    const td_shard *shard = w->shard;
    const td_shard_definition *d = &shard->definition;
    const int64_t n = w->changes ? td_shard_count_changed(shard) : shard->n;
    TD_TRY(visit(w, &(listing){0, "param", "rows", NULL, (td_dtype)d->dtype, n, d->dim}));
    for (int32_t s = 0; s < d->n_states; s++)
        TD_TRY(
            visit(w, &(listing){1 + s, "state", NULL, d->state_names[s], TD_F32, n, d->state_per_row[s] ? 0 : d->dim}));
    if (td_shard_has_mark(shard, TD_SHARD_USED))
        TD_TRY(visit(w, &(listing){TD_SHARD_USED, "used", NULL, NULL, TD_I32, n, 0}));
    if (td_shard_has_mark(shard, TD_SHARD_COUNTS))
        TD_TRY(visit(w, &(listing){TD_SHARD_COUNTS, "counts", NULL, NULL, TD_I32, n, 0}));
    if (td_shard_has_mark(shard, TD_SHARD_WAITING))
        TD_TRY(
            visit(w, &(listing){TD_SHARD_WAITING, "waiting", "waiting_rows", NULL, TD_I32, shard->waiting.index.n, 2}));
    if (w->changes)
        TD_TRY(visit(w, &(listing){TD_SHARD_GONE, NULL, "gone", NULL, TD_I64, shard->n_gone, 0}));
    return NULL;
}

static td_status *write_windows(const writing *w)
{
    const int64_t windows = w->shard->windows;
    if (w->shard->definition.kind != TD_SHARD_HASH)
        return NULL;
    return put(w, "windows", NULL, 0, 1, (int64_t)sizeof windows, &windows);
}

/* The largest piece of any of the shards. */
static int64_t most_bytes(td_shard *const *shards, int64_t n)
{
    int64_t most = 8;
    for (int64_t i = 0; i < n; i++)
        for (int32_t a = 0; a < shards[i]->n_arrays; a++)
            most = shards[i]->arrays[a].row_bytes > most ? shards[i]->arrays[a].row_bytes : most;
    return PIECE_BYTES + 2 * most;
}

static td_status *fill(writing *w, td_shard *const *shards, int64_t n, int64_t steps)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, steps);
    TD_TRY(td_safetensors_annotate(w->writer, "steps", text));
    for (int64_t i = 0; i < n; i++) {
        w->shard = shards[i];
        TD_TRY(each_listing(w, declare_listing));
        if (w->shard->definition.kind == TD_SHARD_HASH)
            TD_TRY(declare(w, "windows", NULL, TD_I64, 1, 0));
    }
    for (int64_t i = 0; i < n; i++) {
        w->shard = shards[i];
        TD_TRY(each_listing(w, write_listing));
        TD_TRY(write_windows(w));
    }
    return NULL;
}

static td_status *write_file(td_shard *const *shards, int64_t n, const char *path, int64_t steps, bool changes)
{
    writing w = {.changes = changes};
    td_status *status = TD_NEW(w.ids, PIECE_BYTES / 8 + 1);
    w.rows = td_calloc(1, (size_t)most_bytes(shards, n));
    if (!status && !w.rows)
        status = no_memory();
    if (!status)
        status = td_safetensors_create(path, &w.writer);
    if (!status) {
        status = fill(&w, shards, n, steps);
        if (status)
            td_safetensors_discard(w.writer);
        else
            status = td_safetensors_commit(w.writer);
    }
    td_free(w.ids);
    td_free(w.rows);
    return status;
}

td_status *td_owner_file_write(td_shard *const *shards, int64_t n, const char *path, int64_t steps, bool changes,
                               bool track, int64_t *out_bytes, uint64_t *out_xxh64)
{
    for (int64_t i = 0; i < n && changes; i++)
        if (!shards[i]->tracks)
            return TD_ERROR(TD_INTERNAL, "table \"%s\": what changed is not known", shards[i]->definition.name);
    TD_TRY(write_file(shards, n, path, steps, changes));
    TD_TRY(td_file_hash(path, out_xxh64));
    TD_TRY(td_file_size(path, out_bytes));
    for (int64_t i = 0; i < n && track && !changes; i++)
        TD_TRY(td_shard_track(shards[i]));
    return NULL;
}
