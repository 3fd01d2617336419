/* What `tandem config` prints: the resolved configuration as YAML, and help from the table. */
#include <string.h>

#include "base/memory.h"
#include "cli/config_keys.h"
#include "cli/config_tree.h"
#include "cli/model.h"

/* ---- the resolved configuration ------------------------------------------------------------------------------------------- */

/* A plain word needs no quotes: letters, digits and a few signs that mean nothing to YAML inside a word. */
static bool plain(const td_config_node *node)
{
    const char *text = node->text;
    if (!text[0] || node->quoted)
        return false;
    return text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-")] == 0 &&
           text[0] != '-';
}

static void print_scalar(const td_config_node *node, FILE *stream)
{
    if (plain(node)) {
        fputs(node->text, stream);
        return;
    }
    fputc('"', stream);
    for (const unsigned char *c = (const unsigned char *)node->text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(stream, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(stream, "\\x%02x", *c);
        else
            fputc(*c, stream);
    }
    fputc('"', stream);
}

static void print_flow(const td_config_node *node, FILE *stream)
{
    if (node->kind == TD_NODE_SCALAR) {
        print_scalar(node, stream);
        return;
    }
    bool map = node->kind == TD_NODE_MAP;
    fputc(map ? '{' : '[', stream);
    for (int64_t i = 0; i < node->n_children; i++) {
        fprintf(stream, "%s%s%s", i ? ", " : "", map ? node->children[i]->key : "", map ? ": " : "");
        print_flow(node->children[i], stream);
    }
    fputc(map ? '}' : ']', stream);
}

static void print_place(const td_config_node *node, FILE *stream)
{
    if (node->line > 0)
        fprintf(stream, "  # line %d\n", node->line);
    else
        fprintf(stream, "  # %s\n", node->origin);
}

static void print_map(const td_config_node *map, int indent, FILE *stream);

/* A list of maps, one item per line. */
static void print_items(const td_config_node *list, int indent, FILE *stream)
{
    for (int64_t i = 0; i < list->n_children; i++) {
        fprintf(stream, "%*s- ", indent, "");
        print_flow(list->children[i], stream);
        print_place(list->children[i], stream);
    }
}

static void print_entry(const td_config_node *node, int indent, FILE *stream)
{
    bool maps = node->kind == TD_NODE_LIST && node->n_children && node->children[0]->kind == TD_NODE_MAP;
    fprintf(stream, "%*s%s:", indent, "", node->key);
    if (node->kind == TD_NODE_MAP && node->n_children) {
        fputc('\n', stream);
        print_map(node, indent + 2, stream);
    } else if (maps) {
        fputc('\n', stream);
        print_items(node, indent + 2, stream);
    } else {
        fputc(' ', stream);
        print_flow(node, stream);
        print_place(node, stream);
    }
}

static void print_map(const td_config_node *map, int indent, FILE *stream)
{
    for (int64_t i = 0; i < map->n_children; i++)
        print_entry(map->children[i], indent, stream);
}

void td_config_print(const td_config *config, FILE *stream)
{
    print_map(config->root, 0, stream);
}

/* ---- help ------------------------------------------------------------------------------------------------------------------ */

static void list_models(FILE *stream)
{
    fputs("  one of  ", stream);
    for (int32_t i = 0; i < td_model_count(); i++)
        fprintf(stream, "%s %s", i ? "," : "", td_model_name(i));
    fputc('\n', stream);
}

static void explain_key(const td_config_key *key, FILE *stream)
{
    fprintf(stream, "%s\n  %s\n", key->name, key->help);
    if (key->type == TD_CONFIG_ENUM)
        fprintf(stream, "  one of   %s\n", key->allowed);
    else if (!strcmp(key->name, "model.name"))
        list_models(stream);
    else
        fprintf(stream, "  type     %s\n", td_config_type_name(key->type));
    if (key->unit)
        fprintf(stream, "  unit     %s\n", key->unit);
    if (key->least != 0 || key->most != 0)
        fprintf(stream, "  range    %g to %g\n", key->least, key->most);
    fprintf(stream, "  default  %s\n", key->fallback ? key->fallback : key->required ? "none: must be given" : "none");
    if (key->when)
        fprintf(stream, "  only if  %s\n", key->when);
}

static bool is_below(const td_config_key *key, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(key->name, name, length) && (!strncmp(key->name + length, "[].", 3) || key->name[length] == '.');
}

static int explain_section(const char *name, FILE *stream)
{
    int found = 0;
    for (int32_t i = 0; i < td_config_key_count(); i++) {
        const td_config_key *key = td_config_key_at(i);
        if (!is_below(key, name))
            continue;
        found++;
        fprintf(stream, "  %-34s %s%s%s%s\n", key->name, key->help, key->fallback ? " (default " : "",
                key->fallback ? key->fallback : "", key->fallback ? ")" : "");
    }
    return found;
}

static void explain_all(FILE *stream)
{
    fputs("Keys of a configuration. More about one: tandem config --explain KEY\n", stream);
    const char *section = "";
    size_t length = 0;
    for (int32_t i = 0; i < td_config_key_count(); i++) {
        const td_config_key *key = td_config_key_at(i);
        size_t word = strcspn(key->name, ".[");
        if (word != length || strncmp(section, key->name, word))
            fputc('\n', stream);
        section = key->name;
        length = word;
        fprintf(stream, "  %-34s %s\n", key->name, key->help);
    }
}

td_status *td_config_explain(const char *key, FILE *stream)
{
    if (!key) {
        explain_all(stream);
        return NULL;
    }
    const td_config_key *row = td_config_key_find(key);
    if (row)
        explain_key(row, stream);
    if (explain_section(key, stream) || row)
        return NULL;
    const char *nearest = td_config_key_nearest(key);
    if (nearest)
        return TD_ERROR(TD_INVALID_ARGUMENT, "unknown key \"%s\"; did you mean \"%s\"?", key, nearest);
    return TD_ERROR(TD_INVALID_ARGUMENT, "unknown key \"%s\" (tandem config --explain lists all)", key);
}
