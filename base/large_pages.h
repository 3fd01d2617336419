/* Large pages where memory is taken anyway: a stretch of a reservation (td_reserve) of which every small page is in use is held as
 * one large page from then on. Reaching a random row of a large table costs half as much then: the processor finds 2 MiB in one
 * step where it walked to 4 KiB. Advice throughout: a kernel that refuses costs speed only. */
#ifndef TANDEM_BASE_LARGE_PAGES_H
#define TANDEM_BASE_LARGE_PAGES_H

#include <stddef.h>

enum { TD_LARGE_PAGE_BYTES = 2 << 20 };

/* `page` is a multiple of TD_LARGE_PAGE_BYTES; that much from there on lies within one reservation. */
void td_large_page_hold(void *page);

#endif
