/* The hash tables of a process that trains alone: td_remote without messages. The same shards that servers own, so the same bits.
 * See tandem/job.h. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/job_state.h"
#include "ps/owner_file.h"

struct td_own_tables {
    td_remote remote;
    td_shard **shards;
    int64_t n, capacity;
    int64_t *keys; /* of one push */
    int64_t keys_capacity;
};

static td_status *add_table(void *self, const td_remote_table *table, int32_t *out_table)
{
    td_own_tables *own = self;
    td_shard_definition d;
    TD_TRY(td_client_define(table, &d));
    for (int64_t t = 0; t < own->n; t++)
        if (strcmp(own->shards[t]->definition.name, table->name) == 0) {
            *out_table = (int32_t)t;
            return NULL;
        }
    TD_TRY(td_grow(&own->shards, &own->capacity, own->n, sizeof(td_shard *)));
    TD_TRY(td_shard_create(&d, &own->shards[own->n]));
    *out_table = (int32_t)own->n++;
    return NULL;
}

static td_status *pull(void *self, const td_remote_part *parts, int32_t n, bool begin)
{
    td_own_tables *own = self;
    for (int32_t p = 0; p < n; p++)
        TD_TRY(td_shard_pull(own->shards[parts[p].table], parts[p].keys, parts[p].n, begin, parts[p].rows));
    return NULL;
}

/* The gradient's rows by key. */
static td_status *push_part(td_own_tables *own, const td_remote_part *part)
{
    if (part->n > own->keys_capacity) {
        td_free(own->keys);
        own->keys_capacity = 0;
        TD_TRY(TD_NEW(own->keys, part->n));
        own->keys_capacity = part->n;
    }
    for (int64_t i = 0; i < part->n; i++)
        own->keys[i] = part->keys[part->places[i]];
    return td_shard_push(own->shards[part->table], own->keys, part->n, part->gradients, part->coefficients);
}

static td_status *push(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place)
{
    (void)place; /* a whole window's: its micro-batches were summed before */
    for (int32_t p = 0; p < n; p++)
        TD_TRY(push_part(self, &parts[p]));
    return NULL;
}

static td_status *read_rows(void *self, int32_t table, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                            void *out_rows, int64_t *out_n)
{
    td_own_tables *own = self;
    *out_n = td_shard_read(own->shards[table], array, cursor, most, out_ids, out_rows);
    return NULL;
}

static td_status *write_rows(void *self, int32_t table, int32_t array, const int64_t *ids, int64_t n, const void *rows)
{
    td_own_tables *own = self;
    return td_shard_write(own->shards[table], array, ids, n, rows);
}

static td_status *save(void *self, const char *directory, int64_t steps, bool changes, bool track,
                       td_remote_file *out_files)
{
    td_own_tables *own = self;
    (void)snprintf(out_files->name, sizeof out_files->name, TD_OWNER_FILE, 0);
    char *path = td_format("%s/%s", directory, out_files->name);
    td_status *status = path ? td_owner_file_write(own->shards, own->n, path, steps, changes, track, &out_files->bytes,
                                                   &out_files->xxh64)
                             : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
    td_free(path);
    return status;
}

static td_status *tracks(void *self, bool *out_all)
{
    const td_own_tables *own = self;
    *out_all = true;
    for (int64_t t = 0; t < own->n; t++)
        *out_all = *out_all && own->shards[t]->tracks;
    return NULL;
}

static td_status *clear(void *self, int32_t table)
{
    td_own_tables *own = self;
    return td_shard_clear(own->shards[table]);
}

static td_status *count(void *self, int32_t table, int64_t *out_rows)
{
    td_own_tables *own = self;
    *out_rows = own->shards[table]->n;
    return NULL;
}

static td_status *checksum(void *self, int32_t table, uint64_t *out_sum)
{
    td_own_tables *own = self;
    return td_shard_checksum(own->shards[table], out_sum);
}

td_status *td_own_tables_create(td_own_tables **out_tables)
{
    td_own_tables *own = NULL;
    *out_tables = NULL;
    TD_TRY(TD_NEW(own, 1));
    own->remote = (td_remote){.self = own,
                              .replicas = 1,
                              .own = 1,
                              .leads = true,
                              .is_local = true,
                              .add_table = add_table,
                              .pull = pull,
                              .push = push,
                              .read = read_rows,
                              .write = write_rows,
                              .owners = 1,
                              .save = save,
                              .tracks = tracks,
                              .clear = clear,
                              .count = count,
                              .checksum = checksum};
    *out_tables = own;
    return NULL;
}

void td_own_tables_destroy(td_own_tables *own)
{
    if (!own)
        return;
    for (int64_t t = 0; t < own->n; t++)
        td_shard_destroy(own->shards[t]);
    td_free(own->shards);
    td_free(own->keys);
    td_free(own);
}

const td_remote *td_own_tables_remote(const td_own_tables *own)
{
    return &own->remote;
}

td_job_served td_own_tables_count(const td_own_tables *own)
{
    td_job_served served = {.tables = own->n};
    for (int64_t t = 0; t < own->n; t++) {
        int64_t rows, overhead;
        td_shard_bytes(own->shards[t], &rows, &overhead);
        served.rows += own->shards[t]->n;
        served.row_bytes += rows;
        served.overhead_bytes += overhead;
    }
    return served;
}
