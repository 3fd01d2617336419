/* Arrays larger than memory: address space of which only some pages are held, at most so many bytes over all arrays of a pool.
 *
 *     td_page_pool_init(&pool, most_bytes, file);          // file NULL: pages are never given up, only counted
 *     TD_TRY(td_page_array_init(&array, &pool, bytes));    // array.base: where it lies
 *     td_page_pool_advance(&pool);                         // a step begins
 *     TD_TRY(td_page_array_hold(&array, begin, end, true));
 *     ... array.base[begin .. end) may be read and written in this step and the next
 *
 * A page that is held lies in memory until it has not been held for two advances; then it may be written to the file, if it was
 * changed, and given up. What was never held reads as zeros, and a page that is not held must not be touched. Whoever holds
 * more at a time than the pool allows gets an error. The caller keeps other threads out of one pool (td_page_pool.mutex is there
 * for that), save for reading and writing what is held. */
#ifndef TANDEM_RUNTIME_PAGES_H
#define TANDEM_RUNTIME_PAGES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/work_file.h"

typedef struct td_page_array td_page_array;

typedef struct td_page_ref {
    td_page_array *array;
    int64_t page;
} td_page_ref;

typedef struct td_page_pool {
    pthread_mutex_t mutex;
    td_work_file *file; /* owned; NULL: none */
    int64_t page_bytes;
    int64_t most_pages, n_held, peak_held;
    int64_t file_bytes; /* laid out so far */
    _Atomic uint32_t now;
    td_page_ref *held; /* reserved: room for most_pages */
    int64_t hand;      /* where the search for pages to give up goes on */
    uint32_t patience; /* advances after which a page may go */
} td_page_pool;

struct td_page_array {
    td_page_pool *pool;
    char *base;
    int64_t bytes, n_pages, offset; /* offset: in the file */
    uint32_t *stamps;               /* per page: the advance of its last hold; 0: not held */
    uint8_t *flags;                 /* per page */
};

/* Takes the file, also when it fails. most_bytes: what may be held; at least one page. */
td_status *td_page_pool_init(td_page_pool *pool, int64_t most_bytes, td_work_file *file) TD_MUST_USE;
/* After all of its arrays. A zeroed pool is fine. */
void td_page_pool_deinit(td_page_pool *pool);
static inline void td_page_pool_advance(td_page_pool *pool)
{
    atomic_fetch_add_explicit(&pool->now, 1, memory_order_relaxed);
}

td_status *td_page_array_init(td_page_array *array, td_page_pool *pool, int64_t bytes) TD_MUST_USE;
void td_page_array_deinit(td_page_array *array);
/* All of it reads as zeros again; nothing of it is held. */
void td_page_array_clear(td_page_array *array);
/* Bytes [begin, end): in memory for this advance and the next. `write`: they may be changed. */
td_status *td_page_array_hold(td_page_array *array, int64_t begin, int64_t end, bool write) TD_MUST_USE;
/* Advice: they will be held soon. */
void td_page_array_will_hold(const td_page_array *array, int64_t begin, int64_t end);
/* Copies bytes out, whether they are held or not; holds nothing. */
td_status *td_page_array_read(const td_page_array *array, int64_t begin, int64_t bytes, void *out) TD_MUST_USE;

#endif
