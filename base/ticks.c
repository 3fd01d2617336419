/* Which clock ticks are read from, and pairs of ticks and nanoseconds: see ticks.h. */
#include "base/ticks.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool td_ticks_from_counter;

#if defined(__x86_64__)
static bool counter_is_invariant(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
}

/* The kernel watches the counter and leaves it for another clock when cores disagree. */
static bool system_trusts_counter(void)
{
    static const char *const trusting[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};
    char name[64] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    if (!file)
        return false;
    bool read = fgets(name, sizeof name, file) != NULL;
    (void)fclose(file);
    name[strcspn(name, "\n")] = '\0';
    for (size_t i = 0; read && i < sizeof trusting / sizeof *trusting; i++)
        if (strcmp(name, trusting[i]) == 0)
            return true;
    return false;
}
#endif

void td_ticks_prepare(void)
{
#if defined(__x86_64__)
    td_ticks_from_counter = counter_is_invariant() && system_trusts_counter();
#elif defined(__aarch64__)
    td_ticks_from_counter = true; /* the architecture promises one rate on all cores */
#endif
}

const char *td_ticks_name(void)
{
#if defined(__x86_64__)
    return td_ticks_from_counter ? "tsc" : "monotonic";
#elif defined(__aarch64__)
    return td_ticks_from_counter ? "cntvct" : "monotonic";
#else
    return "monotonic";
#endif
}

td_ticks_pair td_ticks_read_pair(void)
{
    enum { READINGS = 16 };
    td_ticks_pair best = {.error = INT64_MAX};
    for (int i = 0; i < READINGS; i++) {
        int64_t before = td_clock_ns();
        uint64_t ticks = td_ticks();
        int64_t after = td_clock_ns();
        if (after - before < best.error)
            best = (td_ticks_pair){.ticks = ticks, .ns = before + (after - before) / 2, .error = after - before};
    }
    return best;
}
