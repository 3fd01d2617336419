/* See shard_pages.h. */
#include "ps/shard_pages.h"

#include <stdbool.h>

#include "base/large_pages.h"
#include "base/memory.h"

enum { MOST_ISLANDS = 256 };

td_status *td_shard_pages_init(td_shard_pages *pages, char *base, int64_t bytes, int64_t row_bytes)
{
    const uintptr_t mask = TD_LARGE_PAGE_BYTES - 1, begin = ((uintptr_t)base + mask) & ~mask;
    const int64_t skipped = (int64_t)(begin - (uintptr_t)base);
    const int64_t rows = TD_LARGE_PAGE_BYTES / row_bytes;
    *pages = (td_shard_pages){.row_bytes = row_bytes};
    if (bytes - skipped < TD_LARGE_PAGE_BYTES || rows < 1)
        return NULL;
    pages->first = base + skipped;
    pages->n = (bytes - skipped) / TD_LARGE_PAGE_BYTES;
    /* Of 8 rows and more to a small page, one that none of three in four rows touches is one in 65,000. */
    pages->enough = (uint32_t)(row_bytes * 8 <= (int64_t)td_page_bytes() ? rows * 3 / 4 : rows * 15 / 16);
    pages->enough = pages->enough ? pages->enough : 1;
    pages->filled = td_reserve((size_t)pages->n * sizeof *pages->filled);
    return pages->filled ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "no address space for a table's pages");
}

void td_shard_pages_deinit(td_shard_pages *pages)
{
    td_unreserve(pages->filled, (size_t)pages->n * sizeof *pages->filled);
    *pages = (td_shard_pages){0};
}

void td_shard_pages_clear(td_shard_pages *pages)
{
    if (pages->filled)
        td_reserve_drop(pages->filled, (size_t)pages->n * sizeof *pages->filled);
    pages->held = pages->islands = 0;
}

static bool is_held(const td_shard_pages *pages, int64_t stretch)
{
    return stretch >= 0 && stretch < pages->n && pages->filled[stretch] >= pages->enough;
}

void td_shard_pages_count(td_shard_pages *pages, const char *row)
{
    const int64_t at = row - pages->first;
    if (!pages->filled || at < 0 || at / TD_LARGE_PAGE_BYTES >= pages->n)
        return;
    const int64_t stretch = at / TD_LARGE_PAGE_BYTES;
    if (pages->filled[stretch] >= pages->enough || ++pages->filled[stretch] < pages->enough)
        return;
    const int64_t islands = pages->islands + 1 - is_held(pages, stretch - 1) - is_held(pages, stretch + 1);
    if (islands > MOST_ISLANDS) {
        pages->filled[stretch] = 0; /* another time */
        return;
    }
    pages->islands = islands;
    pages->held++;
    td_large_page_hold(pages->first + stretch * TD_LARGE_PAGE_BYTES);
}
