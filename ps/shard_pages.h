/* Which stretches of a shard's array are full of rows, and so worth a large page each (base/large_pages.h).
 *
 * A stretch counts the rows that ever began in it. Rows lie side by side in small pages, so long before all have begun each small
 * page is taken, and holding the whole takes no memory on top; where rows are as large as pages nearly all must have begun. A
 * stretch whose neighbours are not held divides the reservation for the kernel, which allows some 65,000 parts to a process: there
 * is a bound on how many. */
#ifndef TANDEM_PS_SHARD_PAGES_H
#define TANDEM_PS_SHARD_PAGES_H

#include <stdint.h>

#include "tandem/status.h"

typedef struct td_shard_pages {
    char *first;       /* whole stretches begin here */
    int64_t n;         /* of them */
    uint32_t *filled;  /* rows that ever began, by stretch; address space */
    uint32_t enough;   /* rows */
    int64_t row_bytes; /* of the array */
    int64_t held, islands;
} td_shard_pages;

/* For an array of `bytes` at `base`, which stays the caller's. */
td_status *td_shard_pages_init(td_shard_pages *pages, char *base, int64_t bytes, int64_t row_bytes) TD_MUST_USE;
void td_shard_pages_deinit(td_shard_pages *pages);
/* All rows are gone. */
void td_shard_pages_clear(td_shard_pages *pages);
/* A row begins. */
void td_shard_pages_count(td_shard_pages *pages, const char *row);

#endif
