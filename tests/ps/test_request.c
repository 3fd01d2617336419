/* Requests whose bytes are not what their words say are refused, whatever the words: no sum of sizes wraps around. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "ps/protocol.h"
#include "ps/request.h"

static void assert_refused(td_status *status)
{
    assert_int_equal(td_status_code(status), TD_INTERNAL);
    td_status_destroy(status);
}

static void test_parts(void **state)
{
    (void)state;
    struct {
        td_wire_part parts[2];
        int64_t keys[3];
    } message = {.parts = {{0, 1}, {1, 2}}};
    const td_request request = {.data = &message, .bytes = sizeof message};
    int64_t keys = 0;
    assert_null(td_request_check_parts(&request, 2, &keys));
    assert_int_equal(keys, 3);
    const int64_t wrong[] = {-1, 4, INT64_C(1) << 60, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(td_request_check_parts(&request, wrong[i], &keys));
    const int64_t counts[][2] = {{-2, 5}, {5, -2}, {2, 2}, {INT64_MAX, INT64_MAX}, {INT64_MAX, 4 - INT64_MAX}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        message.parts[0].n = counts[i][0];
        message.parts[1].n = counts[i][1];
        assert_refused(td_request_check_parts(&request, 2, &keys));
    }
}

/* Rows of one table are never added to those of another, which may be of another length. */
static void test_pushes_of_other_tables_are_not_alike(void **state)
{
    (void)state;
    td_wire_part mine[] = {{0, 1}, {1, 2}}, theirs[] = {{0, 3}, {1, 0}};
    const td_request a = {.kind = TD_ASK_PUSH, .words = {5, 2}, .data = mine};
    td_request b = {.kind = TD_ASK_PUSH, .words = {5, 2, 1}, .data = theirs};
    assert_true(td_request_is_alike(&a, &b));
    b.kind = TD_ASK_OFFER;
    assert_false(td_request_is_alike(&a, &b));
    b.kind = TD_ASK_PUSH;
    b.words[1] = 1;
    assert_false(td_request_is_alike(&a, &b));
    b.words[1] = 2;
    theirs[1].table = 2;
    assert_false(td_request_is_alike(&a, &b));
}

static void test_rows(void **state)
{
    (void)state;
    const td_request request = {.bytes = 48};
    assert_null(td_request_check_rows(&request, 2, 16));
    assert_refused(td_request_check_rows(&request, 3, 16));
    assert_refused(td_request_check_rows(&request, -1, 16));
    assert_refused(td_request_check_rows(&request, (INT64_C(1) << 61) + 2, 16)); /* times 24 it is 48, modulo 2^64 */
}

static void test_definitions(void **state)
{
    (void)state;
    td_shard_definition definition = {.name = "table", .rows = 5, .dim = 2, .n_states = 1}, out;
    td_request request = {.data = &definition, .bytes = sizeof definition, .words = {1}};
    assert_null(td_request_definition(&request, 1, &out));
    assert_memory_equal(&out, &definition, sizeof out);
    request.words[0] = 2;
    assert_refused(td_request_definition(&request, 1, &out));
    request.words[0] = UINT64_MAX;
    assert_refused(td_request_definition(&request, 1, &out));
    request.words[0] = 0;
    definition.n_states = TD_MAX_SLOTS + 1;
    assert_refused(td_request_definition(&request, 1, &out));
    definition.n_states = 1;
    memset(definition.name, 'x', sizeof definition.name);
    assert_refused(td_request_definition(&request, 1, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_pushes_of_other_tables_are_not_alike),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_definitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
