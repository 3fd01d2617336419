/* Text files as records: see data/text.h. Reading goes through zlib, which passes plain files on as they are. Records
 * lie in one buffer that grows to the longest record, up to a limit beyond which the file is taken for something
 * else. */
#include "data/text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/file_error.h"
#include "base/memory.h"

enum { FIRST_BYTES = 1 << 18, LONGEST_QUOTED = 1 << 20, LONGEST_RECORD = 1 << 26 };

td_status *td_text_open(td_text *text, const char *path)
{
    *text = (td_text){.path = path, .line = 1, .next_line = 1};
    text->file = gzopen(path, "rbe");
    if (!text->file)
        return td_file_error(path, "open", errno);
    text->buffer = td_calloc(1, FIRST_BYTES);
    if (!text->buffer)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for reading", path);
    text->capacity = FIRST_BYTES;
    return NULL;
}

void td_text_close(td_text *text)
{
    if (text->file)
        (void)gzclose(text->file); /* only read: nothing is lost here */
    td_free(text->buffer);
    *text = (td_text){0};
}

void td_text_position(const td_text *text, int64_t *out_bytes, int64_t *out_of_bytes)
{
    struct stat about;
    int64_t at = text->file ? (int64_t)gzoffset(text->file) : 0;
    *out_bytes = at > 0 ? at : 0;
    *out_of_bytes = stat(text->path, &about) == 0 ? (int64_t)about.st_size : 0;
}

static td_status *read_error(const td_text *text)
{
    int code = Z_OK;
    const char *message = gzerror(text->file, &code);
    if (code == Z_ERRNO)
        return td_file_error(text->path, "read", errno);
    return TD_ERROR(TD_DATA_ERROR, "%s: damaged or cut off: %s", text->path, message);
}

/* Moves what is left to the front and reads more behind it. */
static td_status *more(td_text *text)
{
    if (text->begin > 0) {
        memmove(text->buffer, text->buffer + text->begin, text->end - text->begin);
        text->end -= text->begin;
        text->begin = 0;
    }
    if (text->end == text->capacity) {
        if (text->capacity >= LONGEST_RECORD)
            return TD_ERROR(TD_DATA_ERROR, "%s:%lld: a line is longer than 64 MiB: this is not a text file", text->path,
                            (long long)text->next_line);
        char *larger = td_realloc(text->buffer, text->capacity, 2);
        if (!larger)
            return TD_ERROR(TD_OUT_OF_MEMORY, "%s:%lld: out of memory for a long line", text->path,
                            (long long)text->next_line);
        text->buffer = larger;
        text->capacity *= 2;
    }
    unsigned room = (unsigned)(text->capacity - text->end);
    int got = gzread(text->file, text->buffer + text->end, room);
    int code = Z_OK;
    (void)gzerror(text->file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
        return read_error(text);
    text->at_end = got == 0;
    text->end += (size_t)got;
    return NULL;
}

static td_status *skip_byte_order_mark(td_text *text)
{
    while (text->end - text->begin < 3 && !text->at_end)
        TD_TRY(more(text));
    if (text->end - text->begin >= 3 && memcmp(text->buffer + text->begin, "\xef\xbb\xbf", 3) == 0)
        text->begin += 3;
    return NULL;
}

/* Length of the first line in the buffer, its newline left out; reads on until there is one or the file ends. *out_end:
 * nothing is left. */
static td_status *line_length(td_text *text, size_t *out_length, bool *out_end)
{
    if (text->next_line == 1 && text->begin == 0)
        TD_TRY(skip_byte_order_mark(text));
    size_t seen = 0;
    for (;;) {
        size_t length = text->end - text->begin;
        char *from = text->buffer + text->begin;
        char *newline = length > seen ? memchr(from + seen, '\n', length - seen) : NULL;
        if (newline || text->at_end) {
            *out_length = newline ? (size_t)(newline - from) : length;
            *out_end = !newline && length == 0;
            return NULL;
        }
        seen = length;
        TD_TRY(more(text));
    }
}

/* Hands out `length` bytes as a record of `lines` lines and steps over the newline behind them. */
static void take(td_text *text, size_t length, int64_t lines, td_span *out_record)
{
    *out_record = (td_span){text->buffer + text->begin, (int64_t)length};
    text->begin += length + (text->begin + length < text->end);
    text->line = text->next_line;
    text->next_line += lines;
    if (length > 0 && out_record->data[length - 1] == '\r')
        out_record->length--;
}

td_status *td_text_next(td_text *text, td_span *out_record, bool *out_end)
{
    do {
        size_t length;
        *out_record = (td_span){0};
        TD_TRY(line_length(text, &length, out_end));
        if (*out_end)
            return NULL;
        take(text, length, 1, out_record);
    } while (out_record->length == 0);
    return NULL;
}

/* Where a CSV record ends in data[0, length): the index of its newline, or `length` if it goes on. `quoted` and
 * `starts` (a field starts here) carry the state over calls. */
static size_t scan_record(const char *data, size_t from, size_t length, char delimiter, bool *quoted, bool *starts,
                          int64_t *lines)
{
    for (size_t i = from; i < length; i++) {
        char c = data[i];
        if (*quoted) {
            *quoted = c != '"'; /* "" closes and, at once, opens again: `starts` stays true for that one character */
            *lines += c == '\n';
            *starts = c == '"';
        } else if (c == '\n') {
            return i;
        } else {
            *quoted = *starts && c == '"';
            *starts = c == delimiter;
        }
    }
    return length;
}

/* The length of the record that begins with an open quote, and its lines; false: the quote is never closed. */
static td_status *quoted_length(td_text *text, char delimiter, size_t *out_length, int64_t *out_lines, bool *out_closed)
{
    bool quoted = false, starts = true;
    size_t seen = 0;
    *out_lines = 1;
    for (;;) {
        size_t length = text->end - text->begin;
        size_t end = scan_record(text->buffer + text->begin, seen, length, delimiter, &quoted, &starts, out_lines);
        *out_length = end;
        *out_closed = end < length || (text->at_end && !quoted);
        if (*out_closed || text->at_end || length > LONGEST_QUOTED)
            return NULL;
        seen = length;
        TD_TRY(more(text));
    }
}

td_status *td_text_next_csv(td_text *text, char delimiter, td_span *out_record, bool *out_end)
{
    do {
        size_t first, length;
        int64_t lines = 1;
        bool closed = true;
        *out_record = (td_span){0};
        TD_TRY(line_length(text, &first, out_end));
        if (*out_end)
            return NULL;
        length = first;
        if (memchr(text->buffer + text->begin, '"', first))
            TD_TRY(quoted_length(text, delimiter, &length, &lines, &closed));
        take(text, closed ? length : first, closed ? lines : 1, out_record);
    } while (out_record->length == 0);
    return NULL;
}

int32_t td_tsv_split(td_span record, char delimiter, td_span *out_fields, int32_t most)
{
    int32_t n = 0;
    char *from = record.data, *end = record.data + record.length;
    for (;;) {
        char *stop = memchr(from, delimiter, (size_t)(end - from));
        if (n < most)
            out_fields[n] = (td_span){from, (stop ? stop : end) - from};
        n++;
        if (!stop)
            return n;
        from = stop + 1;
    }
}

/* Takes the quotes off a field that begins with one at `from`; *out_next: behind the closing one. False: not closed. */
static bool unquote(char *from, char *end, td_span *out_field, char **out_next)
{
    char *to = from;
    for (char *at = from + 1; at < end; at++) {
        if (*at == '"' && (at + 1 == end || at[1] != '"')) {
            *out_field = (td_span){from, to - from};
            *out_next = at + 1;
            return true;
        }
        at += *at == '"';
        *to++ = *at;
    }
    return false;
}

int32_t td_csv_split(td_span record, char delimiter, td_span *out_fields, int32_t most)
{
    int32_t n = 0;
    char *from = record.data, *end = record.data + record.length;
    for (;;) {
        td_span field;
        char *stop;
        if (from < end && *from == '"') {
            if (!unquote(from, end, &field, &stop) || (stop < end && *stop != delimiter))
                return 0;
        } else {
            stop = memchr(from, delimiter, (size_t)(end - from));
            stop = stop ? stop : end;
            field = (td_span){from, stop - from};
        }
        if (n < most)
            out_fields[n] = field;
        n++;
        if (stop == end)
            return n;
        from = stop + 1;
    }
}
