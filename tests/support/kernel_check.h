/* Compares the CPU kernels with the reference kernels on every node of a graph, for every instruction set of this machine
 * and for teams of 1 and 3 threads.
 *
 *     kernel_check(&(gradient_case){.name = "relu", .build = build_relu});
 *
 * The graph is built and differentiated as in gradient_check.h and filled in the same way; extents run at capacity, one
 * below and 0. Each kernel gets the reference run's inputs. Results must be the same bits, except for matrix products,
 * which must agree to rounding, and be the same bits for any team. What an op allows to work in place is tried so. */
#ifndef TANDEM_TESTS_SUPPORT_KERNEL_CHECK_H
#define TANDEM_TESTS_SUPPORT_KERNEL_CHECK_H

#include "tests/support/gradient_check.h"

/* Fails the running cmocka test, naming case, node, instruction set and element. */
void kernel_check(const gradient_case *c);

#endif
