/* See base/units.h. */
#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
    const char *name;
    double factor;
} unit;

#define BYTE_UNITS(per)                                                                                                \
    {"", 1}, {"B" per, 1}, {"KiB" per, 0x1p10}, {"MiB" per, 0x1p20}, {"GiB" per, 0x1p30}, {"TiB" per, 0x1p40},         \
        {"PiB" per, 0x1p50}, {"kB" per, 1e3}, {"MB" per, 1e6}, {"GB" per, 1e9}, {"TB" per, 1e12}, {"PB" per, 1e15},    \
    {                                                                                                                  \
        NULL, 0                                                                                                        \
    }
static const unit byte_units[] = {BYTE_UNITS("")};
static const unit rate_units[] = {BYTE_UNITS("/s")};
static const unit time_units[] = {{"", 1},      {"s", 1},    {"ms", 1e-3}, {"us", 1e-6}, {"\u00b5s", 1e-6},
                                  {"ns", 1e-9}, {"min", 60}, {"h", 3600},  {NULL, 0}};

/* 10^n, exact for n up to 22. */
static double power_of_ten(int n)
{
    double power = 1;
    for (int i = 0; i < n; i++)
        power *= 10;
    return power;
}

/* Digits, with a point among them perhaps, as digits * 10^exponent. Returns the end, NULL where there is no digit. */
static const char *read_digits(const char *text, double *out_digits, int *out_exponent)
{
    bool any = false, fraction = false;
    uint64_t digits = 0;
    int exponent = 0;
    for (;; text++) {
        if (*text == '.' && !fraction) {
            fraction = true;
            continue;
        }
        if (*text < '0' || *text > '9')
            break;
        any = true;
        if (digits < UINT64_MAX / 10 - 1) {
            digits = digits * 10 + (uint64_t)(*text - '0');
            exponent -= fraction;
        } else {
            exponent += !fraction;
        }
    }
    *out_digits = (double)digits;
    *out_exponent = exponent;
    return any ? text : NULL;
}

/* "e9", "e-6" after the digits; the unit "e" does not exist, so an e without digits is left for the unit to fail on. */
static const char *read_exponent(const char *text, int *exponent)
{
    if (*text != 'e' && *text != 'E')
        return text;
    const char *digit = text + 1;
    bool negative = *digit == '-';
    digit += *digit == '-' || *digit == '+';
    if (*digit < '0' || *digit > '9')
        return text;
    int value = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        value = value < 1000 ? value * 10 + (*digit - '0') : value;
    *exponent += negative ? -value : value;
    return digit;
}

/* `what`: "a size"; `example`: how it should look. */
static td_status *parse(const char *text, const unit *units, const char *what, const char *example, double *out_value)
{
    double digits = 0;
    int exponent = 0;
    const char *end = read_digits(text + strspn(text, " "), &digits, &exponent);
    const unit *found = NULL;
    if (end) {
        end = read_exponent(end, &exponent);
        end += strspn(end, " ");
        for (found = units; found->name && strcasecmp(found->name, end) != 0; found++)
            ;
    }
    if (!found || !found->name)
        return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\" is not %s; write it like %s", text, what, example);
    bool tiny = exponent<-300, huge = exponent> 300;
    double value = tiny           ? 0
                   : exponent < 0 ? digits / power_of_ten(-exponent)
                                  : digits * power_of_ten(huge ? 301 : exponent);
    *out_value = value * found->factor;
    if (!isfinite(*out_value))
        return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\" is too large for %s", text, what);
    return NULL;
}

td_status *td_parse_bytes(const char *text, int64_t *out_bytes)
{
    double value;
    *out_bytes = 0;
    TD_TRY(parse(text, byte_units, "a size", "256MiB, 1.5GiB or 4096", &value));
    if (value >= 0x1p63)
        return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\" is too large for a size; the most is below 8192PiB", text);
    *out_bytes = (int64_t)(value + 0.5);
    return NULL;
}

td_status *td_parse_rate(const char *text, double *out_bytes_per_s)
{
    *out_bytes_per_s = 0;
    return parse(text, rate_units, "a rate", "12GB/s, 800MiB/s or 1e9", out_bytes_per_s);
}

td_status *td_parse_seconds(const char *text, double *out_seconds)
{
    *out_seconds = 0;
    return parse(text, time_units, "a time", "8us, 1.5ms, 30s or 0.25", out_seconds);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------------- */

/* Three digits, but no fraction of a unit that has nothing below it (the first). */
static const char *scaled(double value, double base, const char *const *names, int n, const char *per, char *buffer)
{
    int i = 0;
    while (i + 1 < n && fabs(value) >= base * (base == 1000 ? 0.9995 : 0.99951171875)) {
        value /= base;
        i++;
    }
    bool whole = i == 0 && (value == rint(value) || fabs(value) >= 99.95);
    int decimals = whole || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
    (void)snprintf(buffer, TD_UNIT_TEXT, "%.*f%s%s%s", decimals, value, *names[i] || *per ? " " : "", names[i], per);
    return buffer;
}

static const char *const traffic_names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};

const char *td_format_bytes(char buffer[TD_UNIT_TEXT], double bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return scaled(bytes, 1024, names, 7, "", buffer);
}

const char *td_format_traffic(char buffer[TD_UNIT_TEXT], double bytes)
{
    return scaled(bytes, 1000, traffic_names, 7, "", buffer);
}

const char *td_format_rate(char buffer[TD_UNIT_TEXT], double bytes_per_s)
{
    return scaled(bytes_per_s, 1000, traffic_names, 7, "/s", buffer);
}

const char *td_format_count(char buffer[TD_UNIT_TEXT], double count)
{
    static const char *const names[] = {"", "k", "M", "G", "T", "P"};
    return scaled(count, 1000, names, 6, "", buffer);
}

const char *td_format_seconds(char buffer[TD_UNIT_TEXT], double seconds)
{
    static const char *const names[] = {"s", "ms", "us", "ns"};
    int i = 0;
    while (i < 3 && seconds != 0 && fabs(seconds) < 0.9995) {
        seconds *= 1000;
        i++;
    }
    int decimals = seconds == 0 || fabs(seconds) >= 99.95 ? 0 : fabs(seconds) >= 9.995 ? 1 : 2;
    (void)snprintf(buffer, TD_UNIT_TEXT, "%.*f %s", decimals, seconds, names[i]);
    return buffer;
}

const char *td_format_counted(char buffer[TD_UNIT_TEXT], int64_t count, const char *noun)
{
    const int length = (int)strlen(noun);
    const char last = length ? noun[length - 1] : '\0', before = length > 1 ? noun[length - 2] : '\0';
    const bool hisses = last == 's' || last == 'x' || (last == 'h' && (before == 'c' || before == 's'));
    const bool turns = last == 'y' && !strchr("aeiou", before);
    const char *ending = count == 1 ? "" : turns ? "ies" : hisses ? "es" : "s";
    (void)snprintf(buffer, TD_UNIT_TEXT, "%lld %.*s%s", (long long)count, length - (turns && count != 1), noun, ending);
    return buffer;
}

const char *td_format_thousands(char buffer[TD_UNIT_TEXT], int64_t number)
{
    char digits[24];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    char *end = buffer;
    if (number < 0)
        *end++ = '-';
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *end++ = ',';
        *end++ = digits[i];
    }
    *end = '\0';
    return buffer;
}
