/* Fuzzers: programs that must survive any bytes.
 *
 * A target, fuzz_<name>.c, defines LLVMFuzzerTestOneInput, which aborts (FUZZ_CHECK) where a promise is broken, and what the
 * driver begins with: fuzz_seed, fuzz_words. With clang's -fsanitize=fuzzer the target is linked without our driver and its
 * seeds come from files; everywhere else driver.c mutates the seeds.
 *
 *     build/asan-ubsan/tests/fuzz_tdg --seconds 60 --seed 7
 *     build/asan-ubsan/tests/fuzz_tdg FILE...                  the inputs of these files, once each
 *
 * An input that breaks a promise, crashes or hangs lies afterwards in the current folder, in a file that the driver names. */
#ifndef TANDEM_TESTS_FUZZ_H
#define TANDEM_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The index-th good input, written into `buffer` of `room` bytes; 0: there are no more. */
size_t fuzz_seed(int index, uint8_t *buffer, size_t room);
/* Words that such inputs are made of; NULL ends them. */
extern const char *const fuzz_words[];

/* Tells the driver what an input led to. One with an outcome that no other had is mutated further, so there must not be too many. */
void fuzz_outcome(const char *text);

/* Takes a status and tells which places in the source it came from. */
static inline td_code fuzz_take(td_status *status)
{
    td_code code = td_status_code(status);
    fuzz_outcome(td_status_trace(status));
    td_status_destroy(status);
    return code;
}

#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void fuzz_ok(td_status *status)
{
    if (status)
        (void)fprintf(stderr, "%s\n", td_status_message(status));
    FUZZ_CHECK(!status);
}

/* ---- files.c ---- */
/* A path in a folder of this program, in memory where there is such a file system; the folder goes when the program ends. */
const char *fuzz_path(const char *name);
void fuzz_write(const char *path, const void *data, size_t size);
/* Into `buffer`; returns the size. */
size_t fuzz_read(const char *path, uint8_t *buffer, size_t room);

#endif
