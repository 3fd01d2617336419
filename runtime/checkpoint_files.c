/* See checkpoint_files.h. */
#include "runtime/checkpoint_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

td_status *td_checkpoint_prefix(td_status *status, const char *directory)
{
    if (status && !strncmp(td_status_message(status), directory, strlen(directory)))
        return td_status_prefix(status, "checkpoint");
    return td_status_prefix(status, "checkpoint %s", directory);
}

/* A whole file, but not this one: of another step, if it says of which. */
static td_status *refuse_other(const char *path, const char *file, const json_t *manifest, const char *why)
{
    td_safetensors *other = NULL;
    td_status *status = td_safetensors_open(path, &other);
    const char *steps = status ? NULL : td_safetensors_metadata(other, "steps");
    td_status_destroy(status);
    const long long wanted = (long long)json_integer_value(json_object_get(manifest, "steps"));
    if (steps && strtoll(steps, NULL, 10) != wanted)
        status =
            TD_ERROR(TD_DATA_ERROR, "%s is of step %s, this checkpoint is of step %lld: files of several are mixed",
                     file, steps, wanted);
    else
        status = TD_ERROR(TD_DATA_ERROR, "%s", why);
    td_safetensors_close(other);
    return status;
}

static td_status *check_file(const char *path, const char *file, const json_t *shard, const json_t *manifest)
{
    const json_t *bytes = json_object_get(shard, "bytes");
    const char *checksum = json_string_value(json_object_get(shard, "xxh64"));
    char found[17], why[256];
    uint64_t hash = 0;
    int64_t length = 0;
    td_status *there = td_file_require_regular(path); /* a pipe would be waited for */
    if (there && (td_status_code(there) == TD_NOT_FOUND || td_file_exists(path)))
        return td_status_recode(there, TD_DATA_ERROR); /* nobody gave this name: a checkpoint without it is damaged */
    TD_TRY(there);
    TD_TRY(td_file_size(path, &length));
    if (json_is_integer(bytes) && json_integer_value(bytes) != length) {
        (void)snprintf(why, sizeof why,
                       "%.64s has %" PRId64 " bytes, the manifest says %lld: it is cut off or of another one", file,
                       length, (long long)json_integer_value(bytes));
        return refuse_other(path, file, manifest, why);
    }
    TD_TRY(td_file_hash(path, &hash));
    (void)snprintf(found, sizeof found, "%016" PRIx64, hash);
    if (strcmp(found, checksum) == 0)
        return NULL;
    (void)snprintf(why, sizeof why,
                   "%.64s: checksum %s, the manifest says %.32s: the file is damaged or of another checkpoint", file,
                   found, checksum);
    return refuse_other(path, file, manifest, why);
}

static td_status *open_file(td_checkpoint_files *files, const char *directory, const json_t *shard,
                            const json_t *manifest)
{
    const char *file = json_string_value(json_object_get(shard, "file"));
    if (!file || !json_string_value(json_object_get(shard, "xxh64")) || strchr(file, '/'))
        return td_manifest_damaged("a shard without file name or checksum");
    char *path = td_format("%s/%s", directory, file);
    td_status *status = path ? check_file(path, file, shard, manifest) : td_checkpoint_no_memory();
    if (!status)
        status = td_safetensors_open(path, &files->items[files->n]);
    if (!status)
        files->n++;
    td_free(path);
    return status;
}

td_status *td_checkpoint_files_open(const char *directory, const json_t *manifest, td_checkpoint_files *out_files)
{
    const json_t *shards = json_object_get(manifest, "shards");
    *out_files = (td_checkpoint_files){0};
    td_status *status = TD_NEW(out_files->items, json_array_size(shards) + 1);
    for (size_t i = 0; i < json_array_size(shards) && !status; i++)
        status = open_file(out_files, directory, json_array_get(shards, i), manifest);
    if (status)
        td_checkpoint_files_close(out_files);
    return status;
}

void td_checkpoint_files_close(td_checkpoint_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        td_safetensors_close(files->items[i]);
    td_free(files->items);
    *files = (td_checkpoint_files){0};
}

const td_safetensors_tensor *td_checkpoint_files_find(const td_checkpoint_files *files, const char *name,
                                                      const td_safetensors **out_file)
{
    for (size_t i = 0; i < files->n; i++) {
        const td_safetensors_tensor *tensor = td_safetensors_find(files->items[i], name);
        *out_file = files->items[i];
        if (tensor)
            return tensor;
    }
    return NULL;
}
