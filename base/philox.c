/* See base/philox.h. */
#include "base/philox.h"

#include <math.h>

#include "base/hash.h"
#include "base/math.h"

td_philox_key td_philox_key_of(uint64_t seed, const char *purpose, const char *name)
{
    /* each part is hashed under the hash of those before it, so ("ab", "c") and ("a", "bc") differ */
    uint64_t hash = td_hash_string(name, td_hash_string(purpose, td_hash_number(seed, 0)));
    return (td_philox_key){{(uint32_t)hash, (uint32_t)(hash >> 32)}};
}

/* sin and cos of 2 pi u, u in [0, 1): to the nearest quarter turn, then Taylor polynomials on [-pi/4, pi/4] whose
 * remainder is below 2^-54. */
static void sine_and_cosine_of_turns(double u, double *out_sine, double *out_cosine)
{
    int quarter = (int)(u * 4.0 + 0.5);
    double x = (u - quarter * 0.25) * 0x1.921fb54442d18p+2, z = x * x;
    double sine = 1.0 / 1307674368000.0;
    sine = 1.0 / 6227020800.0 - z * sine;
    sine = 1.0 / 39916800.0 - z * sine;
    sine = 1.0 / 362880.0 - z * sine;
    sine = 1.0 / 5040.0 - z * sine;
    sine = 1.0 / 120.0 - z * sine;
    sine = 1.0 / 6.0 - z * sine;
    sine = x - x * (z * sine);
    double cosine = 1.0 / 20922789888000.0;
    cosine = 1.0 / 87178291200.0 - z * cosine;
    cosine = 1.0 / 479001600.0 - z * cosine;
    cosine = 1.0 / 3628800.0 - z * cosine;
    cosine = 1.0 / 40320.0 - z * cosine;
    cosine = 1.0 / 720.0 - z * cosine;
    cosine = 1.0 / 24.0 - z * cosine;
    cosine = 0.5 - z * cosine;
    cosine = 1.0 - z * cosine;
    double swapped_sine = quarter & 1 ? cosine : sine, swapped_cosine = quarter & 1 ? sine : cosine;
    *out_sine = quarter & 2 ? -swapped_sine : swapped_sine;
    *out_cosine = (quarter + 1) & 2 ? -swapped_cosine : swapped_cosine;
}

void td_philox_normal(const uint32_t bits[4], double out[2])
{
    double u = td_philox_uniform_double(bits[0], bits[1]) + 0x1p-53; /* (0, 1] */
    double radius = sqrt(-2.0 * td_log(u)), sine, cosine;
    sine_and_cosine_of_turns(td_philox_uniform_double(bits[2], bits[3]), &sine, &cosine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

enum { MOST_PER_BLOCK = 4 };

/* The elements that one block gives: two normal or four uniform ones. */
static void elements_of_block(td_philox_key key, int64_t block, td_random_kind kind, double a, double b, float out[])
{
    uint32_t bits[4];
    td_philox_block(key, (uint64_t)block, 0, bits);
    if (kind == TD_RANDOM_NORMAL) {
        double normal[2];
        td_philox_normal(bits, normal);
        for (int i = 0; i < 2; i++)
            out[i] = (float)(a + b * normal[i]);
        return;
    }
    float end = (float)b;
    for (int i = 0; i < 4; i++) {
        float value = (float)(a + (b - a) * (double)td_philox_uniform(bits[i]));
        out[i] = value == end ? nextafterf(end, (float)a) : value; /* rounding to float must not reach the open end */
    }
}

void td_random_fill(float *out, int64_t first, int64_t n, td_philox_key key, td_random_kind kind, double a, double b)
{
    if (kind == TD_RANDOM_CONSTANT) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)a;
        return;
    }
    const int per_block = kind == TD_RANDOM_NORMAL ? 2 : 4;
    float block[MOST_PER_BLOCK];
    for (int64_t done = 0; done < n;) {
        int64_t element = first + done, skip = element % per_block;
        elements_of_block(key, element / per_block, kind, a, b, block);
        for (int64_t i = skip; i < per_block && done < n; i++)
            out[done++] = block[i];
    }
}
