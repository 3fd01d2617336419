/* A text that grows, with one error check at its end.
 *
 *     td_string text = {0};
 *     for (int i = 0; i < n; i++)
 *         td_string_format(&text, "%s%s", i ? ", " : "", names[i]);
 *     char *list = NULL;
 *     TD_TRY(td_string_finish(&text, &list));   // td_free(list)
 *
 * Once memory has run out, further appends do nothing and finish reports it. */
#ifndef TANDEM_BASE_STRING_H
#define TANDEM_BASE_STRING_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "tandem/status.h"

typedef struct td_string {
    char *text; /* ends with a zero; NULL while nothing was appended */
    size_t length, capacity;
    bool failed;
} td_string;

void td_string_append(td_string *string, const char *text);
/* Any bytes. */
void td_string_append_bytes(td_string *string, const void *bytes, size_t n);
void td_string_format(td_string *string, const char *format, ...) TD_PRINTF(2, 3);
void td_string_vformat(td_string *string, const char *format, va_list arguments);
/* Hands the text over (never NULL on success, td_free it) and leaves the string empty. */
td_status *td_string_finish(td_string *string, char **out_text) TD_MUST_USE;
/* Drops the text; for paths that do not finish. Leaves the string empty. */
void td_string_deinit(td_string *string);

/* How many bytes a character of UTF-8 has that begins here, of `left` that are there; 0: it is none. Overlong forms, surrogates and
 * what is beyond U+10FFFF are none. */
size_t td_text_character(const void *at, size_t left);
/* A copy of text in `room` bytes, the zero included: cut off where it is longer, before a character of UTF-8 rather than in it. */
void td_text_cut(char *to, size_t room, const char *text);
/* Drops a character of UTF-8 that lacks its end, where a text was cut off in the middle of one. */
void td_text_mend(char *text);
/* How much of the name of an op or parameter is its layer: "h.3" of "h.3.up/linear", "bottom" of "bottom/linear". */
size_t td_layer_length(const char *name);
/* Control characters become '?', in place: names from files go to terminals. */
void td_text_plain(char *text);

#endif
