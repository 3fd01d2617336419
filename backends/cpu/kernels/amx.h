/* Products of bf16 in tiles: Intel's AMX. Not a kernel; what includes it is compiled for TD_ISA_AMX_BF16 alone (TD_AMX), beside the
 * forms that take f32, widen, or multiply in pairs.
 *
 * A tile is 16 rows of 64 bytes: of A, 16 rows of 32 neighbouring terms of the sum; of B, 16 pairs (pairs.h) of terms for each of 16
 * columns; of C, 16 x 16 sums in f32. There are eight, numbered 0 to 7.
 *
 * amx_add is TDPBF16PS: by Intel's manual, the products of even terms are added up with fma, beside them those of odd terms, then
 * both sums to C; subnormal numbers count as zero, going in and coming out. Tests compile the kernels with td_amx_* functions that do
 * that in C, for machines without the instruction. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_AMX_H
#define TANDEM_BACKENDS_CPU_KERNELS_AMX_H

#include <stdint.h>

enum { AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_TERMS = 32, AMX_PAIRS = AMX_TERMS / 2, AMX_TILE_BYTES = 1024 };

/* Before the first and after the last of a thread's tiles. All eight are set up alike. */
static inline void amx_begin(void);
static inline void amx_end(void);

#if defined(TD_ISA_amx_bf16)
/* As the instruction reads it. */
typedef struct amx_setup {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_setup;

static inline void amx_begin(void)
{
    amx_setup setup = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        setup.row_bytes[tile] = AMX_ROW_BYTES;
        setup.rows[tile] = AMX_ROWS;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(setup));
}

static inline void amx_end(void)
{
    __asm__ volatile("tilerelease" ::);
}

/* Tiles are numbers as they stand in the source. Rows are `stride` bytes apart. */
#define amx_zero(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define amx_load(tile, from, stride)                                                                                   \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define amx_store(tile, to, stride)                                                                                    \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(stride)) : "memory")
#define amx_add(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#else
void td_amx_zero(int tile);
void td_amx_load(int tile, const void *from, int64_t stride);
void td_amx_store(int tile, void *to, int64_t stride);
void td_amx_add(int c, int a, int b);

static inline void amx_begin(void)
{
}

static inline void amx_end(void)
{
}

#define amx_zero td_amx_zero
#define amx_load td_amx_load
#define amx_store td_amx_store
#define amx_add td_amx_add
#endif

/* ---- four tiles of C, two beside each other and two below: 0 to 3 ------------------------------------------------------------ */

static inline void amx_zero_four(void)
{
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
}

/* `leading`: floats between rows. */
static inline void amx_load_four(const float *c, int64_t leading)
{
    const float *below = c + AMX_ROWS * leading;
    amx_load(0, c, 4 * leading);
    amx_load(1, c + AMX_ROWS, 4 * leading);
    amx_load(2, below, 4 * leading);
    amx_load(3, below + AMX_ROWS, 4 * leading);
}

static inline void amx_store_four(float *c, int64_t leading)
{
    float *below = c + AMX_ROWS * leading;
    amx_store(0, c, 4 * leading);
    amx_store(1, c + AMX_ROWS, 4 * leading);
    amx_store(2, below, 4 * leading);
    amx_store(3, below + AMX_ROWS, 4 * leading);
}

/* An operand of a product: bytes between rows of a tile, and between tiles of one and the next AMX_TERMS of the sum. */
typedef struct amx_operand {
    const char *data;
    int64_t stride, step;
} amx_operand;

/* Two tiles of A, one below the other, times two of B beside each other, over `n` times AMX_TERMS of the sum. Sums wait for each other
 * four products long, which is what a product takes to end. */
static inline __attribute__((always_inline)) void amx_add_four(amx_operand a, amx_operand b, int64_t n)
{
    for (; n > 0; n--, a.data += a.step, b.data += b.step) {
        amx_load(4, a.data, a.stride);
        amx_load(6, b.data, b.stride);
        amx_load(7, b.data + AMX_ROW_BYTES, b.stride);
        amx_load(5, a.data + AMX_ROWS * a.stride, a.stride);
        amx_add(0, 4, 6);
        amx_add(1, 4, 7);
        amx_add(2, 5, 6);
        amx_add(3, 5, 7);
    }
}

#endif
