/* Times of steps: median, 90th percentile and rate. The first two steps of each epoch warm caches and pipelines and are left
 * out. */
#ifndef TANDEM_CLI_STATISTICS_H
#define TANDEM_CLI_STATISTICS_H

#include <stdint.h>

#include "tandem/status.h"

typedef struct td_step_statistics {
    double *seconds;
    int64_t n, capacity;
    int64_t samples; /* of the steps that count */
    double sum_s;    /* of the steps that count */
} td_step_statistics;

enum { TD_STATISTICS_LEFT_OUT = 2 };

/* `batch`: index within the epoch, from 0. */
td_status *td_statistics_add(td_step_statistics *statistics, int64_t batch, int64_t samples,
                             double seconds) TD_MUST_USE;
/* The value that a share of all are at most, between neighbours in a line; 0 when nothing was added. Sorts. */
double td_statistics_quantile(td_step_statistics *statistics, double share);
/* Samples per second; 0 when nothing was added. */
double td_statistics_rate(const td_step_statistics *statistics);
void td_statistics_deinit(td_step_statistics *statistics);

#endif
