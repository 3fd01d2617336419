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
        allowed = 2;
    int distance = td_edit_distance(a, b);
    if (distance > allowed || distance >= *in_out_best)
        return false;
    *in_out_best = distance;
    return true;
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

const char *td_config_key_nearest(const char *name)
{
    const char *nearest = NULL;
    int best = FARTHEST;
    for (int32_t i = 0; i < td_config_key_count(); i++)
        if (td_config_close(name, keys[i].name, &best))
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
