/* JSON out: to a stream, or to a file that appears only when it is complete. */
#include "cli/json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/file_error.h"
#include "base/memory.h"

enum { FORMAT = JSON_INDENT(2) | JSON_REAL_PRECISION(9) };

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for JSON");
}

/* Lines of text, the caller's; NULL: no memory. Takes `json`. */
static char *text_of(json_t *json)
{
    char *text = json ? json_dumps(json, FORMAT) : NULL;
    json_decref(json);
    char *whole = text ? td_format("%s\n", text) : NULL;
    free(text); /* jansson's own allocation */
    return whole;
}

/* Whole, not piece by piece: mpirun gives each rank a terminal, where every line would be a write of its own. */
td_status *td_json_print(json_t *json, FILE *out)
{
    char *text = text_of(json);
    if (!text)
        return no_memory();
    errno = 0;
    const bool failed = fputs(text, out) == EOF || fflush(out) == EOF;
    const int error = errno;
    td_free(text);
    return failed ? td_file_error("standard output", "write", error) : NULL;
}

td_status *td_json_write(json_t *json, const char *folder, const char *name)
{
    char *path = td_format("%s/%s", folder, name);
    char *text = text_of(json);
    td_status *status = path && text ? td_file_write(path, text, strlen(text)) : no_memory();
    td_free(text);
    td_free(path);
    return status;
}
