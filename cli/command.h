/* A subcommand of `tandem`: its options as data and the function that does it.
 *
 * One file per subcommand, cli/command_<name>.c, defines `const td_command td_command_<name>`; commands.def lists it.
 * Copy cli/_template.c to add one. A command prints results to `out` and returns errors as a status; it never exits.
 * Usage, --help and near misses come from the table. */
#ifndef TANDEM_CLI_COMMAND_H
#define TANDEM_CLI_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/config.h"
#include "tandem/status.h"

typedef struct td_command_option {
    const char *name;  /* "--run"; NULL ends the list */
    const char *value; /* what follows it, "DIR"; NULL: a flag */
    const char *help;  /* one line */
} td_command_option;

enum { TD_MOST_ARGUMENTS = 64 };

typedef struct td_arguments td_arguments;

/* Two options; one that ends the list has NULL. */
typedef struct td_option_pair {
    const char *option, *other;
} td_option_pair;

typedef struct td_command {
    const char *name, *summary;
    const char *usage;                /* what follows the name: "CONFIG [--json]" */
    int32_t least, most;              /* how many arguments that are not options */
    const char *first;                /* what the first of them is, "the configuration"; NULL where none is needed */
    const td_command_option *options; /* --help is always known */
    const td_option_pair *goes_with;  /* an option that means nothing without the other; may be NULL */
    const td_option_pair *excludes;   /* those of which only one can be done; may be NULL */
    const char *const *notes;         /* further lines of --help; NULL ends; may be NULL */
    td_status *(*run)(const td_arguments *arguments);
} td_command;

struct td_arguments {
    const td_command *command;
    FILE *out;    /* where results go */
    FILE *errors; /* and what the engine has to say besides */
    bool *said;   /* set: what ends the command is said already (td_program_say) */
    int32_t n_words, n_given;
    const char *words[TD_MOST_ARGUMENTS]; /* what is not an option, in order */
    struct {
        const td_command_option *option;
        const char *value;
    } given[TD_MOST_ARGUMENTS];
};

int32_t td_command_count(void);
const td_command *td_command_at(int32_t index);
const td_command *td_command_find(const char *name);

/* Reads what follows the command's name. "--option value" and "--option=value" are the same. */
td_status *td_arguments_read(const td_command *command, int argc, char **argv, td_arguments *out_arguments) TD_MUST_USE;
/* The last value given for an option, or NULL; for flags, whether it was given. */
const char *td_argument(const td_arguments *arguments, const char *option);
bool td_argument_flag(const td_arguments *arguments, const char *option);
/* The number that an option gives, `fallback` without it. */
typedef struct td_number_range {
    double least, most;
    bool whole;
} td_number_range;
td_status *td_argument_number(const td_arguments *arguments, const char *option, td_number_range range, double fallback,
                              double *out) TD_MUST_USE;
/* Puts every --set on top of a configuration, resolves it, and lets what the engine has to say be heard as log.level says. */
td_status *td_arguments_settle(const td_arguments *arguments, td_config *config) TD_MUST_USE;
/* The configuration that words[0] names, settled so. */
td_status *td_arguments_config(const td_arguments *arguments, td_config **out_config) TD_MUST_USE;

/* The whole program but for process-wide set-up: returns the exit code. Results go to `out`, errors to `errors`. */
int td_program(int argc, char **argv, FILE *out, FILE *errors);
/* What ends a command, as td_program says it at the end: where that would be too late. */
void td_program_say(const td_status *status, FILE *errors);
/* 0, 1, 2, 3 or TD_EXIT_INTERRUPTED. */
enum { TD_EXIT_INTERRUPTED = 130 };
int td_exit_code(const td_status *status);

#define TD_OPTION_SET                                                                                                  \
    {                                                                                                                  \
        "--set", "KEY=VALUE", "put one value on top of the file; may be repeated"                                      \
    }
#define TD_OPTION_JSON                                                                                                 \
    {                                                                                                                  \
        "--json", NULL, "the same facts as JSON"                                                                       \
    }

#endif
