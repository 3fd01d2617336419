/* What is shown while training runs: on a terminal one line that is rewritten at most ten times a second, elsewhere a line per
 * interval of steps. Time comes from the caller, so tests can set it. */
#ifndef TANDEM_CLI_PROGRESS_H
#define TANDEM_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TD_PROGRESS_WINDOW = 100 };

typedef struct td_progress {
    FILE *stream; /* NULL: say nothing */
    bool terminal;
    int64_t epochs, steps_per_epoch, steps, every; /* steps: of the whole training */
    /* the rest is its own */
    int64_t started_ns, shown_ns, step, first_step, samples, interval_samples, interval_ns;
    double rate; /* samples per second, smoothed */
    float losses[TD_PROGRESS_WINDOW];
    int64_t n_losses;
    bool line_open;
} td_progress;

/* `first_step`: steps done before (a resumed run). */
void td_progress_start(td_progress *progress, int64_t first_step, int64_t now_ns);
/* After each step: `epoch` and `batch` from 0, as in td_batch. */
void td_progress_step(td_progress *progress, int64_t epoch, int64_t batch, int64_t samples, float loss, int64_t now_ns);
/* The mean loss of the last TD_PROGRESS_WINDOW steps of this run; 0: there was none. */
double td_progress_recent_loss(const td_progress *progress);
/* Ends the line, so that other output starts on one of its own. */
void td_progress_end(td_progress *progress);

/* Of other long work, in equal pieces: the same on a terminal; elsewhere a line for each tenth of it. */
typedef struct td_work_progress {
    FILE *stream; /* NULL: say nothing */
    bool terminal;
    const char *what, *unit; /* "landscape", "points" */
    int64_t all;
    /* the rest is its own */
    int64_t done, started_ns, shown_ns;
    bool line_open;
} td_work_progress;

void td_work_start(td_work_progress *work, int64_t now_ns);
/* One piece more is done. */
void td_work_step(td_work_progress *work, int64_t now_ns);
void td_work_end(td_work_progress *work);

/* "0:29", "1:02:33". */
const char *td_clock_text(double seconds, char buffer[32]);

#endif
