/* Reference kernels that are written for f32, on 16-bit operands: they are widened, and what the kernel makes is rounded once. */
#ifndef TANDEM_GRAPH_OPS_IN_F32_H
#define TANDEM_GRAPH_OPS_IN_F32_H

#include "tandem/backend.h"
#include "tandem/status.h"

/* Runs `reference` on `call`, of at most 16 inputs and outputs, with its dense f16 and bf16 operands in f32. */
td_status *td_reference_in_f32(const td_kernel_call *call,
                               td_status *(*reference)(const td_kernel_call *call)) TD_MUST_USE;

#endif
