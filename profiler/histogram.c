/* Histograms of tensors as event files have them: see profiler/event_file.h. Not for the optimizer, which has exact sums of its
 * own: these sums are in the order of memory. */
#include <math.h>

#include "profiler/event_file.h"

static void find_range(const float *numbers, int64_t n, td_histogram *h)
{
    for (int64_t i = 0; i < n; i++) {
        double x = (double)numbers[i];
        if (!isfinite(x)) {
            h->n_not_finite++;
            continue;
        }
        h->least = !h->n || x < h->least ? x : h->least;
        h->greatest = !h->n || x > h->greatest ? x : h->greatest;
        h->sum += x;
        h->sum_squares += x * x;
        h->n++;
    }
}

static int32_t bucket_of(const td_histogram *h, double x)
{
    double width = (h->greatest - h->least) / h->n_buckets;
    int32_t i = width > 0 ? (int32_t)((x - h->least) / width) : 0;
    i = i < 0 ? 0 : i >= h->n_buckets ? h->n_buckets - 1 : i;
    while (i > 0 && x <= h->limits[i - 1]) /* rounding of the division */
        i--;
    while (i < h->n_buckets - 1 && x > h->limits[i])
        i++;
    return i;
}

void td_histogram_of(const float *numbers, int64_t n, td_histogram *out_histogram)
{
    td_histogram *h = out_histogram;
    *h = (td_histogram){0};
    find_range(numbers, n, h);
    if (!h->n)
        return;
    h->n_buckets = h->least < h->greatest ? TD_HISTOGRAM_BUCKETS : 1;
    for (int32_t i = 0; i < h->n_buckets; i++)
        h->limits[i] = h->least + (h->greatest - h->least) * (i + 1) / h->n_buckets;
    h->limits[h->n_buckets - 1] = h->greatest;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(numbers[i]))
            h->counts[bucket_of(h, (double)numbers[i])]++;
}
