/* The mean loss of a model on a fixed set of samples, at any weights: forward passes on the first rows of the training part. */
#ifndef TANDEM_CLI_LOSS_PROBE_H
#define TANDEM_CLI_LOSS_PROBE_H

#include "cli/progress.h"
#include "cli/setup.h"
#include "tandem/session.h"

/* A parameter of the model, and where its numbers lie among those of all. */
typedef struct td_probe_parameter {
    const char *name;
    int32_t entry; /* of the store */
    td_tensor shape;
    int64_t first, n, rows; /* rows: of its first dimension; 1 where it has no more than one */
} td_probe_parameter;

typedef struct td_loss_probe {
    td_setup *setup;
    td_plan *plan;
    td_store *store;
    td_session *session;
    td_loader *loader;
    td_probe_parameter *parameters; /* floats of any width */
    int32_t n_parameters;
    int64_t elements; /* of all */
    td_batch *batches;
    int32_t n_batches, next;
    int64_t samples;
    double loss_sum;
    void *piece;            /* room for some numbers */
    td_work_progress *work; /* a piece of it is one loss; NULL: nobody is told */
} td_loss_probe;

/* At least `samples` samples, fewer where there are no more; batches are all of one size, at most the configuration's. The weights
 * are the model's initial ones. */
td_status *td_loss_probe_open(td_setup *setup, int64_t samples, td_loss_probe *out_probe) TD_MUST_USE;
/* Numbers of all parameters: centre + a first + b second. NULL for a direction: there is none. */
td_status *td_loss_probe_move(td_loss_probe *probe, const float *centre, const float *first, double a,
                              const float *second, double b) TD_MUST_USE;
/* NaN where it is not finite. */
td_status *td_loss_probe_read(td_loss_probe *probe, double *out_loss) TD_MUST_USE;
void td_loss_probe_close(td_loss_probe *probe);

#endif
