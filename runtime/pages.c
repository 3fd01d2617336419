/* Pages of larger arrays, held and given up: see pages.h.
 *
 * Which pages go: a hand walks over those that are held and takes the ones that were not held for some advances; how many is
 * learnt as it goes (doubled while victims are plenty, halved while a whole round finds none). Many go at a time, in the order
 * of the file, so that neighbours are written with one call. A page is given up only after it was written: when the disk is full
 * the pages stay, and nothing is lost. */
#include "runtime/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/paging.h"
#include "base/units.h"

enum { ON_DISK = 1, CHANGED = 2 };
_Static_assert(sizeof(td_page_ref) == TD_PAGE_REF_BYTES, "the planner counts them");
enum { PINNED = 2, MOST_PATIENCE = 1 << 20, MOST_VICTIMS = 1024 };

td_status *td_page_pool_init(td_page_pool *pool, int64_t most_bytes, td_work_file *file)
{
    *pool = (td_page_pool){.file = file, .page_bytes = (int64_t)td_page_bytes(), .patience = PINNED};
    pthread_mutex_init(&pool->mutex, NULL);
    atomic_init(&pool->now, PINNED); /* a stamp of 0 means none */
    pool->most_pages = most_bytes > pool->page_bytes ? most_bytes / pool->page_bytes : 1;
    pool->held = td_reserve((size_t)pool->most_pages * sizeof *pool->held);
    return pool->held ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of address space for the pages of tables");
}

void td_page_pool_deinit(td_page_pool *pool)
{
    if (!pool->page_bytes)
        return;
    td_unreserve(pool->held, (size_t)pool->most_pages * sizeof *pool->held);
    td_work_file_destroy(pool->file);
    pthread_mutex_destroy(&pool->mutex);
    *pool = (td_page_pool){0};
}

td_status *td_page_array_init(td_page_array *array, td_page_pool *pool, int64_t bytes)
{
    int64_t pages = td_pages_of(bytes, pool->page_bytes);
    char text[TD_UNIT_TEXT];
    *array = (td_page_array){.pool = pool, .bytes = bytes, .n_pages = pages, .offset = pool->file_bytes};
    array->base = td_reserve((size_t)(pages * pool->page_bytes));
    array->stamps = td_reserve((size_t)pages * sizeof *array->stamps);
    array->flags = td_reserve((size_t)pages * sizeof *array->flags);
    if (!array->base || !array->stamps || !array->flags) {
        td_page_array_deinit(array);
        return td_status_help(TD_ERROR(TD_OUT_OF_MEMORY, "no address space for %s",
                                       td_format_bytes(text, (double)pages * (double)pool->page_bytes)),
                              "look at: ulimit -v; /proc/sys/vm/overcommit_memory (2 counts what is only reserved)");
    }
    pool->file_bytes += pages * pool->page_bytes;
    return NULL;
}

void td_page_array_deinit(td_page_array *array)
{
    if (array->base)
        td_unreserve(array->base, (size_t)(array->n_pages * array->pool->page_bytes));
    td_unreserve(array->stamps, (size_t)array->n_pages * sizeof *array->stamps);
    td_unreserve(array->flags, (size_t)array->n_pages * sizeof *array->flags);
    *array = (td_page_array){0};
}

void td_page_array_clear(td_page_array *array)
{
    td_page_pool *pool = array->pool;
    int64_t kept = 0;
    for (int64_t i = 0; i < pool->n_held; i++)
        if (pool->held[i].array != array)
            pool->held[kept++] = pool->held[i];
    pool->n_held = kept;
    td_reserve_drop(array->base, (size_t)(array->n_pages * pool->page_bytes));
    td_reserve_drop(array->stamps, (size_t)array->n_pages * sizeof *array->stamps);
    td_reserve_drop(array->flags, (size_t)array->n_pages * sizeof *array->flags);
}

/* ---- giving up --------------------------------------------------------------------------------------------------------------- */

typedef struct victim {
    td_page_ref ref;
    int64_t at; /* among those held */
} victim;

static int64_t file_offset(const td_page_ref *ref)
{
    return ref->array->offset + ref->page * ref->array->pool->page_bytes;
}

static int by_offset(const void *a, const void *b)
{
    int64_t x = file_offset(&((const victim *)a)->ref), y = file_offset(&((const victim *)b)->ref);
    return x < y ? -1 : x > y;
}

static int last_first(const void *a, const void *b)
{
    int64_t x = ((const victim *)a)->at, y = ((const victim *)b)->at;
    return x > y ? -1 : x < y;
}

/* One round, or less when enough are found. */
static int64_t walk(td_page_pool *pool, int64_t wanted, victim *victims, int64_t *out_seen)
{
    uint32_t now = atomic_load_explicit(&pool->now, memory_order_relaxed);
    int64_t n = 0;
    for (*out_seen = 0; *out_seen < pool->n_held && n < wanted; ++*out_seen) {
        pool->hand = pool->hand + 1 < pool->n_held ? pool->hand + 1 : 0;
        td_page_ref ref = pool->held[pool->hand];
        if (now - ref.array->stamps[ref.page] >= pool->patience)
            victims[n++] = (victim){ref, pool->hand};
    }
    return n;
}

static int64_t choose(td_page_pool *pool, int64_t wanted, victim *victims)
{
    for (;;) {
        int64_t seen = 0, n = walk(pool, wanted, victims, &seen);
        if (n == wanted && seen < pool->n_held / 4 && pool->patience < MOST_PATIENCE)
            pool->patience *= 2;
        if (n > 0 || pool->patience == PINNED)
            return n;
        pool->patience = pool->patience / 2 > PINNED ? pool->patience / 2 : PINNED;
    }
}

/* Writes the changed pages of a run of neighbours, in one call. */
static td_status *write_run(td_page_pool *pool, const victim *run, int64_t n)
{
    const td_page_array *array = run->ref.array;
    int64_t bytes = n * pool->page_bytes, offset = file_offset(&run->ref);
    TD_TRY(td_work_file_write(pool->file, offset, array->base + run->ref.page * pool->page_bytes, (size_t)bytes));
    td_work_file_flush_soon(pool->file, offset, (size_t)bytes);
    for (int64_t i = 0; i < n; i++)
        array->flags[run[i].ref.page] = ON_DISK;
    return NULL;
}

static bool is_changed(const victim *v)
{
    return v->ref.array->flags[v->ref.page] & CHANGED;
}

static td_status *write_changed(td_page_pool *pool, const victim *victims, int64_t n)
{
    for (int64_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (!is_changed(&victims[i]))
            continue;
        while (end < n && is_changed(&victims[end]) && victims[end].ref.array == victims[i].ref.array &&
               victims[end].ref.page == victims[end - 1].ref.page + 1)
            end++;
        TD_TRY(write_run(pool, &victims[i], end - i));
    }
    return NULL;
}

static void forget(td_page_pool *pool, victim *victims, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        td_page_ref ref = victims[i].ref;
        ref.array->stamps[ref.page] = 0;
        td_reserve_drop(ref.array->base + ref.page * pool->page_bytes, (size_t)pool->page_bytes);
    }
    qsort(victims, (size_t)n, sizeof *victims, last_first);
    for (int64_t i = 0; i < n; i++)
        pool->held[victims[i].at] = pool->held[--pool->n_held];
}

static td_status *too_many(const td_page_pool *pool)
{
    char text[TD_UNIT_TEXT];
    td_format_bytes(text, (double)pool->most_pages * (double)pool->page_bytes);
    if (!pool->file)
        return td_status_help(TD_ERROR(TD_OUT_OF_MEMORY,
                                       "the rows touched so far take %s, which is all that tables.resident allows",
                                       text),
                              "raise tables.resident, or keep the tables in a file: tables.storage=file");
    return td_status_help(TD_ERROR(TD_OUT_OF_MEMORY, "two steps touch more rows than %s hold", text),
                          "raise tables.resident, or make data.batch smaller");
}

/* Room for one page more, at least. */
static td_status *make_room(td_page_pool *pool)
{
    victim victims[MOST_VICTIMS];
    int64_t wanted = pool->most_pages / 32 < MOST_VICTIMS ? pool->most_pages / 32 + 1 : MOST_VICTIMS;
    int64_t n = pool->file ? choose(pool, wanted < MOST_VICTIMS ? wanted : MOST_VICTIMS, victims) : 0;
    if (n == 0)
        return too_many(pool);
    qsort(victims, (size_t)n, sizeof *victims, by_offset);
    TD_TRY(write_changed(pool, victims, n));
    forget(pool, victims, n);
    return NULL;
}

/* ---- holding ------------------------------------------------------------------------------------------------------------------ */

static td_status *take(td_page_array *array, int64_t page)
{
    td_page_pool *pool = array->pool;
    if (pool->n_held == pool->most_pages)
        TD_TRY(make_room(pool));
    if (array->flags[page] & ON_DISK) {
        char *memory = array->base + page * pool->page_bytes;
        td_status *status =
            td_work_file_read(pool->file, array->offset + page * pool->page_bytes, memory, (size_t)pool->page_bytes);
        if (status) {
            td_reserve_drop(memory, (size_t)pool->page_bytes);
            return status;
        }
    }
    pool->held[pool->n_held++] = (td_page_ref){array, page};
    pool->peak_held = pool->n_held > pool->peak_held ? pool->n_held : pool->peak_held;
    return NULL;
}

td_status *td_page_array_hold(td_page_array *array, int64_t begin, int64_t end, bool write)
{
    const int64_t page_bytes = array->pool->page_bytes;
    uint32_t now = atomic_load_explicit(&array->pool->now, memory_order_relaxed);
    for (int64_t page = begin / page_bytes; page * page_bytes < end; page++) {
        if (!array->stamps[page])
            TD_TRY(take(array, page));
        array->stamps[page] = now ? now : 1;
        if (write)
            array->flags[page] |= CHANGED;
    }
    return NULL;
}

void td_page_array_will_hold(const td_page_array *array, int64_t begin, int64_t end)
{
    const int64_t page_bytes = array->pool->page_bytes;
    for (int64_t page = begin / page_bytes; page * page_bytes < end; page++)
        if (!array->stamps[page] && array->flags[page] & ON_DISK)
            td_work_file_will_read(array->pool->file, array->offset + page * page_bytes, (size_t)page_bytes);
}

/* How many pages from `page` on, `most` at most, lie in the file and not in memory. */
static int64_t run_on_disk(const td_page_array *array, int64_t page, int64_t most)
{
    int64_t n = 0;
    while (n < most && !array->stamps[page + n] && array->flags[page + n] & ON_DISK)
        n++;
    return n;
}

td_status *td_page_array_read(const td_page_array *array, int64_t begin, int64_t bytes, void *out)
{
    const int64_t page_bytes = array->pool->page_bytes;
    for (int64_t done = 0, n; done < bytes; done += n) {
        int64_t at = begin + done, page = at / page_bytes, pages = td_pages_of(begin + bytes, page_bytes) - page;
        int64_t run = run_on_disk(array, page, pages), left = (page + (run ? run : 1)) * page_bytes - at;
        n = bytes - done < left ? bytes - done : left;
        if (array->stamps[page])
            memcpy((char *)out + done, array->base + at, (size_t)n);
        else if (run)
            TD_TRY(td_work_file_read(array->pool->file, array->offset + at, (char *)out + done, (size_t)n));
        else
            memset((char *)out + done, 0, (size_t)n);
    }
    return NULL;
}
