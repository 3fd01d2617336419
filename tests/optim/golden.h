/* Reads a case of tests/golden/optimizers: one vector, its gradients, and the FP64 values after each step. Knows just
 * enough JSON for those files: a key is looked up by its quoted text, an array read as the numbers up to its end. */
#ifndef TANDEM_TESTS_OPTIM_GOLDEN_H
#define TANDEM_TESTS_OPTIM_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "optim/rule.h"
#include "where.h"

enum { GOLDEN_STEPS = 6 };

typedef struct golden {
    char *text;
    int64_t n;
    double *start, *gradients; /* [n], [steps, n] */
    td_optimizer given;
} golden;

static const char *golden_find(const char *text, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    return at ? at + strlen(quoted) : NULL;
}

/* `fallback` when the settings do not have it. A zero becomes TD_ZERO: the file says so explicitly. */
static double golden_setting(const golden *file, const char *key)
{
    const char *at = golden_find(golden_find(file->text, "settings"), key);
    const char *end = golden_find(file->text, "elements");
    if (!at || at > end)
        return 0;
    double value = strtod(at, NULL);
    return value != 0 ? value : TD_ZERO;
}

/* The numbers after `at`, brackets and commas skipped. */
static double *golden_numbers(const char *at, int64_t count)
{
    double *numbers = td_calloc((size_t)count, sizeof *numbers);
    for (int64_t i = 0; numbers && i < count; i++) {
        at += strspn(at, " [],\n");
        char *end;
        numbers[i] = strtod(at, &end);
        if (end == at)
            abort(); /* not the file this test was written for */
        at = end;
    }
    return numbers;
}

/* The values [steps, n] of "p" or of a state, and the tolerance [steps] of it. */
static double *golden_values(const golden *file, const char *key)
{
    const char *from = strcmp(key, "p") == 0 ? golden_find(file->text, "gradients") : golden_find(file->text, "state");
    return golden_numbers(golden_find(from, key), GOLDEN_STEPS * file->n);
}

static double *golden_tolerance(const golden *file, const char *key)
{
    return golden_numbers(golden_find(golden_find(file->text, "atol"), key), GOLDEN_STEPS);
}

static void golden_read_betas(const golden *file, td_optimizer *given)
{
    const char *at = golden_find(file->text, "betas");
    if (!at)
        return;
    double *betas = golden_numbers(at, 2);
    given->beta1 = betas[0];
    given->beta2 = betas[1];
    td_free(betas);
}

/* `name`: of the file; `rule`: of ours. */
static void golden_open(golden *file, const char *name, const char *rule)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/optimizers/%s.json", TD_SOURCE_DIR, name);
    FILE *stream = fopen(path, "rb");
    if (!stream)
        abort();
    enum { MOST_BYTES = 1 << 20 };
    file->text = td_calloc(1, MOST_BYTES);
    size_t bytes = fread(file->text, 1, MOST_BYTES - 1, stream);
    fclose(stream);
    file->text[bytes] = 0;
    file->n = (int64_t)strtod(golden_find(file->text, "elements"), NULL);
    file->start = golden_numbers(golden_find(file->text, "p0"), file->n);
    file->gradients = golden_numbers(golden_find(file->text, "gradients"), GOLDEN_STEPS * file->n);
    file->given = (td_optimizer){.name = rule,
                                 .lr = golden_setting(file, "lr"),
                                 .momentum = golden_setting(file, "momentum"),
                                 .epsilon = golden_setting(file, "eps"),
                                 .weight_decay = golden_setting(file, "weight_decay"),
                                 .alpha = golden_setting(file, "alpha"),
                                 .l1 = golden_setting(file, "l1"),
                                 .l2 = golden_setting(file, "l2"),
                                 .lr_power = golden_setting(file, "lr_power"),
                                 .initial_accumulator = golden_setting(file, "initial_accumulator"),
                                 .nesterov = strcmp(name, "nesterov") == 0};
    golden_read_betas(file, &file->given);
}

static void golden_close(golden *file)
{
    td_free(file->text);
    td_free(file->start);
    td_free(file->gradients);
}

#endif
