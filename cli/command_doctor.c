/* tandem doctor: what in this environment will hurt, with the fix. */
#include <jansson.h>
#include <string.h>

#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/json.h"
#include "cli/terminal.h"

static const char *const levels[] = {"ok", "warn", "miss"};

static td_status *print_json(const td_doctor_line *lines, int32_t n, FILE *out)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++) {
        json_t *row = json_pack("{s:s, s:s}", "level", levels[lines[i].level], "text", lines[i].text);
        if (row && lines[i].fix[0])
            json_object_set_new(row, "fix", json_string(lines[i].fix));
        json_array_append_new(list, row);
    }
    return td_json_print(list, out);
}

static void print_line(const td_doctor_line *line, int widest, FILE *out)
{
    static const td_colour colours[] = {TD_COLOUR_GREEN, TD_COLOUR_YELLOW, TD_COLOUR_RED};
    fprintf(out, "%s%-4s%s  ", td_colour_on(out, colours[line->level]), levels[line->level],
            td_colour_on(out, TD_COLOUR_NONE));
    if (line->fix[0])
        fprintf(out, "%-*s   %s\n", widest, line->text, line->fix);
    else
        fprintf(out, "%s\n", line->text);
}

static td_status *run(const td_arguments *arguments)
{
    td_doctor_facts facts;
    td_doctor_line lines[TD_DOCTOR_MOST_LINES];
    td_doctor_gather(&facts);
    int32_t n = td_doctor_judge(&facts, lines);
    if (td_argument_flag(arguments, "--json"))
        return print_json(lines, n, arguments->out);
    size_t widest = 0;
    for (int32_t i = 0; i < n; i++)
        if (lines[i].fix[0] && strlen(lines[i].text) > widest)
            widest = strlen(lines[i].text);
    for (int32_t i = 0; i < n; i++)
        print_line(&lines[i], (int)widest, arguments->out);
    return NULL;
}

static const td_command_option options[] = {TD_OPTION_JSON, {NULL, NULL, NULL}};

const td_command td_command_doctor = {
    .name = "doctor",
    .summary = "says what in this environment will hurt, with the fix",
    .usage = "[--json]",
    .options = options,
    .run = run,
};
