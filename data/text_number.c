/* Spans of text as numbers, and as something to show in a message: see data/text.h. */
#include "data/text.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool td_span_integer(td_span span, int64_t *out_value)
{
    int64_t i = 0, value = 0;
    bool negative = span.length > 0 && span.data[0] == '-';
    i += negative || (span.length > 0 && span.data[0] == '+');
    if (i == span.length)
        return false;
    for (; i < span.length; i++) {
        int digit = span.data[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) /* downwards: INT64_MIN has no positive counterpart */
            return false;
    }
    if (!negative && value == INT64_MIN)
        return false;
    *out_value = negative ? value : -value;
    return true;
}

static bool is_decimal(td_span span)
{
    for (int64_t i = 0; i < span.length; i++)
        if (!strchr("0123456789+-.eE", span.data[i]) || span.data[i] == '\0')
            return false;
    return span.length > 0;
}

/* strtod of the "C" locale: the program around the library may have set one with a decimal comma. */
static bool parse_real(const char *text, double *out_value)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return false;
    char *stop = NULL;
    double value = strtod_l(text, &stop, plain);
    freelocale(plain);
    *out_value = value;
    return *stop == '\0' && isfinite(value);
}

bool td_span_real(td_span span, double *out_value)
{
    enum { LONGEST = 400 };
    int64_t whole;
    if (span.length <= 15 && td_span_integer(span, &whole)) { /* exact in a double */
        *out_value = (double)whole;
        return true;
    }
    char text[LONGEST + 1];
    if (span.length > LONGEST || !is_decimal(span))
        return false;
    memcpy(text, span.data, (size_t)span.length);
    text[span.length] = '\0';
    return parse_real(text, out_value);
}

const char *td_span_show(td_span span, char out[TD_SPAN_SHOWN])
{
    enum { MOST = 40 };
    int64_t n = span.length < MOST ? span.length : MOST;
    for (int64_t i = 0; i < n; i++)
        out[i] = span.data[i] >= ' ' && span.data[i] <= '~' ? span.data[i] : '?';
    out[n] = '\0';
    if (span.length > MOST)
        memcpy(out + MOST, "...", 4);
    return out;
}
