/* See base/exact.h. A double is a 53-bit integer at some bit position; it is cut at the 32-bit limb borders into three
 * pieces, each added to (or taken from) its limb. A limb of 64 bits takes 2^31 such additions before carries must move up.
 * After that every limb but the top is in [0, 2^32), which makes the representation of a value unique. */
#include "base/exact.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/math.h"

enum { LIMB_BITS = 32, MOST_ADDITIONS = 1 << 30, TOP = TD_EXACT_LIMBS - 1 };
enum { PLUS_INFINITY = 1, MINUS_INFINITY = 2, NOT_A_NUMBER = 4 };

void td_exact_clear(td_exact *sum)
{
    memset(sum, 0, sizeof *sum);
}

static void carry(td_exact *sum)
{
    int64_t up = 0;
    for (int i = 0; i < TOP; i++) {
        int64_t value = sum->limbs[i] + up;
        up = value >> LIMB_BITS; /* rounds down, so what stays is not negative */
        sum->limbs[i] = value & 0xffffffff;
    }
    sum->limbs[TOP] += up;
    sum->additions = 0;
}

static void count_addition(td_exact *sum)
{
    if (++sum->additions >= MOST_ADDITIONS)
        carry(sum);
}

void td_exact_add(td_exact *sum, double value)
{
    uint64_t bits = td_double_bits(value), mantissa = bits & 0x000fffffffffffffu;
    uint32_t exponent = (uint32_t)(bits >> 52) & 0x7ff;
    bool negative = bits >> 63;
    if (exponent == 0x7ff) {
        sum->special |= mantissa ? NOT_A_NUMBER : negative ? MINUS_INFINITY : PLUS_INFINITY;
        return;
    }
    mantissa |= exponent ? (uint64_t)1 << 52 : 0;
    uint32_t position = exponent ? exponent - 1 : 0; /* of its lowest bit */
    unsigned __int128 shifted = (unsigned __int128)mantissa << position % LIMB_BITS;
    int64_t *limb = sum->limbs + position / LIMB_BITS, sign = negative ? -1 : 1;
    limb[0] += sign * (int64_t)(uint32_t)shifted;
    limb[1] += sign * (int64_t)(uint32_t)(shifted >> 32);
    limb[2] += sign * (int64_t)(uint32_t)(shifted >> 64);
    count_addition(sum);
}

void td_exact_add_sum(td_exact *sum, td_exact *other)
{
    carry(other);
    uint32_t special = other->special;
    for (int i = 0; i < TD_EXACT_LIMBS; i++)
        sum->limbs[i] += other->limbs[i];
    sum->special |= special;
    count_addition(sum);
}

/* ---- rounding ----------------------------------------------------------------------------------------------------------- */

/* The magnitude of a sum whose carries have moved up, as 32-bit digits; returns its sign. */
static bool magnitude_of(const td_exact *sum, uint32_t digits[TD_EXACT_LIMBS + 1])
{
    bool negative = sum->limbs[TOP] < 0;
    uint64_t up = negative; /* two's complement: invert and add one */
    for (int i = 0; i <= TD_EXACT_LIMBS; i++) {
        uint64_t limb =
            i < TOP ? (uint64_t)sum->limbs[i] : (uint64_t)(sum->limbs[TOP] >> (LIMB_BITS * (i - TOP))) & 0xffffffffu;
        uint64_t value = (negative ? ~limb & 0xffffffffu : limb) + up;
        digits[i] = (uint32_t)value;
        up = value >> LIMB_BITS;
    }
    return negative;
}

static bool bit_at(const uint32_t *digits, int position)
{
    return digits[position / LIMB_BITS] >> (position % LIMB_BITS) & 1;
}

static bool any_below(const uint32_t *digits, int position)
{
    for (int i = 0; i < position / LIMB_BITS; i++)
        if (digits[i])
            return true;
    return (digits[position / LIMB_BITS] & (((uint64_t)1 << (position % LIMB_BITS)) - 1)) != 0;
}

static double nearest(const uint32_t *digits)
{
    int top = TD_EXACT_LIMBS;
    while (top >= 0 && digits[top] == 0)
        top--;
    if (top < 0)
        return 0;
    int highest = top * LIMB_BITS + 31 - __builtin_clz(digits[top]);
    int lowest = highest > 52 ? highest - 52 : 0; /* of the 53 bits that stay */
    uint64_t mantissa = 0;
    for (int position = highest; position >= lowest; position--)
        mantissa = mantissa << 1 | bit_at(digits, position);
    if (lowest > 0 && bit_at(digits, lowest - 1) && (any_below(digits, lowest - 1) || (mantissa & 1)))
        mantissa++;
    return ldexp((double)mantissa, lowest - 1074);
}

double td_exact_round(td_exact *sum)
{
    if (sum->special & NOT_A_NUMBER || sum->special == (PLUS_INFINITY | MINUS_INFINITY))
        return (double)NAN;
    if (sum->special)
        return sum->special == PLUS_INFINITY ? (double)INFINITY : -(double)INFINITY;
    carry(sum);
    uint32_t digits[TD_EXACT_LIMBS + 1];
    bool negative = magnitude_of(sum, digits);
    double value = nearest(digits);
    return negative ? -value : value;
}

/* ---- sums of squares ------------------------------------------------------------------------------------------------------ */

void td_sum_squares_blocks(const float *x, int64_t n, td_exact *sum)
{
    for (int64_t i = 0; i < n; i += TD_EXACT_BLOCK)
        td_exact_add(sum, td_sum_squares(x + i, n - i < TD_EXACT_BLOCK ? n - i : TD_EXACT_BLOCK));
}

void td_sum_squares_rows(const float *x, int64_t rows, int64_t dim, td_exact *sum)
{
    for (int64_t row = 0; row < rows; row++)
        td_exact_add(sum, td_sum_squares(x + row * dim, dim));
}
