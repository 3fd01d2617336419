/* Host memory: every allocation of the engine goes through here.
 *
 * Counted (bytes now, peak, calls), checked for overflow, and able to fail on demand: `td_memory_fail_after` makes the
 * n-th allocation from now fail, so that tests can try every single one. Thread-safe. Callers turn NULL into
 * TD_ERROR(TD_OUT_OF_MEMORY, ...) or use TD_NEW. */
#ifndef TANDEM_BASE_MEMORY_H
#define TANDEM_BASE_MEMORY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* Whether AddressSanitizer looks on: memory that could lie together then stays apart, so that it sees who leaves his own. */
#if defined(__SANITIZE_ADDRESS__)
#define TD_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TD_HAS_ASAN 1
#endif
#endif
#ifndef TD_HAS_ASAN
#define TD_HAS_ASAN 0
#endif

/* Whether ThreadSanitizer does: it takes the place of malloc as well, and slows everything down. */
#if defined(__SANITIZE_THREAD__)
#define TD_HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TD_HAS_TSAN 1
#endif
#endif
#ifndef TD_HAS_TSAN
#define TD_HAS_TSAN 0
#endif

/* Zeroed; NULL when there is no memory, or when count * size overflows. One free function for all: td_free. */
void *td_calloc(size_t count, size_t size);
/* Grows or shrinks, new bytes undefined; the old block stays valid when NULL comes back. */
void *td_realloc(void *memory, size_t count, size_t size);
/* 64-byte aligned, zeroed; huge-page friendly when large. */
void *td_calloc_aligned(size_t bytes);
char *td_strdup(const char *text);
/* A new formatted string, NULL when there is no memory. */
char *td_format(const char *format, ...) TD_PRINTF(1, 2);
char *td_vformat(const char *format, va_list arguments);
void td_free(void *memory);

/* Address space, page-aligned, of which each page takes memory (zeroed, of the small kind) only once it is written to. Not part
 * of bytes_now: who writes the pages counts them. NULL when there is none: a limit of address space, or an overcommit policy
 * that counts what is reserved. */
void *td_reserve(size_t bytes);
void td_unreserve(void *memory, size_t bytes); /* NULL is fine */
/* Gives back the memory of whole pages within a reservation; they read as zeros again. */
void td_reserve_drop(void *memory, size_t bytes);
size_t td_page_bytes(void);

typedef struct td_memory_counters {
    uint64_t bytes_now, bytes_peak, allocations, frees;
} td_memory_counters;
td_memory_counters td_memory_read(void);
/* bytes_peak becomes bytes_now. */
void td_memory_reset_peak(void);

/* From now on the n-th allocation (1 is the next) and no other fails; 0: none does. For tests. */
void td_memory_fail_after(uint64_t n);
/* True once an injected failure has happened since td_memory_fail_after. */
bool td_memory_failed(void);

/* Makes room for one more element in a growing array. `*items` has `*capacity` elements of `size` bytes, `count` used. */
td_status *td_grow(void *items_pointer, int64_t *capacity, int64_t count, size_t size) TD_MUST_USE;

/* At least `count` elements of `size` bytes in a buffer that is kept from one use to the next. Where it grows it gets td_room_of
 * elements, zeros, and what was in it is gone; on an error there is none. */
td_status *td_keep_room(void *items_pointer, int64_t *capacity, int64_t count, size_t size) TD_MUST_USE;
/* An eighth more than is needed now: uses that differ a little soon need no more. */
static inline int64_t td_room_of(int64_t count)
{
    return count + count / 8;
}

#define TD_NEW(pointer, count)                                                                                         \
    (((pointer) = td_calloc((size_t)(count), sizeof *(pointer))) != NULL                                               \
         ? NULL                                                                                                        \
         : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %zu x %zu bytes", (size_t)(count), sizeof *(pointer)))

/* a * b and a + b for sizes that may overflow: false, and *out undefined, when they do. Negative operands do too. */
bool td_multiply_checked(int64_t a, int64_t b, int64_t *out);
bool td_add_checked(int64_t a, int64_t b, int64_t *out);

#endif
