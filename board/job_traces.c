/* The traces of a job's ranks, which lie beside each other: see board/traces.h. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"
#include "board/traces.h"

enum { MOST_RANKS = 1024 };

/* A rank's file, in the folder of the first one's. */
typedef struct found {
    char *path;
    int32_t rank;
    int64_t bytes;
} found;

typedef struct list {
    found *items;
    int64_t n, capacity;
    uint64_t state; /* of all files' names, sizes and times */
} list;

static void free_list(list *l)
{
    for (int64_t i = 0; i < l->n; i++)
        td_free(l->items[i].path);
    td_free(l->items);
}

static int by_rank(const void *a, const void *b)
{
    const found *x = a, *y = b;
    return x->rank - y->rank;
}

static td_status *take(td_board *board, list *l, const char *above, const char *name, int32_t rank)
{
    int file = -1;
    struct stat info = {0};
    char *path = *above ? td_format("%s/%s", above, name) : td_strdup(name);
    if (!path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_status *status = td_board_open_file(board->folder, path, &file);
    if (status) { /* a link, say: it is not the board's */
        td_free(path);
        td_status_destroy(status);
        return NULL;
    }
    (void)fstat(file, &info);
    close(file);
    status = td_grow(&l->items, &l->capacity, l->n, sizeof *l->items);
    if (status) {
        td_free(path);
        return status;
    }
    l->items[l->n++] = (found){path, rank, (int64_t)info.st_size};
    uint64_t when = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec;
    uint64_t which = td_hash_number((uint64_t)info.st_ino, td_hash_string(name, 0));
    l->state += td_hash_number(when + (uint64_t)info.st_size, which); /* in whatever order they come */
    return NULL;
}

static td_status *find(td_board *board, const char *path, list *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int32_t stem = 0, rank = 0;
    int folder = -1;
    *out = (list){0};
    char *above = td_format("%.*s", slash ? (int)(slash - path) : 0, path);
    if (!above)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_status *status = td_board_open_folder(board->folder, above, &folder);
    DIR *entries = status ? NULL : fdopendir(folder);
    bool named = td_job_name_parse(name, &stem, &rank);
    for (struct dirent *entry; entries && !status && (entry = readdir(entries));) {
        int32_t this_stem = 0, this_rank = 0;
        bool ours =
            !strcmp(entry->d_name, name) || (named && td_job_name_parse(entry->d_name, &this_stem, &this_rank) &&
                                             this_stem == stem && !strncmp(entry->d_name, name, (size_t)stem));
        if (ours && out->n < MOST_RANKS)
            status = take(board, out, above, entry->d_name, this_rank);
    }
    if (entries)
        (void)closedir(entries);
    else if (folder >= 0)
        close(folder);
    td_free(above);
    if (out->n > 1)
        qsort(out->items, (size_t)out->n, sizeof *out->items, by_rank);
    return status;
}

td_status *td_board_key_of_job(td_board *board, const char *path, char **out_key)
{
    list l;
    *out_key = NULL;
    td_status *status = find(board, path, &l);
    if (!status && !(*out_key = td_format("%s %llx", path, (unsigned long long)l.state)))
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a trace");
    free_list(&l);
    return status;
}

static td_status *read_one(td_board *board, const found *f, int64_t most, td_trace **out)
{
    char *data = NULL;
    size_t bytes = 0;
    const size_t more = td_trace_more_room((size_t)f->bytes);
    TD_TRY(td_board_read_file(board->folder, f->path, most, more, &data, &bytes));
    return td_trace_parse_taken(data, bytes, bytes + more, f->path, out);
}

/* Each that can be read; an error only where that is none. */
static td_status *read_each(td_board *board, const list *l, td_trace **traces, int32_t *ranks, int32_t *out_n)
{
    int64_t left = 2000000000; /* bytes, of all files */
    td_status *first = NULL;
    *out_n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        td_status *status = read_one(board, &l->items[i], left, &traces[*out_n]);
        if (!status) {
            left -= l->items[i].bytes;
            ranks[(*out_n)++] = l->items[i].rank;
        } else if (!first) {
            first = status;
        } else {
            td_status_destroy(status);
        }
    }
    if (*out_n) {
        td_status_destroy(first);
        first = NULL;
    }
    return first;
}

td_status *td_board_read_job(td_board *board, const char *path, td_job_traces **out_job)
{
    td_trace **traces = NULL;
    int32_t *ranks = NULL, n = 0;
    list l;
    *out_job = NULL;
    td_status *status = find(board, path, &l);
    if (!status && !l.n)
        status = TD_ERROR(TD_NOT_FOUND, "%s: it is gone", path);
    if (!status)
        status = TD_NEW(traces, l.n + 1);
    if (!status)
        status = TD_NEW(ranks, l.n + 1);
    if (!status)
        status = read_each(board, &l, traces, ranks, &n);
    if (!status)
        status = td_job_traces_of(traces, ranks, n, out_job);
    free_list(&l);
    td_free(traces);
    td_free(ranks);
    return status;
}
