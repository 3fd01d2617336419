/* Kernels that add to what they made before: a window of micro-batches folded by the CPU's kernels leaves the bits that the
 * reference leaves, after each of them, on every instruction set and number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/engine.h"
#include "base/memory.h"
#include "graph/op.h"

enum { ROWS = 300, DIM = 7, MOST = 90, BATCHES = 3, REPLICAS = 2, LISTS = 2, MOST_THREADS = 3 };

/* What an op of the family leaves: a total and a replica's sum, each rows with their numbers and order, or a dense one. */
typedef struct sums {
    float data[LISTS][ROWS * DIM];
    int64_t rows[LISTS][ROWS], order[LISTS][ROWS], count[LISTS];
} sums;

typedef struct gradient {
    float data[ROWS * DIM];
    int64_t rows[MOST], count;
} gradient;

/* Ascending rows, about a third of them new in each micro-batch; sizes of numbers so far apart that any other order shows. */
static void draw(gradient *g, uint32_t seed)
{
    *g = (gradient){0};
    for (int64_t row = 0; row < ROWS && g->count < MOST; row++) {
        seed = seed * 1664525 + 1013904223;
        if (seed >> 30 == 0)
            g->rows[g->count++] = row;
    }
    for (int64_t i = 0; i < ROWS * DIM; i++) {
        seed = seed * 1664525 + 1013904223;
        g->data[i] = (float)(int32_t)seed * (seed & 1 ? 1e-9f : 1e-3f);
    }
}

static td_status *fold(const td_cpu_kernel *kernel, const char *op, td_team *team, gradient *g, double micro[3],
                       sums *s)
{
    const bool sparse = strstr(op, "rows") != NULL;
    const int32_t lists = strstr(op, "replica") ? 2 : 1;
    td_tensor inputs[2] = {{.kind = sparse ? TD_ROW_SPARSE : TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {ROWS, DIM}},
                           {.kind = TD_SCALAR, .dtype = TD_F64, .rank = 1, .dims = {3}, .data = micro}},
              outputs[4];
    inputs[0].data = g->data;
    inputs[0].index = g->rows;
    inputs[0].count = &g->count;
    inputs[0].entries = MOST;
    for (int32_t l = 0, n = 0; l < lists; l++) {
        outputs[n] = inputs[0];
        outputs[n].data = s->data[l];
        outputs[n].index = s->rows[l];
        outputs[n].count = &s->count[l];
        outputs[n++].entries = ROWS;
        if (sparse)
            outputs[n++] =
                (td_tensor){.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {ROWS}, .data = s->order[l]};
    }
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = op,
                           .name = op,
                           .inputs = inputs,
                           .outputs = outputs,
                           .n_inputs = 2,
                           .n_outputs = lists * (sparse ? 2 : 1)};
    if (!kernel)
        return td_op_reference(op)(&call);
    assert_true(kernel->supports(&call));
    call.scratch_bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&call, NULL) : 0;
    call.scratch = malloc(call.scratch_bytes + 1); /* a byte too many is for AddressSanitizer to find */
    td_status *status = kernel->run(&call, team, NULL);
    free(call.scratch);
    return status;
}

static const td_cpu_kernel *find(td_isa isa, const char *op)
{
    int32_t n = 0;
    const td_cpu_kernel *const *kernels = td_cpu_kernels(isa, &n);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(kernels[i]->op, op) == 0)
            return kernels[i];
    fail_msg("no kernel for %s", op);
    return NULL;
}

static void check(const char *op, td_isa isa, td_team *team)
{
    static sums expected, found;
    static gradient g;
    memset(&expected, 0x7f, sizeof expected); /* what a window before left */
    memset(&found, 0x7f, sizeof found);
    for (int32_t k = 0; k < BATCHES * REPLICAS; k++) {
        double micro[3] = {k % BATCHES == 0, k < BATCHES, k % BATCHES == BATCHES - 1};
        draw(&g, (uint32_t)k * 77 + 5);
        assert_null(fold(NULL, op, NULL, &g, micro, &expected));
        assert_null(fold(find(isa, op), op, team, &g, micro, &found));
        if (memcmp(&expected, &found, sizeof found) != 0)
            fail_msg("%s on %s: other bits than the reference after micro-batch %d", op, td_isa_name(isa), k);
    }
}

static void test_windows_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    static const char *const ops[] = {"accumulate", "accumulate_replicas", "accumulate_rows",
                                      "accumulate_replica_rows"};
    for (int32_t t = 1; t <= MOST_THREADS; t++) {
        td_team *team = NULL;
        assert_null(td_team_create(t, NULL, 0, &team));
        for (int isa = 0; isa < TD_ISA_COUNT; isa++)
            for (size_t i = 0; td_isa_available((td_isa)isa) && i < sizeof ops / sizeof *ops; i++)
                check(ops[i], (td_isa)isa, team);
        td_team_destroy(team);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_have_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
