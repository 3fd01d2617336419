/* sigmoid and its gradient from the output. */
#include "backends/cpu/kernels/chunks.h"

TD_ELEMENTWISE_KERNEL(sigmoid, "sigmoid", td_sigmoidf(x[i]));
TD_ELEMENTWISE_KERNEL(sigmoid_gradient, "sigmoid_gradient", z[i] * (x[i] * (1.0f - x[i])));
