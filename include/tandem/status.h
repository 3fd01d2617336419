/* Errors as values.
 *
 * Anything that can fail returns a `td_status *`: NULL is success, anything else is one owned error with a code, a
 * message for the person (what, where, the rule, the fix) and the source positions it passed through. The library never
 * prints, exits or aborts; running out of memory is an error like any other.
 *
 *     td_status *load(const char *path) {
 *         if (!path)
 *             return TD_ERROR(TD_INVALID_ARGUMENT, "load: no path given");
 *         TD_TRY(td_file_open(path));
 *         return NULL;
 *     }
 *
 * A status belongs to whoever received it; pass it up or `td_status_destroy` it. All calls are thread-safe for distinct
 * statuses. This header stands alone. */
#ifndef TANDEM_STATUS_H
#define TANDEM_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_status td_status;

typedef enum td_code {
    TD_OK = 0,
    TD_INVALID_ARGUMENT, /* a caller's or a configuration's mistake: exit code 2 */
    TD_OUT_OF_MEMORY,    /* an allocation failed */
    TD_NOT_FOUND,        /* a name, file or symbol does not exist */
    TD_UNSUPPORTED,      /* a device cannot run an op, a combination is refused: exit code 2 */
    TD_DOES_NOT_FIT,     /* a plan's peak exceeds a device's memory: exit code 3 */
    TD_DATA_ERROR,       /* malformed input data or files */
    TD_IO,               /* the operating system refused a read or write */
    TD_CANCELLED,        /* stopped on request: exit code 130 */
    TD_INTERNAL,         /* a broken invariant of the engine itself */
    TD_NOT_FINITE        /* the loss of a step is NaN or infinite */
} td_code;

#if defined(__GNUC__)
#define TD_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#define TD_MUST_USE __attribute__((warn_unused_result))
#else
#define TD_PRINTF(format_index, first)
#define TD_MUST_USE
#endif

/* A new error. `file` and `line` are where it arose; use TD_ERROR, which fills them in. Never NULL: when there is no
 * memory for it, a shared, immutable "out of memory" status comes back, which destroy ignores. */
td_status *td_status_create(td_code code, const char *file, int line, const char *format, ...)
    TD_PRINTF(4, 5) TD_MUST_USE;

/* Appends a line of help ("try: ..."), shown below the message. Returns `status`. NULL stays NULL. */
td_status *td_status_help(td_status *status, const char *format, ...) TD_PRINTF(2, 3);

/* Puts `format` and ": " before the message (a file name, an op's name). Returns `status`. NULL stays NULL. */
td_status *td_status_prefix(td_status *status, const char *format, ...) TD_PRINTF(2, 3);

/* Gives it another code, where a caller knows better what an error means there. Returns `status`. NULL stays NULL. */
td_status *td_status_recode(td_status *status, td_code code);

/* Records that the status passed through file:line; TD_TRY does it. Returns `status`. */
td_status *td_status_pass(td_status *status, const char *file, int line);

/* TD_OK for NULL. */
td_code td_status_code(const td_status *status);
/* The message, one line; then help lines, each after a newline. "" for NULL. Lives as long as the status. */
const char *td_status_message(const td_status *status);
/* The source positions, newest last, as "file:line < file:line"; "" for NULL. For logs at debug level. */
const char *td_status_trace(const td_status *status);
/* Frees it. NULL is fine. */
void td_status_destroy(td_status *status);

#define TD_ERROR(code, ...) td_status_create((code), __FILE__, __LINE__, __VA_ARGS__)
/* Returns the error of an expression from the calling function, if there is one. */
#define TD_TRY(...)                                                                                                    \
    do {                                                                                                               \
        td_status *td_try_status_ = (__VA_ARGS__);                                                                     \
        if (td_try_status_)                                                                                            \
            return td_status_pass(td_try_status_, __FILE__, __LINE__);                                                 \
    } while (0)
/* Stores the error in `status` (a variable of the function, NULL before) and jumps to its one clean-up label. */
#define TD_TRY_OR(status, label, ...)                                                                                  \
    do {                                                                                                               \
        (status) = (__VA_ARGS__);                                                                                      \
        if (status) {                                                                                                  \
            (status) = td_status_pass((status), __FILE__, __LINE__);                                                   \
            goto label;                                                                                                \
        }                                                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
