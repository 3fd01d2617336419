/* mse and its gradient: (x - y)^2, and 2 (x - y). */
#include "backends/cpu/kernels/losses.h"

TD_LOSS_KERNELS(mse, (x - y) * (x - y), 2, x - y)

const td_cpu_kernel TD_KERNEL(mse) = {
    .op = "mse", .supports = mse_supports, .scratch_bytes = td_loss_scratch_bytes, .run = mse_run};
const td_cpu_kernel TD_KERNEL(mse_gradient) = {.op = "mse_gradient", .supports = mse_supports, .run = mse_gradient_run};
