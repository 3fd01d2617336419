/* What the tests of training share: a folder of their own with a small configuration in it, the program run in this process, and
 * looking into the files that it leaves. */
#ifndef TANDEM_TESTS_CLI_RUNS_H
#define TANDEM_TESTS_CLI_RUNS_H

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <jansson.h>

#include "cli/command.h"
#include "where.h"

static char folder[256];
static char out[1 << 20], errors[1 << 16];

/* Runs `tandem` with these words; returns its exit code. */
#define RUN(...) run_words((char *[]){"tandem", __VA_ARGS__, NULL})
static inline int run_words(char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    memset(out, 0, sizeof out);
    memset(errors, 0, sizeof errors);
    FILE *stream = fmemopen(out, sizeof out, "w"), *error_stream = fmemopen(errors, sizeof errors, "w");
    int code = td_program(argc, argv, stream, error_stream);
    fclose(stream);
    fclose(error_stream);
    return code;
}

#define SUCCEED(...)                                                                                                   \
    do {                                                                                                               \
        int code_ = RUN(__VA_ARGS__);                                                                                  \
        if (code_)                                                                                                     \
            print_message("%s\n", errors);                                                                             \
        assert_int_equal(code_, 0);                                                                                    \
    } while (0)

static const char *const configuration =
    "model: {name: dlrm, dim: 8, bottom: [16], top: [16]}\n"
    "data: {format: synthetic, batch: 64, train_rows: 1000, test_rows: 300, dense: 4, table_rows: [300, 100, 20]}\n"
    "devices: [cpu, {name: accel, backend: emulated, memory: 16MiB, cores: 1, link: 12GB/s}]\n"
    "placement: {default: accel, rules: [{match: \"table.*\", target: cpu}]}\n"
    "optimizer:\n"
    "  - {match: \"table.*\", name: lazy_adam, lr: 1e-2}\n"
    "  - {name: adam, lr: 1e-2, schedule: {kind: cosine, warmup_steps: 5}}\n"
    "train: {epochs: 2, log_every: 8}\n";

static inline int enter(void **state)
{
    (void)state;
    /* in memory where there is such a file system: these tests wait for the disk hundreds of times otherwise */
    snprintf(folder, sizeof folder, "%s/tandem_cli_XXXXXX", access("/dev/shm", W_OK) ? TD_BINARY_DIR : "/dev/shm");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    FILE *file = fopen("x.yaml", "w");
    fputs(configuration, file);
    return fclose(file);
}

static inline int leave(void **state)
{
    (void)state;
    char command[400];
    if (chdir(TD_BINARY_DIR))
        return 1;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static inline json_t *load(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        print_message("%s: %s\n", path, error.text);
    assert_non_null(json);
    return json;
}

static inline char *text_at(const char *path, const char *key)
{
    json_t *json = load(path);
    char *text = strdup(json_string_value(json_object_get(json, key)));
    json_decref(json);
    return text;
}

static inline int64_t integer_at(const char *path, const char *key)
{
    json_t *json = load(path);
    int64_t value = json_integer_value(json_object_get(json, key));
    json_decref(json);
    return value;
}

static inline void expect_same_parameters(const char *a, const char *b)
{
    char *x = text_at(a, "parameters_checksum"), *y = text_at(b, "parameters_checksum");
    assert_string_equal(x, y);
    free(x);
    free(y);
}

/* The program in a process of its own, `words` after its name (NULL ends them). What it writes to a stream (1: output, 2: errors) is
 * *out_stream, to be closed. */
static inline pid_t start_program_by(int number, const char *const *words, FILE **out_stream)
{
    int ends[2];
    char *argv[32] = {"tandem"};
    for (int i = 0; words[i]; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], number);
        close(ends[0]);
        close(ends[1]);
        execv(TD_BINARY_DIR "/tandem", argv);
        _exit(99);
    }
    close(ends[1]);
    *out_stream = fdopen(ends[0], "r");
    return child;
}

static inline pid_t start_program(const char *const *words, FILE **out_stream)
{
    return start_program_by(1, words, out_stream);
}

/* Reads lines until one begins with `start`; false when there are no more. */
static inline bool read_until(FILE *stream, const char *start)
{
    char line[512];
    while (fgets(line, sizeof line, stream))
        if (!strncmp(line, start, strlen(start)))
            return true;
    return false;
}

/* The exit code, or minus the signal that ended it. */
static inline int wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#endif
