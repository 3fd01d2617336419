/* Learning-rate schedules: the factor of each update. All arithmetic is add, multiply, divide in a fixed order (the
 * cosine too), so a schedule has the same bits on every machine. */
#include "optim/rule.h"

#include <math.h>

double td_power(double base, int64_t n)
{
    double result = 1;
    for (double square = base; n > 0; n /= 2, square *= square)
        if (n % 2)
            result *= square;
    return result;
}

/* cos(pi x) for x in [0, 1/4] by its Taylor series, whose next term is below 1e-17. */
static double cosine_series(double x)
{
    double square = (x * M_PI) * (x * M_PI), sum = 1;
    for (int k = 16; k > 0; k -= 2)
        sum = 1 - square * sum / (double)(k * (k - 1));
    return sum;
}

/* sin(pi x) for x in [0, 1/4]. */
static double sine_series(double x)
{
    double square = (x * M_PI) * (x * M_PI), sum = 1;
    for (int k = 17; k > 1; k -= 2)
        sum = 1 - square * sum / (double)(k * (k - 1));
    return x * M_PI * sum;
}

/* cos(pi x) for x in [0, 1]. */
static double cosine_of_half_turns(double x)
{
    if (x > 0.5)
        return -cosine_of_half_turns(1 - x);
    return x <= 0.25 ? cosine_series(x) : sine_series(0.5 - x);
}

double td_schedule_factor(const td_schedule *schedule, int64_t update)
{
    if (update <= schedule->warmup_steps)
        return (double)update / (double)schedule->warmup_steps;
    int64_t since = update - schedule->warmup_steps, span = schedule->total_steps - schedule->warmup_steps;
    double progress = since < span ? (double)since / (double)span : 1;
    double low = schedule->final_factor;
    switch (schedule->kind) {
    case TD_SCHEDULE_COSINE:
        return low + (1 - low) * (0.5 * (1 + cosine_of_half_turns(progress)));
    case TD_SCHEDULE_LINEAR:
        return low + (1 - low) * (1 - progress);
    case TD_SCHEDULE_STEP:
        return td_power(schedule->factor, (since - 1) / schedule->every);
    case TD_SCHEDULE_CONSTANT:
        break;
    }
    return 1;
}

static td_status *check_decay(const td_schedule *schedule, const char *kind)
{
    if (schedule->total_steps <= schedule->warmup_steps)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "schedule %s: total_steps is %lld but must be more than warmup_steps (%lld); it is where the "
                        "learning rate stops falling",
                        kind, (long long)schedule->total_steps, (long long)schedule->warmup_steps);
    if (!(schedule->final_factor >= 0 && schedule->final_factor <= 1))
        return TD_ERROR(TD_INVALID_ARGUMENT, "schedule %s: final_factor is %g but must be from 0 to 1", kind,
                        schedule->final_factor);
    return NULL;
}

static td_status *check_step(const td_schedule *schedule)
{
    if (schedule->every < 1)
        return TD_ERROR(TD_INVALID_ARGUMENT, "schedule step: every is %lld but must be at least 1 update",
                        (long long)schedule->every);
    if (!(schedule->factor > 0 && schedule->factor <= 1))
        return TD_ERROR(TD_INVALID_ARGUMENT, "schedule step: factor is %g but must be above 0 and at most 1",
                        schedule->factor);
    return NULL;
}

td_status *td_schedule_check(const td_schedule *schedule)
{
    if (schedule->warmup_steps < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "schedule: warmup_steps is %lld but must not be negative",
                        (long long)schedule->warmup_steps);
    switch (schedule->kind) {
    case TD_SCHEDULE_CONSTANT:
        return NULL;
    case TD_SCHEDULE_COSINE:
        return check_decay(schedule, "cosine");
    case TD_SCHEDULE_LINEAR:
        return check_decay(schedule, "linear");
    case TD_SCHEDULE_STEP:
        return check_step(schedule);
    }
    return TD_ERROR(TD_INVALID_ARGUMENT, "schedule: unknown kind %d; known are constant, cosine, linear and step",
                    (int)schedule->kind);
}
