/* See base/string.h. */
#include "base/string.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Room for n more bytes and the zero. */
static bool reserve(td_string *string, size_t n)
{
    if (string->failed || n >= SIZE_MAX / 4 - string->length) {
        string->failed = true;
        return false;
    }
    size_t needed = string->length + n + 1;
    if (needed <= string->capacity)
        return true;
    size_t capacity = string->capacity * 2 > needed ? string->capacity * 2 : needed < 64 ? 64 : needed;
    char *grown = td_realloc(string->text, capacity, 1);
    string->failed = grown == NULL;
    if (!grown)
        return false;
    string->text = grown;
    string->capacity = capacity;
    return true;
}

void td_string_append_bytes(td_string *string, const void *bytes, size_t n)
{
    if (!reserve(string, n))
        return;
    if (n)
        memcpy(string->text + string->length, bytes, n);
    string->length += n;
    string->text[string->length] = '\0';
}

void td_string_append(td_string *string, const char *text)
{
    td_string_append_bytes(string, text, strlen(text));
}

void td_string_vformat(td_string *string, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0)
        string->failed = true;
    else if (reserve(string, (size_t)length)) {
        (void)vsnprintf(string->text + string->length, (size_t)length + 1, format, again);
        string->length += (size_t)length;
    }
    va_end(again);
}

void td_string_format(td_string *string, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    td_string_vformat(string, format, arguments);
    va_end(arguments);
}

td_status *td_string_finish(td_string *string, char **out_text)
{
    td_string_append_bytes(string, "", 0);
    *out_text = string->failed ? NULL : string->text;
    td_status *status =
        string->failed ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a text of over %zu bytes", string->length) : NULL;
    if (string->failed)
        td_free(string->text);
    *string = (td_string){0};
    return status;
}

void td_string_deinit(td_string *string)
{
    td_free(string->text);
    *string = (td_string){0};
}

void td_text_cut(char *to, size_t room, const char *text)
{
    size_t n = strlen(text);
    if (!room)
        return;
    if (n >= room) {
        n = room - 1;
        while (n && ((unsigned char)text[n] & 0xC0) == 0x80)
            n--;
    }
    memcpy(to, text, n);
    to[n] = '\0';
}

size_t td_text_character(const void *text, size_t left)
{
    const unsigned char *at = text;
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (!n || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return n;
}

void td_text_mend(char *text)
{
    size_t n = strlen(text), begin = n;
    while (begin && n - begin < 3 && ((unsigned char)text[begin - 1] & 0xC0) == 0x80)
        begin--;
    if (!begin)
        return;
    unsigned char first = (unsigned char)text[--begin];
    size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    if (n - begin < wanted)
        text[begin] = '\0';
}

size_t td_layer_length(const char *name)
{
    const size_t first = strcspn(name, "./@"), digits = name[first] == '.' ? strspn(name + first + 1, "0123456789") : 0;
    return digits && strchr("./@", name[first + 1 + digits]) ? first + 1 + digits : first;
}

void td_text_plain(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        bool c1 = c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0; /* U+0080 to U+009F */
        if (*c >= ' ' && *c != 0x7F && !c1)
            continue;
        *c = '?';
        if (c1)
            *++c = '?';
    }
}
