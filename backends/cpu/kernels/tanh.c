/* tanh and its gradient from the output. */
#include "backends/cpu/kernels/chunks.h"

TD_ELEMENTWISE_KERNEL(tanh, "tanh", td_tanhf(x[i]));
TD_ELEMENTWISE_KERNEL(tanh_gradient, "tanh_gradient", z[i] * (1.0f - x[i] * x[i]));
