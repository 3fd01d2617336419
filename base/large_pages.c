/* See base/large_pages.h. */
#include "base/large_pages.h"

#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; an older one refuses it, and takes its time after MADV_HUGEPAGE */
#endif

void td_large_page_hold(void *page)
{
    (void)madvise(page, TD_LARGE_PAGE_BYTES, MADV_HUGEPAGE);
    (void)madvise(page, TD_LARGE_PAGE_BYTES, MADV_COLLAPSE);
}
