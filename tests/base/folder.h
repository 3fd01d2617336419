/* A folder of a test's own that is gone afterwards. */
#ifndef TANDEM_TESTS_BASE_FOLDER_H
#define TANDEM_TESTS_BASE_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct folder {
    char path[64];
    char buffer[4][512];
    int turn;
} folder;

static inline folder make_folder(void)
{
    folder f = {.path = "/tmp/tandem-test-XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    return f;
}

/* The path of a file in it; the last four answers stay valid. */
static inline const char *in_folder(folder *f, const char *name)
{
    f->turn = (f->turn + 1) % 4;
    char *path = f->buffer[f->turn];
    size_t length = strlen(f->path);
    assert_true(length + 1 + strlen(name) < sizeof *f->buffer);
    memcpy(path, f->path, length);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
    return path;
}

/* Files and folders directly in it. */
static inline int count_in_folder(const folder *f)
{
    int n = 0;
    DIR *directory = opendir(f->path);
    assert_non_null(directory);
    for (struct dirent *each; (each = readdir(directory));)
        n += strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0;
    closedir(directory);
    return n;
}

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

static inline void remove_folder(const folder *f)
{
    assert_int_equal(nftw(f->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

#endif
