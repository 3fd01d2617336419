/* Trainings of small dense models on an accelerator, to compare with each other bit for bit: which options make no difference, or which
 * one, is the test's.
 *
 *     static dense_batches b;
 *     dense_losses losses = {.n = 0};
 *     dense_run r = dense_run_begin(29);
 *     td_group(&r.options, "*", td_adam(0.01));              // and whatever else the test is about
 *     dense_run_start(&r);
 *     dense_batches_fill(&b, -1);
 *     dense_run_train(&r, &b, 0, 9, &losses);
 *     dense_run_end(&r);
 *
 * What cannot be done fails the running cmocka test. */
#ifndef TANDEM_TESTS_SUPPORT_DENSE_RUN_H
#define TANDEM_TESTS_SUPPORT_DENSE_RUN_H

#include "tests/support/same_stores.h"

enum { DENSE_BATCH = 8, DENSE_WIDTH = 13, DENSE_BATCHES = 40 };

typedef struct dense_run {
    td_graph *graph;
    td_value loss;
    td_train_options options;
    td_plan *plan;
    td_store *store;
    td_session *session;
} dense_run;

/* Inputs x [B, DENSE_WIDTH] and y [B, 1], without a model yet. */
dense_run dense_run_inputs(td_value *out_x, td_value *out_y);
/* Those, two layers, "hidden" of this width and "top", and the device "accel", which has room for all. */
dense_run dense_run_begin(int64_t hidden);
/* Plan, store and session. */
void dense_run_start(dense_run *r);
/* Wherever it has come to. */
void dense_run_end(dense_run *r);

/* ---- batches: full ones of random numbers, but for the third, which is short --------------------------------------------- */

typedef struct dense_batches {
    float x[DENSE_BATCHES][DENSE_BATCH * DENSE_WIDTH], y[DENSE_BATCHES][DENSE_BATCH];
    td_field fields[DENSE_BATCHES][2];
    int64_t at, end;
} dense_batches;

/* `bad`: the batch with a NaN among its labels; -1: none. */
void dense_batches_fill(dense_batches *b, int64_t bad);
td_batch dense_batches_at(dense_batches *b, int64_t i);

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

/* Of each step in turn, 0 where it was skipped. */
typedef struct dense_losses {
    float loss[DENSE_BATCHES];
    int32_t n, skipped;
} dense_losses;

/* On the batches [from, to); adds to the losses. */
void dense_run_train(dense_run *r, dense_batches *b, int64_t from, int64_t to, dense_losses *out);

/* Losses, and what check_same_stores looks at. */
void dense_run_check_same(const dense_run *a, const dense_losses *x, const dense_run *b, const dense_losses *y);

#endif
