/* gelu and its slope, exact (erf) and by the tanh formula, in f32: one expression for every kernel that has it, so all give
 * the same bits.
 *
 * Hendrycks and Gimpel, "Gaussian error linear units", 2016. erf: x/2 (1 + erf(x / sqrt 2)). tanh: x/2 (1 + tanh u),
 * u = sqrt(2/pi) (x + 0.044715 x^3). */
#ifndef TANDEM_BASE_GELU_H
#define TANDEM_BASE_GELU_H

#include "base/math.h"

#define TD_SQRT_HALF 0.70710678118654752f
#define TD_SQRT_TWO_OVER_PI 0.79788456080286536f
#define TD_ONE_OVER_SQRT_TWO_PI 0.39894228040143268f
#define TD_GELU_CUBIC 0.044715f

static inline float td_gelu_erf(float x)
{
    return 0.5f * x * (1.0f + td_erff(x * TD_SQRT_HALF));
}

/* 1 / (1 + e^-2u), which is (1 + tanh u) / 2 for one exponential and one quotient. */
static inline float td_gelu_gate(float x)
{
    float twice_u = x * fmaf(x * x, 2.0f * TD_SQRT_TWO_OVER_PI * TD_GELU_CUBIC, 2.0f * TD_SQRT_TWO_OVER_PI);
    return 1.0f / (1.0f + td_expf_bounded(-twice_u));
}

static inline float td_gelu_tanh(float x)
{
    return x * td_gelu_gate(x);
}

/* d/dx of td_gelu_erf: Phi(x) + x phi(x). */
static inline float td_gelu_erf_slope(float x)
{
    float distribution = 0.5f * (1.0f + td_erff(x * TD_SQRT_HALF));
    float density = TD_ONE_OVER_SQRT_TWO_PI * td_expf(-0.5f * (x * x));
    return distribution + x * density;
}

static inline float td_gelu_tanh_slope(float x)
{
    float gate = td_gelu_gate(x);
    float twice_du = fmaf(x * x, 6.0f * TD_SQRT_TWO_OVER_PI * TD_GELU_CUBIC, 2.0f * TD_SQRT_TWO_OVER_PI);
    return fmaf(x * (gate * (1.0f - gate)), twice_du, gate);
}

#endif
