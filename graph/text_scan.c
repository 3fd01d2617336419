/* See text_scan.h. */
#include "graph/text_scan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/text.h"

td_status *td_scan_locate(const td_scanner *s, size_t where, td_status *status)
{
    return td_status_prefix(status, "%s:%" PRId64 ":%zu", s->origin, s->line, where - s->line_begin + 1);
}

td_status *td_scan_error(const td_scanner *s, size_t where, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = td_vformat(format, arguments);
    va_end(arguments);
    td_status *status = message ? TD_ERROR(TD_DATA_ERROR, "%s", message)
                                : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an error about a graph's text");
    td_free(message);
    return td_scan_locate(s, where, status);
}

/* ---- blanks and lines --------------------------------------------------------------------------------------------------- */

int td_scan_peek(const td_scanner *s)
{
    if (s->at >= s->bytes || s->text[s->at] == '\n')
        return -1;
    return (unsigned char)s->text[s->at];
}

static bool is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

void td_scan_blanks(td_scanner *s)
{
    while (is_blank(td_scan_peek(s)))
        s->at++;
    bool apart = s->at == s->line_begin || is_blank((unsigned char)s->text[s->at - 1]);
    if (apart && td_scan_peek(s) == '#')
        while (td_scan_peek(s) >= 0)
            s->at++;
}

bool td_scan_line_ended(td_scanner *s)
{
    td_scan_blanks(s);
    return td_scan_peek(s) < 0;
}

bool td_scan_next_line(td_scanner *s)
{
    while (td_scan_peek(s) >= 0)
        s->at++;
    if (s->at >= s->bytes)
        return false;
    s->at++;
    s->line_begin = s->at;
    s->line++;
    return s->at < s->bytes;
}

/* What stands at the scanner, for messages. */
static const char *found(const td_scanner *s, char buffer[24])
{
    int c = td_scan_peek(s);
    if (c < 0)
        return "the line's end";
    if (c > ' ' && c < 0x7f)
        (void)snprintf(buffer, 24, "'%c'", c);
    else
        (void)snprintf(buffer, 24, "byte 0x%02x", (unsigned)c);
    return buffer;
}

td_status *td_scan_expect_line_end(td_scanner *s)
{
    char buffer[24];
    if (td_scan_line_ended(s))
        return NULL;
    return td_scan_error(s, s->at, "found %s, expected the line's end", found(s, buffer));
}

bool td_scan_accept(td_scanner *s, const char *punctuation)
{
    size_t length = strlen(punctuation);
    td_scan_blanks(s);
    if (s->bytes - s->at < length || memcmp(s->text + s->at, punctuation, length) != 0)
        return false;
    s->at += length;
    return true;
}

td_status *td_scan_expect(td_scanner *s, const char *punctuation)
{
    char buffer[24];
    if (td_scan_accept(s, punctuation))
        return NULL;
    return td_scan_error(s, s->at, "found %s, expected \"%s\"", found(s, buffer), punctuation);
}

/* ---- words --------------------------------------------------------------------------------------------------------------- */

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte after a backslash. */
static td_status *scan_escape(td_scanner *s, char *out)
{
    size_t begin = s->at - 1;
    int c = td_scan_peek(s);
    if (c == '"' || c == '\\') {
        *out = (char)c;
        s->at++;
        return NULL;
    }
    int high = -1, low = -1;
    if (c == 'x' && s->bytes - s->at > 2) {
        high = hex_digit((unsigned char)s->text[s->at + 1]);
        low = hex_digit((unsigned char)s->text[s->at + 2]);
    }
    if (high < 0 || low < 0 || (high == 0 && low == 0))
        return td_scan_error(s, begin, "a backslash stands before \", \\ or xHH (two hexadecimal digits, not 00)");
    *out = (char)(16 * high + low);
    s->at += 3;
    return NULL;
}

static td_status *scan_quoted(td_scanner *s, char name[TD_SCAN_NAME_BYTES])
{
    size_t begin = s->at++, length = 0;
    for (;;) {
        int c = td_scan_peek(s);
        if (c < 0)
            return td_scan_error(s, begin, "this quote is not closed");
        s->at++;
        if (c == '"')
            break;
        if (c == 0)
            return td_scan_error(s, s->at - 1, "a zero byte cannot be part of a name");
        if (length + 1 >= TD_SCAN_NAME_BYTES)
            return td_scan_error(s, begin, "a name has at most %d bytes", TD_SCAN_NAME_BYTES - 1);
        name[length] = (char)c;
        if (c == '\\')
            TD_TRY(scan_escape(s, &name[length]));
        length++;
    }
    name[length] = '\0';
    return NULL;
}

td_status *td_scan_name(td_scanner *s, const char *what, char name[TD_SCAN_NAME_BYTES], size_t *out_begin)
{
    char buffer[24];
    td_scan_blanks(s);
    size_t begin = s->at, length = 0;
    if (out_begin)
        *out_begin = begin;
    if (td_scan_peek(s) == '"')
        return scan_quoted(s, name);
    while (td_scan_peek(s) > 0 && td_text_is_word_byte((unsigned char)td_scan_peek(s))) {
        if (length + 1 >= TD_SCAN_NAME_BYTES)
            return td_scan_error(s, begin, "a name has at most %d bytes", TD_SCAN_NAME_BYTES - 1);
        name[length++] = s->text[s->at++];
    }
    name[length] = '\0';
    if (length == 0)
        return td_scan_error(s, begin, "found %s, expected %s", found(s, buffer), what);
    return NULL;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------------------- */

td_status *td_scan_natural(td_scanner *s, int64_t *out)
{
    char buffer[24];
    size_t begin = s->at;
    int64_t value = 0;
    for (int c = td_scan_peek(s); c >= '0' && c <= '9'; c = td_scan_peek(s)) {
        if (!td_multiply_checked(value, 10, &value) || !td_add_checked(value, c - '0', &value))
            return td_scan_error(s, begin, "this number is beyond 64 bits");
        s->at++;
    }
    if (s->at == begin)
        return td_scan_error(s, begin, "found %s, expected a number", found(s, buffer));
    *out = value;
    return NULL;
}

td_status *td_scan_integer(td_scanner *s, int64_t *out)
{
    char word[TD_SCAN_NAME_BYTES], *end = NULL;
    size_t begin;
    TD_TRY(td_scan_name(s, "a whole number", word, &begin));
    errno = 0;
    long long value = strtoll(word, &end, 10);
    if (*end || errno == ERANGE || s->text[begin] == '"')
        return td_scan_error(s, begin, "\"%s\" is not a whole number of 64 bits", word);
    *out = value;
    return NULL;
}

td_status *td_scan_real(td_scanner *s, double *out)
{
    char word[TD_SCAN_NAME_BYTES], *end = NULL;
    size_t begin;
    TD_TRY(td_scan_name(s, "a number", word, &begin));
    *out = strtod(word, &end);
    if (*end || s->text[begin] == '"')
        return td_scan_error(s, begin, "\"%s\" is not a number", word);
    return NULL;
}
