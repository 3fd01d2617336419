/* Name patterns of configurations: `*` is any characters or none (dots and slashes too), `?` exactly one, all else
 * itself. The whole name must match; case counts. */
#ifndef TANDEM_BASE_GLOB_H
#define TANDEM_BASE_GLOB_H

#include <stdbool.h>

bool td_glob_match(const char *pattern, const char *name);

#endif
