/* See weight_names.h. */
#include "runtime/weight_names.h"

#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "base/string.h"

enum { MOST_STARS = 8 };

/* What each * of a pattern stands for in a name. */
typedef struct parts {
    const char *text[MOST_STARS];
    int length[MOST_STARS];
} parts;

/* As td_glob_match; each * stands for as little as it can. `star`: the number of the next one. */
static bool match_parts(const char *pattern, const char *name, int star, parts *out)
{
    for (; *pattern && *pattern != '*'; pattern++, name++)
        if (!*name || (*pattern != '?' && *pattern != *name))
            return false;
    if (!*pattern)
        return !*name;
    for (int length = 0;; length++) {
        out->text[star] = name;
        out->length[star] = length;
        if (match_parts(pattern + 1, name + length, star + 1, out))
            return true;
        if (!name[length])
            return false;
    }
}

static int count_stars(const char *pattern)
{
    int n = 0;
    for (; *pattern; pattern++)
        n += *pattern == '*';
    return n;
}

td_status *td_weight_names_check(const td_weights *weights)
{
    for (int32_t i = 0; i < weights->n_map; i++) {
        const td_weight_name *entry = &weights->map[i];
        if (count_stars(entry->match) > MOST_STARS)
            return TD_ERROR(TD_INVALID_ARGUMENT, "weights: \"%s\" has more than %d *", entry->match, (int)MOST_STARS);
        if (count_stars(entry->from) > count_stars(entry->match))
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "weights: \"%s\" has more * than \"%s\", which says what they stand for", entry->from,
                            entry->match);
    }
    return NULL;
}

static td_status *fill_in(const char *from, const parts *p, char **out_name)
{
    td_string text = {0};
    int star = 0;
    for (; *from; from++)
        if (*from == '*') {
            td_string_append_bytes(&text, p->text[star], (size_t)p->length[star]);
            star++;
        } else {
            td_string_append_bytes(&text, from, 1);
        }
    return td_string_finish(&text, out_name);
}

td_status *td_weight_name_of(const td_weights *weights, const char *parameter, char **out_name, bool *out_transpose)
{
    parts p;
    *out_name = NULL;
    *out_transpose = false;
    for (int32_t i = 0; i < weights->n_keep; i++)
        if (td_glob_match(weights->keep[i], parameter))
            return NULL;
    for (int32_t i = 0; i < weights->n_map; i++) {
        if (!match_parts(weights->map[i].match, parameter, 0, &p))
            continue;
        *out_transpose = weights->map[i].transpose;
        return fill_in(weights->map[i].from, &p, out_name);
    }
    *out_name = td_strdup(parameter);
    return *out_name ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a tensor's name");
}

bool td_weight_is_ignored(const td_weights *weights, const char *tensor)
{
    for (int32_t i = 0; i < weights->n_ignore; i++)
        if (td_glob_match(weights->ignore[i], tensor))
            return true;
    return false;
}
