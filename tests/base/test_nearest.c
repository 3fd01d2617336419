/* What a name was probably meant to be: base/nearest.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/nearest.h"

static const char *at(const void *context, int32_t index)
{
    return ((const char *const *)context)[index];
}

static void test_a_slip_a_part_or_a_whole_is_suggested_and_nothing_else(void **state)
{
    (void)state;
    static const char *const names[] = {"user.id", "user.rating_count", "user.rating",   "movie",          "genre",
                                        "day",     "first/dot/weight",  NULL /* none */, "first/dot/input"};
    static const struct {
        const char *name, *said;
    } cases[] = {
        {"user.ratign", "; did you mean \"user.rating\"?"},
        {"Rating",
         "; did you mean \"user.rating\"?"}, /* a word of its own, where the one before has it within a word */
        {"count", "; did you mean \"user.rating_count\"?"},
        {"films.movie.name", "; did you mean \"movie\"?"},
        {"moviegoers", ""}, /* "movie" is no word of it */
        {"id", ""},         /* so short that it is in anything, and an edit from the beginning of "day" */
        {"dya", "; did you mean \"day\"?"},
        {"dot", "; did you mean \"first/dot/input\"?"}, /* two of three letters from "day"; first by alphabet */
        {"genr*", "; did you mean \"genre\"?"},
        {"da*", "; did you mean \"day\"?"},
        {"x", ""},
        {"price", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char meant[TD_MEANT];
        const char *nearest = td_nearest(cases[i].name, sizeof names / sizeof *names, at, names);
        assert_string_equal(td_meant(meant, cases[i].name, nearest), cases[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_slip_a_part_or_a_whole_is_suggested_and_nothing_else)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
