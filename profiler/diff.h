/* Two recordings against each other: what takes longer or shorter, and whether that is more than noise.
 *
 * Each quantity has a value in every step, so each recording has a median and a spread of its own: half the distance between the
 * quartiles. A difference of medians counts when it exceeds three times the larger standard error of the two medians
 * (1.4826 * 1.2533 * spread / sqrt(steps)) and `least` of the first median.
 *
 * Recordings of different work (another model, parameters of other shapes, another number of samples a step) take different times for
 * that reason alone: who compares them is told first. The same work done otherwise (devices, placement, precision) is what one compares. */
#ifndef TANDEM_PROFILER_DIFF_H
#define TANDEM_PROFILER_DIFF_H

#include "profiler/advice.h"

typedef struct td_diff_row {
    char name[160];
    double before_ns, after_ns; /* medians; negative: it is not there */
    double band_ns;             /* differences within it are noise */
    int32_t verdict;            /* -1: shorter, 0: noise, 1: longer */
} td_diff_row;

/* Something that the recordings do not have in common. */
typedef struct td_unlike {
    const char *what; /* "model", "samples a step", "devices", ... */
    bool is_work;     /* it is other work, not the same work done otherwise */
    char before[128], after[128];
} td_unlike;

enum { TD_MOST_UNLIKE = 10 }; /* as many as diff_unlike.c looks for */

typedef struct td_diff {
    td_unlike unlike[TD_MOST_UNLIKE]; /* other work first */
    int32_t n_unlike;
    bool same_work;
    td_diff_row *rows; /* the step first, then kinds of work, then subgraphs by difference */
    int64_t n, capacity;
    bool slower; /* the step is longer, beyond noise */
} td_diff;

/* `least`: the share of the first median below which a difference never counts. */
td_status *td_diff_create(const td_analysis *before, const td_analysis *after, double least,
                          td_diff **out_diff) TD_MUST_USE;
void td_diff_destroy(td_diff *diff);
/* diff_unlike.c: fills `unlike` and `same_work`. */
td_status *td_diff_find_unlike(td_diff *diff, const td_analysis *before, const td_analysis *after) TD_MUST_USE;
/* "model dlrm, then gpt; devices cpu, then cpu + accel": of other work, or of the same done otherwise. Cut to what the buffer holds. */
const char *td_diff_unlike_text(const td_diff *diff, bool work, char *buffer, size_t bytes);

#endif
