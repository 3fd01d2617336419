/* Files for the data tests: a folder of its own per test program, and where the data sets that may not be copied lie. */
#ifndef TESTS_DATA_FILES_H
#define TESTS_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tandem/data.h"
#include "where.h"

/* A path in this program's own folder under the build tree. */
static inline const char *own_path(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, 512, "%s/test-data-%d", TD_BINARY_DIR, (int)getpid());
    (void)mkdir(path, 0777);
    (void)snprintf(path, 512, "%s/test-data-%d/%s", TD_BINARY_DIR, (int)getpid(), name);
    return path;
}

static inline int remove_own_folder(void **state)
{
    (void)state;
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s/test-data-%d'", TD_BINARY_DIR, (int)getpid());
    return system(command);
}

/* Writes bytes and returns the path. */
static inline const char *write_bytes(const char *name, const void *bytes, size_t n)
{
    const char *path = own_path(name);
    (void)unlink(path); /* some file systems wait for the disk when a file is cut to nothing */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

/* A file of the shared data (beside the project, or where TANDEM_TEST_DATA says), or NULL where it is not there. */
static inline const char *shared_data(const char *name)
{
    static char path[512];
    const char *folder = getenv("TANDEM_TEST_DATA");
    if (folder)
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    else
        (void)snprintf(path, sizeof path, "%s/../shared/data/%s", TD_SOURCE_DIR, name);
    if (access(path, R_OK) == 0)
        return path;
    printf("skipped: %s is not there; this data may not be copied into the project\n", path);
    return NULL;
}

static inline void expect_ok(td_status *status)
{
    if (status)
        print_error("%s\n", td_status_message(status));
    assert_null(status);
}

/* The status has this code and its message contains `part`. */
static inline void expect_error(td_status *status, td_code code, const char *part)
{
    if (td_status_code(status) != code || !strstr(td_status_message(status), part))
        print_error("code %d, message: %s\n", (int)td_status_code(status), td_status_message(status));
    assert_int_equal(td_status_code(status), code);
    assert_non_null(strstr(td_status_message(status), part));
    td_status_destroy(status);
}

#endif
