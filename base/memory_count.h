/* For memory that does not come from base/memory.h and is counted all the same. */
#ifndef TANDEM_BASE_MEMORY_COUNT_H
#define TANDEM_BASE_MEMORY_COUNT_H

#include <stdbool.h>
#include <stddef.h>

/* False: this one was to fail (td_memory_fail_after); nothing is counted then. */
bool td_memory_count(size_t bytes);
void td_memory_uncount(size_t bytes);

#endif
