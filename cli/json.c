/* JSON out: to a stream, or to a file that appears only when it is complete. */
#include "cli/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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

static td_status *write_file(json_t *json, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return TD_ERROR(TD_IO, "%s: %s", path, strerror(errno));
    bool failed = json_dumpf(json, file, FORMAT) || fputc('\n', file) == EOF || fflush(file) || fsync(fileno(file));
    int error = errno;
    failed |= fclose(file) != 0;
    return failed ? TD_ERROR(TD_IO, "%s: %s", path, strerror(error)) : NULL;
}

td_status *td_json_write(json_t *json, const char *path)
{
    if (!json)
        return no_memory();
    char *partial = td_format("%s.partial", path);
    td_status *status = partial ? write_file(json, partial) : no_memory();
    if (!status && rename(partial, path))
        status = TD_ERROR(TD_IO, "%s: %s", path, strerror(errno));
    if (status && partial)
        unlink(partial);
    td_free(partial);
    json_decref(json);
    return status;
}
