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
    td_view *view;
    td_step_trace *steps;
} opened;

static void close_trace(opened *o)
{
    td_step_trace_destroy(o->steps);
    td_view_destroy(o->view);
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
    TD_TRY(td_status_prefix(td_view_create(o->trace, (int32_t)window, &o->view), "%s", o->path));
    return td_step_trace_create(o->view, &o->steps);
}

static td_status *show(const td_arguments *arguments, const opened *o)
{
    int64_t step = 0;
    TD_TRY(number_of(arguments, "--step", 0, &step));
    if (td_argument_flag(arguments, "--json")) {
        json_t *json = NULL;
        TD_TRY(td_report_json(o->steps, &json));
        return td_json_print(json, arguments->out);
    }
    if (td_argument(arguments, "--step"))
        return td_profile_print_step(o->steps, step, arguments->out);
    return td_profile_print_steps(o->steps, arguments->out);
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
    {"--window", "N", "which recorded window of the trace, from 0; without it the last"},
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

const td_command td_command_profile = {
    .name = "profile",
    .summary = "shows where the time of recorded steps went",
    .usage = "RUN|TRACE [--step N] [--window N] [--json]",
    .least = 1,
    .most = 1,
    .options = options,
    .run = run,
};
