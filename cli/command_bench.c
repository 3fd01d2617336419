/* tandem bench: a configuration beside a single device (cli/bench_against.c), or a built-in case by itself (bench/). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/units.h"
#include "bench/bench.h"
#include "cli/bench_against.h"
#include "cli/json.h"
#include "cli/table.h"

/* ---- what was asked for --------------------------------------------------------------------------------------------------- */

/* The options that say a number for a case; --alpha takes fractions, and 0 for uniform ids. */
typedef struct number_option {
    const char *name;
    double least, most;
} number_option;
enum { BATCH, ROWS, TABLES, DIM, BAG, ALPHA, THREADS, RUNS, NUMBER_OPTIONS };
static const number_option numbers[NUMBER_OPTIONS] = {
    {"--batch", 1, 1 << 24}, {"--rows", 1, 1e12}, {"--tables", 1, 1000},  {"--dim", 1, 1 << 20},
    {"--bag", 1, 1 << 24},   {"--alpha", 0, 10},  {"--threads", 1, 4096}, {"--runs", 1, 1000000},
};

enum { MOST_LOSSES = 1000 };
static const number_option losses_option = {"--losses", 1, MOST_LOSSES};

static td_status *read_number(const td_arguments *arguments, const number_option *option, bool whole, double *out)
{
    return td_argument_number(arguments, option->name, (td_number_range){option->least, option->most, whole}, 0, out);
}

static td_status *read_request(const td_arguments *arguments, td_bench_request *out)
{
    double given[NUMBER_OPTIONS];
    for (int i = 0; i < NUMBER_OPTIONS; i++)
        TD_TRY(read_number(arguments, &numbers[i], i != ALPHA, &given[i]));
    *out = (td_bench_request){.batch = (int64_t)given[BATCH],
                              .rows = (int64_t)given[ROWS],
                              .tables = (int64_t)given[TABLES],
                              .dim = (int64_t)given[DIM],
                              .bag = (int64_t)given[BAG],
                              .alpha = given[ALPHA],
                              .threads = (int32_t)given[THREADS],
                              .runs = (int32_t)given[RUNS]};
    out->no_bound = td_argument_flag(arguments, "--no-bound");
    out->ops = td_argument_flag(arguments, "--ops");
    if (td_argument(arguments, "--alpha") && given[ALPHA] == 0)
        out->alpha = TD_BENCH_UNIFORM;
    return NULL;
}

static td_status *unknown_case(const char *name)
{
    const char *nearest = td_bench_nearest(name);
    char meant[TD_MEANT];
    return td_status_help(
        TD_ERROR(TD_INVALID_ARGUMENT, "bench: unknown case \"%s\"%s", name, td_meant(meant, name, nearest)),
        "see: tandem bench --list");
}

/* ---- output --------------------------------------------------------------------------------------------------------------- */

/* As many digits as say something, at most `digits` of them after the point. */
static double rounded(double value, double digits)
{
    return (double)(int64_t)(value * digits + 0.5) / digits;
}

/* JSON's null where the machine was not measured. */
static json_t *limits_json(const td_machine_limits *limits)
{
    if (!limits->copy_bytes)
        return json_null();
    json_t *json =
        json_pack("{s:f, s:f, s:f, s:f, s:f}", "gflops", rounded(1e-9 * limits->flops, 10), "gflops_one",
                  rounded(1e-9 * limits->flops_one, 10), "copy_gb_per_s", rounded(1e-9 * limits->copy_bytes, 10),
                  "stream_gb_per_s", rounded(1e-9 * limits->stream_bytes, 10), "gather_gb_per_s",
                  rounded(1e-9 * limits->gather_bytes, 10));
    if (json && limits->flops_bf16 > 0)
        json_object_set_new(json, "gflops_bf16", json_real(rounded(1e-9 * limits->flops_bf16, 10)));
    return json;
}

static json_t *fact_json(const td_bench_fact *fact)
{
    bool whole = fact->value == (double)(int64_t)fact->value || !strcmp(fact->name, "samples_per_s");
    return whole ? json_integer((json_int_t)(fact->value + 0.5)) : json_real(rounded(fact->value, 1e4));
}

/* [{name, op, ms}], slowest first; NULL where there was no memory. */
static json_t *ops_json(const td_bench_result *result)
{
    json_t *ops = json_array();
    for (int32_t i = 0; i < result->n_ops; i++)
        json_array_append_new(ops, json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", result->ops[i].name, "op",
                                             result->ops[i].op, "ms", rounded(1e3 * result->ops[i].seconds, 1e4),
                                             "flops", result->ops[i].flops, "bytes", result->ops[i].bytes));
    return ops;
}

static td_status *print_line(const td_bench_result *result, FILE *out)
{
    json_t *bound = result->bound_s > 0 ? json_real(rounded(1e3 * result->bound_s, 1e4)) : json_null();
    json_t *line = json_pack("{s:s, s:s, s:f, s:f, s:f, s:i, s:o, s:i}", "case", result->which->name, "peer", "tandem",
                             "median_ms", rounded(1e3 * result->median_s, 1e4), "q1_ms",
                             rounded(1e3 * result->q1_s, 1e4), "q3_ms", rounded(1e3 * result->q3_s, 1e4), "runs",
                             (int)result->runs, "bound_ms", bound, "threads", (int)result->threads);
    int failed = !line;
    for (int32_t i = 0; i < result->n_facts && !failed; i++)
        failed = json_object_set_new(line, result->facts[i].name, fact_json(&result->facts[i]));
    failed = failed || json_object_set_new(line, "machine", limits_json(&result->limits));
    if (result->ops)
        failed = failed || json_object_set_new(line, "ops", ops_json(result));
    char *text = failed ? NULL : json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(10));
    json_decref(line);
    if (!text)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a result as JSON");
    fprintf(out, "%s\n", text);
    free(text);
    return NULL;
}

static void print_limits(const td_bench_result *result, FILE *out)
{
    const td_machine_limits *limits = &result->limits;
    if (!limits->copy_bytes)
        return;
    fprintf(out, "  the machine, %s: products %.0f GFLOP/s (one thread %.0f)", TD_COUNTED(result->threads, "thread"),
            1e-9 * limits->flops, 1e-9 * limits->flops_one);
    if (limits->flops_bf16 > 0)
        fprintf(out, ", in bf16 %.0f", 1e-9 * limits->flops_bf16);
    fprintf(out, ", copies %.1f GB/s", 1e-9 * limits->copy_bytes);
    if (result->stream_bytes > 0)
        fprintf(out, " (of as much as a step streams %.1f)", 1e-9 * limits->stream_bytes);
    if (limits->gather_bytes > 0)
        fprintf(out, ", rows of %.0f bytes at random %.1f GB/s", result->row_size, 1e-9 * limits->gather_bytes);
    fputc('\n', out);
}

/* What an op reached, and how many times as long it took as its flops at the peak or its bytes at the copy rate, whichever is
 * longer, would; below 1 where its bytes come from the cache. */
static void rates_of(const td_bench_result *result, const td_bench_op *op, char flops[32], char limit[32])
{
    const td_machine_limits *limits = &result->limits;
    const double peak = td_machine_peak(limits);
    double compute = peak > 0 ? op->flops / peak : 0;
    double memory = limits->copy_bytes > 0 ? op->bytes / limits->copy_bytes : 0;
    double bound = compute > memory ? compute : memory;
    (void)snprintf(flops, 32, "%.1f", 1e-9 * op->flops / op->seconds);
    if (bound > 0)
        (void)snprintf(limit, 32, "%.1f times", op->seconds / bound);
    else
        (void)snprintf(limit, 32, "-");
}

/* The slowest ops, and the rest in one line. */
static td_status *print_ops(const td_bench_result *result, FILE *out)
{
    enum { MOST = 30 };
    char time[TD_UNIT_TEXT], share[16], rest[32], flops[32], bytes[TD_UNIT_TEXT], limit[32];
    double sum = 0, left = 0;
    for (int32_t i = 0; i < result->n_ops; i++) {
        sum += result->ops[i].seconds;
        left += i >= MOST ? result->ops[i].seconds : 0;
    }
    td_table table;
    td_table_init(&table, 7);
    td_table_row(&table, "node", "op", "a step", "share", "GFLOP/s", "traffic", "of the limit");
    for (int32_t i = 0; i < result->n_ops && i < MOST; i++) {
        (void)snprintf(share, sizeof share, "%.1f %%", 100 * result->ops[i].seconds / sum);
        rates_of(result, &result->ops[i], flops, limit);
        td_table_row(&table, result->ops[i].name, result->ops[i].op, td_format_seconds(time, result->ops[i].seconds),
                     share, flops, td_format_rate(bytes, result->ops[i].bytes / result->ops[i].seconds), limit);
    }
    if (result->n_ops > MOST) {
        (void)snprintf(rest, sizeof rest, "%d more", result->n_ops - MOST);
        (void)snprintf(share, sizeof share, "%.1f %%", 100 * left / sum);
        td_table_row(&table, rest, "", td_format_seconds(time, left), share, "", "", "");
    }
    td_table_row(&table, "all", "", td_format_seconds(time, sum), "", "", "", "");
    return td_table_print(&table, "  ", out);
}

static td_status *print_text(const td_bench_result *result, FILE *out)
{
    char time[3][TD_UNIT_TEXT], bound[TD_UNIT_TEXT];
    fprintf(out, "%s: %s, quarters %s and %s, %s\n", result->which->name, td_format_seconds(time[0], result->median_s),
            td_format_seconds(time[1], result->q1_s), td_format_seconds(time[2], result->q3_s),
            TD_COUNTED(result->runs, "run"));
    if (result->bound_s > 0)
        fprintf(out, "  the machine's limit %s: %.2f times that\n", td_format_seconds(bound, result->bound_s),
                result->median_s / result->bound_s);
    for (int32_t i = 0; i < result->n_facts; i++)
        fprintf(out, "%s%s %.10g", i ? ", " : "  ", result->facts[i].name, rounded(result->facts[i].value, 1e3));
    if (result->n_facts)
        fputc('\n', out);
    print_limits(result, out);
    return result->ops ? print_ops(result, out) : NULL;
}

static td_status *print_list(const td_arguments *arguments)
{
    if (td_argument_flag(arguments, "--json")) {
        json_t *all = json_array();
        for (int32_t i = 0; i < td_bench_count(); i++)
            json_array_append_new(
                all, json_pack("{s:s, s:s}", "case", td_bench_at(i)->name, "summary", td_bench_at(i)->summary));
        return td_json_print(all, arguments->out);
    }
    td_table table;
    td_table_init(&table, 2);
    td_table_row(&table, "case", "one step of");
    for (int32_t i = 0; i < td_bench_count(); i++)
        td_table_row(&table, td_bench_at(i)->name, td_bench_at(i)->summary);
    return td_table_print(&table, "", arguments->out);
}

/* ---- the command ------------------------------------------------------------------------------------------------------------ */

static td_status *print_losses(const td_bench_case *which, const td_arguments *arguments,
                               const td_bench_request *request)
{
    float losses[MOST_LOSSES];
    double given = 0;
    TD_TRY(read_number(arguments, &losses_option, true, &given));
    TD_TRY(td_bench_losses(which, request, td_argument(arguments, "--export"), (int32_t)given, losses));
    if (!td_argument_flag(arguments, "--json")) {
        for (int32_t i = 0; i < (int32_t)given; i++)
            fprintf(arguments->out, "step %d  loss %.9g\n", i + 1, (double)losses[i]);
        return NULL;
    }
    json_t *array = json_array();
    for (int32_t i = 0; i < (int32_t)given; i++)
        json_array_append_new(array, isfinite(losses[i]) ? json_real((double)losses[i]) : json_null());
    return td_json_print(json_pack("{s:s, s:o}", "case", which->name, "losses", array), arguments->out);
}

static td_status *run_case(const td_arguments *arguments, const char *name)
{
    const td_bench_case *which = td_bench_find(name);
    td_bench_request request;
    td_bench_result result;
    if (!which)
        return unknown_case(name);
    TD_TRY(read_request(arguments, &request));
    if (td_argument(arguments, "--losses"))
        return print_losses(which, arguments, &request);
    TD_TRY(td_bench_run(which, &request, &result));
    if (result.elsewhere)
        return NULL;
    td_status *status = td_argument_flag(arguments, "--json") ? print_line(&result, arguments->out)
                                                              : print_text(&result, arguments->out);
    td_bench_result_deinit(&result);
    return status;
}

static td_status *run(const td_arguments *arguments)
{
    const char *name = td_argument(arguments, "--case");
    if (arguments->n_words && (name || td_argument_flag(arguments, "--list")))
        return TD_ERROR(TD_INVALID_ARGUMENT, "bench: a configuration and %s exclude each other",
                        name ? "--case" : "--list");
    if (td_argument_flag(arguments, "--list"))
        return print_list(arguments);
    if (name)
        return run_case(arguments, name);
    if (arguments->n_words)
        return td_bench_against(arguments);
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "bench: something is missing"), "usage: tandem bench %s",
                          arguments->command->usage);
}

static const td_command_option options[] = {
    {"--against", "DEVICE", "single: all on the default device, its memory limit lifted; or a device's name"},
    {"--steps", "N", "measured steps of each side (default 40)"},
    TD_OPTION_SET,
    {"--case", "NAME", "a built-in case instead of a configuration"},
    {"--list", NULL, "the built-in cases"},
    {"--batch", "N", "of a case: samples a step"},
    {"--rows", "N", "of a case: rows of a table, at most"},
    {"--tables", "N", "of embedding.*: tables"},
    {"--dim", "N", "of embedding.*: columns of a table"},
    {"--bag", "N", "of embedding.*: ids in a bag"},
    {"--alpha", "X", "of embedding.*: Zipf exponent of the ids; 0: uniform"},
    {"--threads", "N", "of a case: cores (default: all that are allowed)"},
    {"--runs", "N", "of a case: timed steps"},
    {"--no-bound", NULL, "of a case: the machine's limits are not measured beside it"},
    {"--ops", NULL, "of a case: what each op takes of a step, too"},
    {"--losses", "N", "of a case: the losses of its first N steps instead of times"},
    {"--export", "FILE", "with --losses: initial values and batches as safetensors"},
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

static const td_option_pair goes_with[] = {{"--batch", "--case"},    {"--rows", "--case"},   {"--tables", "--case"},
                                           {"--dim", "--case"},      {"--bag", "--case"},    {"--alpha", "--case"},
                                           {"--threads", "--case"},  {"--runs", "--case"},   {"--no-bound", "--case"},
                                           {"--ops", "--case"},      {"--losses", "--case"}, {"--export", "--losses"},
                                           {"--steps", "--against"}, {"--set", "--against"}, {NULL, NULL}};
static const td_option_pair excludes[] = {
    {"--case", "--against"}, {"--case", "--list"}, {"--list", "--against"}, {"--losses", "--ops"}, {NULL, NULL}};

const td_command td_command_bench = {
    .name = "bench",
    .summary = "measures a configuration side by side with a single device, or a built-in case",
    .usage = "CONFIG --against single | --case NAME | --list  [--json]",
    .least = 0,
    .most = 1,
    .options = options,
    .goes_with = goes_with,
    .excludes = excludes,
    .run = run,
};
