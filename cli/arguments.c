/* Reading the command line against a command's table of options. */
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/config_keys.h"
#include "cli/config_tree.h"

static const td_command_option *find_option(const td_command *command, const char *name, size_t length)
{
    for (const td_command_option *option = command->options; option && option->name; option++)
        if (strlen(option->name) == length && !strncmp(option->name, name, length))
            return option;
    return NULL;
}

static td_status *unknown_option(const td_command *command, const char *name)
{
    const char *nearest = NULL;
    int best = 100;
    for (const td_command_option *option = command->options; option && option->name; option++)
        if (td_config_close(name, option->name, &best))
            nearest = option->name;
    if (nearest)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: unknown option %s; did you mean %s?", command->name, name, nearest);
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: unknown option %s", command->name, name),
                          "see: tandem %s --help", command->name);
}

/* Reads one option at argv[*index]; *index moves past its value. */
static td_status *read_option(td_arguments *arguments, int argc, char **argv, int *index)
{
    const char *text = argv[*index];
    const td_command *command = arguments->command;
    const char *equals = strchr(text, '=');
    const td_command_option *option = find_option(command, text, equals ? (size_t)(equals - text) : strlen(text));
    if (!option)
        return unknown_option(command, text);
    const char *value = equals ? equals + 1 : NULL;
    if (!option->value && value)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s takes no value", command->name, option->name);
    if (option->value && !value && *index + 1 >= argc)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s needs a value: %s %s", command->name, option->name, option->name,
                        option->value);
    if (option->value && !value)
        value = argv[++*index];
    if (option->value && !*value)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s was given an empty value: %s %s", command->name, option->name,
                        option->name, option->value);
    if (arguments->n_given == TD_MOST_ARGUMENTS)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: more than %d options", command->name, TD_MOST_ARGUMENTS);
    arguments->given[arguments->n_given].option = option;
    arguments->given[arguments->n_given++].value = value;
    return NULL;
}

static td_status *wrong_count(const td_arguments *arguments)
{
    const td_command *command = arguments->command;
    if (arguments->n_words > command->most)
        return td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT, "%s: unexpected \"%s\"", command->name, arguments->words[command->most]),
            "usage: tandem %s %s", command->name, command->usage);
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s is missing", command->name, command->first),
                          "usage: tandem %s %s", command->name, command->usage);
}

/* Options that would be left aside without a word. */
static td_status *check_pairs(const td_arguments *arguments)
{
    const td_command *command = arguments->command;
    for (const td_option_pair *pair = command->goes_with; pair && pair->option; pair++)
        if (td_argument(arguments, pair->option) && !td_argument(arguments, pair->other))
            return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s means nothing without %s", command->name,
                                           pair->option, pair->other),
                                  "usage: tandem %s %s", command->name, command->usage);
    for (const td_option_pair *pair = command->excludes; pair && pair->option; pair++)
        if (td_argument(arguments, pair->option) && td_argument(arguments, pair->other))
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s and %s exclude each other; give one of them", command->name,
                            pair->option, pair->other);
    return NULL;
}

td_status *td_arguments_read(const td_command *command, int argc, char **argv, td_arguments *out_arguments)
{
    FILE *out = out_arguments->out, *errors = out_arguments->errors;
    memset(out_arguments, 0, sizeof *out_arguments);
    out_arguments->command = command;
    out_arguments->out = out;
    out_arguments->errors = errors;
    bool words_only = false;
    for (int i = 0; i < argc; i++) {
        if (!words_only && !strcmp(argv[i], "--")) {
            words_only = true;
            continue;
        }
        if (!words_only && argv[i][0] == '-' && argv[i][1]) {
            TD_TRY(read_option(out_arguments, argc, argv, &i));
            continue;
        }
        if (!argv[i][0])
            return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: an argument is empty", command->name),
                                  "usage: tandem %s %s", command->name, command->usage);
        if (out_arguments->n_words == TD_MOST_ARGUMENTS)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: more than %d arguments", command->name, TD_MOST_ARGUMENTS);
        out_arguments->words[out_arguments->n_words++] = argv[i];
    }
    if (out_arguments->n_words < command->least || out_arguments->n_words > command->most)
        return wrong_count(out_arguments);
    return check_pairs(out_arguments);
}

const char *td_argument(const td_arguments *arguments, const char *option)
{
    for (int32_t i = arguments->n_given - 1; i >= 0; i--)
        if (!strcmp(arguments->given[i].option->name, option))
            return arguments->given[i].value ? arguments->given[i].value : "";
    return NULL;
}

bool td_argument_flag(const td_arguments *arguments, const char *option)
{
    return td_argument(arguments, option) != NULL;
}

td_status *td_argument_number(const td_arguments *arguments, const char *option, td_number_range range, double fallback,
                              double *out)
{
    const char *text = td_argument(arguments, option);
    int64_t whole = 0;
    *out = fallback;
    if (!text)
        return NULL;
    bool good = range.whole ? td_config_to_int(text, &whole) : td_config_to_float(text, out);
    if (range.whole)
        *out = (double)whole;
    if (good && *out >= range.least && *out <= range.most)
        return NULL;
    return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s %s: it must be a %snumber from %.10g to %.10g",
                    arguments->command->name, option, text, range.whole ? "whole " : "", range.least, range.most);
}

/* What the engine has to say while a command runs. */
static void hear(void *context, td_log_level level, const char *message)
{
    fprintf(context, "%s: %s\n", td_log_level_name(level), message);
}

td_status *td_arguments_settle(const td_arguments *arguments, td_config *config)
{
    for (int32_t i = 0; i < arguments->n_given; i++)
        if (!strcmp(arguments->given[i].option->name, "--set"))
            TD_TRY(td_config_set(config, arguments->given[i].value));
    TD_TRY(td_config_resolve(config));
    td_log_level level = TD_LOG_INFO;
    td_log_level_parse(td_section_string(td_config_root(config), "log.level"), &level);
    td_log_set(hear, arguments->errors, level);
    return NULL;
}

td_status *td_arguments_config(const td_arguments *arguments, td_config **out_config)
{
    TD_TRY(td_config_load(arguments->words[0], out_config));
    td_status *status = td_arguments_settle(arguments, *out_config);
    if (status) {
        td_config_destroy(*out_config);
        *out_config = NULL;
    }
    return status;
}
