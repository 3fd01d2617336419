/* What many tests share: checking a status, and trying every allocation failure of a call. */
#ifndef TANDEM_TESTS_BASE_CHECK_H
#define TANDEM_TESTS_BASE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/memory.h"
#include "tandem/status.h"

#define assert_ok(...) assert_ok_at((__VA_ARGS__), __FILE__, __LINE__)
static inline void assert_ok_at(td_status *status, const char *file, int line)
{
    if (!status)
        return;
    print_error("unexpected error: %s (%s)\n", td_status_message(status), td_status_trace(status));
    td_status_destroy(status);
    _fail(file, line);
}

/* Takes the status; it must have this code and, unless `part` is NULL, this text in its message. */
#define assert_error(status, code, part) assert_error_at((status), (code), (part), __FILE__, __LINE__)
static inline void assert_error_at(td_status *status, td_code code, const char *part, const char *file, int line)
{
    int good = td_status_code(status) == code && (!part || strstr(td_status_message(status), part));
    if (!good)
        print_error("expected code %d with \"%s\", got %d: %s\n", code, part ? part : "", td_status_code(status),
                    td_status_message(status));
    td_status_destroy(status);
    if (!good)
        _fail(file, line);
}

/* Runs `call(context)` with the 1st, 2nd, ... allocation failing until none does. Each failure must be reported as out
 * of memory and leave nothing allocated. Returns how many allocations were tried. `undo` takes back a success. */
static inline int assert_survives_allocation_failures(td_status *(*call)(void *), void (*undo)(void *), void *context)
{
    for (uint64_t n = 1;; n++) {
        uint64_t before = td_memory_read().bytes_now;
        td_memory_fail_after(n);
        td_status *status = call(context);
        int failed = td_memory_failed();
        td_memory_fail_after(0);
        if (!failed) {
            assert_ok(status);
            undo(context);
            assert_int_equal(td_memory_read().bytes_now, before);
            return (int)n - 1;
        }
        assert_int_equal(td_status_code(status), TD_OUT_OF_MEMORY);
        td_status_destroy(status);
        assert_int_equal(td_memory_read().bytes_now, before);
    }
}

#endif
