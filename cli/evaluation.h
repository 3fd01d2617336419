/* Metrics of a store's parameters on a part of the data. */
#ifndef TANDEM_CLI_EVALUATION_H
#define TANDEM_CLI_EVALUATION_H

#include <jansson.h>

#include "cli/setup.h"
#include "tandem/session.h"

enum { TD_EVALUATION_MOST = 8 };

typedef struct td_evaluation {
    int64_t samples; /* 0: the part is empty, nothing else is set */
    int32_t n;
    const char *names[TD_EVALUATION_MOST]; /* auc, logloss, accuracy, auc_seen_users, val_loss */
    double values[TD_EVALUATION_MOST];
} td_evaluation;

/* Runs the model's loss and logit over the part, with the setup's devices. A metric that is not defined on the part (auc of
 * one class) is left out. `stops`, asked after each batch, ends it with TD_CANCELLED; NULL: nothing does. */
td_status *td_evaluate(td_setup *setup, td_store *store, td_part part, bool (*stops)(void),
                       td_evaluation *out_evaluation) TD_MUST_USE;
/* The same with a plan of td_evaluation_plan in hand. */
td_status *td_evaluation_plan(td_setup *setup, const td_store *store, td_plan **out_plan) TD_MUST_USE;
td_status *td_evaluate_with(td_setup *setup, td_plan *plan, td_store *store, td_part part, bool (*stops)(void),
                            td_evaluation *out_evaluation) TD_MUST_USE;
/* False when the metric is not there. */
bool td_evaluation_value(const td_evaluation *evaluation, const char *name, double *out_value);
json_t *td_evaluation_json(const td_evaluation *evaluation);

#endif
