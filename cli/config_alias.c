/* Other spellings of keys, made into those of the table before anything is checked: bare strings in lists of maps, and
 * the words that MindSpore's users know. */
#include <string.h>

#include "base/memory.h"
#include "cli/config_tree.h"

typedef enum alias_value {
    SAME,          /* the value as it is */
    ZERO_IF_FALSE, /* false: 0; true: nothing */
    NOT            /* false: true; true: false */
} alias_value;

/* `map`: a section, or the list of maps whose items have it. */
static const struct {
    const char *map, *name, *meaning;
    alias_value value;
} aliases[] = {
    {"train", "mini_steps", "accumulate", SAME},
    {"train.accumulate_from[]", "mini_steps", "accumulate", SAME},
    {"placement.rules[]", "primitive_target", "target", SAME},
    {"optimizer[]", "learning_rate", "lr", SAME},
    {"optimizer[]", "is_group_lr", "lr", SAME},
    {"optimizer[]", "decay_flags", "weight_decay", ZERO_IF_FALSE},
    {"optimizer[]", "optim_filter", "frozen", NOT},
};

static td_status *set_text(td_config_node *node, const char *text)
{
    char *copy = td_strdup(text);
    if (!copy)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a value");
    td_free(node->text);
    node->text = copy;
    return NULL;
}

/* "decay_flags: false" becomes "weight_decay: 0". *out_drop: the key says nothing and goes. */
static td_status *translate(td_config_node *node, size_t alias, bool *out_drop)
{
    *out_drop = false;
    bool flag = false;
    alias_value value = aliases[alias].value;
    if (value != SAME && (node->kind != TD_NODE_SCALAR || !td_config_to_bool(node->text, &flag)))
        return TD_NODE_ERROR(node, "%s must be true or false", aliases[alias].name);
    if (value == ZERO_IF_FALSE && flag)
        *out_drop = true;
    else if (value == ZERO_IF_FALSE)
        TD_TRY(set_text(node, "0"));
    else if (value == NOT)
        TD_TRY(set_text(node, flag ? "false" : "true"));
    char *key = td_strdup(aliases[alias].meaning);
    if (!key)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a key");
    td_free(node->key);
    node->key = key;
    return NULL;
}

static td_status *replace_aliases(td_config_node *map, const char *name)
{
    for (size_t a = 0; a < sizeof aliases / sizeof *aliases; a++) {
        td_config_node *node = strcmp(aliases[a].map, name) ? NULL : td_config_node_child(map, aliases[a].name);
        if (!node)
            continue;
        if (td_config_node_child(map, aliases[a].meaning))
            return TD_NODE_ERROR(node, "%s and %s are the same setting; remove one", aliases[a].name,
                                 aliases[a].meaning);
        bool drop;
        TD_TRY(translate(node, a, &drop));
        for (int64_t i = 0; drop && i < map->n_children; i++)
            if (map->children[i] == node) {
                td_config_node_destroy(td_config_node_take(map, i));
                break;
            }
    }
    return NULL;
}

/* "cpu" becomes {name: cpu}. */
static td_status *wrap(td_config_node *list, int64_t index, const char *key)
{
    td_config_node *scalar = list->children[index], *map = NULL;
    TD_TRY(td_config_node_create(TD_NODE_MAP, scalar->origin, scalar->line, scalar->column, &map));
    list->children[index] = map;
    return td_config_node_append(map, key, scalar);
}

static td_status *normalise_list(td_config_node *list, const td_config_key *key)
{
    char name[96];
    snprintf(name, sizeof name, "%s[]", key->name);
    for (int64_t i = 0; i < list->n_children; i++) {
        if (list->children[i]->kind == TD_NODE_SCALAR && key->item)
            TD_TRY(wrap(list, i, key->item));
        if (list->children[i]->kind == TD_NODE_MAP)
            TD_TRY(replace_aliases(list->children[i], name));
    }
    return NULL;
}

/* The sections that have other spellings. */
static td_status *normalise_sections(td_config *config)
{
    for (size_t a = 0; a < sizeof aliases / sizeof *aliases; a++) {
        td_config_node *node = td_config_node_at(config->root, aliases[a].map);
        if (node && node->kind == TD_NODE_MAP)
            TD_TRY(replace_aliases(node, aliases[a].map));
    }
    return NULL;
}

/* A key that may be a map of one number: "optimizer: {ratio: 0.6}" becomes "optimizer: cpu" and "ratio: 0.6" beside it. */
typedef struct split_key {
    const char *section, *key, *number, *text, *rule, *name, *form;
} split_key;
static const split_key split_keys[] = {{"offload", "optimizer", "ratio", "cpu",
                                        "offload.optimizer is none, cpu, auto or {ratio: 0.6}", "offload.optimizer",
                                        "{ratio: 0.6}"},
                                       {"ps", "consistency", "stale", "stale",
                                        "ps.consistency is sync, async or {stale: 2}", "ps.consistency", "{stale: 2}"}};

const char *td_config_map_form(const char *key)
{
    for (size_t i = 0; i < sizeof split_keys / sizeof *split_keys; i++)
        if (!strcmp(split_keys[i].name, key))
            return split_keys[i].form;
    return NULL;
}

static td_status *split(td_config_node *section, const split_key *s)
{
    td_config_node *key = section && section->kind == TD_NODE_MAP ? td_config_node_child(section, s->key) : NULL;
    if (!key || key->kind != TD_NODE_MAP)
        return NULL;
    td_config_node *number = td_config_node_child(key, s->number);
    if (!number || key->n_children != 1 || number->kind != TD_NODE_SCALAR)
        return TD_NODE_ERROR(key, "%s", s->rule);
    if (td_config_node_child(section, s->number))
        return TD_NODE_ERROR(number, "%s.%s is given twice; remove one", s->section, s->number);
    (void)td_config_node_take(key, 0);
    td_status *status = set_text(key, s->text);
    if (status) {
        td_config_node_destroy(number);
        return status;
    }
    key->kind = TD_NODE_SCALAR;
    return td_config_node_append(section, s->number, number);
}

td_status *td_config_normalise(td_config *config)
{
    TD_TRY(normalise_sections(config));
    for (size_t i = 0; i < sizeof split_keys / sizeof *split_keys; i++)
        TD_TRY(split(td_config_node_at(config->root, split_keys[i].section), &split_keys[i]));
    for (int32_t i = 0; i < td_config_key_count(); i++) {
        const td_config_key *key = td_config_key_at(i);
        td_config_node *node = key->type == TD_CONFIG_MAPS ? td_config_node_at(config->root, key->name) : NULL;
        if (node && node->kind == TD_NODE_LIST)
            TD_TRY(normalise_list(node, key));
    }
    return NULL;
}
