/* See base/log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 2000 };

static td_log_function sink;
static void *sink_context;
static atomic_int least_level = TD_LOG_NULL; /* written after the sink, read before it */

void td_log_set(td_log_function function, void *context, td_log_level least)
{
    atomic_store(&least_level, TD_LOG_NULL);
    sink = function;
    sink_context = context;
    atomic_store(&least_level, function ? least : TD_LOG_NULL);
}

void td_log_set_level(td_log_level least)
{
    atomic_store(&least_level, sink ? least : TD_LOG_NULL);
}

bool td_log_wants(td_log_level level)
{
    return level < TD_LOG_NULL && (int)level >= atomic_load(&least_level);
}

void td_log(td_log_level level, const char *format, ...)
{
    if (!td_log_wants(level))
        return;
    char message[LONGEST + 1];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    sink(sink_context, level, message);
}

static const char *const names[] = {"debug", "info", "warning", "error", "null"};

const char *td_log_level_name(td_log_level level)
{
    return names[level];
}

bool td_log_level_parse(const char *name, td_log_level *out_level)
{
    for (int i = 0; i <= TD_LOG_NULL; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *out_level = (td_log_level)i;
        return true;
    }
    return false;
}
