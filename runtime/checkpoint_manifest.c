/* manifest.json of a checkpoint: see checkpoint.h. It is the last file written, and ends with a checksum of all that it says, so
 * that a changed digit is found as surely as a changed shard. Versions 1 and 2 had no such checksum, and no sizes of shards. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/checkpoint_rows.h"

#define MANIFEST "manifest.json"
static const char format_name[] = "tandem-checkpoint";
enum { FORMAT_VERSION = 3, VERSION_WITH_CHECKSUM = 3 };

/* ---- its checksum ------------------------------------------------------------------------------------------------------------- */

/* Of everything but the checksum itself, in a form that does not depend on blanks or order. False: no memory. */
static bool sum_up(json_t *root, char out_text[17])
{
    json_t *bare = json_copy(root);
    (void)json_object_del(bare, "checksum");
    char *text = bare ? json_dumps(bare, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(bare);
    if (!text)
        return false;
    (void)snprintf(out_text, 17, "%016" PRIx64, td_hash_bytes(text, strlen(text), 0));
    free(text); /* jansson's own allocation */
    return true;
}

/* ---- writing -------------------------------------------------------------------------------------------------------------------- */

/* For every tensor of which only some rows are written: how many there are in all, and what the others hold. NULL: no memory. */
static json_t *list_tables(const td_store *store)
{
    json_t *tables = json_object();
    for (int32_t i = 0; tables && i < store->n_entries; i++) {
        const td_store_entry *entry = &store->entries[i];
        char *name = td_checkpoint_by_rows(entry) ? td_checkpoint_tensor_name(entry) : NULL;
        const td_initializer *how = &entry->initial.how;
        json_t *one = td_checkpoint_by_rows(entry)
                          ? json_pack("{s:I, s:i, s:f, s:f, s:b, s:b}", "rows", (json_int_t)entry->tensor.dims[0],
                                      "kind", (int)how->kind, "a", how->a, "b", how->b, "hash", (int)entry->is_hashed,
                                      "owned", (int)entry->is_remote)
                          : NULL;
        bool good = !td_checkpoint_by_rows(entry) || (name && one && json_object_set(tables, name, one) == 0);
        json_decref(one);
        td_free(name);
        if (!good) {
            json_decref(tables);
            tables = NULL;
        }
    }
    return tables;
}

static json_t *loss_scale_json(const td_store *store)
{
    const td_loss_scale *state = &store->loss_scale;
    return json_pack("{s:f, s:I, s:I, s:I}", "scale", state->scale, "updates", (json_int_t)state->updates, "patience",
                     (json_int_t)state->patience, "overflows", (json_int_t)state->overflows);
}

/* NULL: no memory. */
static json_t *describe(const td_store *store, td_data_position position, json_t *shards, json_t *tables, json_t *base,
                        char checksum[17])
{
    json_t *root =
        json_pack("{s:s, s:i, s:I, s:I, s:I, s:{s:I, s:I}, s:O, s:O}", "format", format_name, "version",
                  (int)FORMAT_VERSION, "steps", (json_int_t)store->steps, "updates", (json_int_t)store->updates, "seed",
                  (json_int_t)store->seed, "position", "epoch", (json_int_t)position.epoch, "batch",
                  (json_int_t)position.batch, "shards", shards, "tables", tables);
    bool good =
        root && (!isfinite(store->last_loss) || json_object_set_new(root, "loss", json_real(store->last_loss)) == 0);
    if (base)
        good = good && json_object_set(root, "base", base) == 0;
    if (store->loss_scale.scale > 0)
        good = good && json_object_set_new(root, "loss_scale", loss_scale_json(store)) == 0;
    if (store->pending.waits)
        good = good && json_object_set_new(root, "pending",
                                           json_pack("{s:I, s:f}", "update", (json_int_t)store->pending.update,
                                                     "divisor", store->pending.divisor)) == 0;
    good = good && sum_up(root, checksum) && json_object_set_new(root, "checksum", json_string(checksum)) == 0;
    if (good)
        return root;
    json_decref(root);
    return NULL;
}

td_status *td_manifest_list_shard(json_t *shards, const char *file, int64_t bytes, uint64_t xxh64)
{
    char checksum[17];
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, xxh64);
    json_t *shard = json_pack("{s:s, s:I, s:s}", "file", file, "bytes", (json_int_t)bytes, "xxh64", checksum);
    return json_array_append_new(shards, shard) == 0 ? NULL : td_checkpoint_no_memory();
}

const char *td_manifest_checksum(const json_t *root)
{
    const char *checksum = json_string_value(json_object_get(root, "checksum"));
    return checksum ? checksum : "";
}

td_status *td_manifest_write(const td_store *store, const char *directory, td_data_position position, json_t *shards,
                             const json_t *base, const char *base_name, char out_checksum[17])
{
    json_t *tables = list_tables(store);
    json_t *adds_to =
        base ? json_pack("{s:s, s:s}", "directory", base_name, "checksum", td_manifest_checksum(base)) : NULL;
    json_t *root =
        tables && (adds_to || !base) ? describe(store, position, shards, tables, adds_to, out_checksum) : NULL;
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL, *path = td_format("%s/" MANIFEST, directory);
    td_status *status = text && path ? td_file_write(path, text, strlen(text)) : td_checkpoint_no_memory();
    free(text); /* jansson's own allocation */
    td_free(path);
    json_decref(root);
    json_decref(tables);
    json_decref(adds_to);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

td_status *td_manifest_damaged(const char *what)
{
    return TD_ERROR(TD_DATA_ERROR, MANIFEST " is not a whole checkpoint's: %s", what);
}

static bool is_count(const json_t *number)
{
    return json_is_integer(number) && json_integer_value(number) >= 0;
}

/* The state of the loss scale, all zero where the checkpoint has none. False: it is none that a training can have. */
static bool read_loss_scale(const json_t *root, td_loss_scale *out)
{
    const json_t *state = json_object_get(root, "loss_scale"), *updates = json_object_get(state, "updates"),
                 *patience = json_object_get(state, "patience"), *overflows = json_object_get(state, "overflows");
    *out = (td_loss_scale){0};
    if (!state)
        return true;
    *out = (td_loss_scale){.scale = json_number_value(json_object_get(state, "scale")),
                           .updates = json_integer_value(updates),
                           .patience = json_integer_value(patience),
                           .overflows = json_integer_value(overflows)};
    return is_count(updates) && is_count(patience) && is_count(overflows) && out->patience > 0 &&
           td_loss_scale_is_allowed(out->scale);
}

/* Gradients that wait for their update; none where the checkpoint has none. False: they are of no update. */
static bool read_pending(const json_t *root, td_pending *out)
{
    const json_t *pending = json_object_get(root, "pending"), *update = json_object_get(pending, "update"),
                 *divisor = json_object_get(pending, "divisor");
    *out = (td_pending){0};
    if (!pending)
        return true;
    *out = (td_pending){true, json_integer_value(update), json_number_value(divisor)};
    return is_count(update) && json_is_number(divisor) && out->divisor > 0;
}

static td_status *check_counts(const json_t *root)
{
    td_pending pending;
    td_loss_scale scale;
    const json_t *steps = json_object_get(root, "steps"), *updates = json_object_get(root, "updates"),
                 *position = json_object_get(root, "position");
    if (!is_count(steps) || !is_count(updates))
        return td_manifest_damaged("its steps and updates are no counts");
    if (json_integer_value(updates) > json_integer_value(steps))
        return td_manifest_damaged("it counts more updates than steps");
    if (!is_count(json_object_get(position, "epoch")) || !is_count(json_object_get(position, "batch")))
        return td_manifest_damaged("it has no position in the data");
    if (!read_loss_scale(root, &scale))
        return td_manifest_damaged("its loss scale is none");
    if (!read_pending(root, &pending))
        return td_manifest_damaged("its pending update is none");
    return NULL;
}

static td_status *check(json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *checksum = json_string_value(json_object_get(root, "checksum"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    char found[17];
    if (!format || strcmp(format, format_name) != 0)
        return td_manifest_damaged("\"format\" does not say so");
    if (version < 1 || version > FORMAT_VERSION)
        return TD_ERROR(TD_UNSUPPORTED, MANIFEST ": version %lld; this program reads up to %d", (long long)version,
                        (int)FORMAT_VERSION);
    if (!sum_up(root, found))
        return td_checkpoint_no_memory();
    if (checksum ? strcmp(checksum, found) != 0 : version >= VERSION_WITH_CHECKSUM)
        return TD_ERROR(TD_DATA_ERROR, MANIFEST ": checksum %s, it says %.32s of itself: it is damaged", found,
                        checksum ? checksum : "nothing");
    if (!json_is_array(json_object_get(root, "shards")))
        return td_manifest_damaged("it lists no shards");
    return check_counts(root);
}

td_status *td_manifest_read(const char *directory, json_t **out_root)
{
    char *path = td_format("%s/" MANIFEST, directory), *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    *out_root = NULL;
    td_status *status = path ? td_file_require_regular(path) : td_checkpoint_no_memory();
    if (!status)
        status = td_file_read(path, &text, &bytes);
    else if (path && td_file_exists(path))
        status = td_status_recode(status, TD_DATA_ERROR); /* it is there and no file: damage, not a wrong name */
    td_free(path);
    if (td_status_code(status) == TD_NOT_FOUND) {
        td_status_destroy(status);
        return TD_ERROR(TD_NOT_FOUND, "there is no " MANIFEST " in it: no checkpoint, or one that was never finished");
    }
    if (status)
        return status;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    td_free(text);
    if (!root)
        return TD_ERROR(TD_DATA_ERROR, MANIFEST ":%d:%d: %s", error.line, error.column, error.text);
    status = check(root);
    if (status) {
        json_decref(root);
        return status;
    }
    *out_root = root;
    return NULL;
}

void td_manifest_take(const json_t *root, td_store *store, td_data_position *out_position)
{
    const json_t *position = json_object_get(root, "position"), *loss = json_object_get(root, "loss");
    store->steps = json_integer_value(json_object_get(root, "steps"));
    store->updates = json_integer_value(json_object_get(root, "updates"));
    if (json_object_get(root, "loss_scale"))
        (void)read_loss_scale(root, &store->loss_scale); /* checked with the counts */
    (void)read_pending(root, &store->pending);
    store->last_loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    *out_position = (td_data_position){json_integer_value(json_object_get(position, "epoch")),
                                       json_integer_value(json_object_get(position, "batch"))};
}
