/* Buffered files for exporters: see sink.h. */
#include "profiler/sink.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { BUFFER = 1 << 18 };

struct td_sink {
    td_file_writer *writer;
    td_status *status;
    size_t used;
    char buffer[BUFFER];
};

td_status *td_sink_open(const char *path, td_sink **out_sink)
{
    td_sink *sink = NULL;
    *out_sink = NULL;
    TD_TRY(TD_NEW(sink, 1));
    td_status *status = td_file_writer_open(path, &sink->writer);
    if (status)
        td_free(sink);
    else
        *out_sink = sink;
    return status;
}

td_status *td_sink_open_in(const char *folder, const char *name, td_sink **out)
{
    char *path = td_format("%s/%s", folder, name);
    if (!path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_status *status = td_sink_open(path, out);
    td_free(path);
    return status;
}

static void flush(td_sink *sink)
{
    if (!sink->status)
        sink->status = td_file_writer_append(sink->writer, sink->buffer, sink->used);
    sink->used = 0;
}

td_status *td_sink_close(td_sink *sink)
{
    flush(sink);
    td_status *status = sink->status;
    if (status)
        td_file_writer_discard(sink->writer);
    else
        status = td_file_writer_commit(sink->writer);
    td_free(sink);
    return status;
}

td_status *td_sink_close_after(td_sink *sink, td_status *status)
{
    if (!sink)
        return status;
    if (status) {
        td_status_destroy(sink->status);
        sink->status = status;
    }
    return td_sink_close(sink);
}

void td_sink_bytes(td_sink *sink, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes) {
        size_t room = BUFFER - sink->used, n = bytes < room ? bytes : room;
        memcpy(sink->buffer + sink->used, from, n);
        sink->used += n;
        from += n;
        bytes -= n;
        if (sink->used == BUFFER)
            flush(sink);
    }
}

void td_sink_text(td_sink *sink, const char *text)
{
    td_sink_bytes(sink, text, strlen(text));
}

void td_sink_format(td_sink *sink, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    td_sink_bytes(sink, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void td_sink_number(td_sink *sink, int64_t number)
{
    char text[24];
    size_t at = sizeof text;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        text[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0)
        text[--at] = '-';
    td_sink_bytes(sink, text + at, sizeof text - at);
}

void td_sink_us(td_sink *sink, int64_t ns)
{
    int64_t rest = ns % 1000;
    rest = rest < 0 ? -rest : rest;
    if (ns < 0 && ns > -1000)
        td_sink_bytes(sink, "-", 1);
    td_sink_number(sink, ns / 1000);
    char digits[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    td_sink_bytes(sink, digits, sizeof digits);
}

/* Bytes of the UTF-8 character at `text`; 0 where it is none. */
static size_t character(const unsigned char *text)
{
    size_t n = text[0] < 0x80             ? 1
               : (text[0] & 0xe0) == 0xc0 ? 2
               : (text[0] & 0xf0) == 0xe0 ? 3
               : (text[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

void td_sink_json(td_sink *sink, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t n = character(c);
        if (n == 0)
            td_sink_bytes(sink, "?", 1);
        else if (*c == '"' || *c == '\\')
            td_sink_format(sink, "\\%c", *c);
        else if (*c < ' ')
            td_sink_format(sink, "\\u%04x", *c);
        else
            td_sink_bytes(sink, c, n);
        c += n ? n : 1;
    }
}

void td_sink_html(td_sink *sink, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t n = character(c);
        if (*c == '<' || *c == '>' || *c == '&' || *c == '"' || *c == '\'')
            td_sink_format(sink, "&#%d;", *c);
        else if (n == 0 || *c < ' ')
            td_sink_bytes(sink, "?", 1);
        else
            td_sink_bytes(sink, c, n);
        c += n ? n : 1;
    }
}

void td_sink_csv(td_sink *sink, const char *text)
{
    /* a first character that spreadsheets would compute is kept from it by quotes and a blank */
    bool quoted = strpbrk(text, "\",\r\n") || strchr("=+-@", text[0]);
    if (!quoted || !*text) {
        td_sink_text(sink, text);
        return;
    }
    td_sink_bytes(sink, "\"", 1);
    if (strchr("=+-@", text[0]))
        td_sink_bytes(sink, " ", 1);
    for (const char *c = text; *c; c++)
        td_sink_bytes(sink, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    td_sink_bytes(sink, "\"", 1);
}
