/* mul: elementwise product of floats, with broadcasting. Integers run on the reference kernel. */
#include "backends/cpu/kernels/broadcast.h"

TD_BROADCAST_KERNEL(mul, "mul", x[i] * z[i]);
