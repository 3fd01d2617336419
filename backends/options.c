/* Reading of device options: see options.h. */
#include "backends/options.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_BYTES = 64, MAX_OPTIONS = 32 };

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit byte_units[] = {{"", 1},
                                  {"B", 1},
                                  {"kB", 1e3},
                                  {"KB", 1e3},
                                  {"MB", 1e6},
                                  {"GB", 1e9},
                                  {"TB", 1e12},
                                  {"KiB", 1024.0},
                                  {"MiB", 1048576.0},
                                  {"GiB", 1073741824.0},
                                  {"TiB", 1099511627776.0},
                                  {NULL, 0}};
static const unit rate_units[] = {{"B/s", 1},        {"kB/s", 1e3},        {"MB/s", 1e6},           {"GB/s", 1e9},
                                  {"KiB/s", 1024.0}, {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}, {NULL, 0}};
static const unit time_units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

static bool read_quantity(const char *value, const unit *units, double *out)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(value, &end);
    if (end == value || errno || !isfinite(number) || number < 0)
        return false;
    for (; units->name; units++) {
        if (strcmp(end, units->name) == 0) {
            *out = number * units->factor;
            return isfinite(*out);
        }
    }
    return false;
}

static td_status *read_int(const char *backend, const td_option *option, const char *value)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(value, &end, 10);
    long most = option->most ? option->most : INT32_MAX;
    if (end == value || *end || errno || number < option->least || number > most)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s=%s: expected a whole number from %d to %ld", backend, option->key,
                        value, (int)option->least, most);
    *(int32_t *)option->target = (int32_t)number;
    return NULL;
}

static td_status *read_choice(const char *backend, const td_option *option, const char *value)
{
    char known[256] = "";
    size_t used = 0;
    for (int32_t i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            *(int32_t *)option->target = i;
            return NULL;
        }
        int wrote = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", option->choices[i]);
        if (wrote > 0 && (size_t)wrote < sizeof known - used)
            used += (size_t)wrote;
    }
    return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s=%s: expected one of %s", backend, option->key, value, known);
}

static td_status *read_value(const char *backend, const td_option *option, const char *value)
{
    double number = 0;
    switch (option->type) {
    case TD_OPTION_INT:
        return read_int(backend, option, value);
    case TD_OPTION_CHOICE:
        return read_choice(backend, option, value);
    case TD_OPTION_BYTES:
        if (!read_quantity(value, byte_units, &number) || number >= 18446744073709551616.0)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s=%s: expected bytes, such as 256MiB", backend, option->key,
                            value);
        *(uint64_t *)option->target = (uint64_t)number;
        return NULL;
    case TD_OPTION_RATE:
        if (!read_quantity(value, rate_units, &number) || number <= 0)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s=%s: expected a rate above 0, such as 12GB/s", backend,
                            option->key, value);
        break;
    case TD_OPTION_SECONDS:
        if (!read_quantity(value, time_units, &number))
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s=%s: expected a time, such as 8us", backend, option->key,
                            value);
        break;
    }
    *(double *)option->target = number;
    return NULL;
}

static td_status *unknown_key(const char *backend, const char *key, const td_option *table, int32_t n_options)
{
    td_status *status = TD_ERROR(TD_INVALID_ARGUMENT, "%s: unknown device option \"%s\"", backend, key);
    char known[512] = "";
    size_t used = 0;
    for (int32_t i = 0; i < n_options; i++) {
        int wrote = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[i].key);
        if (wrote > 0 && (size_t)wrote < sizeof known - used)
            used += (size_t)wrote;
    }
    return td_status_help(status, "known: %s", known);
}

/* One "key=value" of `bytes` characters. `seen` has a bit per table row. */
static td_status *read_pair(const char *backend, const char *pair, size_t bytes, const td_option *table,
                            int32_t n_options, uint32_t *seen)
{
    char text[VALUE_BYTES * 2];
    if (bytes >= sizeof text)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: a device option of %zu characters is too long (%zu at most)", backend,
                        bytes, sizeof text - 1);
    memcpy(text, pair, bytes);
    text[bytes] = '\0';
    char *value = strchr(text, '=');
    if (!value)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: device option \"%s\": expected key=value", backend, text);
    *value++ = '\0';
    for (int32_t i = 0; i < n_options; i++) {
        if (strcmp(table[i].key, text) != 0)
            continue;
        if (*seen & (1u << i))
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: device option \"%s\" is given twice", backend, text);
        *seen |= 1u << i;
        return read_value(backend, &table[i], value);
    }
    return unknown_key(backend, text, table, n_options);
}

td_status *td_options_parse(const char *backend, const char *text, const td_option *table, int32_t n_options)
{
    if (n_options > MAX_OPTIONS)
        return TD_ERROR(TD_INTERNAL, "%s: %d device options, at most %d", backend, (int)n_options, (int)MAX_OPTIONS);
    uint32_t seen = 0;
    while (text && *text) {
        size_t bytes = strcspn(text, ",");
        TD_TRY(read_pair(backend, text, bytes, table, n_options, &seen));
        text += bytes;
        if (*text == ',' && !*++text)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: device options end with a comma", backend);
    }
    return NULL;
}
