/* Holding a configuration against the table: unknown keys, types, ranges, keys that do not apply, keys that are missing;
 * then the defaults. The first mistake is reported, with its place. */
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/config_keys.h"
#include "cli/config_tree.h"
#include "cli/model.h"

/* ---- one value -------------------------------------------------------------------------------------------------------- */

/* An integer in form, but of more digits than 64 bits hold. */
static bool is_long_integer(const char *text, td_config_type type)
{
    const bool whole = type == TD_CONFIG_INT || type == TD_CONFIG_INTS;
    const char *digits = text + (*text == '-' || *text == '+');
    return whole && *digits && !digits[strspn(digits, "0123456789")];
}

/* What has a unit is read by base/units.h: what it says of a text that is none, or too large. NULL: nothing, or without a unit. */
static td_status *unit_error(const char *text, td_config_type type)
{
    int64_t bytes;
    double number;
    switch (type) {
    case TD_CONFIG_SIZE:
        return td_parse_bytes(text, &bytes);
    case TD_CONFIG_RATE:
        return td_parse_rate(text, &number);
    case TD_CONFIG_SECONDS:
        return td_parse_seconds(text, &number);
    default:
        return NULL;
    }
}

static td_status *wrong_enum(const td_config_node *node, const td_config_key *key)
{
    const char *form = td_config_map_form(key->name), *nor = form ? ", nor " : "";
    if (node->kind != TD_NODE_SCALAR)
        return TD_NODE_ERROR(node, "%s must be one of %s, not a %s", key->name, key->allowed,
                             node->kind == TD_NODE_LIST ? "list" : "map");
    return TD_NODE_ERROR(node, "%s: \"%s\" is not one of %s%s%s", key->name, node->text, key->allowed, nor,
                         form ? form : "");
}

static td_status *wrong_type(const td_config_node *node, const td_config_key *key)
{
    td_status *status, *told;
    if (key->type == TD_CONFIG_ENUM)
        return wrong_enum(node, key);
    if (node->kind != TD_NODE_SCALAR)
        status = TD_NODE_ERROR(node, "%s must be %s, not a %s", key->name, td_config_type_name(key->type),
                               node->kind == TD_NODE_LIST ? "list" : "map");
    else if ((told = unit_error(node->text, key->type))) {
        status = TD_NODE_ERROR(node, "%s: %s", key->name, td_status_message(told));
        td_status_destroy(told);
    } else if (is_long_integer(node->text, key->type))
        status = TD_NODE_ERROR(node, "%s: %s is more than 64 bits hold", key->name, node->text);
    else
        status = TD_NODE_ERROR(node, "%s: \"%s\" is not %s", key->name, node->text, td_config_type_name(key->type));
    if (key->type == TD_CONFIG_LISTS || key->type == TD_CONFIG_MAPS)
        status = td_status_help(status, "%s: %s", key->name, key->help);
    return status;
}

static td_status *check_range(const td_config_node *node, const td_config_key *key, double value)
{
    if (key->least == 0 && key->most == 0)
        return NULL;
    if (value >= key->least && value <= key->most)
        return NULL;
    bool below = value < key->least;
    const char *unit = key->unit ? key->unit : key->type == TD_CONFIG_SECONDS ? "seconds" : "";
    return TD_NODE_ERROR(node, "%s: %s is %s allowed, %.15g%s%s%s", key->name, node->text,
                         below ? "below the least" : "above the most", below ? key->least : key->most,
                         unit[0] ? " (" : "", unit, unit[0] ? ")" : "");
}

static td_status *check_number(const td_config_node *node, const td_config_key *key)
{
    int64_t whole = 0;
    double number = 0;
    bool good;
    switch (key->type) {
    case TD_CONFIG_SIZE:
        good = td_config_to_size(node->text, &whole);
        number = (double)whole;
        break;
    case TD_CONFIG_RATE:
        good = td_config_to_rate(node->text, &number);
        break;
    case TD_CONFIG_SECONDS:
        good = td_config_to_seconds(node->text, &number);
        break;
    case TD_CONFIG_INT:
    case TD_CONFIG_INTS:
        good = td_config_to_int(node->text, &whole);
        number = (double)whole;
        break;
    default:
        good = td_config_to_float(node->text, &number);
        break;
    }
    return good ? check_range(node, key, number) : wrong_type(node, key);
}

static td_status *check_scalar(const td_config_node *node, const td_config_key *key)
{
    bool flag;
    if (node->kind != TD_NODE_SCALAR)
        return wrong_type(node, key);
    switch (key->type) {
    case TD_CONFIG_BOOL:
        return td_config_to_bool(node->text, &flag) ? NULL : wrong_type(node, key);
    case TD_CONFIG_ENUM:
        return td_config_is_one_of(node->text, key->allowed) ? NULL : wrong_type(node, key);
    case TD_CONFIG_STRING:
    case TD_CONFIG_STRINGS:
    case TD_CONFIG_LISTS:
        return NULL;
    default:
        return check_number(node, key);
    }
}

static td_status *check_list(const td_config_node *node, const td_config_key *key)
{
    if (node->kind == TD_NODE_SCALAR && key->type == TD_CONFIG_LISTS)
        return wrong_type(node, key);
    if (node->kind == TD_NODE_SCALAR) /* one value is a list of one */
        return check_scalar(node, key);
    if (node->kind != TD_NODE_LIST)
        return wrong_type(node, key);
    for (int64_t i = 0; i < node->n_children; i++) {
        const td_config_node *item = node->children[i];
        bool inner = key->type == TD_CONFIG_LISTS && item->kind == TD_NODE_LIST;
        if (!inner && key->type == TD_CONFIG_LISTS)
            return wrong_type(item, key);
        for (int64_t j = 0; inner && j < item->n_children; j++)
            TD_TRY(check_scalar(item->children[j], key));
        if (!inner)
            TD_TRY(check_scalar(item, key));
    }
    return NULL;
}

static td_status *check_map(td_config_node *map, const char *prefix);

static td_status *check_maps(td_config_node *node, const td_config_key *key)
{
    char prefix[96];
    if (node->kind != TD_NODE_LIST)
        return wrong_type(node, key);
    snprintf(prefix, sizeof prefix, "%s[].", key->name);
    for (int64_t i = 0; i < node->n_children; i++) {
        if (node->children[i]->kind != TD_NODE_MAP)
            return wrong_type(node->children[i], key);
        TD_TRY(check_map(node->children[i], prefix));
    }
    return NULL;
}

static td_status *check_value(td_config_node *node, const td_config_key *key)
{
    switch (key->type) {
    case TD_CONFIG_MAPS:
        return check_maps(node, key);
    case TD_CONFIG_INTS:
    case TD_CONFIG_FLOATS:
    case TD_CONFIG_STRINGS:
    case TD_CONFIG_LISTS:
        return check_list(node, key);
    default:
        return check_scalar(node, key);
    }
}

/* ---- a map of keys ---------------------------------------------------------------------------------------------------- */

static td_status *unknown_key(const td_config_node *node, const char *name)
{
    const char *nearest = td_config_key_nearest(name);
    const char *dot = strchr(name, '.');
    int section = dot ? (int)(dot - name) : 0;
    if (section >= 2 && !strncmp(name + section - 2, "[]", 2))
        section -= 2;
    char word[96];
    snprintf(word, sizeof word, "%.*s", section, name);
    bool known = section && (td_config_is_section(word) || td_config_key_find(word));
    const char *space = known ? " " : "", *shown = known ? word : "";
    const bool said = node->line <= 0 && !strncmp(node->origin, "--set ", 6) && !strcmp(node->origin + 6, name);
    char which[200] = "";
    if (!said)
        (void)snprintf(which, sizeof which, " \"%s\"", name);
    if (!nearest)
        return TD_NODE_ERROR(node, "unknown key%s (tandem config --explain%s%s)", which, space, shown);
    return TD_NODE_ERROR(node, "unknown key%s; did you mean \"%s\"? (tandem config --explain%s%s)", which, nearest,
                         space, shown);
}

/* `prefix` ends with a dot, or is "". */
static td_status *check_map(td_config_node *map, const char *prefix)
{
    for (int64_t i = 0; i < map->n_children; i++) {
        td_config_node *child = map->children[i];
        char name[192];
        int length = snprintf(name, sizeof name - 1, "%s%s", prefix, child->key);
        if (length < 0 || (size_t)length >= sizeof name - 1)
            return TD_NODE_ERROR(child, "unknown key \"%.80s...\"", child->key);
        const td_config_key *key = td_config_key_find(name);
        if (!key && !td_config_is_section(name))
            return unknown_key(child, name);
        if (td_config_node_is_null(child) && key && key->allowed && td_config_is_one_of(child->text, key->allowed))
            child->quoted = true; /* log.level: null is a value */
        if (td_config_node_is_null(child))
            continue; /* as if it were not there */
        if (key) {
            TD_TRY(check_value(child, key));
            continue;
        }
        if (child->kind != TD_NODE_MAP)
            return child->line > 0 ? TD_NODE_ERROR(child, "%s is a section: its keys go below it, indented", name)
                                   : TD_NODE_ERROR(child, "%s is a section: --set %s.KEY=VALUE", name, name);
        strcat(name, ".");
        TD_TRY(check_map(child, name));
    }
    return NULL;
}

/* ---- conditions and defaults -------------------------------------------------------------------------------------------- */

/* True when `key` applies; *out_value is what decided it (NULL: the deciding key has no value). */
static bool applies(const td_config *config, const td_config_key *key, const char **out_value)
{
    *out_value = NULL;
    if (!key->when)
        return true;
    const char *equals = strchr(key->when, '=');
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(equals - key->when), key->when);
    const td_config_node *decider = td_config_node_at(config->root, name);
    if (!decider || decider->kind != TD_NODE_SCALAR || td_config_node_is_null(decider))
        return false;
    *out_value = decider->text;
    return td_config_is_one_of(decider->text, equals + 1);
}

/* A key of another model may only be one of a model that is spelled wrong. */
static bool is_model(const char *name)
{
    for (int32_t i = 0; i < td_model_count(); i++)
        if (!strcmp(td_model_name(i), name))
            return true;
    return false;
}

static td_status *does_not_apply(const td_config_node *node, const td_config_key *key, const char *value)
{
    const char *equals = strchr(key->when, '=');
    int length = (int)(equals - key->when);
    if (!value)
        return TD_NODE_ERROR(node, "%s needs %.*s (%s)", key->name, length, key->when, equals + 1);
    return TD_NODE_ERROR(node, "%s does not apply to %.*s %s; it is for %s", key->name, length, key->when, value,
                         equals + 1);
}

/* Puts `child` at `path` below `map`, making sections on the way. Takes child. */
static td_status *insert(td_config_node *map, const char *path, td_config_node *child)
{
    const char *dot = strchr(path, '.');
    if (!dot)
        return td_config_node_append(map, path, child);
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(dot - path), path);
    td_config_node *section = td_config_node_child(map, word);
    if (section && section->kind == TD_NODE_MAP)
        return insert(section, dot + 1, child);
    td_status *status = td_config_node_create(TD_NODE_MAP, "default", 0, 0, &section);
    if (!status) {
        section->is_default = true;
        status = td_config_node_append(map, word, section);
    }
    if (!status)
        return insert(section, dot + 1, child);
    td_config_node_destroy(child);
    return status;
}

static void remove_nulls(td_config_node *map)
{
    for (int64_t i = map->n_children - 1; i >= 0; i--) {
        td_config_node *child = map->children[i];
        if (child->kind == TD_NODE_MAP || child->kind == TD_NODE_LIST)
            remove_nulls(child);
        else if (map->kind == TD_NODE_MAP && td_config_node_is_null(child))
            td_config_node_destroy(td_config_node_take(map, i));
    }
}

/* `base`: a map whose keys' rows begin with `prefix`. */
static td_status *fill(const td_config *config, td_config_node *base, const td_config_key *key, const char *path)
{
    const char *value;
    td_config_node *node = td_config_node_at(base, path);
    bool does = applies(config, key, &value);
    if (node && !does && value && !strncmp(key->when, "model.name=", 11) && !is_model(value))
        return NULL; /* what reads model.name says that there is no such model */
    if (node && !does)
        return does_not_apply(node, key, value);
    if (node || !does)
        return NULL;
    if (!key->fallback)
        return key->required ? TD_NODE_ERROR(base, "%s is missing: %s", key->name, key->help) : NULL;
    TD_TRY(td_config_yaml(key->fallback, strlen(key->fallback), "default", false, &node));
    node->is_default = true;
    return insert(base, path, node);
}

/* Fills one row of the table wherever it belongs: in the root, or in every item of its list. */
static td_status *fill_key(const td_config *config, const td_config_key *key)
{
    const char *items = strstr(key->name, "[].");
    if (!items)
        return fill(config, config->root, key, key->name);
    char list_name[96];
    snprintf(list_name, sizeof list_name, "%.*s", (int)(items - key->name), key->name);
    td_config_node *list = td_config_node_at(config->root, list_name);
    for (int64_t i = 0; list && i < list->n_children; i++)
        TD_TRY(fill(config, list->children[i], key, items + 3));
    return NULL;
}

td_status *td_config_resolve(td_config *config)
{
    TD_TRY(td_config_normalise(config));
    TD_TRY(check_map(config->root, ""));
    remove_nulls(config->root);
    for (int32_t i = 0; i < td_config_key_count(); i++) {
        const td_config_key *key = td_config_key_at(i);
        TD_TRY(fill_key(config, key));
        if (key->type == TD_CONFIG_MAPS) /* a default list has bare strings too */
            TD_TRY(td_config_normalise(config));
    }
    return NULL;
}
