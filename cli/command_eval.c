/* tandem eval: metrics of a checkpoint on the data's test part, or on its training part; or text from it. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/evaluation.h"
#include "cli/generate.h"
#include "cli/json.h"
#include "cli/run_directory.h"
#include "cli/signals.h"

static td_status *load(const char *checkpoint, td_store *store)
{
    char *path = NULL;
    td_data_position position;
    TD_TRY(td_checkpoint_resolve(checkpoint, &path));
    td_status *status = td_store_load(store, path, &position);
    td_free(path);
    return status;
}

static td_status *print(const td_evaluation *evaluation, const td_store *store, bool as_json, FILE *out)
{
    if (as_json)
        return td_json_print(json_pack("{s:I, s:I, s:o}", "steps", (json_int_t)td_store_steps(store), "samples",
                                       (json_int_t)evaluation->samples, "metrics", td_evaluation_json(evaluation)),
                             out);
    fprintf(out, "%s, after %s\n", TD_COUNTED(evaluation->samples, "sample"),
            TD_COUNTED(td_store_steps(store), "step"));
    for (int32_t i = 0; i < evaluation->n; i++)
        fprintf(out, "  %-16s %.6f\n", evaluation->names[i], evaluation->values[i]);
    return NULL;
}

static td_status *evaluate(const td_arguments *arguments, td_setup *setup)
{
    const char *part = td_argument(arguments, "--part");
    if (part && strcmp(part, "train") && strcmp(part, "test"))
        return TD_ERROR(TD_INVALID_ARGUMENT, "eval: --part %s: it is train or test", part);
    if (!setup->dataset)
        return TD_SECTION_ERROR(setup->root, "graph", "evaluation needs data: a section data with format and train");
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_evaluation evaluation = {0};
    td_part which = part && !strcmp(part, "train") ? TD_PART_TRAIN : TD_PART_TEST;
    td_status *status = td_evaluation_plan(setup, NULL, &plan);
    if (!status)
        status = td_store_create(plan, &store);
    if (!status)
        status = load(td_argument(arguments, "--checkpoint"), store);
    if (!status)
        status = td_evaluate_with(setup, plan, store, which, NULL, &evaluation);
    if (!status && !evaluation.samples)
        status = TD_ERROR(TD_INVALID_ARGUMENT, "the data has no test part; give one (data.test, data.train_share or "
                                               "data.test_rows, as the format has it), or --part train");
    td_signals_release(); /* what is left is to print it */
    if (!status)
        status = print(&evaluation, store, td_argument_flag(arguments, "--json"), arguments->out);
    td_store_release(store);
    td_plan_release(plan);
    return status;
}

static td_status *generate(const td_arguments *arguments, td_setup *setup)
{
    td_plan *plan = NULL;
    td_store *store = NULL;
    char *text = NULL;
    double length = 0;
    td_generation generation = {.prompt = td_argument(arguments, "--generate")};
    TD_TRY(td_argument_number(arguments, "--length", (td_number_range){0, 1e9, true}, 400, &length));
    TD_TRY(
        td_argument_number(arguments, "--temperature", (td_number_range){0, 100, false}, 0.8, &generation.temperature));
    generation.length = (int64_t)length;
    td_status *status = td_generation_plan(setup, NULL, &plan);
    if (!status)
        status = td_store_create(plan, &store);
    if (!status)
        status = load(td_argument(arguments, "--checkpoint"), store);
    if (!status)
        status = td_generate(setup, store, &generation, &text);
    td_signals_release();
    if (!status && td_argument_flag(arguments, "--json"))
        status = td_json_print(
            json_pack("{s:I, s:s%}", "steps", (json_int_t)td_store_steps(store), "text", text, strlen(text)),
            arguments->out);
    else if (!status)
        fprintf(arguments->out, "%s\n", text);
    td_free(text);
    td_store_release(store);
    td_plan_release(plan);
    return status;
}

static td_status *run(const td_arguments *arguments)
{
    if (!td_argument(arguments, "--checkpoint"))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "eval: --checkpoint is missing"),
                              "usage: tandem eval CONFIG --checkpoint DIR");
    td_config *config = NULL;
    td_setup setup;
    TD_TRY(td_arguments_config(arguments, &config));
    td_signals_end_at_once(" before there was a result");
    td_status *status = td_setup_open(config, &setup);
    if (!status) {
        status = td_setup_serve_none(&setup);
        if (!status)
            status = td_argument(arguments, "--generate") ? generate(arguments, &setup) : evaluate(arguments, &setup);
        td_setup_close(&setup);
    }
    td_signals_release(); /* where it did not come to a result */
    td_config_destroy(config);
    return status;
}

static const td_command_option options[] = {
    {"--checkpoint", "DIR", "a checkpoint, or the folder of a run: its newest one"},
    {"--part", "PART", "test (default) or train"},
    {"--generate", "TEXT", "go on from this text, character by character, instead of measuring"},
    {"--length", "N", "characters to generate (400)"},
    {"--temperature", "T", "0: always the likeliest; 1: as likely as the model says (0.8)"},
    TD_OPTION_SET,
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

static const td_option_pair goes_with[] = {{"--length", "--generate"}, {"--temperature", "--generate"}, {NULL, NULL}};
static const td_option_pair excludes[] = {{"--part", "--generate"}, {NULL, NULL}};

const td_command td_command_eval = {
    .name = "eval",
    .summary = "says how good a checkpoint is on a data set",
    .usage = "CONFIG --checkpoint DIR [--part train | --generate TEXT] [--set KEY=VALUE]... [--json]",
    .least = 1,
    .most = 1,
    .first = "the configuration",
    .options = options,
    .goes_with = goes_with,
    .excludes = excludes,
    .run = run,
};
