/* The line of progress while data is parsed: see cli/reading.h. */
#include "cli/reading.h"

#include <string.h>

#include "base/units.h"
#include "cli/progress.h"
#include "cli/terminal.h"

enum { QUIET_NS = 1000000000, REWRITE_NS = 100000000 };

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void td_reading_show(td_reading *reading, const char *path, int64_t bytes, int64_t of_bytes, int64_t rows,
                     int64_t now_ns)
{
    if (!reading->stream)
        return;
    if (reading->path != path) {
        reading->path = path;
        reading->started_ns = now_ns;
        reading->shown_ns = 0;
    }
    if (now_ns - reading->started_ns < QUIET_NS || now_ns - reading->shown_ns < REWRITE_NS)
        return;
    char rate[TD_UNIT_TEXT], left[32], line[256];
    double seconds = 1e-9 * (double)(now_ns - reading->started_ns),
           share = of_bytes ? (double)bytes / (double)of_bytes : 0;
    int n = snprintf(line, sizeof line, "reading %.100s", file_name(path));
    if (share > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, "  %.0f %%", 100 * (share < 1 ? share : 1));
    n += snprintf(line + n, sizeof line - (size_t)n, "  %s rows/s", td_format_count(rate, (double)rows / seconds));
    if (share > 0)
        (void)snprintf(line + n, sizeof line - (size_t)n, "  %s left",
                       td_clock_text(share < 1 ? seconds * (1 - share) / share : 0, left));
    td_terminal_rewrite(reading->stream, line);
    reading->line_open = true;
    reading->shown_ns = now_ns;
}

void td_reading_end(td_reading *reading)
{
    if (reading->stream && reading->line_open)
        fputs("\r\033[K", reading->stream);
    reading->line_open = false;
}
