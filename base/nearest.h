/* The closest of some names, for "did you mean": by edits (insert, delete, replace, swap neighbours; case ignored). */
#ifndef TANDEM_BASE_NEAREST_H
#define TANDEM_BASE_NEAREST_H

#include <stdint.h>

/* How many edits turn `a` into `b`; only the first 63 characters of each count. */
int32_t td_edit_distance(const char *a, const char *b);

/* The name among at(context, 0 .. n - 1) with the fewest edits from `name`, the first of equals; NULL when n is 0. */
const char *td_nearest(const char *name, int32_t n, const char *(*at)(const void *context, int32_t index),
                       const void *context);

#endif
