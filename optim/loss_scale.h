/* The dynamic loss scale of fp16 (Micikevicius et al. 2018, with the hysteresis of DeepSpeed's DynamicLossScaler).
 *
 *     after `growth_interval` updates in a row            scale *= 2, patience is whole again
 *     after a window whose gradients are not finite       patience -= 1; none left: scale /= 2, and it stays at the last one
 *     where half of it would be below the minimum         the run cannot go on
 *
 * The scale is a power of two, so multiplying by it and dividing again changes no bit of what does not overflow. It is a
 * function of the outcomes of the windows before, nothing else: how steps overlap has no part in it. */
#ifndef TANDEM_OPTIM_LOSS_SCALE_H
#define TANDEM_OPTIM_LOSS_SCALE_H

#include "tandem/plan.h"

/* All zero: no loss scale. Checkpoints hold it. */
typedef struct td_loss_scale {
    double scale;
    int64_t updates;   /* since the scale or the patience changed */
    int64_t patience;  /* overflows until the scale is halved: 1 means the next one does it */
    int64_t overflows; /* windows left out for them, over the training's life */
} td_loss_scale;

/* A power of two within range. */
bool td_loss_scale_is_allowed(double scale);
/* Errors name the setting, its value and the rule. */
td_status *td_loss_scale_check(const td_loss_scale_options *options) TD_MUST_USE;
void td_loss_scale_start(td_loss_scale *state, const td_loss_scale_options *options);
/* A window's update was made. */
void td_loss_scale_advance(td_loss_scale *state, const td_loss_scale_options *options);
/* A window was left out. False: the scale is at its minimum and cannot be halved. */
bool td_loss_scale_overflow(td_loss_scale *state, const td_loss_scale_options *options);

#endif
