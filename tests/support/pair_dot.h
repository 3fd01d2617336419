/* VDPBF16PS in C, as Intel's manual has it: what kernels of pairs of bf16 are compiled with for tests
 * (backends/cpu/kernels/pairs.h), so that they run on any machine. */
#ifndef TANDEM_TESTS_SUPPORT_PAIR_DOT_H
#define TANDEM_TESTS_SUPPORT_PAIR_DOT_H

#include <stdint.h>

/* a b + c, all in f32, subnormal numbers zero, going in and coming out. */
float td_flushing_fma(float a, float b, float c);
/* sum + a[1] b[1] + a[0] b[0]; `a` and `b` hold two bf16 each, [0] in the low half. */
float td_pair_dot(float sum, uint32_t a, uint32_t b);
/* The processor's own, for those that have TD_ISA_AVX512_BF16. */
float td_pair_dot_by_instruction(float sum, uint32_t a, uint32_t b);

/* Numbers at which rounding, flushing and order show: ends of the ranges, halves of last places, infinities, NaN. */
enum { TD_HARD_BF16 = 26 };
extern const uint16_t td_hard_bf16[TD_HARD_BF16];

#endif
