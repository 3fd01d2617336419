/* Reading .tdg text byte by byte: words, names, numbers, and errors with origin, line and column. Not the grammar: that is
 * text_parse.c.
 *
 * Always holds: never looks at or beyond text[bytes]; a zero byte is a byte like others; nothing crosses a line's end but
 * td_scan_next_line. Columns count bytes from 1. */
#ifndef TANDEM_GRAPH_TEXT_SCAN_H
#define TANDEM_GRAPH_TEXT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TD_SCAN_NAME_BYTES = 1024 }; /* the longest name, its final zero included */

typedef struct td_scanner {
    const char *text, *origin;
    size_t bytes, at, line_begin;
    int64_t line;
} td_scanner;

/* An error at byte `where` of the current line. */
td_status *td_scan_error(const td_scanner *s, size_t where, const char *format, ...) TD_PRINTF(3, 4) TD_MUST_USE;
/* Puts "origin:line:column" before someone else's error. NULL stays NULL. */
td_status *td_scan_locate(const td_scanner *s, size_t where, td_status *status) TD_MUST_USE;

/* Past blanks, and past a comment: '#' at the line's begin or after a blank, up to the line's end. */
void td_scan_blanks(td_scanner *s);
/* After blanks: is the line over? */
bool td_scan_line_ended(td_scanner *s);
/* False at the end of the text. */
bool td_scan_next_line(td_scanner *s);
/* Anything left in the line is an error. */
td_status *td_scan_expect_line_end(td_scanner *s) TD_MUST_USE;

/* The byte at hand without blanks before it, -1 at a line's end. */
int td_scan_peek(const td_scanner *s);
/* Blanks, then this punctuation; false, and only blanks gone, where there is something else. */
bool td_scan_accept(td_scanner *s, const char *punctuation);
td_status *td_scan_expect(td_scanner *s, const char *punctuation) TD_MUST_USE;

/* Blanks, then a bare word or a quoted name. `what` says in errors what was expected; *out_begin is where it begins. */
td_status *td_scan_name(td_scanner *s, const char *what, char name[TD_SCAN_NAME_BYTES], size_t *out_begin) TD_MUST_USE;
/* Digits, at once. */
td_status *td_scan_natural(td_scanner *s, int64_t *out) TD_MUST_USE;
/* Blanks, then a whole or real number. */
td_status *td_scan_integer(td_scanner *s, int64_t *out) TD_MUST_USE;
td_status *td_scan_real(td_scanner *s, double *out) TD_MUST_USE;

#endif
