/* The dynamic loss scale of fp16: see loss_scale.h. */
#include "optim/loss_scale.h"

#include <math.h>

/* Beyond this every number that f16 can hold is scaled out of its range: growing on would only cost overflows. */
#define MOST_SCALE 0x1p40
#define LEAST_SCALE 0x1p-24

bool td_loss_scale_is_allowed(double scale)
{
    int exponent;
    return scale >= LEAST_SCALE && scale <= MOST_SCALE && frexp(scale, &exponent) == 0.5;
}

static td_status *check_power(const char *setting, double value)
{
    if (td_loss_scale_is_allowed(value))
        return NULL;
    return TD_ERROR(TD_INVALID_ARGUMENT, "loss_scale.%s is %g; it must be a power of two from 2^-24 to 2^40", setting,
                    value);
}

td_status *td_loss_scale_check(const td_loss_scale_options *options)
{
    TD_TRY(check_power("initial", options->initial));
    TD_TRY(check_power("minimum", options->minimum));
    if (options->minimum > options->initial)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loss_scale.minimum is %g; it must not be above loss_scale.initial, %g",
                        options->minimum, options->initial);
    if (options->growth_interval < 1)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loss_scale.growth_interval is %lld; it must be at least 1 update",
                        (long long)options->growth_interval);
    if (options->hysteresis < 1)
        return TD_ERROR(TD_INVALID_ARGUMENT, "loss_scale.hysteresis is %lld; it must be at least 1 overflow",
                        (long long)options->hysteresis);
    return NULL;
}

void td_loss_scale_start(td_loss_scale *state, const td_loss_scale_options *options)
{
    *state = (td_loss_scale){.scale = options->initial, .patience = options->hysteresis};
}

void td_loss_scale_advance(td_loss_scale *state, const td_loss_scale_options *options)
{
    if (++state->updates < options->growth_interval)
        return;
    state->updates = 0;
    state->patience = options->hysteresis;
    if (state->scale < MOST_SCALE)
        state->scale *= 2;
}

bool td_loss_scale_overflow(td_loss_scale *state, const td_loss_scale_options *options)
{
    state->updates = 0;
    if (state->patience > 1)
        state->patience--;
    else if (state->scale / 2 >= options->minimum)
        state->scale /= 2;
    else
        return false;
    state->overflows++;
    return true;
}
