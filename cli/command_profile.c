/* tandem profile: what the trace of a run shows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/profile_view.h"
#include "profiler/report.h"

/* A trace, opened for questions. */
typedef struct opened {
    char *path;
    td_trace *trace;
    td_analysis *analysis;
} opened;

static void close_trace(opened *o)
{
    td_analysis_destroy(o->analysis);
    td_trace_destroy(o->trace);
    td_free(o->path);
}

static td_status *number_of(const td_arguments *arguments, const char *option, int64_t fallback, int64_t *out)
{
    const char *text = td_argument(arguments, option);
    char *end = NULL;
    *out = fallback;
    if (!text)
        return NULL;
    *out = strtoll(text, &end, 10);
    if (!*text || *end || *out < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s %s: not a number", option, text);
    return NULL;
}

static td_status *open_trace(const td_arguments *arguments, opened *o)
{
    int64_t window = -1;
    TD_TRY(number_of(arguments, "--window", -1, &window));
    TD_TRY(td_trace_locate(arguments->words[0], &o->path));
    TD_TRY(td_trace_read(o->path, &o->trace));
    return td_status_prefix(td_analysis_create(o->trace, (int32_t)window, &o->analysis), "%s", o->path);
}

static td_status *show(const td_arguments *arguments, const opened *o)
{
    int64_t step = 0;
    TD_TRY(number_of(arguments, "--step", 0, &step));
    if (td_argument_flag(arguments, "--json")) {
        json_t *json = NULL;
        TD_TRY(td_report_json(o->analysis, &json));
        return td_json_print(json, arguments->out);
    }
    if (td_argument(arguments, "--step"))
        return td_profile_print_step(o->analysis->steps, step, arguments->out);
    if (td_argument_flag(arguments, "--op-info"))
        return td_profile_print_op_info(o->analysis, arguments->out);
    TD_TRY(td_profile_print_steps(o->analysis->steps, arguments->out));
    TD_TRY(td_profile_print_ops(o->analysis, arguments->out));
    return td_profile_print_rest(o->analysis, arguments->out);
}

static td_status *run(const td_arguments *arguments)
{
    opened o = {0};
    td_status *status = open_trace(arguments, &o);
    if (!status)
        status = show(arguments, &o);
    close_trace(&o);
    return status;
}

static const td_command_option options[] = {
    {"--step", "N", "one step: its critical path, piece by piece"},
    {"--op-info", NULL, "every op: count, shapes, dtypes, attributes; those that the planner inserted are marked"},
    {"--window", "N", "which recorded window of the trace, from 0; without it the last"},
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

const td_command td_command_profile = {
    .name = "profile",
    .summary = "shows where the time of recorded steps went",
    .usage = "RUN|TRACE [--step N] [--op-info] [--window N] [--json]",
    .least = 1,
    .most = 1,
    .options = options,
    .run = run,
};
