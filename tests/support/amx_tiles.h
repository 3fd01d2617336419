/* AMX's tiles in C, TDPBF16PS as Intel's manual has it: what kernels of tiles of bf16 are compiled with for tests
 * (backends/cpu/kernels/amx.h), so that they run on any machine. Each thread has tiles of its own. */
#ifndef TANDEM_TESTS_SUPPORT_AMX_TILES_H
#define TANDEM_TESTS_SUPPORT_AMX_TILES_H

#include <stdint.h>

void td_amx_zero(int tile);
void td_amx_load(int tile, const void *from, int64_t stride);
void td_amx_store(int tile, void *to, int64_t stride);
void td_amx_add(int c, int a, int b);

/* sum + (a[0] b[0] + a[2] b[2] + ..) + (a[1] b[1] + ..), 16 pairs of bf16 each, the even ones in the low halves. */
float td_tile_dot(float sum, const uint32_t a[16], const uint32_t b[16]);

#endif
