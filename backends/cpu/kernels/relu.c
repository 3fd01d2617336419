/* relu and its gradient from the output. A NaN stays one. */
#include "backends/cpu/kernels/chunks.h"

TD_ELEMENTWISE_KERNEL(relu, "relu", x[i] < 0.0f ? 0.0f : x[i]);
/* x is the output of relu, z its gradient. */
TD_ELEMENTWISE_KERNEL(relu_gradient, "relu_gradient", x[i] <= 0.0f ? 0.0f : z[i]);
