/* Files of a fuzzer: see fuzz.h. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static char folder[64];

static void remove_folder(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        (void)fprintf(stderr, "%s stays behind\n", folder);
}

const char *fuzz_path(const char *name)
{
    static char paths[8][256];
    static int turn;
    if (!folder[0]) {
        (void)snprintf(folder, sizeof folder, "%s/tandem-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        FUZZ_CHECK(mkdtemp(folder));
        FUZZ_CHECK(atexit(remove_folder) == 0);
    }
    char *path = paths[turn++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void fuzz_write(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file);
    FUZZ_CHECK(fwrite(data, 1, size, file) == size);
    FUZZ_CHECK(fclose(file) == 0);
}

size_t fuzz_read(const char *path, uint8_t *buffer, size_t room)
{
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file);
    size_t n = fread(buffer, 1, room, file);
    FUZZ_CHECK(fclose(file) == 0);
    return n;
}
