/* Numbers for people: see cli/units.h. */
#include "cli/units.h"

#include <math.h>
#include <stdio.h>

/* Three digits, but no fraction of a unit that has none below it. */
static const char *scaled(double value, double base, const char *const *names, int n, char *buffer, size_t size)
{
    int i = 0;
    while (i + 1 < n && fabs(value) >= base * 0.9995) {
        value /= base;
        i++;
    }
    int decimals = i == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
    const char *space = names[i][0] ? " " : "";
    snprintf(buffer, size, "%.*f%s%s", decimals, value, space, names[i]);
    return buffer;
}

const char *td_units_bytes(int64_t bytes, char *buffer, size_t size)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled((double)bytes, 1024, names, 6, buffer, size);
}

const char *td_units_traffic(double bytes, char *buffer, size_t size)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    return scaled(bytes, 1000, names, 6, buffer, size);
}

const char *td_units_count(double count, char *buffer, size_t size)
{
    static const char *const names[] = {"", "k", "M", "G", "T"};
    return scaled(count, 1000, names, 5, buffer, size);
}

const char *td_units_seconds(double seconds, char *buffer, size_t size)
{
    static const char *const names[] = {"s", "ms", "us", "ns"};
    int i = 0;
    while (i < 3 && seconds != 0 && fabs(seconds) < 0.9995) {
        seconds *= 1000;
        i++;
    }
    int decimals = fabs(seconds) >= 99.95 ? 0 : fabs(seconds) >= 9.995 ? 1 : 2;
    snprintf(buffer, size, "%.*f %s", decimals, seconds, names[i]);
    return buffer;
}

const char *td_units_clock(double seconds, char *buffer, size_t size)
{
    long long whole = seconds > 0 ? (long long)(seconds + 0.5) : 0;
    if (whole >= 3600)
        snprintf(buffer, size, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(buffer, size, "%lld:%02lld", whole / 60, whole % 60);
    return buffer;
}
