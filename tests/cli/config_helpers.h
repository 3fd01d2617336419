/* Configurations from texts, for tests. */
#ifndef TANDEM_TESTS_CLI_CONFIG_HELPERS_H
#define TANDEM_TESTS_CLI_CONFIG_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "cli/config.h"

/* Parses, sets, resolves; `set` may be NULL. */
static inline td_status *resolve_text(const char *text, const char *set, td_config **out_config)
{
    *out_config = NULL;
    td_config *config = NULL;
    td_status *status = td_config_parse(text, strlen(text), "x.yaml", &config);
    if (!status && set)
        status = td_config_set(config, set);
    if (!status)
        status = td_config_resolve(config);
    if (status)
        td_config_destroy(config);
    else
        *out_config = config;
    return status;
}

static inline td_config *good_config(const char *text, const char *set)
{
    td_config *config = NULL;
    td_status *status = resolve_text(text, set, &config);
    if (status)
        print_message("%s\n", td_status_message(status));
    assert_null(status);
    return config;
}

static inline void expect_refusal(const char *text, const char *set, const char *message)
{
    td_config *config = NULL;
    td_status *status = resolve_text(text, set, &config);
    assert_non_null(status);
    assert_string_equal(td_status_message(status), message);
    assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    td_status_destroy(status);
}

#endif
