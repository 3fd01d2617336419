/* bce_with_logits and its gradient: ln(1 + e^x) - x y, and sigmoid(x) - y. */
#include "backends/cpu/kernels/losses.h"
#include "base/math.h"

TD_LOSS_KERNELS(bce_with_logits, td_bce_with_logitsf(x, y), 1, td_sigmoidf(x) - y)

const td_cpu_kernel TD_KERNEL(bce_with_logits) = {.op = "bce_with_logits",
                                                  .supports = bce_with_logits_supports,
                                                  .scratch_bytes = td_loss_scratch_bytes,
                                                  .run = bce_with_logits_run};
const td_cpu_kernel TD_KERNEL(bce_with_logits_gradient) = {
    .op = "bce_with_logits_gradient", .supports = bce_with_logits_supports, .run = bce_with_logits_gradient_run};
