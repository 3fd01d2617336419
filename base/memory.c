/* Counted host memory: see base/memory.h. Each block carries a 64-byte header in front of it (its size and where the
 * underlying block begins), so one td_free serves every allocation. */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory_count.h"

enum { HEADER_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

typedef struct header {
    size_t bytes; /* asked for */
    void *block;  /* what the C library gave */
} header;

static atomic_uint_fast64_t bytes_now, bytes_peak, allocations, frees, fail_countdown;
static atomic_bool has_failed;

static header *header_of(void *memory)
{
    return (header *)((char *)memory - HEADER_BYTES);
}

static bool should_fail(void)
{
    uint_fast64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
            if (left == 1)
                atomic_store(&has_failed, true);
            return left == 1;
        }
    }
    return false;
}

static void count_allocation(size_t bytes)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    uint_fast64_t now = atomic_fetch_add_explicit(&bytes_now, bytes, memory_order_relaxed) + bytes;
    uint_fast64_t peak = atomic_load_explicit(&bytes_peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&bytes_peak, &peak, now))
        ;
}

static void count_free(size_t bytes)
{
    atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&bytes_now, bytes, memory_order_relaxed);
}

/* `alignment` is a power of two, at least HEADER_BYTES. */
static void *allocate(size_t bytes, size_t alignment, bool zero)
{
    if (bytes > SIZE_MAX / 2 || should_fail())
        return NULL;
    size_t total = bytes + HEADER_BYTES + alignment;
    char *block = zero ? calloc(1, total) : malloc(total);
    if (!block)
        return NULL;
    uintptr_t start = ((uintptr_t)block + HEADER_BYTES + alignment - 1) & ~(uintptr_t)(alignment - 1);
    char *memory = block + (start - (uintptr_t)block);
    *header_of(memory) = (header){bytes, block};
    count_allocation(bytes);
    return memory;
}

void *td_calloc(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    return allocate(count * size, HEADER_BYTES, true);
}

void *td_calloc_aligned(size_t bytes)
{
    bool large = bytes >= 2 * (size_t)HUGE_PAGE_BYTES;
    void *memory = allocate(bytes, large ? HUGE_PAGE_BYTES : HEADER_BYTES, true);
#ifdef MADV_HUGEPAGE
    if (memory && large)
        (void)madvise(memory, bytes & ~(size_t)(HUGE_PAGE_BYTES - 1),
                      MADV_HUGEPAGE); /* advice: a refusal costs speed only */
#endif
    return memory;
}

void *td_realloc(void *memory, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    void *grown = allocate(count * size, HEADER_BYTES, false);
    if (!grown || !memory)
        return grown;
    size_t old = header_of(memory)->bytes;
    memcpy(grown, memory, old < count * size ? old : count * size);
    td_free(memory);
    return grown;
}

char *td_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = allocate(bytes, HEADER_BYTES, false);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *td_vformat(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : allocate((size_t)length + 1, HEADER_BYTES, false);
    if (text)
        (void)vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *td_format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = td_vformat(format, arguments);
    va_end(arguments);
    return text;
}

void td_free(void *memory)
{
    if (!memory)
        return;
    header *head = header_of(memory);
    count_free(head->bytes);
    free(head->block);
}

void *td_reserve(size_t bytes)
{
    if (bytes > SIZE_MAX / 2 || should_fail())
        return NULL;
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_NOHUGEPAGE
    (void)madvise(memory, bytes,
                  MADV_NOHUGEPAGE); /* one written byte would take 2 MiB; kernels without large pages refuse */
#endif
    return memory;
}

void td_unreserve(void *memory, size_t bytes)
{
    if (memory)
        (void)munmap(memory, bytes ? bytes : 1);
}

void td_reserve_drop(void *memory, size_t bytes)
{
    (void)madvise(memory, bytes, MADV_DONTNEED);
}

size_t td_page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

bool td_memory_count(size_t bytes)
{
    if (should_fail())
        return false;
    count_allocation(bytes);
    return true;
}

void td_memory_uncount(size_t bytes)
{
    count_free(bytes);
}

td_memory_counters td_memory_read(void)
{
    return (td_memory_counters){atomic_load(&bytes_now), atomic_load(&bytes_peak), atomic_load(&allocations),
                                atomic_load(&frees)};
}

void td_memory_reset_peak(void)
{
    atomic_store(&bytes_peak, atomic_load(&bytes_now));
}

void td_memory_fail_after(uint64_t n)
{
    atomic_store(&has_failed, false);
    atomic_store(&fail_countdown, n);
}

bool td_memory_failed(void)
{
    return atomic_load(&has_failed);
}

td_status *td_grow(void *items_pointer, int64_t *capacity, int64_t count, size_t size)
{
    void **items = items_pointer;
    if (count < *capacity)
        return NULL;
    int64_t larger = *capacity < 8 ? 8 : *capacity * 2;
    void *grown = td_realloc(*items, (size_t)larger, size);
    if (!grown)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %lld x %zu bytes", (long long)larger, size);
    *items = grown;
    *capacity = larger;
    return NULL;
}

td_status *td_keep_room(void *items_pointer, int64_t *capacity, int64_t count, size_t size)
{
    void **items = items_pointer;
    if (count <= *capacity && *items)
        return NULL;
    td_free(*items);
    *capacity = 0;
    *items = td_calloc((size_t)td_room_of(count), size);
    if (!*items)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %lld x %zu bytes", (long long)td_room_of(count), size);
    *capacity = td_room_of(count);
    return NULL;
}

bool td_multiply_checked(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

bool td_add_checked(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out);
}
