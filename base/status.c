/* Errors as values: see tandem/status.h. One status is one block; its texts grow by reallocation. When even that fails,
 * the shared out-of-memory status stands in, so creating an error can never fail. */
#include "tandem/status.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

struct td_status {
    td_code code;
    char *message; /* NULL in the shared one */
    char *trace;
};

static td_status out_of_memory = {.code = TD_OUT_OF_MEMORY};

static const char *short_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

td_status *td_status_create(td_code code, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = td_vformat(format, arguments);
    va_end(arguments);
    char *trace = td_format("%s:%d", short_path(file), line);
    td_status *status = td_calloc(1, sizeof *status);
    if (!message || !trace || !status) {
        td_free(message);
        td_free(trace);
        td_free(status);
        return &out_of_memory;
    }
    *status = (td_status){code, message, trace};
    return status;
}

/* Replaces *text by a new one; keeps the old where there is no memory (the error stays what it was). */
static void replace(char **text, char *replacement)
{
    if (!replacement)
        return;
    td_free(*text);
    *text = replacement;
}

td_status *td_status_help(td_status *status, const char *format, ...)
{
    if (!status || status == &out_of_memory)
        return status;
    va_list arguments;
    va_start(arguments, format);
    char *help = td_vformat(format, arguments);
    va_end(arguments);
    if (help)
        replace(&status->message, td_format("%s\n  %s", status->message, help));
    td_free(help);
    return status;
}

td_status *td_status_prefix(td_status *status, const char *format, ...)
{
    if (!status || status == &out_of_memory)
        return status;
    va_list arguments;
    va_start(arguments, format);
    char *prefix = td_vformat(format, arguments);
    va_end(arguments);
    if (prefix)
        replace(&status->message, td_format("%s: %s", prefix, status->message));
    td_free(prefix);
    return status;
}

td_status *td_status_recode(td_status *status, td_code code)
{
    if (status && status != &out_of_memory)
        status->code = code;
    return status;
}

td_status *td_status_pass(td_status *status, const char *file, int line)
{
    enum { LONGEST_TRACE = 2000 };
    if (status && status != &out_of_memory && strlen(status->trace) < LONGEST_TRACE)
        replace(&status->trace, td_format("%s < %s:%d", status->trace, short_path(file), line));
    return status;
}

td_code td_status_code(const td_status *status)
{
    return status ? status->code : TD_OK;
}

const char *td_status_message(const td_status *status)
{
    if (!status)
        return "";
    return status->message ? status->message : "out of memory";
}

const char *td_status_trace(const td_status *status)
{
    return status && status->trace ? status->trace : "";
}

void td_status_destroy(td_status *status)
{
    if (!status || status == &out_of_memory)
        return;
    td_free(status->message);
    td_free(status->trace);
    td_free(status);
}
