/* From a command line to a command: finding it, its help, and what is said when it fails. */
#include <errno.h>
#include <string.h>

#include "base/file_error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/config_keys.h"
#include "cli/terminal.h"
#include "cli/version.h"

#define COMMAND(name) extern const td_command td_command_##name;
#include "cli/commands.def"
#undef COMMAND

static const td_command *const commands[] = {
#define COMMAND(name) &td_command_##name,
#include "cli/commands.def"
#undef COMMAND
};

int32_t td_command_count(void)
{
    return (int32_t)(sizeof commands / sizeof *commands);
}

const td_command *td_command_at(int32_t index)
{
    return commands[index];
}

const td_command *td_command_find(const char *name)
{
    for (int32_t i = 0; i < td_command_count(); i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

int td_exit_code(const td_status *status)
{
    switch (td_status_code(status)) {
    case TD_OK:
        return 0;
    case TD_INVALID_ARGUMENT:
    case TD_UNSUPPORTED:
    case TD_NOT_FOUND: /* a name or a file that somebody gave */
        return 2;
    case TD_DOES_NOT_FIT:
        return 3;
    case TD_CANCELLED:
        return TD_EXIT_INTERRUPTED;
    default:
        return 1;
    }
}

/* ---- help ---------------------------------------------------------------------------------------------------------------- */

static void print_help(FILE *out)
{
    fputs("tandem trains a model on a CPU and its accelerators as one machine.\n\nusage: tandem COMMAND ...\n\n", out);
    for (int32_t i = 0; i < td_command_count(); i++)
        fprintf(out, "  %-8s  %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  tandem COMMAND --help    about one command\n"
          "  tandem --version         the version\n\n"
          "exit codes: 0 done, 1 failed while running, 2 bad usage or configuration, 3 does not fit, 130 interrupted\n",
          out);
}

static void print_command_help(const td_command *command, FILE *out)
{
    fprintf(out, "tandem %s: %s\n\nusage: tandem %s %s\n", command->name, command->summary, command->name,
            command->usage);
    if (command->options && command->options->name)
        fputc('\n', out);
    for (const td_command_option *option = command->options; option && option->name; option++) {
        char form[64];
        snprintf(form, sizeof form, "%s%s%s", option->name, option->value ? " " : "",
                 option->value ? option->value : "");
        fprintf(out, "  %-22s %s\n", form, option->help);
    }
    if (command->notes)
        fputc('\n', out);
    for (const char *const *note = command->notes; note && *note; note++)
        fprintf(out, "%s\n", *note);
}

static td_status *unknown_command(const char *name)
{
    const char *nearest = NULL;
    int best = 100;
    for (int32_t i = 0; i < td_command_count(); i++)
        if (td_config_close(name, commands[i]->name, &best))
            nearest = commands[i]->name;
    if (nearest)
        return TD_ERROR(TD_INVALID_ARGUMENT, "unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "unknown command \"%s\"", name), "see: tandem --help");
}

/* ---- running --------------------------------------------------------------------------------------------------------------- */

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

static td_status *run(int argc, char **argv, FILE *out, FILE *errors, bool *said)
{
    if (argc < 2)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "no command given"), "see: tandem --help");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_help(out);
        return NULL;
    }
    if (!strcmp(argv[1], "--version")) {
        fprintf(out, "tandem %s\n", TANDEM_VERSION);
        return NULL;
    }
    const td_command *command = td_command_find(argv[1]);
    if (!command && argv[1][0] == '-')
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT,
                                       "unknown option %s; before a command there are --help and --version", argv[1]),
                              "see: tandem --help");
    if (!command)
        return unknown_command(argv[1]);
    if (asks_for_help(argc - 2, argv + 2)) {
        print_command_help(command, out);
        return NULL;
    }
    td_arguments arguments = {.out = out, .errors = errors};
    TD_TRY(td_arguments_read(command, argc - 2, argv + 2, &arguments));
    arguments.said = said;
    return command->run(&arguments);
}

void td_program_say(const td_status *status, FILE *errors)
{
    fprintf(errors, "%standem:%s %s\n", td_colour_on(errors, TD_COLOUR_RED), td_colour_on(errors, TD_COLOUR_NONE),
            td_status_message(status));
    if (td_log_wants(TD_LOG_DEBUG))
        fprintf(errors, "  debug: %s\n", td_status_trace(status));
    fflush(errors);
}

int td_program(int argc, char **argv, FILE *out, FILE *errors)
{
    bool said = false;
    td_status *status = run(argc, argv, out, errors, &said);
    const bool failed = fflush(out) != 0;
    if (!status && (failed || ferror(out)))
        status = td_file_error("standard output", "write", failed ? errno : EIO);
    if (status && !said)
        td_program_say(status, errors);
    td_log_set(NULL, NULL, TD_LOG_NULL);
    int code = td_exit_code(status);
    td_status_destroy(status);
    return code;
}
