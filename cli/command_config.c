/* tandem config: the resolved configuration of a file, or help about keys. */
#include "cli/command.h"

static td_status *run(const td_arguments *arguments)
{
    if (td_argument_flag(arguments, "--explain"))
        return td_config_explain(arguments->n_words ? arguments->words[0] : NULL, arguments->out);
    if (!arguments->n_words)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "config: no file given"),
                              "usage: tandem config CONFIG, or tandem config --explain [KEY]");
    td_config *config = NULL;
    TD_TRY(td_arguments_config(arguments, &config));
    td_config_print(config, arguments->out);
    td_config_destroy(config);
    return NULL;
}

static const td_command_option options[] = {
    {"--explain", NULL, "what keys there are, or what one means"},
    TD_OPTION_SET,
    {NULL, NULL, NULL},
};

static const td_option_pair excludes[] = {{"--explain", "--set"}, {NULL, NULL}};

const td_command td_command_config = {
    .name = "config",
    .summary = "prints a configuration with every default, or explains a key",
    .usage = "CONFIG [--set KEY=VALUE]... | --explain [KEY]",
    .least = 0,
    .most = 1,
    .options = options,
    .excludes = excludes,
    .run = run,
};
