/* tandem plan: what would run where, in which bytes, and why; nothing is allocated for a run. */
#include <errno.h>
#include <string.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "base/string.h"
#include "cli/command.h"
#include "cli/distributed.h"
#include "cli/idle_keys.h"
#include "cli/json.h"
#include "cli/ledger_view.h"
#include "cli/plan_view.h"
#include "cli/recompute_view.h"
#include "runtime/remote.h"

static td_status *print_text(td_status *status, char *text, FILE *out)
{
    if (!status)
        fprintf(out, "%s%s", text, text[0] && text[strlen(text) - 1] != '\n' ? "\n" : "");
    td_text_free(text);
    return status;
}

/* Takes `text`. */
static td_status *write_text(char *text, const char *option, const char *path)
{
    FILE *file = fopen(path, "w");
    bool failed = !file || fputs(text, file) == EOF;
    int error = errno;
    if (file && fclose(file) && !failed) {
        failed = true;
        error = errno;
    }
    td_text_free(text);
    return failed ? td_status_prefix(td_file_error(path, file ? "write" : "create", error), "%s", option) : NULL;
}

static td_status *dump(const td_plan *plan, const char *pass, FILE *out)
{
    const char *const *names = NULL;
    int32_t n = td_plan_passes(&names);
    bool known = false;
    for (int32_t i = 0; i < n; i++)
        known |= !strcmp(names[i], pass);
    if (!known) {
        td_string list = {0};
        char *all = NULL;
        for (int32_t i = 0; i < n; i++)
            td_string_format(&list, "%s%s", i ? ", " : "", names[i]);
        TD_TRY(td_string_finish(&list, &all));
        td_status *status = td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT, "plan: --dump %s: there is no such pass", pass), "in order: %s", all);
        td_free(all);
        return status;
    }
    char *text = NULL;
    td_status *status = td_plan_dump(plan, pass, &text);
    return print_text(status, text, out);
}

/* The plan's facts, the ledger, and what train.recompute saves (`recompute`: taken; may be NULL). */
static td_status *show_json(const td_plan *plan, json_t *recompute, FILE *out)
{
    char *text = NULL;
    json_t *ledger = NULL;
    td_status *status = td_plan_json(plan, &text);
    if (!status)
        status = td_ledger_json(plan, &ledger);
    json_t *json = status ? NULL : json_loads(text, 0, NULL);
    td_text_free(text);
    if (status) {
        json_decref(recompute);
        return status;
    }
    bool good = json_object_set_new(json, "ledger", ledger) == 0;
    if (!good || (recompute && json_object_set(json, "recompute", recompute) != 0)) {
        json_decref(json);
        json = NULL; /* td_json_print says that there was no memory */
    }
    json_decref(recompute);
    return td_json_print(json, out);
}

static td_status *show_all(const td_arguments *arguments, td_setup *setup, const td_plan *plan)
{
    json_t *recompute = NULL;
    TD_TRY(td_recompute_json(setup, plan, &recompute));
    if (td_argument_flag(arguments, "--json"))
        return show_json(plan, recompute, arguments->out);
    td_status *status = td_plan_view_print(setup, plan, arguments->out);
    if (!status)
        td_recompute_print(recompute, arguments->out);
    json_decref(recompute);
    return status;
}

static td_status *show(const td_arguments *arguments, td_setup *setup, const td_plan *plan)
{
    const char *op = td_argument(arguments, "--explain"), *pass = td_argument(arguments, "--dump");
    const char *dot = td_argument(arguments, "--dot"), *tdg = td_argument(arguments, "--tdg");
    char *text = NULL;
    if (dot) {
        TD_TRY(td_plan_dot(plan, &text));
        TD_TRY(write_text(text, "--dot", dot));
    }
    if (tdg) {
        TD_TRY(td_graph_print(setup->graph, &text));
        TD_TRY(write_text(text, "--tdg", tdg));
    }
    if (op) {
        td_status *status = td_plan_explain(plan, op, &text);
        return print_text(status, text, arguments->out);
    }
    if (pass)
        return dump(plan, pass, arguments->out);
    bool json = td_argument_flag(arguments, "--json");
    return (dot || tdg) && !json ? NULL : show_all(arguments, setup, plan);
}

static td_status *run(const td_arguments *arguments)
{
    static const char *const texts[] = {"--explain", "--dump"};
    td_config *config = NULL;
    td_setup setup;
    td_plan *plan = NULL;
    td_remote job;
    for (size_t i = 0; td_argument_flag(arguments, "--json") && i < sizeof texts / sizeof *texts; i++)
        if (td_argument(arguments, texts[i]))
            return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "plan: %s is text; it has no --json", texts[i]),
                                  "plan --json has each op with its device and the reason");
    TD_TRY(td_arguments_config(arguments, &config));
    td_status *status = td_setup_open(config, &setup);
    if (!status) {
        setup.options.keep_dumps = td_argument(arguments, "--dump") != NULL;
        status = td_distributed_plan_options(setup.root, &setup.options, &job);
        if (!status)
            status = td_plan_train(setup.graph, setup.model.loss, &setup.options, &plan);
        if (!status)
            td_warn_of_idle_keys(setup.root);
        if (!status)
            status = show(arguments, &setup, plan);
        td_plan_release(plan);
        td_setup_close(&setup);
    }
    td_config_destroy(config);
    return status;
}

static const td_command_option options[] = {
    {"--explain", "OP", "why an op or a subgraph runs where it runs, or a parameter lies where it lies"},
    {"--dump", "PASS", "the plan as it was after a pass"},
    {"--dot", "FILE", "the plan as a Graphviz file, coloured by device"},
    {"--tdg", "FILE", "the model's graph as text, which `graph: FILE` trains"},
    TD_OPTION_SET,
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

static const td_option_pair excludes[] = {{"--explain", "--dump"}, {NULL, NULL}};

const td_command td_command_plan = {
    .name = "plan",
    .summary = "shows which device runs what, the copies, and memory per device",
    .usage = "CONFIG [--explain OP] [--dump PASS] [--dot FILE] [--tdg FILE] [--set KEY=VALUE]... [--json]",
    .least = 1,
    .most = 1,
    .first = "the configuration",
    .options = options,
    .excludes = excludes,
    .run = run,
};
