/* div: elementwise quotient of floats, with broadcasting. */
#include "backends/cpu/kernels/broadcast.h"

TD_BROADCAST_KERNEL(div, "div", x[i] / z[i]);
