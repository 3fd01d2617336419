/* Text files as records: plain or gzip, lines or CSV records, with line numbers for messages. A byte-order mark at the
 * start and a carriage return at a line's end are left out; wholly empty lines are skipped. What a record means is the
 * readers' business. One thread at a time. */
#ifndef TANDEM_DATA_TEXT_H
#define TANDEM_DATA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* A piece of a record; not terminated. */
typedef struct td_span {
    char *data;
    int64_t length;
} td_span;

typedef struct td_text {
    const char *path; /* borrowed */
    void *file;       /* zlib's */
    char *buffer;
    size_t capacity, begin, end;
    bool at_end;
    int64_t line;      /* where the record handed out last begins, from 1 */
    int64_t next_line; /* where the next one will */
} td_text;

/* `path` must stay until td_text_close. Whatever comes back, td_text_close may be called. */
td_status *td_text_open(td_text *text, const char *path) TD_MUST_USE;
void td_text_close(td_text *text);
/* How far the file is read, in its own bytes (compressed ones of gzip), and how many it has; 0 where it cannot be said. */
void td_text_position(const td_text *text, int64_t *out_bytes, int64_t *out_of_bytes);
/* The next line, valid (and writable) until the next call; *out_end: there is none. */
td_status *td_text_next(td_text *text, td_span *out_record, bool *out_end) TD_MUST_USE;
/* The next CSV record: newlines inside quoted fields belong to it. Where a quote is never closed (within a mebibyte)
 * the record is its first line alone, for td_csv_split to refuse. */
td_status *td_text_next_csv(td_text *text, char delimiter, td_span *out_record, bool *out_end) TD_MUST_USE;

/* Cuts a record at each `delimiter` into at most `most` spans; returns how many there are, which may be more. */
int32_t td_tsv_split(td_span record, char delimiter, td_span *out_fields, int32_t most);
/* The same for CSV; takes quotes off in place. 0: a quote is not closed or is followed by other text. */
int32_t td_csv_split(td_span record, char delimiter, td_span *out_fields, int32_t most);

/* Whole spans as numbers; false: they are not. Decimal, with an optional sign; real: with fraction and exponent,
 * finite, correctly rounded whatever the locale. */
bool td_span_integer(td_span span, int64_t *out_value);
bool td_span_real(td_span span, double *out_value);
/* A copy for messages: at most 40 characters, unprintable ones as '?'. Returns `out`. */
enum { TD_SPAN_SHOWN = 48 };
const char *td_span_show(td_span span, char out[TD_SPAN_SHOWN]);

#endif
