/* usage: conformance [--backend DEVICE]... [--op NAME] [--tolerance X] [--exact] [--list] [--no-gradient]
 *     [--threads N]
 *
 * Runs the cases on each device: "cpu", "emulated:memory=64MiB", or the path of a shared object ("./mine.so:option=1");
 * by default on cpu and emulated. Prints one line per op and device; exits 0 only when all agree. Built-in devices must
 * support every op and are held to bits; others to --tolerance (1e-4 by default), unless --exact. --threads N runs each
 * case once, with N threads, beside the reference: enough for a tool that looks for races. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conformance.h"

enum { MAX_DEVICES = 8, MAX_FAILURES_SHOWN = 3 };

static const conformance_case *const tables[] = {lookup_cases, elementwise_cases, shape_cases,
                                                 matrix_cases, image_cases,       attention_cases,
                                                 update_cases, loss_cases,        optimizer_cases};

typedef struct options {
    const char *devices[MAX_DEVICES], *op;
    int n_devices;
    double tolerance;
    int32_t threads;
    bool exact, list, gradients;
} options;

/* What is known of one op on one device. */
typedef struct tally {
    int cases, runs, failures, unsupported;
    char reason[200];
} tally;

static bool report(const char *where, td_status *status, tally *t)
{
    if (!status)
        return true;
    if (t->failures++ < MAX_FAILURES_SHOWN)
        printf("     %s: %s\n", where, td_status_message(status));
    td_status_destroy(status);
    return false;
}

static void run_case(const conformance_device *device, const conformance_device *peer, const conformance_case *c,
                     tally *t)
{
    char where[300];
    snprintf(where, sizeof where, "%s \"%s\"%s%s", c->op, c->inputs, c->attrs ? " " : "", c->attrs ? c->attrs : "");
    built_case built;
    t->cases++;
    if (!report(where, case_build(c, NULL, &built), t))
        return;
    if (!device_supports(device, &built, t->reason, sizeof t->reason)) {
        t->unsupported++;
        t->failures += device->exact && !t->reason[0]; /* a refusal without a reason helps nobody */
    } else {
        int64_t extents[MAX_RUNS][N_EXTENTS];
        const int32_t n = case_extents(c, extents);
        for (int32_t i = 0; i < n; i++, t->runs++)
            if (!report(where, check_forward(device, peer, &built, extents[i]), t))
                break;
    }
    case_deinit(&built);
}

static bool print_tally(const char *device, const char *op, const tally *t, bool must_support)
{
    const bool failed = t->failures || (must_support && t->unsupported);
    const char *verdict = failed ? "FAIL" : t->unsupported == t->cases ? "none" : t->unsupported ? "part" : "ok";
    printf("%-4s %-32s %-10s %d cases, %d runs", verdict, op, device, t->cases, t->runs);
    if (t->unsupported)
        printf(", %d unsupported: %s", t->unsupported, t->reason);
    printf("\n");
    return !failed;
}

/* All cases of one op on one device. An op without a case fails. */
static bool check_op(const conformance_device *device, const conformance_device *peer, const td_op *op)
{
    tally t = {0};
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        for (const conformance_case *c = tables[k]; c->op; c++)
            if (strcmp(c->op, op->name) == 0)
                run_case(device, peer, c, &t);
    if (!t.cases) {
        printf("FAIL %-32s has no case in tests/conformance\n", op->name);
        return false;
    }
    return print_tally(device->api->name, op->name, &t, device->exact);
}

static bool check_op_gradient(const td_op *op)
{
    tally t = {0};
    int64_t checked = 0;
    if (!op->gradient)
        return true;
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        for (const conformance_case *c = tables[k]; c->op; c++) {
            int64_t numbers = 0;
            if (strcmp(c->op, op->name) == 0)
                report("gradient", check_gradient(c, &numbers), &t);
            checked += numbers;
        }
    if (!checked && !t.failures)
        printf("     it has a gradient, but no case tries it\n");
    printf("%-4s %-32s gradient   %" PRId64 " numbers\n", t.failures || !checked ? "FAIL" : "ok", op->name, checked);
    return !t.failures && checked;
}

static bool is_checked(const options *o, const td_op *op)
{
    /* host_call runs a function of the user's, remote ops ask other ranks: there is nothing to compare. */
    return (!o->op || strcmp(o->op, op->name) == 0) && strcmp(op->name, "host_call") != 0 &&
           !(op->flags & TD_OP_REMOTE);
}

static bool check_device(const options *o, const char *spec)
{
    conformance_device device, peer = {0};
    td_status *status = device_open(spec, &device);
    bool good = true;
    device.exact = device.exact || o->exact;
    device.tolerance = o->tolerance;
    device.threads = o->threads;
    const bool has_peer = !status && strcmp(device.api->name, "emulated") == 0;
    if (has_peer)
        status = device_open("cpu", &peer);
    if (status) {
        printf("FAIL %s: %s\n", spec, td_status_message(status));
        td_status_destroy(status);
        return false;
    }
    if (!o->op) {
        tally t = {.cases = 1, .runs = 1};
        report("queues", check_queues(&device), &t);
        good = print_tally(device.api->name, "(queues)", &t, true);
    }
    for (int32_t i = 0; i < td_op_count(); i++)
        if (is_checked(o, td_op_at(i)))
            good = check_op(&device, has_peer ? &peer : NULL, td_op_at(i)) && good;
    device_deinit(&peer);
    device_deinit(&device);
    return good;
}

static bool read_threads(const char *text, int32_t *out)
{
    char *end = NULL;
    const long n = strtol(text, &end, 10);
    *out = (int32_t)n;
    return end != text && !*end && n >= 1 && n <= 1024;
}

static bool read_tolerance(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return end != text && !*end && *out >= 0;
}

static bool parse(int argc, char **argv, options *o)
{
    *o = (options){.tolerance = 1e-4, .gradients = true};
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (strcmp(argv[i], "--backend") == 0 && more && o->n_devices < MAX_DEVICES)
            o->devices[o->n_devices++] = argv[++i];
        else if (strcmp(argv[i], "--op") == 0 && more)
            o->op = argv[++i];
        else if (strcmp(argv[i], "--tolerance") == 0 && more && read_tolerance(argv[i + 1], &o->tolerance))
            i++;
        else if (strcmp(argv[i], "--threads") == 0 && more && read_threads(argv[i + 1], &o->threads))
            i++;
        else if (strcmp(argv[i], "--exact") == 0)
            o->exact = true;
        else if (strcmp(argv[i], "--no-gradient") == 0)
            o->gradients = false;
        else if (strcmp(argv[i], "--list") == 0)
            o->list = true;
        else
            return false;
    }
    if (!o->n_devices) {
        o->devices[o->n_devices++] = "cpu";
        o->devices[o->n_devices++] = "emulated";
    }
    return true;
}

int main(int argc, char **argv)
{
    options o;
    bool good = true;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: conformance [--backend DEVICE]... [--op NAME] [--tolerance X] [--exact] [--list] "
                        "[--no-gradient] [--threads N]\n");
        return 2;
    }
    if (o.op && !td_op_find(o.op)) {
        fprintf(stderr, "conformance: there is no op \"%s\"; did you mean \"%s\"?\n", o.op, td_op_nearest(o.op));
        return 2;
    }
    for (int32_t i = 0; i < td_op_count() && o.list; i++)
        printf("%s\n", td_op_at(i)->name);
    for (int i = 0; i < o.n_devices && !o.list; i++)
        good = check_device(&o, o.devices[i]) && good;
    for (int32_t i = 0; i < td_op_count() && o.gradients && !o.list; i++)
        if (is_checked(&o, td_op_at(i)))
            good = check_op_gradient(td_op_at(i)) && good;
    return good ? 0 : 1;
}
