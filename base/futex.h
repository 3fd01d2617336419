/* Waiting on a 32-bit word in memory, as the kernel offers it. Private to this process, but for those named _shared, whose word
 * may lie in memory that several map.
 *
 * Wait returns when woken, when the word is not `expected`, after the time, or for no reason at all: callers look at
 * the word again. */
#ifndef TANDEM_BASE_FUTEX_H
#define TANDEM_BASE_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* `nanoseconds` < 0: without limit. */
static inline void td_futex_wait(atomic_uint *word, unsigned expected, int64_t nanoseconds)
{
    struct timespec limit = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nanoseconds < 0 ? NULL : &limit, NULL, 0);
}

static inline void td_futex_wake_one(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline void td_futex_wake_all(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void td_futex_wait_shared(atomic_uint *word, unsigned expected, int64_t nanoseconds)
{
    struct timespec limit = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, expected, nanoseconds < 0 ? NULL : &limit, NULL, 0);
}

static inline void td_futex_wake_shared(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Says to the core that this is a spin loop. */
static inline void td_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
