/* Compares the gradients that the graph builds with central finite differences, both on reference kernels.
 *
 *     static td_value build_relu(td_graph *g)
 *     {
 *         td_dim batch = td_extent(g, "B", 5);                                   // runs at 4: a short batch
 *         td_value x = td_mul(td_input(g, "x", TD_F32, TD_SHAPE(batch, 3)),
 *                             td_parameter(g, "p", TD_F32, TD_SHAPE(3), td_init_constant(0)));
 *         return td_relu(x);
 *     }
 *     gradient_check(&(gradient_case){.name = "relu", .build = build_relu});
 *
 * The graph also survives a trip through its text form, and a copy, unchanged. The loss is the sum of the result's elements times fixed random weights. Every element of every parameter is tried.
 * Float inputs and parameters get random numbers in [low, high) (default -1, 1), integer inputs in [0, ids_below). */
#ifndef TANDEM_TESTS_SUPPORT_GRADIENT_CHECK_H
#define TANDEM_TESTS_SUPPORT_GRADIENT_CHECK_H

#include "graph/graph.h"
#include "tests/support/interpreter.h"

typedef struct gradient_case {
    const char *name;
    td_value (*build)(td_graph *graph); /* any float result */
    double low, high;
    int64_t ids_below;
    double step;      /* 0: 1e-2 */
    double tolerance; /* of |difference| against 1 + |gradient|; 0: 2e-3 */
} gradient_case;

/* Fails the running cmocka test, naming case, parameter and element. */
void gradient_check(const gradient_case *c);

/* ---- for other checks over the same cases ------------------------------------------------------------------------------ */

/* A case's graph, with loss and gradients. */
typedef struct case_graph {
    const gradient_case *c;
    td_graph *graph;
    td_value result, weights; /* of the case; what its elements are multiplied by in the loss */
    int32_t *gradients;       /* by value id below n_sources, -1 where there is none */
    int64_t n_sources;        /* values that the forward graph has */
} case_graph;
void case_graph_init(case_graph *k, const gradient_case *c);
void case_graph_deinit(case_graph *k);
/* A run with all sources filled; extents `below` less than their capacity, but not under 0. */
interpreter *case_graph_run(const case_graph *k, int64_t below);
/* Fails the test when there is an error; takes it. */
void case_graph_require(const case_graph *k, td_status *status);

#endif
