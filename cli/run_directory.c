/* Folders of runs and their checkpoints: see cli/run_directory.h. */
#include "cli/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_error.h"
#include "base/memory.h"
#include "runtime/checkpoint.h"

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
}

static bool has_file(const char *folder, const char *name)
{
    char *path = td_format("%s/%s", folder, name);
    bool there = path && !access(path, F_OK);
    td_free(path);
    return there;
}

/* ---- the folder of a run ----------------------------------------------------------------------------------------------- */

static td_status *create_wanted(const char *wanted, char **out_path)
{
    if (has_file(wanted, "run.json"))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "--run %s: there is a run in it already", wanted),
                              "go on with it: --resume; or name another folder");
    TD_TRY(td_directory_create(wanted));
    *out_path = td_strdup(wanted);
    return *out_path ? NULL : no_memory();
}

td_status *td_run_create(const char *name, const char *wanted, char **out_path)
{
    *out_path = NULL;
    if (wanted)
        return create_wanted(wanted, out_path);
    TD_TRY(td_directory_create("runs"));
    for (int number = 1; number < 1000000; number++) {
        char *path = td_format("runs/%s-%04d", name, number);
        if (!path)
            return no_memory();
        if (!mkdir(path, 0777)) {
            *out_path = path;
            return NULL;
        }
        td_status *status = errno == EEXIST ? NULL : td_file_error(path, "make directory", errno);
        td_free(path);
        TD_TRY(status);
    }
    return TD_ERROR(TD_IO, "runs/: there are a million runs of %s; name a folder with --run", name);
}

/* The number at the end of `entry` if it is `prefix` and digits, else -1. */
static long long number_after(const char *entry, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(entry, prefix, length) || !entry[length] || entry[length + strspn(entry + length, "0123456789")])
        return -1;
    return strtoll(entry + length, NULL, 10);
}

static bool has_checkpoint(const char *run)
{
    char *folder = td_format("%s/checkpoints", run), *newest = NULL;
    td_status *status = folder ? td_checkpoint_newest(folder, &newest) : NULL;
    bool found = newest != NULL;
    td_status_destroy(status);
    td_free(newest);
    td_free(folder);
    return found;
}

static td_status *newest_run(const char *name, char **out_path)
{
    DIR *folder = opendir("runs");
    char prefix[128];
    long long best = -1;
    snprintf(prefix, sizeof prefix, "%s-", name);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        long long number = number_after(entry->d_name, prefix);
        char *path = number > best ? td_format("runs/%s", entry->d_name) : NULL;
        if (path && has_checkpoint(path)) {
            best = number;
            td_free(*out_path);
            *out_path = path;
            path = NULL;
        }
        td_free(path);
    }
    if (folder)
        closedir(folder);
    return *out_path ? NULL
                     : TD_ERROR(TD_INVALID_ARGUMENT, "--resume: no run of %s below runs/ has a checkpoint", name);
}

td_status *td_run_find(const char *name, const char *wanted, char **out_path)
{
    *out_path = NULL;
    if (!wanted)
        return newest_run(name, out_path);
    if (access(wanted, F_OK))
        return td_status_help(td_status_prefix(td_file_error(wanted, "open", errno), "--run"),
                              "without --resume it would be made");
    *out_path = td_strdup(wanted);
    return *out_path ? NULL : no_memory();
}

bool td_run_is_open(const char *run)
{
    return has_file(run, "run.json") && !has_file(run, "summary.json");
}

/* True where another process trains into the folder. A board that looks whether one does holds the lock shared, for a moment: it
 * is waited for. */
static bool lock_alone(int folder)
{
    enum { MOST_MOMENTS = 2000 };
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < MOST_MOMENTS; i++) {
        if (!flock(folder, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
            return false;
        if (flock(folder, LOCK_SH | LOCK_NB))
            return true;
        flock(folder, LOCK_UN); /* not while others wait for the same */
        nanosleep(&moment, NULL);
    }
    return true;
}

td_status *td_run_lock(const char *run, int *out_lock)
{
    *out_lock = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out_lock < 0)
        return td_file_error(run, "open", errno);
    if (!lock_alone(*out_lock))
        return NULL;
    close(*out_lock);
    *out_lock = -1;
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "--run %s: another process is training into it", run),
                          "wait for it, or name another folder");
}

/* ---- checkpoints --------------------------------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return td_file_inject() ? -1 : remove(path);
}

static td_status *remove_folder(const char *path)
{
    enum { OPEN_AT_ONCE = 16 };
    if (nftw(path, remove_entry, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        return td_file_error(path, "remove", errno);
    return NULL;
}

/* The newest checkpoint numbered below `below`, -1 when there is none. */
static long long newest_below(const char *folder, long long below)
{
    DIR *entries = opendir(folder);
    long long best = -1;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        long long number = number_after(entry->d_name, "step-");
        if (number > best && number < below)
            best = number;
    }
    if (entries)
        closedir(entries);
    return best;
}

char *td_checkpoint_path(const char *folder, int64_t steps)
{
    return td_format("%s/step-%09lld", folder, (long long)steps);
}

bool td_checkpoint_is_there(const char *folder, int64_t steps)
{
    char *path = td_checkpoint_path(folder, steps);
    bool there = path && has_file(path, "manifest.json");
    td_free(path);
    return there;
}

int64_t td_checkpoint_newest_steps(const char *folder)
{
    return newest_below(folder, INT64_MAX);
}

/* Under its name it is whole until it is gone: a process that is killed meanwhile leaves a partial one, which is nobody's. */
static td_status *remove_checkpoint(const char *folder, long long number)
{
    char *path = td_checkpoint_path(folder, number), *partial = path ? td_format("%s.partial", path) : NULL;
    td_status *status = partial ? remove_folder(partial) : no_memory();
    if (!status && (td_file_inject() || rename(path, partial)))
        status = td_file_error(path, "rename", errno);
    if (!status)
        status = remove_folder(partial);
    td_free(partial);
    td_free(path);
    return status;
}

/* Which whole checkpoint one adds changes to; -1: it is whole itself. False: nobody can say. */
static bool find_base(const char *folder, long long number, long long *out_base)
{
    char *path = td_checkpoint_path(folder, number);
    json_t *manifest = NULL;
    td_status *status = path ? td_manifest_read(path, &manifest) : no_memory();
    const bool known = !status;
    const char *name = json_string_value(json_object_get(json_object_get(manifest, "base"), "directory"));
    *out_base = name ? number_after(name, "step-") : -1;
    td_status_destroy(status);
    json_decref(manifest);
    td_free(path);
    return known;
}

static bool is_among(const long long *numbers, int64_t n, long long number)
{
    for (int64_t i = 0; i < n; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/* All but the newest `keep` and those that they add to; none where one of them cannot be read. */
static td_status *remove_old(const char *folder, int64_t keep)
{
    long long below = INT64_MAX, *bases = NULL, number;
    int64_t kept = 0, capacity = 0;
    td_status *status = NULL;
    for (; kept < keep && !status && (number = newest_below(folder, below)) >= 0; below = number) {
        status = td_grow(&bases, &capacity, kept, sizeof *bases);
        if (!status && !find_base(folder, number, &bases[kept++])) {
            td_free(bases);
            return NULL;
        }
    }
    for (; !status && (number = newest_below(folder, below)) >= 0; below = number)
        if (!is_among(bases, kept, number))
            status = remove_checkpoint(folder, number);
    td_free(bases);
    return status;
}

/* One of the same number may stand there, of a run that was resumed: it is good until this one is. */
static td_status *save_as(td_store *store, td_data_position position, const char *base, bool in_series,
                          const char *partial, const char *final, bool *out_whole)
{
    *out_whole = true;
    TD_TRY(remove_folder(partial));
    td_status *status = in_series ? td_store_save_changes(store, partial, base, position, out_whole)
                                  : td_store_save(store, partial, position);
    if (!status)
        status = td_directory_replace(partial, final);
    td_status *removed = remove_folder(partial); /* also when it failed: the room it takes may be what is missing */
    if (!status)
        return removed;
    td_status_destroy(removed);
    return status;
}

/* A whole one begins anew. */
static td_status *count_in_series(td_checkpoint_series *series, const char *path, bool whole)
{
    series->changes++;
    if (!whole)
        return NULL;
    td_free(series->base);
    series->changes = 0;
    series->base = td_strdup(path);
    return series->base ? NULL : no_memory();
}

void td_checkpoint_series_deinit(td_checkpoint_series *series)
{
    td_free(series->base);
    *series = (td_checkpoint_series){0};
}

td_status *td_checkpoint_save(td_store *store, const char *folder, td_data_position position,
                              td_checkpoint_series *series, char **out_path)
{
    TD_TRY(td_directory_create(folder));
    char *final = td_checkpoint_path(folder, td_store_steps(store));
    char *partial = final ? td_format("%s.partial", final) : NULL;
    bool whole = true;
    const char *base = series->changes < series->incremental ? series->base : NULL;
    if (base && final && !strcmp(base, final))
        base = NULL; /* it takes its place */
    td_status *status =
        partial ? save_as(store, position, base, series->incremental > 0, partial, final, &whole) : no_memory();
    if (!status)
        status = count_in_series(series, final, whole);
    if (!status)
        status = remove_old(folder, series->keep);
    td_free(partial);
    if (out_path && !status)
        *out_path = final;
    else
        td_free(final);
    return status;
}

td_status *td_checkpoint_prepare(const char *folder)
{
    TD_TRY(td_directory_create(folder));
    if (access(folder, W_OK))
        return td_file_error(folder, "write to", errno);
    DIR *entries = opendir(folder);
    td_status *status = NULL;
    for (struct dirent *entry; entries && !status && (entry = readdir(entries));) {
        const char *end = strrchr(entry->d_name, '.');
        if (strncmp(entry->d_name, "step-", 5) || !end || strcmp(end, ".partial"))
            continue;
        char *path = td_format("%s/%s", folder, entry->d_name);
        status = path ? remove_folder(path) : no_memory();
        td_free(path);
    }
    if (entries)
        closedir(entries);
    return status;
}

td_status *td_checkpoint_newest(const char *folder, char **out_path)
{
    *out_path = NULL;
    long long number = newest_below(folder, INT64_MAX);
    if (number < 0)
        return NULL;
    *out_path = td_checkpoint_path(folder, number);
    return *out_path ? NULL : no_memory();
}

td_status *td_checkpoint_resolve(const char *path, char **out_path)
{
    TD_TRY(td_checkpoint_newest(path, out_path));
    char *below = *out_path ? NULL : td_format("%s/checkpoints", path);
    td_status *status = below ? td_checkpoint_newest(below, out_path) : NULL;
    td_free(below);
    TD_TRY(status);
    if (*out_path)
        return NULL;
    struct stat info;
    if (stat(path, &info))
        return td_file_error(path, "open", errno);
    if (!S_ISDIR(info.st_mode))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: is a file, and a checkpoint is a folder", path),
                              "name that folder, or the one of its run");
    *out_path = td_strdup(path); /* loading says what is wrong with it */
    return *out_path ? NULL : no_memory();
}
