/* Times of steps: see cli/statistics.h. */
#include "cli/statistics.h"

#include <stdlib.h>

#include "base/memory.h"

td_status *td_statistics_add(td_step_statistics *statistics, int64_t batch, int64_t samples, double seconds)
{
    if (batch < TD_STATISTICS_LEFT_OUT)
        return NULL;
    TD_TRY(td_grow(&statistics->seconds, &statistics->capacity, statistics->n, sizeof(double)));
    statistics->seconds[statistics->n++] = seconds;
    statistics->samples += samples;
    statistics->sum_s += seconds;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double td_statistics_quantile(td_step_statistics *statistics, double share)
{
    if (!statistics->n)
        return 0;
    qsort(statistics->seconds, (size_t)statistics->n, sizeof(double), compare);
    double position = share * (double)(statistics->n - 1);
    int64_t below = (int64_t)position;
    double part = position - (double)below;
    double value = statistics->seconds[below];
    return part > 0 ? value + part * (statistics->seconds[below + 1] - value) : value;
}

double td_statistics_rate(const td_step_statistics *statistics)
{
    return statistics->sum_s > 0 ? (double)statistics->samples / statistics->sum_s : 0;
}

void td_statistics_deinit(td_step_statistics *statistics)
{
    td_free(statistics->seconds);
    *statistics = (td_step_statistics){0};
}
