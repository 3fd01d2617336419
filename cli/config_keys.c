/* The table of keys and finding one in it, or the nearest. */
#include <string.h>

#include "base/nearest.h"
#include "cli/config.h"
#include "cli/config_keys.h"

static const td_config_key keys[] = {
#include "cli/config.def"
};

int32_t td_config_key_count(void)
{
    return (int32_t)(sizeof keys / sizeof *keys);
}

const td_config_key *td_config_key_at(int32_t index)
{
    return index >= 0 && index < td_config_key_count() ? &keys[index] : NULL;
}

const td_config_key *td_config_key_find(const char *name)
{
    for (int32_t i = 0; i < td_config_key_count(); i++)
        if (!strcmp(keys[i].name, name))
            return &keys[i];
    return NULL;
}

bool td_config_is_section(const char *name)
{
    size_t length = strlen(name);
    for (int32_t i = 0; i < td_config_key_count(); i++)
        if (!strncmp(keys[i].name, name, length) && keys[i].name[length] == '.')
            return true;
    return false;
}

const char *td_config_type_name(td_config_type type)
{
    switch (type) {
    case TD_CONFIG_INT:
        return "an integer";
    case TD_CONFIG_FLOAT:
        return "a number";
    case TD_CONFIG_BOOL:
        return "on or off";
    case TD_CONFIG_STRING:
        return "a text";
    case TD_CONFIG_ENUM:
        return "one of";
    case TD_CONFIG_SIZE:
        return "a size in bytes (256MiB, 1.5GB)";
    case TD_CONFIG_RATE:
        return "a rate in bytes per second (12GB/s)";
    case TD_CONFIG_SECONDS:
        return "a time (8us, 1.5s)";
    case TD_CONFIG_INTS:
        return "a list of integers";
    case TD_CONFIG_FLOATS:
        return "a list of numbers";
    case TD_CONFIG_STRINGS:
        return "a list of texts";
    case TD_CONFIG_LISTS:
        return "a list of lists of texts";
    case TD_CONFIG_MAPS:
        return "a list of maps";
    }
    return "a value";
}

/* ---- the nearest name ------------------------------------------------------------------------------------------------ */

enum { FARTHEST = 1000 };

bool td_config_close(const char *a, const char *b, int *in_out_best)
{
    int allowed = (int)strlen(a) / 3;
    if (allowed < 2)
        allowed = strlen(a) < 5 ? 1 : 2;
    int distance = td_edit_distance(a, b);
    if (distance > allowed || distance >= *in_out_best)
        return false;
    *in_out_best = distance;
    return true;
}

/* What people call a key that has another name here: a last word, the section it stands in (NULL: any), the key. */
static const struct {
    const char *word, *section, *key;
} other_words[] = {
    {"separator", "data", "data.delimiter"},
    {"sep", "data", "data.delimiter"},
    {"delim", "data", "data.delimiter"},
    {"cross", "data", "data.crosses"},
    {"buckets", "data", "data.cross_buckets"},
    {"batch_size", NULL, "data.batch"},
    {"path", "data", "data.train"},
    {"file", "data", "data.train"},
    {"target", "data", "data.label"},
    {"features", "data", "data.numeric"},
    {"columns", "data", "data.categorical"},
    {"validation", "data", "data.test"},
    {"device", "placement.rules[]", "placement.rules[].target"},
    {"to", "placement.rules[]", "placement.rules[].target"},
    {"name", "placement.rules[]", "placement.rules[].match"},
    {"pattern", "placement.rules[]", "placement.rules[].match"},
    {"rule", NULL, "placement.rules"},
    {"rules", NULL, "placement.rules"},
    {"learning_rate", NULL, "optimizer[].lr"},
    {"wd", NULL, "optimizer[].weight_decay"},
    {"gradient_clip", NULL, "train.clip_norm"},
    {"max_norm", NULL, "train.clip_norm"},
    {"dtype", "train", "train.precision"},
    {"lr", NULL, "optimizer[].lr"},
};

static const char *by_other_word(const char *section, size_t length, const char *word)
{
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words; i++) {
        const char *wanted = other_words[i].section;
        if (!strcmp(other_words[i].word, word) &&
            (!wanted || (strlen(wanted) == length && !strncmp(wanted, section, length))))
            return other_words[i].key;
    }
    return NULL;
}

/* The last word of a dotted name. */
static const char *leaf(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The sections of the table, each once, in its order. */
static const char *section_at(int32_t index)
{
    static const char *const sections[] = {"model", "data",    "devices",   "tables",     "placement", "offload",
                                           "train", "compile", "optimizer", "checkpoint", "profile",   "summary",
                                           "ps",    "cpu",     "log",       "landscape"};
    return (size_t)index < sizeof sections / sizeof *sections ? sections[index] : NULL;
}

/* Among the keys that begin with the same section (`length`: its dot included) the one whose last word is near, or begins with
 * the other or the other with it; NULL: none. */
static const char *in_section(const char *name, size_t length, const char *word)
{
    const char *nearest = NULL, *longer = NULL;
    const size_t letters = strlen(word);
    int best = letters < 4 ? 2 : FARTHEST; /* any two short words are near each other */
    for (int32_t i = 0; length && i < td_config_key_count(); i++) {
        const char *other = leaf(keys[i].name);
        const size_t shorter = letters < strlen(other) ? letters : strlen(other);
        if ((size_t)(other - keys[i].name) != length || strncmp(keys[i].name, name, length) != 0)
            continue;
        if (td_config_close(word, other, &best))
            nearest = keys[i].name;
        if (shorter > 2 && !strncmp(word, other, shorter))
            longer = keys[i].name;
    }
    return nearest ? nearest : longer;
}

const char *td_config_key_nearest(const char *name)
{
    const char *word = leaf(name);
    const size_t section = (size_t)(word - name); /* its dot included */
    const char *nearest = by_other_word(name, section ? section - 1 : 0, word);
    if (!nearest)
        nearest = in_section(name, section, word);
    if (nearest)
        return nearest;
    int best = FARTHEST;
    for (int32_t i = 0; i < td_config_key_count(); i++)
        if ((!section || strncmp(keys[i].name, name, section) != 0) && td_config_close(name, keys[i].name, &best))
            nearest = keys[i].name;
    for (int32_t i = 0; section_at(i); i++)
        if (td_config_close(name, section_at(i), &best))
            nearest = section_at(i);
    if (nearest)
        return nearest;
    for (int32_t i = 0; i < td_config_key_count(); i++) /* the right word in the wrong place */
        if (!strcmp(leaf(name), leaf(keys[i].name)))
            return keys[i].name;
    return NULL;
}
