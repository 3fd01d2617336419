/* A metric to copy: the mean logit. Copy to data/metric_<name>.c, rename the rule to td_metric_<name>, add one row to
 * data/metrics.def and a line to the list in tandem/data.h; test it in tests/data/test_metrics.c against numbers
 * computed another way. Say here what the number is and where its formula comes from. */
#include "data/metric.h"

typedef struct state {
    double sum; /* zeroed before the first sample and by a reset */
} state;

/* One sample. The logit is a number; the label is what the data says. */
static td_status *add(void *self, float logit, float label)
{
    (void)label;
    ((state *)self)->sum += logit;
    return NULL;
}

/* `samples` is at least 1. Return TD_DATA_ERROR, with the reason, where the number is not defined. */
static td_status *finish(void *self, int64_t samples, double *out_value)
{
    *out_value = ((state *)self)->sum / (double)samples;
    return NULL;
}

const td_metric_rule td_metric_template = {
    .name = "template",
    .summary = "mean logit",
    .state_bytes = sizeof(state),
    .add = add,
    .finish = finish,
    .clear = NULL, /* frees what the state owns */
};
