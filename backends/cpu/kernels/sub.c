/* sub: elementwise difference of floats, with broadcasting. Integers run on the reference kernel. */
#include "backends/cpu/kernels/broadcast.h"

TD_BROADCAST_KERNEL(sub, "sub", x[i] - z[i]);
