/* Keeping weights on the way: see cli/snapshots.h. */
#include "cli/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/safetensors.h"
#include "cli/config_tree.h"

enum { PIECE_BYTES = 4 << 20, MOST_POINTS = 1000 };

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a landscape's weights");
}

char *td_snapshot_path(const char *run, int64_t step)
{
    return td_format("%s/landscape/step-%09lld.safetensors", run, (long long)step);
}

/* ---- which steps ---------------------------------------------------------------------------------------------------------- */

static td_status *read_point(const td_setup *setup, const char *text, int64_t before, int64_t *out_unit,
                             int64_t *out_step)
{
    static const char key[] = "landscape.intervals";
    bool epochs = !strcmp(td_section_string(setup->root, "landscape.unit"), "epoch");
    if (!td_config_to_int(text, out_unit) || *out_unit < 0)
        return TD_SECTION_ERROR(setup->root, key, "%s: \"%s\" is no %s; such as [[1, 2, 3], [7, 8, 9]]", key, text,
                                epochs ? "epoch" : "step");
    *out_step = *out_unit;
    if (epochs && *out_unit)
        *out_step = td_setup_count_steps(setup->root, setup->batches_per_epoch, *out_unit);
    if (*out_step <= before)
        return TD_SECTION_ERROR(setup->root, key, "%s: %lld does not come after the one before it", key,
                                (long long)*out_unit);
    if (setup->steps && *out_step > setup->steps)
        return TD_SECTION_ERROR(setup->root, key, "%s: %s %lld is beyond the training's end, step %lld", key,
                                epochs ? "epoch" : "step", (long long)*out_unit, (long long)setup->steps);
    return NULL;
}

td_status *td_snapshots_interval(const td_setup *setup, int32_t interval, int64_t **out_steps, int64_t **out_units,
                                 int32_t *out_n)
{
    int32_t n = 0;
    *out_steps = *out_units = NULL;
    while (td_section_list_at(setup->root, "landscape.intervals", interval, n))
        n++;
    if (!n || n > MOST_POINTS)
        return TD_SECTION_ERROR(setup->root, "landscape.intervals",
                                "landscape.intervals: an interval has from 1 to %d points, not %d", MOST_POINTS, n);
    td_status *status = TD_NEW(*out_steps, n);
    if (!status)
        status = TD_NEW(*out_units, n);
    for (int32_t i = 0; !status && i < n; i++)
        status = read_point(setup, td_section_list_at(setup->root, "landscape.intervals", interval, i),
                            i ? (*out_steps)[i - 1] : -1, &(*out_units)[i], &(*out_steps)[i]);
    *out_n = n;
    if (status) {
        td_free(*out_steps);
        td_free(*out_units);
        *out_steps = *out_units = NULL;
    }
    return status;
}

bool td_snapshots_want_result(td_section root)
{
    return td_section_bool(root, "landscape.create_landscape.result");
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static td_status *add_interval(td_snapshots *s, const td_setup *setup, int32_t interval)
{
    int64_t *steps = NULL, *units = NULL;
    int32_t n = 0;
    TD_TRY(td_snapshots_interval(setup, interval, &steps, &units, &n));
    int64_t *all = td_realloc(s->steps, (size_t)(s->n + n), sizeof *all);
    if (all) {
        memcpy(all + s->n, steps, (size_t)n * sizeof *all);
        s->steps = all;
        s->n += n;
    }
    td_free(steps);
    td_free(units);
    return all ? NULL : no_memory();
}

static td_status *list_steps(td_snapshots *s, const td_setup *setup)
{
    int32_t intervals = td_section_count(setup->root, "landscape.intervals");
    bool wanted = td_section_bool(setup->root, "landscape.create_landscape.train");
    for (int32_t i = 0; wanted && i < intervals; i++)
        TD_TRY(add_interval(s, setup, i));
    if (s->n)
        qsort(s->steps, (size_t)s->n, sizeof *s->steps, by_step);
    s->last = td_snapshots_want_result(setup->root);
    if ((s->n || s->last) && setup->distributed && setup->distributed->job)
        return TD_SECTION_ERROR(setup->root, "landscape",
                                "landscape: weights are kept by a training of one process, not by a job under mpirun");
    return NULL;
}

td_status *td_snapshots_check(const td_setup *setup)
{
    td_snapshots snapshots = {0};
    td_status *status = list_steps(&snapshots, setup);
    td_snapshots_close(&snapshots);
    return status;
}

td_status *td_snapshots_open(td_snapshots *snapshots, const td_setup *setup, const char *run)
{
    *snapshots = (td_snapshots){0};
    td_status *status = list_steps(snapshots, setup);
    if (!status && (snapshots->n || snapshots->last))
        snapshots->folder = td_format("%s/landscape", run);
    if (!status && (snapshots->n || snapshots->last) && !snapshots->folder)
        status = no_memory();
    if (status)
        td_snapshots_close(snapshots);
    return status;
}

int64_t td_snapshots_next_stop(const td_snapshots *snapshots, int64_t step)
{
    for (int32_t i = 0; snapshots->folder && i < snapshots->n; i++)
        if (snapshots->steps[i] > step)
            return snapshots->steps[i];
    return INT64_MAX;
}

/* ---- checksums ------------------------------------------------------------------------------------------------------------ */

/* A file's checksum is the sum of its tensors', in whatever order they lie: XXH64 of a tensor's pieces, seeded with the one before,
 * at first with that of its name. */
enum { CHECKSUM_TEXT = 17 };
static const char checksum_key[] = "xxh64";

static void checksum_text(uint64_t sum, char out_text[CHECKSUM_TEXT])
{
    (void)snprintf(out_text, CHECKSUM_TEXT, "%016llx", (unsigned long long)sum);
}

static td_status *check_tensor(const td_safetensors *file, const td_safetensors_tensor *tensor, void *piece,
                               uint64_t *sum)
{
    uint64_t hash = td_hash_string(tensor->name, 0);
    for (int64_t at = 0; at < tensor->bytes; at += PIECE_BYTES) {
        const int64_t bytes = tensor->bytes - at < PIECE_BYTES ? tensor->bytes - at : PIECE_BYTES;
        TD_TRY(td_safetensors_read(file, tensor, at, bytes, piece));
        hash = td_hash_bytes(piece, (size_t)bytes, hash);
    }
    *sum += hash;
    return NULL;
}

/* Whether the weights are those that were kept. */
static td_status *check_file(const td_safetensors *file, const char *path)
{
    const char *kept = td_safetensors_metadata(file, checksum_key);
    char seen[CHECKSUM_TEXT];
    uint64_t sum = 0;
    void *piece = td_calloc(1, PIECE_BYTES);
    td_status *status = piece ? NULL : no_memory();
    for (int64_t i = 0; !status && i < td_safetensors_count(file); i++)
        status = check_tensor(file, td_safetensors_at(file, i), piece, &sum);
    td_free(piece);
    checksum_text(sum, seen);
    if (!status && (!kept || strcmp(kept, seen) != 0))
        status = td_status_help(TD_ERROR(TD_DATA_ERROR, "%s: these are not the weights that were kept: %s %s, not %s",
                                         path, checksum_key, seen, kept ? kept : "what the file says, nothing"),
                                "the file is damaged: train again, and the weights are kept anew");
    return status;
}

td_status *td_snapshot_open(const char *run, int64_t step, td_safetensors **out_file)
{
    char *path = td_snapshot_path(run, step);
    *out_file = NULL;
    if (!path)
        return no_memory();
    td_status *status = NULL;
    if (!td_file_exists(path))
        status = td_status_help(TD_ERROR(TD_NOT_FOUND, "%s: this step's weights were not kept", path),
                                "they are kept by a training whose landscape.intervals names it; it may not have come "
                                "so far");
    else
        status = td_safetensors_open(path, out_file);
    if (!status)
        status = check_file(*out_file, path);
    if (status) {
        td_safetensors_close(*out_file);
        *out_file = NULL;
    }
    td_free(path);
    return status;
}

/* ---- writing one ---------------------------------------------------------------------------------------------------------- */

/* An entry of the store that is a parameter of numbers; other ones are not kept. */
static bool is_kept(const td_store *store, int32_t index, td_tensor *out_shape)
{
    bool is_parameter = false;
    const char *device;
    td_status *status = td_store_describe(store, index, out_shape, &is_parameter, &device);
    bool kept = !status && is_parameter && td_dtype_converts(out_shape->dtype);
    td_status_destroy(status);
    return kept;
}

/* An entry's numbers, piece by piece: into the file, or into *sum where that is asked for. */
static td_status *pass_entry(td_safetensors_writer *writer, const td_store *store, int32_t index, void *piece,
                             uint64_t *sum)
{
    td_tensor shape;
    int64_t n = 1;
    if (!is_kept(store, index, &shape))
        return NULL;
    for (int32_t d = 0; d < shape.rank; d++)
        n *= shape.dims[d];
    const int64_t size = (int64_t)td_dtype_bytes(shape.dtype), most = PIECE_BYTES / size;
    uint64_t hash = td_hash_string(td_store_name(store, index), 0);
    for (int64_t first = 0; first < n; first += most) {
        int64_t count = n - first < most ? n - first : most;
        TD_TRY(td_store_read(store, index, first, count, piece));
        if (sum)
            hash = td_hash_bytes(piece, (size_t)(count * size), hash);
        else
            TD_TRY(td_safetensors_write(writer, td_store_name(store, index), first * size, count * size, piece));
    }
    if (sum)
        *sum += hash;
    return NULL;
}

/* The header, with the checksum in it, stands before the numbers: they are gone through twice. */
static td_status *write_header(td_safetensors_writer *writer, const td_store *store, void *piece)
{
    char text[CHECKSUM_TEXT];
    uint64_t sum = 0;
    td_tensor shape;
    for (int32_t i = 0; i < td_store_count(store); i++) {
        TD_TRY(pass_entry(NULL, store, i, piece, &sum));
        if (is_kept(store, i, &shape))
            TD_TRY(td_safetensors_declare(writer, td_store_name(store, i), shape.dtype, shape.rank, shape.dims));
    }
    checksum_text(sum, text);
    return td_safetensors_annotate(writer, checksum_key, text);
}

static td_status *write_all(td_safetensors_writer *writer, const td_store *store)
{
    void *piece = td_calloc(1, PIECE_BYTES);
    td_status *status = piece ? write_header(writer, store, piece) : no_memory();
    for (int32_t i = 0; !status && i < td_store_count(store); i++)
        status = pass_entry(writer, store, i, piece, NULL);
    td_free(piece);
    return status;
}

static td_status *write_snapshot(const td_snapshots *s, const td_store *store)
{
    td_safetensors_writer *writer = NULL;
    TD_TRY(td_directory_create(s->folder));
    char *path = td_format("%s/step-%09lld.safetensors", s->folder, (long long)td_store_steps(store));
    if (!path)
        return no_memory();
    td_status *status = td_safetensors_create(path, &writer);
    td_free(path);
    TD_TRY(status);
    status = write_all(writer, store);
    if (!status)
        return td_safetensors_commit(writer);
    td_safetensors_discard(writer);
    return status;
}

void td_snapshots_keep(td_snapshots *snapshots, const td_store *store, bool end)
{
    bool wanted = end && snapshots->last;
    for (int32_t i = 0; !wanted && i < snapshots->n; i++)
        wanted = snapshots->steps[i] == td_store_steps(store);
    td_status *status = snapshots->folder && wanted ? write_snapshot(snapshots, store) : NULL;
    if (!status)
        return;
    td_log(TD_LOG_WARNING, "no weights are kept for the landscape from here on: %s", td_status_message(status));
    td_status_destroy(status);
    td_snapshots_close(snapshots);
}

void td_snapshots_close(td_snapshots *snapshots)
{
    td_free(snapshots->folder);
    td_free(snapshots->steps);
    *snapshots = (td_snapshots){0};
}
