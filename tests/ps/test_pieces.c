/* An answer that is read while it is written: what the asker is told of is there, and all of it comes in the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "ps/pieces.h"

enum { LINE = 64, SECOND = 1000000000 };

static void test_what_is_told_of_is_rounded_down_and_bounded(void **state)
{
    (void)state;
    td_pieces pieces;
    td_pieces_begin(&pieces);
    assert_int_equal(td_pieces_wait(&pieces, 0, 1000, 1), 0);
    td_pieces_write(&pieces, 3 * LINE + 1);
    assert_int_equal(td_pieces_wait(&pieces, 0, 1000, SECOND), 3 * LINE);
    assert_int_equal(td_pieces_wait(&pieces, 3 * LINE, 1000, 1), 3 * LINE);
    td_pieces_write(&pieces, INT64_C(1) << 50);
    assert_int_equal(td_pieces_wait(&pieces, 3 * LINE, 1000, SECOND), 1000);
    td_pieces_begin(&pieces);
    td_pieces_write(&pieces, TD_PIECES_ALL);
    assert_int_equal(td_pieces_wait(&pieces, 0, 7, SECOND), 7);
    assert_int_equal(td_pieces_wait(&pieces, 0, INT64_C(1) << 50, SECOND), INT64_C(1) << 50);
}

typedef struct answer {
    td_pieces pieces;
    char bytes[1001 * LINE / 2]; /* no whole number of lines */
} answer;

static void *write_line_by_line(void *argument)
{
    answer *a = argument;
    for (int64_t i = 0; i < (int64_t)sizeof a->bytes; i++) {
        a->bytes[i] = (char)(i % 127 + 1);
        if (i % 100 == 99)
            td_pieces_write(&a->pieces, i + 1);
    }
    td_pieces_write(&a->pieces, TD_PIECES_ALL);
    return NULL;
}

static void test_an_asker_sees_bytes_that_were_told_of(void **state)
{
    (void)state;
    enum { TIMES = 50 };
    static answer a;
    for (int time = 0; time < TIMES; time++) {
        const int64_t all = sizeof a.bytes;
        int64_t have = 0;
        pthread_t writer;
        a = (answer){.bytes = {0}};
        td_pieces_begin(&a.pieces);
        assert_int_equal(pthread_create(&writer, NULL, write_line_by_line, &a), 0);
        while (have < all) {
            const int64_t written = td_pieces_wait(&a.pieces, have, all, SECOND);
            assert_true(written >= have && written <= all);
            for (; have < written; have++)
                assert_int_equal(a.bytes[have], have % 127 + 1);
        }
        pthread_join(writer, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_told_of_is_rounded_down_and_bounded),
        cmocka_unit_test(test_an_asker_sees_bytes_that_were_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
