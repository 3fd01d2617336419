/* The models of the golden cases, built with the public builder from what a case says of their sizes. */
#ifndef TANDEM_TESTS_GOLDEN_CHECK_MODEL_H
#define TANDEM_TESTS_GOLDEN_CHECK_MODEL_H

#include "tests/tools/golden_check/case.h"

typedef struct golden_model {
    const char *type;
    /* Adds the model to the graph; its parameters have the case's names. */
    td_status *(*build)(const golden_case *c, const json_t *model, td_graph *graph, td_value *out_loss);
    /* What the cut run keeps on the host, as name patterns. None: the layer in the middle of a perceptron. */
    const char *on_host[2];
} golden_model;

/* NULL when no model of this type is known. */
const golden_model *golden_model_find(const char *type);

#endif
