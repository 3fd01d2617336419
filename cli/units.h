/* Numbers for people: three digits and the unit that gives them. Each writes into `buffer` and returns it. */
#ifndef TANDEM_CLI_UNITS_H
#define TANDEM_CLI_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Memory that is held, powers of 1024: "934 MiB", "1.22 GiB". */
const char *td_units_bytes(int64_t bytes, char *buffer, size_t size);
/* Traffic, powers of 1000: "3.4 MB", "131 kB". */
const char *td_units_traffic(double bytes, char *buffer, size_t size);
/* Seconds: "52.6 ms", "1.20 s". */
const char *td_units_seconds(double seconds, char *buffer, size_t size);
/* A clock: "0:29", "1:02:33". */
const char *td_units_clock(double seconds, char *buffer, size_t size);
/* Counts: "38.9 k", "5.12 M", "812". */
const char *td_units_count(double count, char *buffer, size_t size);

#endif
