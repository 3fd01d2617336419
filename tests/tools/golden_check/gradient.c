/* The size of gradients, told from what an update changed: engines keep no gradient, but most rules write what they saw of it
 * into their state. Within FP32 rounding of that state, so norms come out to about six digits. See train.h. */
#include <math.h>
#include <string.h>

#include "tests/tools/golden_check/train.h"

/* acc += g^2, or its mean over a row. */
static double from_accumulator(const golden_tensor *parameter, const golden_tensor *before, const golden_tensor *after)
{
    double sum = 0;
    for (int64_t i = 0; i < after->elements; i++)
        sum += (double)after->data[i] - (double)before->data[i];
    return sum * (double)(parameter->elements / after->elements);
}

/* m = decay * m + share * (g + l2 * p). A moment that did not change is one of a row that was not touched. */
static double from_moment(const golden_tensor *before, const golden_tensor *after, double decay, double share,
                          double l2, const golden_tensor *parameter)
{
    double sum = 0;
    for (int64_t i = 0; i < after->elements; i++) {
        double m = (double)after->data[i], old = (double)before->data[i];
        double g = after->data[i] == before->data[i] ? 0 : (m - decay * old) / share - l2 * (double)parameter->data[i];
        sum += g * g;
    }
    return sum;
}

/* p -= lr * (g + l2 * p) */
static double from_parameter(const golden_tensor *before, const golden_tensor *after, double lr, double l2)
{
    double sum = 0;
    for (int64_t i = 0; i < after->elements; i++) {
        double old = (double)before->data[i], g = (old - (double)after->data[i]) / lr - l2 * old;
        sum += g * g;
    }
    return sum;
}

double golden_gradient_square(const td_optimizer *optimizer, const char *parameter, const golden_snapshot *before,
                              const golden_snapshot *after)
{
    const golden_tensor *p = golden_snapshot_find(before, parameter, NULL);
    const golden_tensor *momentum = golden_snapshot_find(before, parameter, "momentum");
    const golden_tensor *m = golden_snapshot_find(before, parameter, "m");
    const golden_tensor *accumulator = golden_snapshot_find(before, parameter, "acc");
    if (!p)
        return NAN;
    if (accumulator)
        return from_accumulator(p, accumulator, golden_snapshot_find(after, parameter, "acc"));
    if (momentum)
        return from_moment(momentum, golden_snapshot_find(after, parameter, "momentum"), optimizer->momentum, 1,
                           optimizer->weight_decay, p);
    if (m && strstr(optimizer->name, "adam"))
        return from_moment(m, golden_snapshot_find(after, parameter, "m"), optimizer->beta1, 1 - optimizer->beta1,
                           strcmp(optimizer->name, "adam") == 0 ? optimizer->weight_decay : 0, p);
    if (strcmp(optimizer->name, "sgd") == 0)
        return from_parameter(p, golden_snapshot_find(after, parameter, NULL), optimizer->lr, optimizer->weight_decay);
    return NAN;
}
