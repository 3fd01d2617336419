/* VDPBF16PS in C, as Intel's manual has it: what kernels of pairs of bf16 are compiled with for tests
 * (backends/cpu/kernels/pairs.h), so that they run on any machine. */
#ifndef TANDEM_TESTS_SUPPORT_PAIR_DOT_H
#define TANDEM_TESTS_SUPPORT_PAIR_DOT_H

#include <stdint.h>

/* a b + c, all in f32, subnormal numbers zero, going in and coming out. */
float td_flushing_fma(float a, float b, float c);
/* sum + a[1] b[1] + a[0] b[0]; `a` and `b` hold two bf16 each, [0] in the low half. */
float td_pair_dot(float sum, uint32_t a, uint32_t b);

#endif
