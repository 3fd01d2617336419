/* Loading a configuration and reading its values: see cli/config.h. */
#include "cli/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "cli/config_tree.h"

enum { LARGEST_FILE = 16 << 20 };

void td_config_destroy(td_config *config)
{
    if (!config)
        return;
    td_config_node_destroy(config->root);
    for (int64_t i = 0; i < config->n_origins; i++)
        td_free(config->origins[i]);
    td_free(config->origins);
    td_free(config->path);
    td_free(config);
}

static td_status *parse_into(td_config *config, const char *text, size_t bytes)
{
    config->path = td_strdup(config->origins[0]);
    if (!config->path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    const char *origin = config->origins[0];
    TD_TRY(td_config_yaml(text, bytes, origin, true, &config->root));
    if (td_config_node_is_null(config->root)) {
        td_config_node_destroy(config->root);
        return td_config_node_create(TD_NODE_MAP, origin, 1, 1, &config->root);
    }
    if (config->root->kind != TD_NODE_MAP)
        return TD_NODE_ERROR(config->root, "a configuration is a map of sections (model:, data:, train:, ...)");
    return NULL;
}

td_status *td_config_parse(const char *text, size_t bytes, const char *origin, td_config **out_config)
{
    *out_config = NULL;
    td_config *config = NULL;
    TD_TRY(TD_NEW(config, 1));
    td_status *status = td_config_keep_origin(config, origin)
                            ? parse_into(config, text, bytes)
                            : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a configuration");
    if (status) {
        td_config_destroy(config);
        return td_status_pass(status, __FILE__, __LINE__);
    }
    *out_config = config;
    return NULL;
}

static td_status *read_all(FILE *file, const char *path, char **out_text, size_t *out_bytes)
{
    TD_TRY(TD_NEW(*out_text, LARGEST_FILE + 1));
    *out_bytes = fread(*out_text, 1, LARGEST_FILE + 1, file);
    if (ferror(file))
        return td_file_error(path, "read", errno);
    if (*out_bytes > LARGEST_FILE)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: larger than 16 MiB; is it a configuration?", path);
    return NULL;
}

td_status *td_config_load(const char *path, td_config **out_config)
{
    *out_config = NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return td_file_error(path, "open", errno);
    char *text = NULL;
    size_t bytes = 0;
    td_status *status = read_all(file, path, &text, &bytes);
    fclose(file);
    if (!status)
        status = td_config_parse(text, bytes, path, out_config);
    td_free(text);
    return status;
}

const char *td_config_origin(const td_config *config)
{
    return config->path;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

td_section td_config_root(const td_config *config)
{
    return (td_section){config, config->root, ""};
}

static const td_config_node *at(td_section section, const char *key)
{
    return key[0] ? td_config_node_at(section.node, key) : section.node;
}

/* Scalar `index` of a list (a scalar counts as a list of one). */
static const char *text_at(const td_config_node *node, int32_t index)
{
    if (!node)
        return NULL;
    if (node->kind == TD_NODE_SCALAR)
        return index == 0 ? node->text : NULL;
    if (node->kind == TD_NODE_MAP || index < 0 || index >= node->n_children)
        return NULL;
    return node->children[index]->text;
}

int32_t td_section_count(td_section section, const char *key)
{
    const td_config_node *node = at(section, key);
    if (!node)
        return 0;
    return node->kind == TD_NODE_SCALAR ? 1 : (int32_t)node->n_children;
}

td_section td_section_item(td_section section, const char *key, int32_t index)
{
    return (td_section){section.config, at(section, key)->children[index], key};
}

bool td_section_has(td_section section, const char *key)
{
    return at(section, key) != NULL;
}

bool td_section_given(td_section section, const char *key)
{
    const td_config_node *node = at(section, key);
    return node && !node->is_default;
}

const char *td_section_string(td_section section, const char *key)
{
    return text_at(at(section, key), 0);
}

const char *td_section_string_at(td_section section, const char *key, int32_t index)
{
    return text_at(at(section, key), index);
}

const char *td_section_list_at(td_section section, const char *key, int32_t index, int32_t inner)
{
    const td_config_node *node = at(section, key);
    if (!node || node->kind != TD_NODE_LIST || index < 0 || index >= node->n_children)
        return NULL;
    return text_at(node->children[index], inner);
}

int64_t td_section_int_at(td_section section, const char *key, int32_t index)
{
    int64_t value = 0;
    const char *text = td_section_string_at(section, key, index);
    return text && td_config_to_int(text, &value) ? value : 0;
}

double td_section_float_at(td_section section, const char *key, int32_t index)
{
    double value = 0;
    const char *text = td_section_string_at(section, key, index);
    return text && td_config_to_float(text, &value) ? value : 0;
}

int64_t td_section_int(td_section section, const char *key)
{
    return td_section_int_at(section, key, 0);
}

double td_section_float(td_section section, const char *key)
{
    return td_section_float_at(section, key, 0);
}

bool td_section_bool(td_section section, const char *key)
{
    bool value = false;
    const char *text = td_section_string(section, key);
    return text && td_config_to_bool(text, &value) && value;
}

int64_t td_section_size(td_section section, const char *key)
{
    int64_t value = 0;
    const char *text = td_section_string(section, key);
    return text && td_config_to_size(text, &value) ? value : 0;
}

double td_section_rate(td_section section, const char *key)
{
    double value = 0;
    const char *text = td_section_string(section, key);
    return text && td_config_to_rate(text, &value) ? value : 0;
}

td_status *td_section_path(td_section section, const char *key, char **out_path)
{
    *out_path = NULL;
    const td_config_node *node = at(section, key);
    if (!node || node->kind != TD_NODE_SCALAR)
        return NULL;
    const char *slash = strrchr(node->origin, '/');
    bool beside = node->line > 0 && node->text[0] != '/' && slash;
    if (beside)
        *out_path = td_format("%.*s/%s", (int)(slash - node->origin), node->origin, node->text);
    else
        *out_path = td_strdup(node->text);
    return *out_path ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the path %s", node->text);
}

double td_section_seconds(td_section section, const char *key)
{
    double value = 0;
    const char *text = td_section_string(section, key);
    return text && td_config_to_seconds(text, &value) ? value : 0;
}

/* ---- places -------------------------------------------------------------------------------------------------------------- */

const char *td_section_place(td_section section, const char *key, char *buffer, size_t bytes)
{
    const td_config_node *node = at(section, key);
    const char *origin = node ? node->origin : "default";
    const char *slash = strrchr(origin, '/');
    if (node && node->line > 0)
        snprintf(buffer, bytes, "%s:%d", slash ? slash + 1 : origin, node->line);
    else
        snprintf(buffer, bytes, "%s", origin);
    return buffer;
}

td_status *td_section_error(const char *file, int line, td_section section, const char *key, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = td_vformat(format, arguments);
    va_end(arguments);
    const td_config_node *node = at(section, key);
    td_status *status = td_config_node_error(file, line, node && !node->is_default ? node : section.node, "%s",
                                             message ? message : key);
    td_free(message);
    return status;
}
