/* Rows that a worker keeps between pulls (ps.cache), with the bits of a pull that asks for all of them. In sync mode every row of a
 * trained table that a worker pulls to train with is changed by the push that follows; so what may be kept is: rows pulled to
 * evaluate, until the next push; rows of tables that are not trained, for good. A key has one place, and the newest one has it. */
#include <string.h>

#include "base/memory.h"
#include "ps/job_state.h"

typedef struct kept_table {
    int64_t places, row_bytes;
    int64_t *keys;
    uint64_t *stamps; /* of when the row was pulled; 0: never */
    char *rows;
} kept_table;

struct td_row_cache {
    kept_table *tables;
    int64_t n_tables;
    /* of one pull */
    td_remote_part *parts;
    int64_t parts_capacity;
    int64_t *keys, *places; /* what is missing: keys, and where in its part */
    int64_t keys_capacity, places_capacity;
    char *rows;
    int64_t rows_capacity;
    td_job_cached count;
};

void td_row_cache_destroy(td_row_cache *cache)
{
    if (!cache)
        return;
    for (int64_t t = 0; t < cache->n_tables; t++) {
        td_free(cache->tables[t].keys);
        td_free(cache->tables[t].stamps);
        td_free(cache->tables[t].rows);
    }
    td_free(cache->tables);
    td_free(cache->parts);
    td_free(cache->keys);
    td_free(cache->places);
    td_free(cache->rows);
    td_free(cache);
}

td_job_cached td_row_cache_count(const td_row_cache *cache)
{
    return cache ? cache->count : (td_job_cached){0};
}

/* ---- room ---------------------------------------------------------------------------------------------------------------------- */

/* The tables share the bytes evenly. */
static td_status *keep_table(kept_table *table, int64_t row_bytes, int64_t bytes)
{
    table->row_bytes = row_bytes;
    const int64_t places = bytes / (row_bytes + (int64_t)(sizeof *table->keys + sizeof *table->stamps));
    TD_TRY(TD_NEW(table->keys, places + 1));
    TD_TRY(TD_NEW(table->stamps, places + 1));
    TD_TRY(TD_NEW(table->rows, places * row_bytes + 1));
    table->places = places;
    return NULL;
}

static td_status *open_cache(td_job *job)
{
    td_row_cache *cache = NULL;
    TD_TRY(TD_NEW(cache, 1));
    job->cache = cache;
    TD_TRY(TD_NEW(cache->tables, job->n_tables + 1));
    cache->n_tables = job->n_tables; /* before they have room: what one got is freed where another finds none */
    for (int64_t t = 0; t < cache->n_tables; t++)
        TD_TRY(keep_table(&cache->tables[t], td_shard_array_bytes(&job->tables[t], 0),
                          job->options.cache_bytes / job->n_tables));
    return NULL;
}

static td_status *room_for(td_row_cache *cache, int32_t n, int64_t keys, int64_t bytes)
{
    TD_TRY(td_keep_room(&cache->parts, &cache->parts_capacity, n, sizeof *cache->parts));
    TD_TRY(td_keep_room(&cache->keys, &cache->keys_capacity, keys, sizeof *cache->keys));
    TD_TRY(td_keep_room(&cache->places, &cache->places_capacity, keys, sizeof *cache->places));
    return td_keep_room(&cache->rows, &cache->rows_capacity, bytes, 1);
}

/* ---- one pull ------------------------------------------------------------------------------------------------------------------ */

static bool is_trained(const td_job *job, int32_t table)
{
    return job->tables[table].rule[0] != 0;
}

/* What rows that are pulled now are good with: for a table that is not trained until rows are written, otherwise until the push. */
static uint64_t stamp_of(const td_job *job, int32_t table)
{
    const uint64_t pushed = is_trained(job, table) ? (uint64_t)job->pushed : 0;
    return ((uint64_t)job->forgotten << 40) + pushed + 1;
}

static bool may_keep(const td_job *job, const td_remote_part *part, bool begin)
{
    return part->table < job->cache->n_tables && job->cache->tables[part->table].places &&
           (!begin || !is_trained(job, part->table));
}

static int64_t place_of(const kept_table *table, int64_t key)
{
    return (int64_t)((unsigned __int128)td_key_mix((uint64_t)key) * (uint64_t)table->places >> 64);
}

/* Rows that are here to where the part wants them; the others are listed in `missing`. */
static void take_kept(td_job *job, const td_remote_part *part, td_remote_part *missing, int64_t *places)
{
    const kept_table *table = &job->cache->tables[part->table];
    const uint64_t stamp = stamp_of(job, part->table);
    int64_t *keys = (int64_t *)(uintptr_t)missing->keys;
    for (int64_t i = 0; i < part->n; i++) {
        const int64_t place = place_of(table, part->keys[i]);
        if (table->stamps[place] == stamp && table->keys[place] == part->keys[i]) {
            memcpy((char *)part->rows + i * table->row_bytes, table->rows + place * table->row_bytes,
                   (size_t)table->row_bytes);
            continue;
        }
        keys[missing->n] = part->keys[i];
        places[missing->n++] = i;
    }
    job->cache->count.rows += part->n;
    job->cache->count.hits += part->n - missing->n;
}

static void keep_pulled(td_job *job, const td_remote_part *part, const td_remote_part *missing, const int64_t *places)
{
    const kept_table *table = &job->cache->tables[part->table];
    for (int64_t i = 0; i < missing->n; i++) {
        const char *row = (const char *)missing->rows + i * table->row_bytes;
        const int64_t place = place_of(table, missing->keys[i]);
        memcpy((char *)part->rows + places[i] * table->row_bytes, row, (size_t)table->row_bytes);
        memcpy(table->rows + place * table->row_bytes, row, (size_t)table->row_bytes);
        table->keys[place] = missing->keys[i];
        table->stamps[place] = stamp_of(job, part->table);
    }
}

/* What must be asked for: of parts that may be kept only what is missing. Returns how many keys that is. */
static int64_t split(td_job *job, const td_remote_part *parts, int32_t n, bool begin)
{
    td_row_cache *cache = job->cache;
    int64_t keys = 0, all = 0;
    char *rows = cache->rows;
    for (int32_t p = 0; p < n; p++) {
        cache->parts[p] = parts[p];
        if (may_keep(job, &parts[p], begin)) {
            td_remote_part *missing = &cache->parts[p];
            missing->n = 0;
            missing->keys = cache->keys + keys;
            missing->rows = rows;
            take_kept(job, &parts[p], missing, cache->places + keys);
            keys += missing->n;
            rows += missing->n * cache->tables[parts[p].table].row_bytes;
        }
        all += cache->parts[p].n;
    }
    return all;
}

static void unite(td_job *job, const td_remote_part *parts, int32_t n, bool begin)
{
    const int64_t *places = job->cache->places;
    for (int32_t p = 0; p < n; p++)
        if (may_keep(job, &parts[p], begin)) {
            keep_pulled(job, &parts[p], &job->cache->parts[p], places);
            places += job->cache->parts[p].n;
        }
}

td_status *td_row_cache_pull(void *self, const td_remote_part *parts, int32_t n, bool begin)
{
    td_job *job = self;
    int64_t keys = 0, bytes = 0;
    if (!job->cache)
        TD_TRY(open_cache(job));
    for (int32_t p = 0; p < n; p++) {
        keys += parts[p].n;
        bytes += parts[p].n * td_shard_array_bytes(&job->tables[parts[p].table], 0);
    }
    TD_TRY(room_for(job->cache, n, keys, bytes));
    if (split(job, parts, n, begin))
        TD_TRY(td_client_pull(job, job->cache->parts, n, begin));
    unite(job, parts, n, begin);
    return NULL;
}
