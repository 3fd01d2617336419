/* golden_check DIR: holds the engine against reference training cases.
 *
 *     golden_check DIR [--only CASE] [--devices cpu|cut|offload|half|auto]
 *
 * DIR has one folder per case (tools/golden_check/case.h) and, perhaps, optimizers/<rule>.json. Each case is trained as its
 * description says, on the host alone ("cpu"), cut over the host and an emulated accelerator ("cut"), and with the optimizer of
 * all that is on the accelerator offloaded ("offload"), half of it (offload.optimizer: {ratio: 0.5}, "half"), and as much as an
 * accelerator that is too small has no room for ("auto"), each pipelined and step by step, and once more step by step where
 * the norms of gradients are to be had by clipping alone. Compared are all losses, the gradients' norms, final parameters and optimizer state, within the case's tolerances; the other runs also with the host's, bit
 * for bit; bytes copied and held with the plan's. Rules are checked on the host, on the accelerator and offloaded. One line per
 * case and devices. Exit code: 0 all hold, 1 something deviates or could not run, 2 wrong usage. Cases of models that the engine
 * does not have yet are skipped, and named; asked for with --only, that is a failure. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "tests/tools/golden_check/rule.h"
#include "tests/tools/golden_check/train.h"

typedef struct request {
    const char *folder, *only;
    bool devices[GOLDEN_DEVICES];
} request;

static const char *const device_names[GOLDEN_DEVICES] = {"cpu", "cut", "offload", "half", "auto"};

typedef struct tally {
    int64_t cases, held, failed, skipped;
} tally;

static void report(tally *t, const char *name, const char *devices, const golden_deviations *deviations,
                   const char *what)
{
    t->cases++;
    if (!deviations->n) {
        t->held++;
        (void)printf("%-30s %-7s ok: %s\n", name, devices, what);
        return;
    }
    t->failed++;
    (void)printf("%-30s %-7s FAILED: %s", name, devices, deviations->first);
    if (deviations->n > 1)
        (void)printf(" (and %lld more)", (long long)deviations->n - 1);
    (void)printf("\n");
}

/* ---- training cases ---------------------------------------------------------------------------------------------------------- */

/* Trains in one more manner; compares with what is expected and, bit for bit, with the run for norms. */
static void check_manner(const golden_case *c, const golden_model *model, golden_devices devices, golden_manner manner,
                         const golden_trained *for_norms, golden_deviations *deviations)
{
    const char *name = manner == GOLDEN_PIPELINED ? "pipelined" : "step by step";
    golden_trained trained;
    golden_compared compared = {0};
    if (!golden_deviate_error(deviations, name, golden_train(c, model, devices, manner, &trained)) &&
        !golden_deviate_error(deviations, name, golden_compare(c, &trained, deviations, &compared)))
        golden_compare_bits(&trained, for_norms, manner == GOLDEN_PIPELINED ? "step by step" : "with norms",
                            deviations);
    golden_trained_deinit(&trained);
}

/* Step by step with norms, which stays, pipelined, and step by step as the case is where norms had it clipped. */
static void check_devices(const golden_case *c, const golden_model *model, golden_devices devices,
                          golden_trained *for_norms, golden_deviations *deviations, golden_compared *compared)
{
    const json_t *optimizer = json_object_get(c->expected, "optimizer");
    bool failed = golden_deviate_error(deviations, "", golden_train(c, model, devices, GOLDEN_FOR_NORMS, for_norms)) ||
                  golden_deviate_error(deviations, "", golden_compare(c, for_norms, deviations, compared));
    if (failed)
        return;
    check_manner(c, model, devices, GOLDEN_PIPELINED, for_norms, deviations);
    if (json_number_value(json_object_get(optimizer, "clip_norm")) == 0)
        check_manner(c, model, devices, GOLDEN_BY_STEPS, for_norms, deviations);
}

static void report_devices(const golden_case *c, const char *devices, const golden_deviations *deviations,
                           const golden_compared *compared, tally *t)
{
    char what[160];
    (void)snprintf(what, sizeof what, "%d losses, %d gradient norms, %d tensors%s", compared->losses,
                   compared->gradient_norms, compared->tensors, strcmp(devices, "cpu") != 0 ? ", the bits of cpu" : "");
    report(t, c->name, devices, deviations, what);
}

/* The host's run is what the others' bits are held against. */
static void check_model(const golden_case *c, const golden_model *model, const request *r, tally *t)
{
    golden_trained on_cpu = {0};
    golden_deviations of_cpu = {0};
    golden_compared compared = {0};
    check_devices(c, model, GOLDEN_CPU, &on_cpu, &of_cpu, &compared);
    if (r->devices[GOLDEN_CPU])
        report_devices(c, device_names[GOLDEN_CPU], &of_cpu, &compared, t);
    for (int d = GOLDEN_CUT; d < GOLDEN_DEVICES; d++) {
        golden_trained there = {0};
        golden_deviations deviations = {0};
        compared = (golden_compared){0};
        if (!r->devices[d])
            continue;
        check_devices(c, model, (golden_devices)d, &there, &deviations, &compared);
        if (on_cpu.n == c->n_steps && there.n == c->n_steps)
            golden_compare_bits(&there, &on_cpu, "on cpu", &deviations);
        else
            golden_deviate(&deviations, "cpu: %s", of_cpu.first);
        report_devices(c, device_names[d], &deviations, &compared, t);
        golden_trained_deinit(&there);
    }
    golden_trained_deinit(&on_cpu);
}

/* What of this case the engine does not have yet; NULL: nothing. */
static const char *later(const golden_case *c, char *text, size_t bytes)
{
    const char *type = json_string_value(json_object_get(json_object_get(c->expected, "model"), "type"));
    if (type && !golden_model_find(type))
        (void)snprintf(text, bytes, "model type %s comes later", type);
    else
        return NULL;
    return text;
}

static void check_training(const request *r, const char *name, tally *t)
{
    golden_case c = {0};
    golden_deviations deviations = {0};
    char text[160];
    char *folder = td_format("%s/%s", r->folder, name);
    json_t *model = NULL, *type = NULL;
    td_status *status = folder ? golden_case_open(&c, folder, name) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory");
    if (!status)
        status = golden_json_get(c.expected, "model", JSON_OBJECT, &model);
    if (!status)
        status = golden_json_get(model, "type", JSON_STRING, &type);
    const char *missing = status ? NULL : later(&c, text, sizeof text);
    if (golden_deviate_error(&deviations, "", status))
        report(t, name, "", &deviations, "");
    else if (!missing)
        check_model(&c, golden_model_find(json_string_value(type)), r, t);
    else {
        (void)printf("%-30s         skipped: %s\n", name, missing);
        t->cases++;
        t->skipped++;
        t->failed += r->only != NULL;
    }
    golden_case_close(&c);
    td_free(folder);
}

/* ---- optimizer rules ---------------------------------------------------------------------------------------------------------- */

static void check_rule(const request *r, const char *name, tally *t)
{
    char *path = td_format("%s/%s.json", r->folder, name);
    for (int d = GOLDEN_CPU; path && d <= GOLDEN_OFFLOAD; d++) {
        golden_deviations deviations = {0};
        int32_t compared = 0;
        char what[96];
        if (!r->devices[d])
            continue;
        (void)golden_deviate_error(&deviations, "", golden_rule_check(path, (golden_devices)d, &deviations, &compared));
        (void)snprintf(what, sizeof what, "%d vectors%s", compared, d != GOLDEN_CPU ? ", the bits of cpu" : "");
        report(t, name, device_names[d], &deviations, what);
    }
    td_free(path);
}

/* ---- the folder ---------------------------------------------------------------------------------------------------------------- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool is_wanted(const request *r, const char *name)
{
    return !r->only || strcmp(r->only, name) == 0;
}

static void check_rules(const request *r, tally *t)
{
    char *folder = td_format("%s/optimizers", r->folder);
    struct dirent **entries = NULL;
    int n = folder ? scandir(folder, &entries, is_visible, alphasort) : 0;
    if (n < 0 && errno != ENOENT) {
        golden_deviations deviations = {0};
        golden_deviate(&deviations, "cannot read the folder %s: %s", folder, strerror(errno));
        report(t, "optimizers", "", &deviations, "");
    }
    for (int i = 0; i < n; i++) {
        char *dot = strrchr(entries[i]->d_name, '.');
        if (dot && strcmp(dot, ".json") == 0) {
            *dot = 0;
            char *name = td_format("optimizers/%s", entries[i]->d_name);
            if (name && (is_wanted(r, name) || is_wanted(r, "optimizers")))
                check_rule(r, name, t);
            td_free(name);
        }
        free(entries[i]);
    }
    free(entries);
    td_free(folder);
}

/* A folder with any of the files of a case, so that one that lacks another is no silence, or one that cannot be looked into. */
static bool is_case(const request *r, const char *name)
{
    static const char *const files[] = {"expected.json", "init.safetensors", "batches.safetensors"};
    bool found = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++) {
        char *path = td_format("%s/%s/%s", r->folder, name, files[i]);
        found = path && (access(path, F_OK) == 0 || errno == EACCES);
        td_free(path);
    }
    return found;
}

static int check_folder(const request *r)
{
    tally t = {0};
    struct dirent **entries = NULL;
    int n = scandir(r->folder, &entries, is_visible, alphasort);
    if (n < 0) {
        (void)fprintf(stderr, "golden_check: cannot read the folder %s: %s\n", r->folder, strerror(errno));
        return 2;
    }
    for (int i = 0; i < n; i++) {
        if (is_wanted(r, entries[i]->d_name) && is_case(r, entries[i]->d_name))
            check_training(r, entries[i]->d_name, &t);
        free(entries[i]);
    }
    free(entries);
    check_rules(r, &t);
    if (!t.cases) {
        (void)fprintf(stderr, "golden_check: no case%s%s in %s\n", r->only ? " " : "", r->only ? r->only : "",
                      r->folder);
        return 2;
    }
    (void)printf("%lld held, %lld failed, %lld skipped\n", (long long)t.held, (long long)t.failed,
                 (long long)t.skipped);
    return t.failed ? 1 : 0;
}

static bool read_devices(const char *text, request *r)
{
    bool any = false;
    for (int d = 0; d < GOLDEN_DEVICES; d++) {
        r->devices[d] = strcmp(text, device_names[d]) == 0;
        any = any || r->devices[d];
    }
    return any;
}

int main(int argc, char **argv)
{
    request r = {.devices = {true, true, true, true, true}};
    bool good = true;
    for (int i = 1; i < argc && good; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--only") == 0 && has_value)
            r.only = argv[++i];
        else if (strcmp(argv[i], "--devices") == 0 && has_value)
            good = read_devices(argv[++i], &r);
        else if (argv[i][0] != '-' && !r.folder)
            r.folder = argv[i];
        else
            good = false;
    }
    if (good && r.folder)
        return check_folder(&r);
    (void)fprintf(stderr, "usage: golden_check DIR [--only CASE] [--devices cpu|cut|offload|half|auto]\n");
    return 2;
}
