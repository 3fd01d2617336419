/* What stands in the driver's place with clang's -fsanitize=fuzzer (cmake --preset fuzz): seeds become files of a corpus folder that
 * libFuzzer is told of; coverage tells it what is new. */
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

void fuzz_outcome(const char *text)
{
    (void)text;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static uint8_t seed[1 << 16];
    static char folder[256], *words[64];
    int n = *argc < 62 ? *argc : 62;
    (void)snprintf(folder, sizeof folder, "%s", fuzz_path("corpus"));
    FUZZ_CHECK(mkdir(folder, 0777) == 0);
    for (int i = 0; i < 64; i++) {
        char name[32];
        size_t size = fuzz_seed(i, seed, sizeof seed);
        if (!size)
            break;
        (void)snprintf(name, sizeof name, "corpus/%d", i);
        fuzz_write(fuzz_path(name), seed, size);
    }
    for (int i = 0; i < n; i++)
        words[i] = (*argv)[i];
    words[n] = folder;
    *argc = n + 1;
    *argv = words;
    return 0;
}
