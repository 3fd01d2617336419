/* A golden case trained by the engine: its losses, gradient norms, final parameters and optimizer state. */
#ifndef TANDEM_TESTS_GOLDEN_CHECK_TRAIN_H
#define TANDEM_TESTS_GOLDEN_CHECK_TRAIN_H

#include "tests/tools/golden_check/engine.h"
#include "tests/tools/golden_check/model.h"

typedef struct golden_trained {
    int32_t n; /* steps */
    float *losses;
    double *gradient_norms; /* of a run for norms, else NULL */
    golden_snapshot final;
} golden_trained;

/* How all steps are trained: pipelined over a source, step by step, or step by step with the norms of gradients, which are clipped for
 * it where the case does not, to a norm that none has. */
typedef enum golden_manner { GOLDEN_PIPELINED, GOLDEN_BY_STEPS, GOLDEN_FOR_NORMS } golden_manner;

/* On failure too, golden_trained_deinit frees. */
td_status *golden_train(const golden_case *c, const golden_model *model, golden_devices devices, golden_manner manner,
                        golden_trained *out_trained) TD_MUST_USE;
void golden_trained_deinit(golden_trained *trained);

/* Compares with what the case expects: losses, gradient norms (where the run has them), final tensors, optimizer state. Adds up
 * how many numbers of each kind were compared. */
typedef struct golden_compared {
    int32_t losses, gradient_norms, tensors;
} golden_compared;
td_status *golden_compare(const golden_case *c, const golden_trained *trained, golden_deviations *deviations,
                          golden_compared *out_compared) TD_MUST_USE;
/* Whether two runs gave the same bits; notes the first difference. */
void golden_compare_bits(const golden_trained *a, const golden_trained *b, const char *which,
                         golden_deviations *deviations);

#endif
