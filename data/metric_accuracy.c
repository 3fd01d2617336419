/* Share of samples on the right side of zero: (logit > 0) == (label > 0.5). */
#include "data/metric.h"

typedef struct state {
    int64_t right;
} state;

static td_status *add(void *self, float logit, float label)
{
    ((state *)self)->right += (logit > 0) == (label > 0.5f);
    return NULL;
}

static td_status *finish(void *self, int64_t samples, double *out_value)
{
    *out_value = (double)((state *)self)->right / (double)samples;
    return NULL;
}

const td_metric_rule td_metric_accuracy = {
    .name = "accuracy",
    .summary = "share of samples with (logit > 0) == (label > 0.5)",
    .state_bytes = sizeof(state),
    .add = add,
    .finish = finish,
};
