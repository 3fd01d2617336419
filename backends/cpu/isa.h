/* Which instruction set the CPU kernels use.
 *
 * Chosen once per process, at first use: the best one that this processor and this build have (avx512 wants F, BW, DQ and
 * VL; avx2 wants AVX2, FMA and F16C), or what TANDEM_ISA says. It changes speed, never bits (kernels.h), apart from
 * libraries' own kernels. Thread-safe. */
#ifndef TANDEM_BACKENDS_CPU_ISA_H
#define TANDEM_BACKENDS_CPU_ISA_H

#include "backends/cpu/kernel.h"

typedef enum td_isa { TD_ISA_BASELINE = 0, TD_ISA_AVX2, TD_ISA_AVX512, TD_ISA_COUNT } td_isa;

/* "baseline", "avx2" or "avx512". */
const char *td_isa_name(td_isa isa);
/* Whether this build has kernels for it and this processor can run them. */
bool td_isa_available(td_isa isa);
/* The best available one. */
td_isa td_isa_best(void);
/* What to use: TANDEM_ISA, or the best. An unknown or unavailable value of TANDEM_ISA is an error that lists what is
 * available. The variable is read on every call, so what is recorded and what is used can only agree if a program does not
 * change it; devices read it once, when they are opened. */
td_status *td_isa_choose(td_isa *out_isa) TD_MUST_USE;

/* The kernels of kernels.def for an available instruction set; *out_count of them. */
const td_cpu_kernel *const *td_isa_kernels(td_isa isa, int32_t *out_count);

#endif
