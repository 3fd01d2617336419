/* What a configuration is made of: scalars, lists and maps that know where they were written. Internal to cli/config*.
 *
 * A node owns its texts and children; its origin is borrowed from the configuration, which keeps all origins. */
#ifndef TANDEM_CLI_CONFIG_TREE_H
#define TANDEM_CLI_CONFIG_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/config.h"

typedef enum td_config_node_kind { TD_NODE_SCALAR, TD_NODE_LIST, TD_NODE_MAP } td_config_node_kind;

struct td_config_node {
    td_config_node_kind kind;
    char *text;  /* scalar */
    bool quoted; /* scalar: written in quotes, so never null */
    bool is_default;
    char *key; /* in the parent map, else NULL */
    const char *origin;
    int32_t line, column; /* of the key where there is one; from 1; 0: the origin says it all */
    td_config_node **children;
    int64_t n_children, capacity;
};

struct td_config {
    char *path;
    td_config_node *root; /* a map */
    char **origins;
    int64_t n_origins, origins_capacity;
};

td_status *td_config_node_create(td_config_node_kind kind, const char *origin, int32_t line, int32_t column,
                                 td_config_node **out_node) TD_MUST_USE;
void td_config_node_destroy(td_config_node *node);
/* Appends; takes `child` in any case. `key` is copied; NULL for lists. */
td_status *td_config_node_append(td_config_node *parent, const char *key, td_config_node *child) TD_MUST_USE;
/* The child of a map, or NULL. */
td_config_node *td_config_node_child(const td_config_node *map, const char *key);
/* Down a dotted path; NULL when it ends early. */
td_config_node *td_config_node_at(const td_config_node *map, const char *path);
/* Removes and returns child `index`. */
td_config_node *td_config_node_take(td_config_node *parent, int64_t index);
/* No value: null, ~ or nothing, unquoted. */
bool td_config_node_is_null(const td_config_node *node);
/* An error at a node's place. */
#define TD_NODE_ERROR(node, ...) td_config_node_error(__FILE__, __LINE__, (node), __VA_ARGS__)
td_status *td_config_node_error(const char *file, int line, const td_config_node *node, const char *format, ...)
    TD_PRINTF(4, 5) TD_MUST_USE;

/* A copy of `text` that lives as long as the configuration; NULL when there is no memory. */
const char *td_config_keep_origin(td_config *config, const char *text);
/* YAML to nodes. An empty text gives a null scalar. */
td_status *td_config_yaml(const char *text, size_t bytes, const char *origin, bool positions,
                          td_config_node **out_node) TD_MUST_USE;
/* What an enumerated key may be besides its words: "{ratio: 0.6}"; NULL: nothing. */
const char *td_config_map_form(const char *key);
/* Expands bare strings of lists of maps and aliases, in place, so that what follows sees table names only. */
td_status *td_config_normalise(td_config *config) TD_MUST_USE;

/* Scalars to numbers; false when the text is none. */
bool td_config_to_int(const char *text, int64_t *out);
bool td_config_to_float(const char *text, double *out);
bool td_config_to_bool(const char *text, bool *out);
bool td_config_to_size(const char *text, int64_t *out_bytes);
bool td_config_to_rate(const char *text, double *out_bytes_per_s);
bool td_config_to_seconds(const char *text, double *out_seconds);
/* True when `text` is one of "a|b|c". */
bool td_config_is_one_of(const char *text, const char *allowed);

#endif
