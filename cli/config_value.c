/* Scalars of a configuration to numbers. Each takes the whole text or none of it. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config_tree.h"

bool td_config_to_int(const char *text, int64_t *out)
{
    char digits[32];
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        bool between_digits = c > text && isdigit((unsigned char)c[-1]) && isdigit((unsigned char)c[1]);
        if (*c == '_' && between_digits)
            continue; /* 5_000_000 */
        bool sign = c == text && (*c == '-' || *c == '+');
        if ((!isdigit((unsigned char)*c) && !sign) || n + 1 >= sizeof digits)
            return false;
        digits[n++] = *c;
    }
    digits[n] = 0;
    if (!n || !isdigit((unsigned char)digits[n - 1]))
        return false;
    errno = 0;
    *out = strtoll(digits, NULL, 10);
    return errno == 0;
}

/* A number at the start of `text`; *end is what follows. */
static bool leading_number(const char *text, double *out, const char **end)
{
    bool starts = isdigit((unsigned char)text[0]) || text[0] == '.' || text[0] == '-' || text[0] == '+';
    bool hexadecimal = strchr(text, 'x') || strchr(text, 'X');
    if (!starts || hexadecimal)
        return false;
    char *stop;
    *out = strtod(text, &stop);
    *end = stop;
    return stop != text && isfinite(*out);
}

bool td_config_to_float(const char *text, double *out)
{
    const char *end;
    return leading_number(text, out, &end) && !*end;
}

bool td_config_to_bool(const char *text, bool *out)
{
    if (td_config_is_one_of(text, "true|on|yes"))
        *out = true;
    else if (td_config_is_one_of(text, "false|off|no"))
        *out = false;
    else
        return false;
    return true;
}

static bool unit_factor(const char *unit, double *out)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1},           {"B", 1},        {"kB", 1e3},         {"KB", 1e3},      {"MB", 1e6},           {"GB", 1e9},
        {"TB", 1e12},      {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].name)) {
            *out = units[i].factor;
            return true;
        }
    return false;
}

static bool to_bytes(const char *text, const char *ending, double *out)
{
    const char *end;
    double number, factor;
    if (!leading_number(text, &number, &end))
        return false;
    while (*end == ' ')
        end++;
    char unit[8];
    size_t length = strlen(end), tail = strlen(ending);
    if (*end && (length < tail || strcmp(end + length - tail, ending)))
        return false;
    length -= *end ? tail : 0;
    if (length >= sizeof unit)
        return false;
    memcpy(unit, end, length);
    unit[length] = 0;
    if (!unit_factor(unit, &factor))
        return false;
    *out = number * factor;
    return true;
}

bool td_config_to_size(const char *text, int64_t *out_bytes)
{
    double bytes;
    if (!to_bytes(text, "", &bytes) || fabs(bytes) > 9.0e18)
        return false;
    *out_bytes = (int64_t)bytes;
    return true;
}

bool td_config_to_rate(const char *text, double *out_bytes_per_s)
{
    return to_bytes(text, "/s", out_bytes_per_s);
}

bool td_config_is_one_of(const char *text, const char *allowed)
{
    size_t length = strlen(text);
    if (!length)
        return false;
    for (const char *c = allowed; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (!strncmp(c, text, length) && (c[length] == '|' || !c[length]))
            return true;
    return false;
}
