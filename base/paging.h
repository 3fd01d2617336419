/* Sizes of paged arrays: what the planner proves and the store allocates by. */
#ifndef TANDEM_BASE_PAGING_H
#define TANDEM_BASE_PAGING_H

#include <stdint.h>

enum { TD_PAGE_REF_BYTES = 16 }; /* for each page that may be held */

static inline int64_t td_pages_of(int64_t bytes, int64_t page_bytes)
{
    return bytes / page_bytes + (bytes % page_bytes != 0);
}

/* A stamp and flags for each page of an array. */
static inline int64_t td_page_overhead_bytes(int64_t bytes, int64_t page_bytes)
{
    return td_pages_of(bytes, page_bytes) * (int64_t)(sizeof(uint32_t) + sizeof(uint8_t)) + 2 * page_bytes;
}

/* A bit for each row, and a bit for each 64 of them. */
static inline int64_t td_table_overhead_bytes(int64_t rows)
{
    int64_t words = rows / 64 + 1;
    return (words + words / 64 + 1) * (int64_t)sizeof(uint64_t);
}

#endif
