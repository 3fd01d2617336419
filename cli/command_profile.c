/* tandem profile: what the trace of a run shows. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/profile_self_test.h"
#include "cli/profile_view.h"
#include "profiler/export.h"
#include "profiler/report.h"

/* A recording, opened for questions. */
typedef struct opened {
    char *path;
    td_job_traces *job;
    td_analysis *analysis;
} opened;

static void close_trace(opened *o)
{
    td_analysis_destroy(o->analysis);
    td_job_traces_destroy(o->job);
    td_free(o->path);
}

static td_status *number_of(const td_arguments *arguments, const char *option, int64_t fallback, int64_t *out)
{
    double number = 0;
    TD_TRY(td_argument_number(arguments, option, (td_number_range){0, INT32_MAX, true}, (double)fallback, &number));
    *out = (int64_t)number;
    return NULL;
}

static td_status *open_trace(const char *path, opened *o)
{
    TD_TRY(td_trace_locate(path, &o->path));
    return td_job_traces_read(o->path, &o->job);
}

static td_status *analyse(const td_arguments *arguments, opened *o)
{
    int64_t window = -1, rank = -1, worker = -1;
    TD_TRY(number_of(arguments, "--window", -1, &window));
    TD_TRY(number_of(arguments, "--rank", -1, &rank));
    TD_TRY(number_of(arguments, "--worker", -1, &worker));
    td_whose whose = {.rank = (int32_t)rank, .worker = (int32_t)worker};
    return td_status_prefix(td_analysis_create_of(o->job, whose, (int32_t)window, &o->analysis), "%s", o->path);
}

/* ---- exports ---------------------------------------------------------------------------------------------------------------------- */

/* Whether a file was asked for; said once it is there. */
static const char *wants(const td_arguments *arguments, const char *option, bool *out_any)
{
    const char *path = td_argument(arguments, option);
    *out_any = *out_any || path;
    return path;
}

static td_status *say(const td_arguments *arguments, const char *path, td_status *status)
{
    if (!status)
        fprintf(arguments->out, "%s\n", path);
    return status;
}

static td_status *export_timeline(const td_arguments *arguments, const td_trace *trace, bool *out_any)
{
    const char *path;
    if ((path = wants(arguments, "--chrome", out_any)))
        TD_TRY(say(arguments, path, td_export_chrome(trace, path)));
    if ((path = wants(arguments, "--perfetto", out_any)))
        TD_TRY(say(arguments, path, td_export_perfetto(trace, path)));
    return NULL;
}

/* Timelines need no analysis; those of a job have every rank. */
static td_status *export_timelines(const td_arguments *arguments, const opened *o, bool *out_any)
{
    td_trace *merged = NULL;
    if (!td_argument(arguments, "--chrome") && !td_argument(arguments, "--perfetto"))
        return NULL;
    if (o->job->n == 1)
        return export_timeline(arguments, o->job->ranks[0].trace, out_any);
    TD_TRY(td_job_traces_merge(o->job, &merged));
    td_status *status = export_timeline(arguments, merged, out_any);
    td_trace_destroy(merged);
    return status;
}

static td_status *export_reports(const td_arguments *arguments, opened *o, bool *out_any)
{
    const char *path;
    if (td_argument(arguments, "--csv") || td_argument(arguments, "--html"))
        TD_TRY(analyse(arguments, o));
    if ((path = wants(arguments, "--csv", out_any)))
        TD_TRY(say(arguments, path, td_export_csv(o->analysis, path)));
    if ((path = wants(arguments, "--html", out_any)))
        TD_TRY(say(arguments, path, td_export_html(o->analysis, path)));
    return NULL;
}

/* ---- showing ---------------------------------------------------------------------------------------------------------------------- */

static td_status *show_json(const td_arguments *arguments, const opened *o, int64_t step)
{
    json_t *json = NULL;
    if (td_argument_flag(arguments, "--curves"))
        TD_TRY(td_report_curves_json(o->analysis, 0, INT64_MAX, &json));
    else if (td_argument(arguments, "--step"))
        TD_TRY(td_report_step_json(o->analysis, step, &json));
    else
        TD_TRY(td_report_json(o->analysis, &json));
    return td_json_print(json, arguments->out);
}

static td_status *show(const td_arguments *arguments, opened *o)
{
    int64_t step = 0;
    bool exported = false;
    TD_TRY(number_of(arguments, "--step", 0, &step));
    TD_TRY(export_timelines(arguments, o, &exported));
    TD_TRY(export_reports(arguments, o, &exported));
    if (exported)
        return NULL;
    TD_TRY(analyse(arguments, o));
    if (td_argument_flag(arguments, "--json") || td_argument_flag(arguments, "--curves"))
        return show_json(arguments, o, step);
    if (td_argument(arguments, "--step"))
        return td_profile_print_step(o->analysis, step, arguments->out);
    if (td_argument_flag(arguments, "--op-info"))
        return td_profile_print_op_info(o->analysis, arguments->out);
    TD_TRY(td_profile_print_steps(o->analysis, arguments->out));
    TD_TRY(td_profile_print_micros(o->analysis->steps, o->analysis->steps->micro_average, arguments->out));
    TD_TRY(td_profile_print_overlaps(o->analysis->overlaps, -1, arguments->out));
    if (o->analysis->ranks)
        TD_TRY(td_profile_print_ranks(o->analysis->ranks, arguments->out));
    TD_TRY(td_profile_print_ops(o->analysis, arguments->out));
    return td_profile_print_rest(o->analysis, arguments->out);
}

/* ---- two recordings --------------------------------------------------------------------------------------------------------------- */

/* Times of different work say nothing about each other: nobody should be told that one is faster. */
static td_status *check_work(const td_arguments *arguments, const opened *before, const opened *after,
                             const td_diff *diff)
{
    char text[1024];
    if (diff->same_work || td_argument_flag(arguments, "--anyway"))
        return NULL;
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s and %s recorded different work: %s", before->path,
                                   after->path, td_diff_unlike_text(diff, true, text, sizeof text)),
                          "to compare their times all the same: --anyway");
}

static td_status *show_diff(const td_arguments *arguments, const opened *before, const opened *after)
{
    td_diff *diff = NULL;
    double least = 0;
    TD_TRY(td_argument_number(arguments, "--least", (td_number_range){0, 0.999, false}, 0.02, &least));
    TD_TRY(td_diff_create(before->analysis, after->analysis, least, &diff));
    const td_diff_row *step = &diff->rows[0];
    td_status *status = check_work(arguments, before, after, diff);
    if (!status)
        status = td_argument_flag(arguments, "--json") ? td_profile_print_diff_json(diff, arguments->out)
                                                       : td_profile_print_diff(diff, arguments->out);
    if (!status && diff->slower)
        status = TD_ERROR(TD_DATA_ERROR, "%s: a step takes %s, %s more than in %s; up to %s would be noise",
                          after->path, td_format_seconds((td_unit_text){0}.text, 1e-9 * step->after_ns),
                          td_format_seconds((td_unit_text){0}.text, 1e-9 * (step->after_ns - step->before_ns)),
                          before->path, td_format_seconds((td_unit_text){0}.text, 1e-9 * step->band_ns));
    td_diff_destroy(diff);
    return status;
}

static td_status *run_diff(const td_arguments *arguments)
{
    opened before = {0}, after = {0};
    if (arguments->n_words != 3)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "profile: diff takes two recordings"),
                              "usage: tandem profile diff BEFORE AFTER");
    td_status *status = open_trace(arguments->words[1], &before);
    if (!status)
        status = analyse(arguments, &before);
    if (!status)
        status = open_trace(arguments->words[2], &after);
    if (!status)
        status = analyse(arguments, &after);
    if (!status)
        status = show_diff(arguments, &before, &after);
    close_trace(&before);
    close_trace(&after);
    return status;
}

static td_status *run(const td_arguments *arguments)
{
    opened o = {0};
    if (td_argument_flag(arguments, "--self-test") && !arguments->n_words)
        return td_profile_self_test(td_argument_flag(arguments, "--json"), arguments->out);
    if (arguments->n_words && !strcmp(arguments->words[0], "diff"))
        return run_diff(arguments);
    for (size_t i = 0; i < 2; i++)
        if (td_argument(arguments, (const char *[]){"--least", "--anyway"}[i]))
            return td_status_help(
                TD_ERROR(TD_INVALID_ARGUMENT, "profile: --least and --anyway mean nothing without diff"),
                "usage: tandem profile diff BEFORE AFTER [--least SHARE] [--anyway]");
    if (arguments->n_words != 1 || td_argument_flag(arguments, "--self-test"))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "profile: it takes one run or trace"),
                              "usage: tandem profile %s", arguments->command->usage);
    td_status *status = open_trace(arguments->words[0], &o);
    if (!status)
        status = show(arguments, &o);
    close_trace(&o);
    return status;
}

static const td_command_option options[] = {
    {"--step", "N", "one step: its critical path, piece by piece"},
    {"--curves", NULL, "curves over steps of all that the step trace has, as JSON"},
    {"--op-info", NULL, "every op: count, shapes, dtypes, attributes; those that the planner inserted are marked"},
    {"--chrome", "FILE", "write the trace as Chrome's JSON"},
    {"--perfetto", "FILE", "write the trace for ui.perfetto.dev (.pftrace)"},
    {"--csv", "DIR", "write step trace, op details and op types as CSV, in the columns of MindSpore's profiler"},
    {"--html", "FILE", "write the report as one page"},
    {"--least", "SHARE", "diff: smaller differences never count (0.02)"},
    {"--anyway", NULL, "diff: recordings of different work too, such as of two models"},
    {"--self-test", NULL, "measure what recording costs here"},
    {"--rank", "N", "of a job under mpirun: the rank whose steps are shown; without it the first"},
    {"--worker", "N", "of a job: the worker whose steps are shown, where a rank runs several since another was lost"},
    {"--window", "N", "which recorded window of the trace, from 0; without it the last"},
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

static const char *const notes[] = {
    "RUN: a folder of tandem train --profile; its newest trace is shown. TRACE: a .tdt file.",
    "diff ends with code 1 when the step takes longer beyond noise, with 2 when the recordings are of different work "
    "(docs/profiler.md).",
    NULL,
};

/* A question each; files may be any number. */
static const td_option_pair excludes[] = {{"--step", "--curves"},  {"--step", "--op-info"}, {"--curves", "--op-info"},
                                          {"--op-info", "--json"}, {"--chrome", "--json"},  {"--perfetto", "--json"},
                                          {"--csv", "--json"},     {"--html", "--json"},    {NULL, NULL}};

const td_command td_command_profile = {
    .name = "profile",
    .summary = "shows where the time of recorded steps went",
    .usage = "RUN|TRACE [--step N] [--curves] [--op-info] [--rank N | --worker N] [--window N] [--json] | diff BEFORE "
             "AFTER | "
             "--self-test",
    .least = 0,
    .most = 3,
    .options = options,
    .excludes = excludes,
    .notes = notes,
    .run = run,
};
