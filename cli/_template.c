/* tandem NAME: what it does, in one line. Copy to cli/command_NAME.c, add COMMAND(NAME) to cli/commands.def. */
#include "cli/command.h"

static td_status *run(const td_arguments *arguments)
{
    td_config *config = NULL;
    TD_TRY(td_arguments_config(arguments, &config));
    fprintf(arguments->out, "%s\n", td_config_origin(config));
    td_config_destroy(config);
    return NULL;
}

static const td_command_option options[] = {TD_OPTION_SET, TD_OPTION_JSON, {NULL, NULL, NULL}};

const td_command td_command_NAME = {
    .name = "NAME",
    .summary = "what it does, as in `tandem --help`",
    .usage = "CONFIG [--set KEY=VALUE]... [--json]",
    .least = 1,
    .most = 1,
    .first = "the configuration",
    .options = options,
    .run = run,
};
