/* See amx_tiles.h. */
#include "tests/support/amx_tiles.h"

#include <string.h>

#include "base/math.h"
#include "tests/support/pair_dot.h"

enum { TILES = 8, ROWS = 16, PAIRS = 16 };

static _Thread_local uint32_t tiles[TILES][ROWS][PAIRS];

void td_amx_zero(int tile)
{
    memset(tiles[tile], 0, sizeof tiles[tile]);
}

void td_amx_load(int tile, const void *from, int64_t stride)
{
    for (int row = 0; row < ROWS; row++)
        memcpy(tiles[tile][row], (const char *)from + row * stride, sizeof tiles[tile][row]);
}

void td_amx_store(int tile, void *to, int64_t stride)
{
    for (int row = 0; row < ROWS; row++)
        memcpy((char *)to + row * stride, tiles[tile][row], sizeof tiles[tile][row]);
}

float td_tile_dot(float sum, const uint32_t a[PAIRS], const uint32_t b[PAIRS])
{
    float even = 0, odd = 0;
    for (int i = 0; i < PAIRS; i++) {
        even = td_flushing_fma(td_bits_float(a[i] << 16), td_bits_float(b[i] << 16), even);
        odd = td_flushing_fma(td_bits_float(a[i] & 0xffff0000u), td_bits_float(b[i] & 0xffff0000u), odd);
    }
    return td_flushing_fma(1, td_flushing_fma(1, odd, even), sum);
}

void td_amx_add(int c, int a, int b)
{
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < PAIRS; column++) {
            uint32_t pairs[PAIRS];
            for (int i = 0; i < PAIRS; i++)
                pairs[i] = tiles[b][i][column];
            const float sum = td_tile_dot(td_bits_float(tiles[c][row][column]), tiles[a][row], pairs);
            tiles[c][row][column] = td_float_bits(sum);
        }
}
