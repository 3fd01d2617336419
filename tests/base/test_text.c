/* Patterns, growing texts, numbers with units, log levels. */
#include "tests/base/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/glob.h"
#include "base/log.h"
#include "base/string.h"
#include "base/units.h"

static void test_glob(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"table.*", "table.0.weight", true},
        {"table.*", "table.", true},
        {"table.*", "table", false},
        {"table.*", "a.table.0", false},
        {"*", "", true},
        {"", "", true},
        {"", "a", false},
        {"*.bias", "top.0.bias", true},
        {"*.bias", "top.0.biases", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "acb", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"?", "", false},
        {"***x", "x", true},
        {"a/*", "a/b/c", true},
        {"Table.*", "table.0", false},
        {"*ab*ab", "aabab", true},
        {"a.c", "abc", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (td_glob_match(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("\"%s\" against \"%s\"", cases[i].pattern, cases[i].name);
}

/* A pattern that makes naive backtracking exponential ends at once. */
static void test_glob_is_not_exponential(void **state)
{
    (void)state;
    char name[2001], pattern[201];
    memset(name, 'a', 2000);
    name[2000] = '\0';
    for (int i = 0; i < 200; i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[199] = 'b';
    pattern[200] = '\0';
    assert_false(td_glob_match(pattern, name));
}

static void test_string_grows(void **state)
{
    (void)state;
    td_string string = {0};
    char expected[12000] = "";
    size_t length = 0;
    for (int i = 0; i < 1000; i++) {
        td_string_format(&string, "%d,", i);
        td_string_append(&string, "x");
        length += (size_t)sprintf(expected + length, "%d,x", i);
    }
    assert_int_equal(string.length, length);
    char *text = NULL;
    assert_ok(td_string_finish(&string, &text));
    assert_string_equal(text, expected);
    td_free(text);
    td_string_append_bytes(&string, "a\0b", 3); /* usable again after finish */
    assert_int_equal(string.length, 3);
    assert_memory_equal(string.text, "a\0b", 4);
    td_string_deinit(&string);
    assert_ok(td_string_finish(&string, &text));
    assert_string_equal(text, "");
    td_free(text);
}

static td_status *build(void *context)
{
    td_string string = {0};
    for (int i = 0; i < 200; i++)
        td_string_format(&string, "line %d\n", i);
    return td_string_finish(&string, context);
}
static void drop(void *context)
{
    td_free(*(char **)context);
}

static void test_string_survives_allocation_failures(void **state)
{
    (void)state;
    char *text = NULL;
    assert_true(assert_survives_allocation_failures(build, drop, &text) >= 5);
}

static void test_parse_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"256MiB", 256ll << 20},
        {"1.5GiB", 3ll << 29},
        {"12 GB", 12000000000},
        {"3.4kB", 3400},
        {"7B", 7},
        {"256mib", 256ll << 20},
        {"1e3", 1000},
        {"1.5e-1kB", 150},
        {" 2TiB", 2ll << 40},
        {"0.1PiB", 112589990684262},
        {"8191PiB", 8191ll << 50},
        {"9007199254740993", 9007199254740992},
        {"00000000000000000000000000000012", 12},
        {".5KiB", 512},
        {"1.2500000000000000000000000000kB", 1250},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t bytes = -1;
        assert_ok(td_parse_bytes(good[i].text, &bytes));
        if (bytes != good[i].bytes)
            fail_msg("\"%s\" read as %lld", good[i].text, (long long)bytes);
    }
    static const char *const bad[] = {"",         "MiB", "-1",  "12XB", "1.2.3",   "1e",
                                      "12 MiB x", "nan", "inf", "0x10", "12MiB/s", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t bytes;
        assert_error(td_parse_bytes(bad[i], &bytes), TD_INVALID_ARGUMENT, "is not a size; write it like 256MiB");
    }
    int64_t bytes;
    assert_error(td_parse_bytes("8192PiB", &bytes), TD_INVALID_ARGUMENT, "too large");
    assert_error(td_parse_bytes("1e400", &bytes), TD_INVALID_ARGUMENT, "too large");
    assert_error(td_parse_bytes("1e99999999999", &bytes), TD_INVALID_ARGUMENT, "too large");
}

static void test_parse_rates_and_times(void **state)
{
    (void)state;
    double value;
    assert_ok(td_parse_rate("12GB/s", &value));
    assert_true(value == 12e9);
    assert_ok(td_parse_rate("2 MiB/s", &value));
    assert_true(value == 2097152);
    assert_ok(td_parse_rate("5e8", &value));
    assert_true(value == 5e8);
    assert_error(td_parse_rate("12GB", &value), TD_INVALID_ARGUMENT, "\"12GB\" is not a rate");
    assert_ok(td_parse_seconds("8us", &value));
    assert_true(value == 8 * 1e-6);
    assert_ok(td_parse_seconds("8\u00b5s", &value));
    assert_true(value == 8 * 1e-6);
    assert_ok(td_parse_seconds("1.5ms", &value));
    assert_true(value == 1.5 * 1e-3);
    assert_ok(td_parse_seconds("2min", &value));
    assert_true(value == 120);
    assert_ok(td_parse_seconds("0.25", &value));
    assert_true(value == 0.25);
    assert_error(td_parse_seconds("8 weeks", &value), TD_INVALID_ARGUMENT, "is not a time");
    assert_ok(td_parse_seconds("1e-400", &value));
    assert_true(value == 0);
}

static void test_format(void **state)
{
    (void)state;
    char text[TD_UNIT_TEXT];
    assert_string_equal(td_format_bytes(text, 0), "0 B");
    assert_string_equal(td_format_bytes(text, 812), "812 B");
    assert_string_equal(td_format_bytes(text, 1024), "1.00 KiB");
    assert_string_equal(td_format_bytes(text, 934.4 * 0x1p20), "934 MiB");
    assert_string_equal(td_format_bytes(text, 1023.9 * 0x1p20), "1.00 GiB");
    assert_string_equal(td_format_bytes(text, 28.94 * 0x1p20), "28.9 MiB");
    assert_string_equal(td_format_bytes(text, 0x1p63), "8.00 EiB");
    assert_string_equal(td_format_traffic(text, 3.4e6), "3.40 MB");
    assert_string_equal(td_format_traffic(text, 131072), "131 kB");
    assert_string_equal(td_format_traffic(text, 999999), "1.00 MB");
    assert_string_equal(td_format_rate(text, 12e9), "12.0 GB/s");
    assert_string_equal(td_format_seconds(text, 0.0526), "52.6 ms");
    assert_string_equal(td_format_seconds(text, 8e-6), "8.00 us");
    assert_string_equal(td_format_seconds(text, 1.2), "1.20 s");
    assert_string_equal(td_format_seconds(text, 0), "0 s");
    assert_string_equal(td_format_seconds(text, 0.99999), "1.00 s");
    assert_string_equal(td_format_count(text, 38900), "38.9 k");
    assert_string_equal(td_format_count(text, 5120000), "5.12 M");
    assert_string_equal(td_format_count(text, 812), "812");
    assert_string_equal(td_format_count(text, 0.25), "0.25");
    assert_string_equal(td_format_thousands(text, 5120000), "5,120,000");
    assert_string_equal(td_format_thousands(text, 999), "999");
    assert_string_equal(td_format_thousands(text, -1000), "-1,000");
    assert_string_equal(td_format_thousands(text, INT64_MIN), "-9,223,372,036,854,775,808");
}

static void test_nouns_follow_their_number(void **state)
{
    (void)state;
    char text[TD_UNIT_TEXT];
    assert_string_equal(td_format_counted(text, 1, "row"), "1 row");
    assert_string_equal(td_format_counted(text, 0, "row"), "0 rows");
    assert_string_equal(td_format_counted(text, 2, "batch"), "2 batches");
    assert_string_equal(td_format_counted(text, 1, "entry"), "1 entry");
    assert_string_equal(td_format_counted(text, 3, "entry"), "3 entries");
    assert_string_equal(td_format_counted(text, 3, "key"), "3 keys");
    assert_string_equal(TD_COUNTED(12, "cut edge"), "12 cut edges");
}

typedef struct heard {
    int messages;
    td_log_level last;
    char text[3000];
} heard;

static void hear(void *context, td_log_level level, const char *message)
{
    heard *h = context;
    h->messages++;
    h->last = level;
    strcpy(h->text, message);
}

static void test_log_reaches_the_set_function_only(void **state)
{
    (void)state;
    heard h = {0};
    td_log(TD_LOG_ERROR, "before anyone listens");
    td_log_set(hear, &h, TD_LOG_INFO);
    td_log(TD_LOG_DEBUG, "too quiet");
    assert_int_equal(h.messages, 0);
    assert_false(td_log_wants(TD_LOG_DEBUG));
    td_log(TD_LOG_WARNING, "%d rows", 3);
    assert_int_equal(h.messages, 1);
    assert_int_equal(h.last, TD_LOG_WARNING);
    assert_string_equal(h.text, "3 rows");
    td_log(TD_LOG_INFO, "%2500d", 7); /* cut, not overrun */
    assert_int_equal(strlen(h.text), 2000);
    td_log_set(hear, &h, TD_LOG_NULL);
    td_log(TD_LOG_ERROR, "muted");
    td_log_set(NULL, NULL, TD_LOG_DEBUG);
    td_log(TD_LOG_ERROR, "nobody");
    assert_int_equal(h.messages, 2);
}

static void test_layers_of_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t length;
    } cases[] = {
        {"h.3.up/linear", 3}, {"h.3/linear", 3}, {"h.12@copy", 4}, {"bottom/linear", 6}, {"bottom.0.weight", 8},
        {"h.3x/linear", 1},   {"bottom", 6},     {"bottom.", 6},   {"h.3", 3},           {"", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(td_layer_length(cases[i].name), cases[i].length);
}

static void test_log_levels_have_names(void **state)
{
    (void)state;
    for (int i = TD_LOG_DEBUG; i <= TD_LOG_NULL; i++) {
        td_log_level level = TD_LOG_DEBUG;
        assert_true(td_log_level_parse(td_log_level_name((td_log_level)i), &level));
        assert_int_equal(level, i);
    }
    td_log_level level = TD_LOG_WARNING;
    assert_false(td_log_level_parse("loud", &level));
    assert_int_equal(level, TD_LOG_WARNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob),
        cmocka_unit_test(test_glob_is_not_exponential),
        cmocka_unit_test(test_string_grows),
        cmocka_unit_test(test_string_survives_allocation_failures),
        cmocka_unit_test(test_parse_bytes),
        cmocka_unit_test(test_parse_rates_and_times),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_nouns_follow_their_number),
        cmocka_unit_test(test_log_reaches_the_set_function_only),
        cmocka_unit_test(test_layers_of_names),
        cmocka_unit_test(test_log_levels_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
