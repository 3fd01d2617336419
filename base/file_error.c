/* See base/file_error.h. */
#include "base/file_error.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/nearest.h"

static td_code code_of(int error)
{
    switch (error) {
    case ENOENT:
        return TD_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return TD_INVALID_ARGUMENT;
    case ENOMEM:
        return TD_OUT_OF_MEMORY;
    default:
        return TD_IO;
    }
}

/* ---- a name that is not there ------------------------------------------------------------------------------------------------- */

/* Cuts `path` where it stops being there. *out_folder is what is there (in `path`, or "." or "/"), *out_name the first part
 * that is missing, *out_rest what followed that one ("" or "/..."; in `whole`, which begins as `path` does). */
static void find_missing(char *path, const char *whole, const char **out_folder, const char **out_name,
                         const char **out_rest)
{
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    for (;;) {
        char *slash = strrchr(path, '/');
        *out_rest = whole + strlen(path);
        *out_name = slash ? slash + 1 : path;
        *out_folder = !slash ? "." : slash == path ? "/" : path;
        if (!slash)
            return;
        *slash = '\0';
        if (slash == path || access(path, F_OK) == 0)
            return;
    }
}

/* The entry of a folder whose name is nearly `name`, among the first few thousand; NULL: none. The caller frees it. */
static char *nearest_entry(const char *folder, const char *name)
{
    enum { MOST_SEEN = 10000 }; /* whoever only asks whether something is there does not wait for the rest */
    DIR *entries = opendir(folder);
    const int32_t length = (int32_t)strlen(name);
    int32_t fewest = length / 4 > 2 ? length / 4 + 1 : 3;
    char *nearest = NULL;
    struct dirent *entry;
    for (int32_t seen = 0; entries && seen < MOST_SEEN && (entry = readdir(entries)); seen++) {
        if (entry->d_name[0] == '.' || abs((int32_t)strlen(entry->d_name) - length) >= fewest)
            continue;
        int32_t edits = td_edit_distance(name, entry->d_name);
        if (edits >= fewest || 2 * edits >= length)
            continue;
        fewest = edits;
        td_free(nearest);
        nearest = td_strdup(entry->d_name);
    }
    if (entries)
        closedir(entries);
    return nearest;
}

static void help_missing(td_status *status, const char *path)
{
    char *cut = td_strdup(path);
    const char *folder, *name, *rest;
    struct stat link;
    if (!cut || !path[0]) {
        td_free(cut);
        return;
    }
    find_missing(cut, path, &folder, &name, &rest);
    char *nearest = nearest_entry(folder, name), *whole = realpath(folder, NULL);
    char *meant =
        nearest ? td_format("%.*s%s%s", (int)(strlen(path) - strlen(rest) - strlen(name)), path, nearest, rest) : NULL;
    if (!rest[strspn(rest, "/")] && lstat(path, &link) == 0)
        td_status_help(status, "it is a link to something that is not there");
    else if (meant && access(meant, F_OK) == 0)
        td_status_help(status, "did you mean \"%s\"?", meant);
    else
        td_status_help(status, "the folder %s has no \"%s\"", whole ? whole : folder, name);
    free(whole);
    td_free(meant);
    td_free(nearest);
    td_free(cut);
}

/* ---- other reasons ------------------------------------------------------------------------------------------------------------- */

static const char *help_of(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "this user has no right to it: give it one (chmod, chown), or name another place";
    case EROFS:
        return "that file system can only be read: name another place";
    case EISDIR:
        return "it is a folder: name a file";
    case ELOOP:
        return "links that lead back to themselves";
    case ENOSPC:
    case EDQUOT:
        return "make room on that disk, or name a place on another one";
    case EMFILE:
    case ENFILE:
        return "raise the number of files that may be open: ulimit -n";
    case EFBIG:
        return "raise the size that files may have: ulimit -f";
    default:
        return NULL;
    }
}

td_status *td_file_error(const char *path, const char *verb, int error)
{
    error = error ? error : ENOMEM;
    td_status *status = TD_ERROR(code_of(error), "%s: cannot %s: %s", path, verb, strerror(error));
    struct stat there;
    if (error == ENOENT)
        help_missing(status, path);
    else if (error == ENOTDIR)
        td_status_help(status, stat(path, &there) ? "a part of that path is a file, not a folder"
                                                  : "it is a file: name a folder");
    else if (help_of(error))
        td_status_help(status, "%s", help_of(error));
    return status;
}
