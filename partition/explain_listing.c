/* Lists of names in what td_plan_explain says, and their bytes: see partition/explain.h. */
#include "partition/explain.h"

enum { MOST_NAMES = 8 };

bool td_listing_add(td_listing *l, const char *name)
{
    const bool shown = l->n++ < MOST_NAMES;
    if (shown)
        td_string_format(l->text, "%s%s", l->n > 1 ? ", " : l->lead, name);
    return shown;
}

void td_listing_end(const td_listing *l)
{
    if (l->n > MOST_NAMES)
        td_string_format(l->text, " and %d more", l->n - MOST_NAMES);
    if (l->n)
        td_string_append(l->text, "\n");
}

int64_t td_explained_bytes(const td_plan *plan, int32_t value)
{
    const int64_t *bytes = plan->values[value].bytes;
    return bytes[0] + bytes[1] + bytes[2];
}
