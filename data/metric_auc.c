/* Exact area under the ROC curve: Mann-Whitney's U over positives * negatives, tied scores counting one half (Fawcett,
 * An introduction to ROC analysis, 2006, section 7). Each sample is kept as one 64-bit key (its score in an
 * order-preserving form, then its label); the keys are sorted when the value is asked for. Counts are whole numbers up
 * to the last division, so the value depends on the samples alone, not on their order. */
#include "data/metric.h"

#include <string.h>

#include "base/memory.h"

typedef struct state {
    uint64_t *keys; /* bit 0: the label; from bit 1: the score, see ordered() */
    int64_t count, capacity;
} state;

/* Bits of a float such that a < b is the order of the unsigned numbers; -0 becomes 0, which ties with it. */
static uint32_t ordered(float score)
{
    uint32_t bits;
    score = score == 0 ? 0.0f : score;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static td_status *add(void *self, float logit, float label)
{
    state *s = self;
    TD_TRY(td_grow(&s->keys, &s->capacity, s->count, sizeof *s->keys));
    s->keys[s->count++] = (uint64_t)ordered(logit) << 1 | (label > 0.5f);
    return NULL;
}

/* Radix sort, 11 bits a pass; three passes cover the 33 bits of a key. */
static void sort(uint64_t *keys, uint64_t *other, int64_t n)
{
    enum { BITS = 11, BUCKETS = 1 << BITS, PASSES = 3 };
    int64_t starts[BUCKETS];
    for (int32_t pass = 0; pass < PASSES; pass++) {
        int32_t shift = pass * BITS;
        memset(starts, 0, sizeof starts);
        for (int64_t i = 0; i < n; i++)
            starts[keys[i] >> shift & (BUCKETS - 1)]++;
        int64_t sum = 0;
        for (int32_t b = 0; b < BUCKETS; b++) {
            int64_t here = starts[b];
            starts[b] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++)
            other[starts[keys[i] >> shift & (BUCKETS - 1)]++] = keys[i];
        uint64_t *swap = keys;
        keys = other;
        other = swap;
    }
    memcpy(other, keys, (size_t)n * sizeof *keys); /* an odd number of passes ends in the other half */
}

static td_status *finish(void *self, int64_t samples, double *out_value)
{
    state *s = self;
    uint64_t *other = td_calloc((size_t)samples, sizeof *other);
    if (!other)
        return TD_ERROR(TD_OUT_OF_MEMORY, "metric auc: out of memory to sort %lld samples", (long long)samples);
    sort(s->keys, other, samples);
    td_free(other);
    uint64_t positives = 0, negatives = 0, twice_u = 0;
    for (int64_t i = 0; i < samples;) {
        uint64_t here[2] = {0, 0}, score = s->keys[i] >> 1;
        for (; i < samples && s->keys[i] >> 1 == score; i++)
            here[s->keys[i] & 1]++;
        twice_u += here[1] * (2 * negatives + here[0]);
        negatives += here[0];
        positives += here[1];
    }
    if (positives == 0 || negatives == 0)
        return TD_ERROR(TD_DATA_ERROR, "metric auc: not defined, all %lld labels are %d", (long long)samples,
                        positives != 0);
    *out_value = (double)twice_u / 2 / ((double)positives * (double)negatives);
    return NULL;
}

static void clear(void *self)
{
    td_free(((state *)self)->keys);
}

const td_metric_rule td_metric_auc = {
    .name = "auc",
    .summary = "area under the ROC curve, exact, ties count one half",
    .state_bytes = sizeof(state),
    .add = add,
    .finish = finish,
    .clear = clear,
};
