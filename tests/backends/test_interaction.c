/* The kernels of dot_interaction give the reference's bits: numbers of vectors and of elements around whole tiles, more than
 * one piece of elements, and as many vectors as the kernels take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "tests/support/kernel_check.h"

/* What the case at hand builds. */
static struct {
    int32_t vectors;
    int64_t dim, batch;
} size;

static td_value interaction(td_graph *g)
{
    td_value vectors[300];
    for (int32_t i = 0; i < size.vectors; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "v%d", (int)i);
        vectors[i] = td_parameter(g, name, TD_F32, TD_SHAPE(size.batch, size.dim), td_init_constant(0));
    }
    return td_dot_interaction(size.vectors, vectors);
}

static void check(int32_t vectors, int64_t dim, int64_t batch)
{
    size.vectors = vectors;
    size.dim = dim;
    size.batch = batch;
    kernel_check(&(gradient_case){.name = "dot_interaction", .build = interaction});
}

static void test_tiles_that_are_not_whole(void **state)
{
    (void)state;
    for (int32_t vectors = 2; vectors <= 19; vectors++)
        check(vectors, vectors % 2 ? 16 : 9, 3);
    for (int64_t dim = 1; dim <= 18; dim++)
        check(6, dim, 2);
}

static void test_sizes_of_recommenders(void **state)
{
    (void)state;
    check(27, 16, 29);
    check(9, 64, 5);
    check(85, 17, 2);
}

static void test_elements_in_several_pieces(void **state)
{
    (void)state;
    check(20, 300, 2);
    check(70, 203, 2);
}

static void test_as_many_vectors_as_the_kernels_take_and_one_more(void **state)
{
    (void)state;
    check(200, 8, 2);
    check(256, 40, 1);
    check(257, 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_that_are_not_whole),
        cmocka_unit_test(test_sizes_of_recommenders),
        cmocka_unit_test(test_elements_in_several_pieces),
        cmocka_unit_test(test_as_many_vectors_as_the_kernels_take_and_one_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
