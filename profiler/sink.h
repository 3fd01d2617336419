/* Where exporters write: a file with a buffer before it, that keeps its first error to the end. */
#ifndef TANDEM_PROFILER_SINK_H
#define TANDEM_PROFILER_SINK_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_sink td_sink;

td_status *td_sink_open(const char *path, td_sink **out_sink) TD_MUST_USE;
td_status *td_sink_open_in(const char *folder, const char *name, td_sink **out_sink) TD_MUST_USE;
/* Gives the file its name, or tells the first error and leaves none. Takes the sink. */
td_status *td_sink_close(td_sink *sink) TD_MUST_USE;
/* The same after work that ended with `status` (taken): with an error the file gets no name, and that error is told. NULL: no sink. */
td_status *td_sink_close_after(td_sink *sink, td_status *status) TD_MUST_USE;

void td_sink_bytes(td_sink *sink, const void *data, size_t bytes);
void td_sink_text(td_sink *sink, const char *text);
void td_sink_format(td_sink *sink, const char *format, ...) TD_PRINTF(2, 3);
void td_sink_number(td_sink *sink, int64_t number);
/* Nanoseconds as microseconds with three digits behind the point. */
void td_sink_us(td_sink *sink, int64_t ns);
/* As the inside of a JSON string; bytes that are no UTF-8 become '?'. */
void td_sink_json(td_sink *sink, const char *text);
/* As text of an HTML page. */
void td_sink_html(td_sink *sink, const char *text);
/* As a field of CSV, in quotes where it needs them. */
void td_sink_csv(td_sink *sink, const char *text);

#endif
