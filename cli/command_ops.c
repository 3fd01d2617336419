/* tandem ops: what ops and optimizers there are, from their own tables. */
#include <string.h>

#include "cli/command.h"
#include "cli/config_keys.h"
#include "cli/json.h"
#include "cli/table.h"
#include "graph/op.h"
#include "optim/rule.h"

/* "table, ids, [weights]": optional ports in brackets, "..." where the last may repeat. */
static void ports_text(const td_port *ports, int32_t most, char *buffer, size_t bytes)
{
    size_t at = 0;
    buffer[0] = 0;
    for (int32_t i = 0; i < most && ports[i].name && at < bytes; i++) {
        bool optional = ports[i].flags & TD_PORT_OPTIONAL, variadic = ports[i].flags & TD_PORT_VARIADIC;
        int written = snprintf(buffer + at, bytes - at, "%s%s%s%s%s", i ? ", " : "", optional ? "[" : "", ports[i].name,
                               optional ? "]" : "", variadic ? " ..." : "");
        at += written > 0 ? (size_t)written : 0;
    }
}

static int32_t most_outputs(const td_op *op)
{
    return (int32_t)(sizeof op->outputs / sizeof *op->outputs);
}

static const char *kind_of(const td_op *op)
{
    if (td_rule_find(op->name))
        return "optimizer";
    return op->flags & TD_OP_INTERNAL ? "engine" : "op";
}

static const char *summary_of(const td_op *op)
{
    const td_rule *rule = td_rule_find(op->name);
    return rule ? rule->summary : op->summary;
}

static const char *gradient_of(const td_op *op)
{
    return op->gradient ? "yes" : "no";
}

/* ---- one op ----------------------------------------------------------------------------------------------------------- */

static void print_attribute(const td_attr_spec *attr, FILE *out)
{
    char fallback[64] = "";
    if (attr->required)
        snprintf(fallback, sizeof fallback, "required");
    else if (attr->type == TD_ATTR_FLOAT)
        snprintf(fallback, sizeof fallback, "default %g", attr->f);
    else if (attr->type == TD_ATTR_STRING)
        snprintf(fallback, sizeof fallback, "default %s", attr->s ? attr->s : "none");
    else if (attr->type == TD_ATTR_BOOL)
        snprintf(fallback, sizeof fallback, "default %s", attr->i ? "true" : "false");
    else if (attr->type == TD_ATTR_INT)
        snprintf(fallback, sizeof fallback, "default %lld", (long long)attr->i);
    fprintf(out, "  %-20s %s%s%s\n", attr->name, attr->help ? attr->help : "", fallback[0] ? "; " : "", fallback);
}

static void print_rule(const td_rule *rule, FILE *out)
{
    fprintf(out, "%s (optimizer)\n  %s\n", rule->name, rule->summary);
    for (const td_setting *setting = rule->settings; setting->name; setting++)
        fprintf(out, "  %-20s default %g, from %g to %g\n", setting->name, setting->fallback, setting->least,
                setting->most);
    for (const td_slot *slot = rule->slots; slot->name; slot++)
        fprintf(out, "  state %-14s one number per %s\n", slot->name, slot->per_row ? "row" : "element");
    if (rule->refuses_row_sparse)
        fprintf(out, "  not for row-sparse gradients: %s\n", rule->refuses_row_sparse);
    if (rule->refuses_dense)
        fprintf(out, "  not for dense gradients: %s\n", rule->refuses_dense);
}

static void print_op(const td_op *op, FILE *out)
{
    char text[256];
    fprintf(out, "%s (%s)\n  %s\n", op->name, kind_of(op), op->summary);
    ports_text(op->inputs, TD_MAX_PORTS, text, sizeof text);
    fprintf(out, "  inputs    %s\n", text[0] ? text : "none");
    ports_text(op->outputs, most_outputs(op), text, sizeof text);
    fprintf(out, "  outputs   %s\n", text[0] ? text : "none");
    if (op->gradient)
        fputs("  gradient  yes\n", out);
    else
        fprintf(out, "  gradient  none%s%s\n", op->no_gradient ? ": " : "", op->no_gradient ? op->no_gradient : "");
    if (op->flags & TD_OP_HOST_ONLY)
        fputs("  runs on the host only\n", out);
    for (const td_attr_spec *attr = op->attrs; attr && attr->name; attr++)
        print_attribute(attr, out);
}

static td_status *unknown_op(const char *name)
{
    const char *nearest = NULL;
    int best = 1000;
    for (int32_t i = 0; i < td_op_count(); i++)
        if (td_config_close(name, td_op_at(i)->name, &best))
            nearest = td_op_at(i)->name;
    return TD_ERROR(TD_INVALID_ARGUMENT, "there is no op \"%s\"%s%s%s (tandem ops lists all)", name,
                    nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

/* ---- all ---------------------------------------------------------------------------------------------------------------- */

static td_status *print_all(bool engine, FILE *out)
{
    td_table table;
    td_table_init(&table, 5);
    td_table_row(&table, "op", "kind", "inputs", "gradient", "what it does");
    for (int32_t i = 0; i < td_op_count(); i++) {
        const td_op *op = td_op_at(i);
        char text[256];
        if ((op->flags & TD_OP_INTERNAL) && !td_rule_find(op->name) && !engine)
            continue;
        ports_text(op->inputs, TD_MAX_PORTS, text, sizeof text);
        const td_rule *rule = td_rule_find(op->name);
        td_table_row(&table, op->name, kind_of(op), rule ? "" : text, rule ? "" : gradient_of(op), summary_of(op));
    }
    return td_table_print(&table, "", out);
}

static json_t *ports_json(const td_port *ports, int32_t most)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < most && ports[i].name; i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:b, s:b}", "name", ports[i].name, "optional",
                                              !!(ports[i].flags & TD_PORT_OPTIONAL), "repeats",
                                              !!(ports[i].flags & TD_PORT_VARIADIC), "written",
                                              !!(ports[i].flags & TD_PORT_WRITES)));
    return list;
}

static td_status *print_all_json(FILE *out)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < td_op_count(); i++) {
        const td_op *op = td_op_at(i);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b, s:o, s:o}", "name", op->name, "kind", kind_of(op),
                                              "summary", summary_of(op), "gradient", op->gradient != NULL, "inputs",
                                              ports_json(op->inputs, TD_MAX_PORTS), "outputs",
                                              ports_json(op->outputs, most_outputs(op))));
    }
    return td_json_print(list, out);
}

static td_status *run(const td_arguments *arguments)
{
    if (!arguments->n_words && td_argument_flag(arguments, "--json"))
        return print_all_json(arguments->out);
    if (!arguments->n_words)
        return print_all(td_argument_flag(arguments, "--all"), arguments->out);
    if (td_argument_flag(arguments, "--all"))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "ops: --all is for the list, not for one op"),
                              "usage: tandem ops %s", arguments->command->usage);
    if (td_argument_flag(arguments, "--json"))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "ops: about one op there is text only, no --json"),
                              "tandem ops --json has all of them");
    const td_op *op = td_op_find(arguments->words[0]);
    if (!op)
        return unknown_op(arguments->words[0]);
    const td_rule *rule = td_rule_find(op->name);
    if (rule)
        print_rule(rule, arguments->out);
    else
        print_op(op, arguments->out);
    return NULL;
}

static const td_command_option options[] = {
    {"--all", NULL, "also the ops that only the engine makes (gradients, copies)"},
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

const td_command td_command_ops = {
    .name = "ops",
    .summary = "lists ops and optimizers, or tells all about one",
    .usage = "[NAME | --all | --json]",
    .most = 1,
    .options = options,
    .run = run,
};
