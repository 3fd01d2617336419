/* An f32 kernel on 16-bit operands: they are widened into the call's scratch, the kernel runs there, and what it made is rounded
 * once. For kernels that say so (td_cpu_kernel.widens) and have no 16-bit form of their own; the bits are those of the reference
 * kernel, which does the same (graph/ops/in_f32.h). */
#ifndef TANDEM_BACKENDS_CPU_WIDENED_H
#define TANDEM_BACKENDS_CPU_WIDENED_H

#include "backends/cpu/kernel.h"

enum { TD_WIDENED_MOST = 16 }; /* inputs and outputs */

/* `call` with f32 in place of 16 bit; its tensors are `storage`. False: nothing is 16 bit, or there are too many operands. */
bool td_widened_call(const td_kernel_call *call, td_tensor storage[TD_WIDENED_MOST], td_kernel_call *out_call);
/* On top of the kernel's own `inner` bytes, which come first. */
size_t td_widened_scratch_bytes(const td_kernel_call *call, size_t inner);
/* `cast`: the kernel of that op. */
td_status *td_widened_run(const td_cpu_kernel *kernel, const td_cpu_kernel *cast, size_t inner,
                          const td_kernel_call *call, td_team *team, void *state) TD_MUST_USE;

#endif
