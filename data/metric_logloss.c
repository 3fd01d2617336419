/* Mean binary cross-entropy of logits, in nats and double precision: log(1 + exp(x)) - label * x, written so that no
 * exp overflows. */
#include "data/metric.h"

#include "base/math.h"

typedef struct state {
    double sum, lost; /* lost: what rounding took from the sum (Neumaier 1974) */
} state;

static td_status *add(void *self, float logit, float label)
{
    state *s = self;
    double x = logit;
    double term = (x > 0 ? x : 0) + td_log(1 + td_exp(-fabs(x))) - (label == 0 ? 0 : label * x);
    double sum = s->sum + term;
    s->lost += fabs(s->sum) >= fabs(term) ? (s->sum - sum) + term : (term - sum) + s->sum;
    s->sum = sum;
    return NULL;
}

static td_status *finish(void *self, int64_t samples, double *out_value)
{
    const state *s = self;
    if (isinf(s->sum) || isnan(s->sum))
        return TD_ERROR(TD_DATA_ERROR, "metric logloss: not finite, a logit is infinite");
    *out_value = (s->sum + s->lost) / (double)samples;
    return NULL;
}

const td_metric_rule td_metric_logloss = {
    .name = "logloss",
    .summary = "mean of log(1 + exp(logit)) - label * logit, in nats",
    .state_bytes = sizeof(state),
    .add = add,
    .finish = finish,
};
