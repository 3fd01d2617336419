/* Nodes of a configuration: making, finding and freeing them. */
#include "cli/config_tree.h"

#include <stdarg.h>
#include <string.h>

#include "base/memory.h"

td_status *td_config_node_create(td_config_node_kind kind, const char *origin, int32_t line, int32_t column,
                                 td_config_node **out_node)
{
    *out_node = NULL;
    td_config_node *node = NULL;
    TD_TRY(TD_NEW(node, 1));
    *node = (td_config_node){.kind = kind, .origin = origin, .line = line, .column = column};
    *out_node = node;
    return NULL;
}

void td_config_node_destroy(td_config_node *node)
{
    if (!node)
        return;
    for (int64_t i = 0; i < node->n_children; i++)
        td_config_node_destroy(node->children[i]);
    td_free(node->children);
    td_free(node->text);
    td_free(node->key);
    td_free(node);
}

td_status *td_config_node_append(td_config_node *parent, const char *key, td_config_node *child)
{
    td_status *status = td_grow(&parent->children, &parent->capacity, parent->n_children, sizeof(td_config_node *));
    char *copy = key && !status ? td_strdup(key) : NULL;
    if (!status && key && !copy)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the key \"%s\"", key);
    if (status) {
        td_config_node_destroy(child);
        return status;
    }
    td_free(child->key);
    child->key = copy;
    parent->children[parent->n_children++] = child;
    return NULL;
}

td_config_node *td_config_node_child(const td_config_node *map, const char *key)
{
    for (int64_t i = 0; map && map->kind == TD_NODE_MAP && i < map->n_children; i++)
        if (!strcmp(map->children[i]->key, key))
            return map->children[i];
    return NULL;
}

td_config_node *td_config_node_at(const td_config_node *map, const char *path)
{
    for (int64_t i = 0; map && map->kind == TD_NODE_MAP && i < map->n_children; i++) {
        td_config_node *child = map->children[i];
        size_t length = strlen(child->key);
        if (strncmp(path, child->key, length))
            continue;
        if (!path[length])
            return child;
        if (path[length] == '.')
            return td_config_node_at(child, path + length + 1);
    }
    return NULL;
}

td_config_node *td_config_node_take(td_config_node *parent, int64_t index)
{
    td_config_node *child = parent->children[index];
    parent->n_children--;
    memmove(parent->children + index, parent->children + index + 1,
            (size_t)(parent->n_children - index) * sizeof(td_config_node *));
    return child;
}

bool td_config_node_is_null(const td_config_node *node)
{
    return node->kind == TD_NODE_SCALAR && !node->quoted &&
           (!node->text[0] || !strcmp(node->text, "null") || !strcmp(node->text, "~"));
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* How much of a message that begins with its key says what its origin, "--set KEY", has said: "devices.accel.memory" and
 * "devices[1].memory" are "devices[].memory". */
static size_t named_already(const char *origin, const char *message)
{
    char key[96];
    size_t length = strcspn(message, ": ");
    if (strncmp(origin, "--set ", 6) || length >= sizeof key)
        return 0;
    memcpy(key, message, length);
    key[length] = '\0';
    return td_config_key_find(key) && !strcmp(last_word(key), last_word(origin + 6)) ? length : 0;
}

td_status *td_config_node_error(const char *file, int line, const td_config_node *node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = td_vformat(format, arguments);
    va_end(arguments);
    const size_t named = message && node->line <= 0 ? named_already(node->origin, message) : 0;
    td_status *status = td_status_create(TD_INVALID_ARGUMENT, file, line, "%s%s", named ? node->origin : "",
                                         message ? message + named : "out of memory");
    td_free(message);
    if (node->line > 0)
        return td_status_prefix(status, "%s:%d:%d", node->origin, node->line, node->column);
    return named ? status : td_status_prefix(status, "%s", node->origin);
}

const char *td_config_keep_origin(td_config *config, const char *text)
{
    td_status *status = td_grow(&config->origins, &config->origins_capacity, config->n_origins, sizeof(char *));
    char *copy = status ? NULL : td_strdup(text);
    td_status_destroy(status);
    if (copy)
        config->origins[config->n_origins++] = copy;
    return copy;
}
