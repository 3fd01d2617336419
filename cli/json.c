/* JSON out: to a stream, or to a file that appears only when it is complete. */
#include "cli/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { FORMAT = JSON_INDENT(2) | JSON_REAL_PRECISION(9) };

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for JSON");
}

td_status *td_json_print(json_t *json, FILE *out)
{
    if (!json)
        return no_memory();
    int failed = json_dumpf(json, out, FORMAT) || fputc('\n', out) == EOF;
    json_decref(json);
    return failed ? TD_ERROR(TD_IO, "cannot write JSON") : NULL;
}

td_status *td_json_write(json_t *json, const char *folder, const char *name)
{
    char *path = td_format("%s/%s", folder, name);
    char *text = json ? json_dumps(json, FORMAT) : NULL;
    json_decref(json);
    char *whole = text ? td_format("%s\n", text) : NULL;
    free(text); /* jansson's own allocation */
    td_status *status = path && whole ? td_file_write(path, whole, strlen(whole)) : no_memory();
    td_free(whole);
    td_free(path);
    return status;
}
