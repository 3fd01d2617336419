/* What the engine has to say while it works, for whoever wants to hear it.
 *
 * The library never prints: a program sets a function, by default there is none. Messages are single lines without a
 * newline; errors travel as td_status and are not logged here as well. */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

#include <stdbool.h>

#include "tandem/status.h"

typedef enum td_log_level { TD_LOG_DEBUG = 0, TD_LOG_INFO, TD_LOG_WARNING, TD_LOG_ERROR, TD_LOG_NULL } td_log_level;

/* Called from any thread, one call at a time or several at once; must not log. The message lives until it returns. */
typedef void (*td_log_function)(void *context, td_log_level level, const char *message);

/* Sends messages of `least` and above to `function`; NULL or TD_LOG_NULL: nowhere. Set it before other threads start.
 */
void td_log_set(td_log_function function, void *context, td_log_level least);
/* Another level, for the same function. */
void td_log_set_level(td_log_level least);
/* Whether a message of this level would be heard: for those that are costly to make. */
bool td_log_wants(td_log_level level);
/* At most 2,000 characters; allocates nothing. */
void td_log(td_log_level level, const char *format, ...) TD_PRINTF(2, 3);

/* "debug", "info", "warning", "error", "null". */
const char *td_log_level_name(td_log_level level);
/* False, and *out unchanged, for any other name. */
bool td_log_level_parse(const char *name, td_log_level *out_level);

#endif
