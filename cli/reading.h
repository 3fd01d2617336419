/* What is shown while a text file is parsed: on a terminal one line, from the second second on, rewritten at most ten times a second;
 * elsewhere nothing. Time comes from the caller, so tests can set it. */
#ifndef TANDEM_CLI_READING_H
#define TANDEM_CLI_READING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct td_reading {
    FILE *stream; /* NULL: say nothing */
    /* the rest is its own */
    const char *path; /* of the file at hand: only compared */
    int64_t started_ns, shown_ns;
    bool line_open;
} td_reading;

/* As td_on_reading tells it. */
void td_reading_show(td_reading *reading, const char *path, int64_t bytes, int64_t of_bytes, int64_t rows,
                     int64_t now_ns);
/* Takes the line away again. */
void td_reading_end(td_reading *reading);

#endif
