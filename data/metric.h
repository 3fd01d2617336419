/* What a metric is: a few bytes of state and three functions. One file data/metric_<name>.c defines one;
 * data/metrics.def lists it. The calls are checked before they get here (names, masks, numbers that are none):
 * data/metrics.c. */
#ifndef TANDEM_DATA_METRIC_H
#define TANDEM_DATA_METRIC_H

#include "tandem/data.h"

typedef struct td_metric_rule {
    const char *name, *summary;
    size_t state_bytes; /* zeroed at first and by a reset */
    /* One sample; its logit is a number. */
    td_status *(*add)(void *state, float logit, float label);
    /* `samples` > 0 were added. */
    td_status *(*finish)(void *state, int64_t samples, double *out_value);
    void (*clear)(void *state); /* frees what the state owns; NULL: nothing */
} td_metric_rule;

#endif
