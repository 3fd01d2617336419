/* Scalars of a configuration to numbers. Each takes the whole text or none of it. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
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

/* True for no error. */
static bool parsed(td_status *status)
{
    td_status_destroy(status);
    return !status;
}

bool td_config_to_size(const char *text, int64_t *out_bytes)
{
    return parsed(td_parse_bytes(text, out_bytes));
}

bool td_config_to_rate(const char *text, double *out_bytes_per_s)
{
    return parsed(td_parse_rate(text, out_bytes_per_s));
}

bool td_config_to_seconds(const char *text, double *out_seconds)
{
    return parsed(td_parse_seconds(text, out_seconds));
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
