/* Malformed rows: see data/badrows.h. */
#include "data/badrows.h"

#include "base/memory.h"
#include "base/units.h"

/* Rows after which what is read can be judged to be no data of this kind. */
enum { FEWEST = 1000 };

static td_status *keep(td_bad_rows *rows, const char *reason)
{
    if (rows->bad > TD_BAD_ROWS_KEPT)
        return NULL;
    char **slot = &rows->first[rows->bad - 1];
    *slot = td_strdup(reason);
    return *slot ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report of a bad row");
}

td_status *td_bad_rows_add(td_bad_rows *rows, const char *path, int64_t line, int32_t column, const char *format, ...)
{
    rows->bad++;
    double seen = (double)(rows->bad + rows->good);
    bool fatal = rows->share <= 0 || (seen >= FEWEST && (double)rows->bad > (1 + rows->share) / 2 * seen);
    if (!fatal && rows->bad > TD_BAD_ROWS_KEPT)
        return NULL;
    va_list arguments;
    va_start(arguments, format);
    char *what = td_vformat(format, arguments);
    va_end(arguments);
    char *reason = NULL;
    if (what)
        reason = column ? td_format("%s:%lld:%d: %s", path, (long long)line, column, what)
                        : td_format("%s:%lld: %s", path, (long long)line, what);
    td_free(what);
    td_status *status = NULL;
    if (!reason)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report of a bad row");
    else if (fatal)
        status = TD_ERROR(TD_DATA_ERROR, "%s; %s of %lld so far, data.bad_rows allows %g", reason,
                          TD_COUNTED(rows->bad, "bad row"), (long long)seen, rows->share);
    else
        status = keep(rows, reason);
    td_free(reason);
    return status;
}

td_status *td_bad_rows_check(const td_bad_rows *rows, const char *path)
{
    int64_t seen = rows->bad + rows->good;
    if ((double)rows->bad <= rows->share * (double)seen)
        return NULL;
    td_status *status = TD_ERROR(TD_DATA_ERROR, "%s: %s of %lld, data.bad_rows allows %g", path,
                                 TD_COUNTED(rows->bad, "bad row"), (long long)seen, rows->share);
    for (int32_t i = 0; i < TD_BAD_ROWS_KEPT && rows->first[i]; i++)
        status = td_status_help(status, "%s", rows->first[i]);
    return status;
}

void td_bad_rows_deinit(td_bad_rows *rows)
{
    for (int32_t i = 0; i < TD_BAD_ROWS_KEPT; i++)
        td_free(rows->first[i]);
    *rows = (td_bad_rows){0};
}
