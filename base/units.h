/* Numbers with units, as people write and read them.
 *
 * Reading: "256MiB", "1.5 GiB", "12GB/s", "8us", or a plain number in the base unit (bytes, bytes per second, seconds).
 * Case does not matter, a blank before the unit is allowed, the decimal sign is a point in every locale. Writing: three
 * digits and the unit that gives them; memory that is held in powers of 1024, traffic in powers of 1000. */
#ifndef TANDEM_BASE_UNITS_H
#define TANDEM_BASE_UNITS_H

#include <stdint.h>

#include "tandem/status.h"

/* B, KiB .. PiB, kB .. PB. Not negative, below 2^63; a fraction of a byte is rounded. */
td_status *td_parse_bytes(const char *text, int64_t *out_bytes) TD_MUST_USE;
/* B/s, KiB/s .. PiB/s, kB/s .. PB/s. Not negative, finite. */
td_status *td_parse_rate(const char *text, double *out_bytes_per_s) TD_MUST_USE;
/* ns, us, ms, s, min, h. Not negative, finite. */
td_status *td_parse_seconds(const char *text, double *out_seconds) TD_MUST_USE;

/* Each writes into `buffer` and returns it, so that several fit one printf:
 *     td_format_bytes((td_unit_text){0}.text, n) lives until the end of the block. */
enum { TD_UNIT_TEXT = 32 };
typedef struct td_unit_text {
    char text[TD_UNIT_TEXT];
} td_unit_text;

/* "934 MiB", "1.22 GiB", "812 B". */
const char *td_format_bytes(char buffer[TD_UNIT_TEXT], double bytes);
/* "3.40 MB", "131 kB". */
const char *td_format_traffic(char buffer[TD_UNIT_TEXT], double bytes);
/* "12.0 GB/s". */
const char *td_format_rate(char buffer[TD_UNIT_TEXT], double bytes_per_s);
/* "52.6 ms", "8.00 us", "1.20 s". */
const char *td_format_seconds(char buffer[TD_UNIT_TEXT], double seconds);
/* "38.9 k", "5.12 M", "812". */
const char *td_format_count(char buffer[TD_UNIT_TEXT], double count);
/* "5,120,000". */
const char *td_format_thousands(char buffer[TD_UNIT_TEXT], int64_t number);
/* "1 row", "12 rows"; "1 batch", "0 batches"; "1 entry", "2 entries". */
const char *td_format_counted(char buffer[TD_UNIT_TEXT], int64_t count, const char *noun);
/* The same without a buffer, until the end of the block: for printf. */
#define TD_COUNTED(count, noun) td_format_counted((td_unit_text){{0}}.text, (int64_t)(count), (noun))

#endif
