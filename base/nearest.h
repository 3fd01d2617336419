/* The closest of some names, for "did you mean": by edits (insert, delete, replace, swap neighbours; case ignored), or because one
 * has the other in it: "rating" is meant to be "user.rating". */
#ifndef TANDEM_BASE_NEAREST_H
#define TANDEM_BASE_NEAREST_H

#include <stdbool.h>
#include <stdint.h>

/* How many edits turn `a` into `b`; only the first 63 characters of each count. */
int32_t td_edit_distance(const char *a, const char *b);

/* The name among at(context, 0 .. n - 1) with the fewest edits from `name` (a pattern: from the beginning of one); where none is near
 * by edits, one that has `name` in it or whose words `name` has, rather as a word. Of equals the first by alphabet, whatever their order.
 * NULL from `at`: no name; NULL: there are none. */
const char *td_nearest(const char *name, int32_t n, const char *(*at)(const void *context, int32_t index),
                       const void *context);

/* How many edits make of `start`, or of what a pattern has before its first *, a name or the beginning of one. */
int32_t td_start_distance(const char *start, const char *name);
/* Whether a name is what `name` was probably meant to be: no more edits than a third of its letters from it or from its beginning, or
 * one has the other in it. One or two letters begin too much, and are in too much. */
bool td_is_near(const char *name, const char *nearest);
/* "; did you mean \"x\"?" into the buffer, "" where nothing is near (or nearest is NULL). Returns it. */
enum { TD_MEANT = 160 };
const char *td_meant(char buffer[TD_MEANT], const char *name, const char *nearest);

#endif
