/* See base/glob.h. After a mismatch only the last `*` needs to take one character more: a longer match of an earlier
 * one could be given to the last as well. So the time is at most pattern length times name length. */
#include "base/glob.h"

#include <stddef.h>

bool td_glob_match(const char *pattern, const char *name)
{
    const char *after_star = NULL, *retry = NULL;
    while (*name) {
        if (*pattern == '*') {
            after_star = ++pattern;
            retry = name;
        } else if (*pattern == '?' || (*pattern && *pattern == *name)) {
            pattern++;
            name++;
        } else if (after_star) {
            pattern = after_star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
