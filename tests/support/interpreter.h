/* Runs a graph on reference kernels, one node after another, in host memory: what tests compare everything else with.
 *
 *     interpreter *run = NULL;
 *     assert_ok(interpreter_create(graph, (int64_t[]){3}, &run));     // extent B = 3; NULL: all at capacity
 *     interpreter_fill(run, td_graph_find(graph, "x"), seed, -1, 1);  // or interpreter_set
 *     assert_ok(interpreter_run(run));
 *     double first = interpreter_get(run, loss, 0);
 *
 * Every value has memory of its own, poisoned before each run where an op is to write it, so that an op that leaves an
 * element out shows. Not for speed and not for large graphs. */
#ifndef TANDEM_TESTS_SUPPORT_INTERPRETER_H
#define TANDEM_TESTS_SUPPORT_INTERPRETER_H

#include "graph/graph.h"

typedef struct interpreter {
    td_graph *graph; /* borrowed; nodes added after create are not known */
    int64_t *extents;
    td_tensor *tensors; /* by value id, at actual extents */
    int64_t n_values;
    int32_t *order;
    int64_t n_nodes;
} interpreter;

td_status *interpreter_create(td_graph *graph, const int64_t *extents, interpreter **out_run) TD_MUST_USE;
void interpreter_destroy(interpreter *run);

td_tensor *interpreter_tensor(interpreter *run, td_value value);
int64_t interpreter_elements(interpreter *run, td_value value);
/* Element i as a number, and back (rounded to the dtype). Scalars too. */
double interpreter_get(interpreter *run, td_value value, int64_t i);
void interpreter_put(interpreter *run, td_value value, int64_t i, double number);
/* All elements, in order. */
void interpreter_set(interpreter *run, td_value value, const double *numbers);
/* Random numbers in [low, high), away from 0 for floats so that kinks there stay apart; whole numbers for integers. A
 * ragged value gets random bags too, some of them empty. */
void interpreter_fill(interpreter *run, td_value value, uint64_t seed, double low, double high);

/* All nodes, or those of the forward phase alone. */
td_status *interpreter_run(interpreter *run) TD_MUST_USE;
td_status *interpreter_run_forward(interpreter *run) TD_MUST_USE;

#endif
