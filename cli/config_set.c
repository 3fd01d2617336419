/* `--set a.b=c`: one value put on top of the file, at a dotted path. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "cli/config_tree.h"

/* The next word of a path: up to '.' or '['; "[3]" gives "3". Returns what follows, or NULL at a malformed path. */
static const char *next_word(const char *path, char *word, size_t bytes)
{
    bool bracket = *path == '[';
    path += bracket;
    size_t length = strcspn(path, bracket ? "]" : ".[");
    if (!length || length >= bytes)
        return NULL;
    memcpy(word, path, length);
    word[length] = 0;
    path += length;
    if (bracket && *path++ != ']')
        return NULL;
    if (*path == '.')
        return path[1] && path[1] != '.' ? path + 1 : NULL;
    return *path && *path != '[' ? NULL : path;
}

static bool names_item(const td_config_node *item, const char *word)
{
    static const char *const naming[] = {"name", "match"};
    for (size_t i = 0; i < 2; i++) {
        const td_config_node *name = td_config_node_child(item, naming[i]);
        if (name && name->kind == TD_NODE_SCALAR && !strcmp(name->text, word))
            return true;
    }
    return false;
}

/* The index of a list's item by number, name or match; -1 when there is none. */
static int64_t find_item(const td_config_node *list, const char *word)
{
    int64_t index;
    if (td_config_to_int(word, &index))
        return index >= 0 && index < list->n_children ? index : -1;
    for (int64_t i = 0; i < list->n_children; i++)
        if (names_item(list->children[i], word))
            return i;
    return -1;
}

static td_status *replace_child(td_config_node *parent, int64_t index, td_config_node *value)
{
    value->key = parent->children[index]->key;
    parent->children[index]->key = NULL;
    td_config_node_destroy(parent->children[index]);
    parent->children[index] = value;
    return NULL;
}

static int64_t index_of(const td_config_node *map, const char *key)
{
    for (int64_t i = 0; i < map->n_children; i++)
        if (!strcmp(map->children[i]->key, key))
            return i;
    return -1;
}

static td_status *no_item(const td_config_node *list, const char *origin, const char *word)
{
    static const char *const naming[] = {"name", "match"};
    td_string names = {0};
    char *text = NULL;
    for (int64_t i = 0; i < list->n_children; i++)
        for (size_t k = 0; k < 2; k++) {
            const td_config_node *name = td_config_node_child(list->children[i], naming[k]);
            if (name && name->kind == TD_NODE_SCALAR)
                td_string_format(&names, "%s%s", names.length ? ", " : ": ", name->text);
        }
    TD_TRY(td_string_finish(&names, &text));
    td_status *status = TD_ERROR(TD_INVALID_ARGUMENT, "%s: the list has no item \"%s\" (it has %lld, counted from 0%s)",
                                 origin, word, (long long)list->n_children, text);
    td_free(text);
    return status;
}

/* Takes value. */
static td_status *set_at(td_config_node *node, const char *path, const char *origin, td_config_node *value)
{
    char word[96];
    const char *rest = next_word(path, word, sizeof word);
    td_status *status = NULL;
    if (!rest) {
        status =
            TD_ERROR(TD_INVALID_ARGUMENT, "%s: not a key; keys look like train.epochs or devices[1].memory", origin);
        goto fail;
    }
    int64_t index = node->kind == TD_NODE_LIST ? find_item(node, word) : index_of(node, word);
    if (index < 0 && node->kind == TD_NODE_LIST) {
        status = no_item(node, origin, word);
        goto fail;
    }
    if (index < 0 && !*rest)
        return td_config_node_append(node, word, value);
    if (!*rest)
        return replace_child(node, index, value);
    if (index >= 0 && node->children[index]->kind != TD_NODE_SCALAR)
        return set_at(node->children[index], rest, origin, value);
    td_config_node *section = NULL; /* a new section, or one in place of a null */
    TD_TRY_OR(status, fail, td_config_node_create(TD_NODE_MAP, origin, 0, 0, &section));
    if (index >= 0)
        status = replace_child(node, index, section);
    else
        status = td_config_node_append(node, word, section);
    if (!status)
        return set_at(section, rest, origin, value);
fail:
    td_config_node_destroy(value);
    return status;
}

td_status *td_config_set(td_config *config, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return TD_ERROR(TD_INVALID_ARGUMENT, "--set %s: write it as key=value (train.epochs=2)", assignment);
    char *path = td_format("%.*s", (int)(equals - assignment), assignment);
    char *label = td_format("--set %.*s", (int)(equals - assignment), assignment);
    const char *origin = label ? td_config_keep_origin(config, label) : NULL;
    td_config_node *value = NULL;
    td_status *status = NULL;
    if (!path || !origin) {
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for --set");
        goto out;
    }
    TD_TRY_OR(status, out, td_config_normalise(config));
    TD_TRY_OR(status, out, td_config_yaml(equals + 1, strlen(equals + 1), origin, false, &value));
    status = set_at(config->root, path, origin, value);
out:
    td_free(path);
    td_free(label);
    return status;
}
