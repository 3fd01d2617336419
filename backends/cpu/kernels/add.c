/* add: elementwise sum of floats, with broadcasting. Integers run on the reference kernel. */
#include "backends/cpu/kernels/broadcast.h"

TD_BROADCAST_KERNEL(add, "add", x[i] + z[i]);
