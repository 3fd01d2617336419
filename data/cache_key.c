/* Which cache file belongs to some options and data files: see data/cache.h. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/string.h"
#include "data/cache.h"

enum { EDGE_BYTES = 1 << 16 };

/* One setting after the other, lengths included where text is, so that no two lists of settings look alike. */
static void add_text(td_string *text, const char *value)
{
    td_string_format(text, "%zu:%s;", value ? strlen(value) : 0, value ? value : "");
}

static void add_names(td_string *text, const char *const *names, int32_t n)
{
    td_string_format(text, "%d;", n);
    for (int32_t i = 0; i < n; i++)
        add_text(text, names[i]);
}

static void add_settings(td_string *text, const td_dataset_options *options)
{
    add_text(text, options->format);
    add_text(text, options->test ? "test" : "");
    td_string_format(text, "%a;%lld;%a;%d;%d;", options->train_share, (long long)options->most_rows, options->bad_rows,
                     options->skip_bad_ids, options->count_distinct);
    add_names(text, options->numeric, options->n_numeric);
    add_names(text, options->categorical, options->n_categorical);
    for (int32_t k = 0; k < options->n_crosses; k++) {
        add_text(text, options->crosses[k].a);
        add_text(text, options->crosses[k].b);
        td_string_format(text, "%lld;", (long long)options->crosses[k].buckets);
    }
    add_text(text, options->label);
    add_text(text, options->positive);
    td_string_format(text, "%d;%d;", options->delimiter, options->n_transforms);
    for (int32_t i = 0; i < options->n_transforms; i++)
        td_string_format(text, "%d;", (int)options->transforms[i]);
    td_string_format(text, "%d;", options->n_table_rows);
    for (int32_t i = 0; i < options->n_table_rows; i++)
        td_string_format(text, "%lld;", (long long)options->table_rows[i]);
    td_string_format(text, "%lld;%a", (long long)options->min_count, options->least_positive);
}

/* Size, time of change, first and last bytes. False: the file cannot be looked at. */
static bool identify(const char *path, unsigned char *buffer, uint64_t *key)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bool good = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    if (good) {
        int64_t last = about.st_size > EDGE_BYTES ? about.st_size - EDGE_BYTES : 0;
        ssize_t first_bytes = pread(file, buffer, EDGE_BYTES, 0);
        uint64_t hash = td_hash_bytes(buffer, first_bytes > 0 ? (size_t)first_bytes : 0, *key);
        ssize_t last_bytes = pread(file, buffer, EDGE_BYTES, last);
        hash = td_hash_bytes(buffer, last_bytes > 0 ? (size_t)last_bytes : 0, hash);
        hash = td_hash_number((uint64_t)about.st_size, hash);
        hash = td_hash_number((uint64_t)about.st_mtim.tv_sec, hash);
        *key = td_hash_number((uint64_t)about.st_mtim.tv_nsec, hash);
        good = first_bytes >= 0 && last_bytes >= 0;
    }
    (void)close(file);
    return good;
}

static bool identify_all(const td_dataset_options *options, unsigned char *buffer, uint64_t *key)
{
    return identify(options->train, buffer, key) && (!options->test || identify(options->test, buffer, key));
}

/* The hash of the settings and of where the data files are: it is part of the file's name. */
static td_status *hash_settings(const td_dataset_options *options, uint64_t *out_hash)
{
    td_string text = {0};
    char real[PATH_MAX], *all = NULL;
    add_settings(&text, options);
    add_text(&text, realpath(options->train, real) ? real : options->train);
    if (options->test)
        add_text(&text, realpath(options->test, real) ? real : options->test);
    TD_TRY(td_string_finish(&text, &all));
    *out_hash = td_hash_string(all, 0);
    td_free(all);
    return NULL;
}

td_status *td_cache_init(td_cache *cache, const td_dataset_options *options)
{
    *cache = (td_cache){0};
    uint64_t settings = 0;
    unsigned char *buffer = NULL;
    TD_TRY(hash_settings(options, &settings));
    TD_TRY(TD_NEW(buffer, EDGE_BYTES));
    cache->key = settings;
    bool known = identify_all(options, buffer, &cache->key);
    td_free(buffer);
    if (!known)
        return NULL; /* reading will say what is wrong with it */
    const char *slash = strrchr(options->train, '/');
    cache->path = td_format("%s/%s.%016llx.tdrows", options->cache, slash ? slash + 1 : options->train,
                            (unsigned long long)settings);
    return cache->path ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the name of a cache file");
}

void td_cache_deinit(td_cache *cache)
{
    td_free(cache->path);
    *cache = (td_cache){0};
}
