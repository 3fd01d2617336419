/* See kernel_check.h. */
#include "tests/support/kernel_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/engine.h"
#include "backends/registry.h"
#include "base/memory.h"
#include "base/team.h"
#include "graph/op.h"
#include "graph/ops/elements.h"

enum { N_RUNS = 3, N_TEAMS = 2, MOST_ARGUMENTS = 600 };

/* Everything of one check: the reference runs at several extents, the teams. */
typedef struct checker {
    case_graph g;
    interpreter *runs[N_RUNS];
    td_team *teams[N_TEAMS];
    td_isa isa;
} checker;

/* One node's arguments at some extents, outputs in memory of their own. */
typedef struct arguments {
    td_tensor tensors[MOST_ARGUMENTS];
    td_kernel_call call;
} arguments;

static void complain(const checker *k, const td_node *node, const char *what, int64_t element)
{
    print_error("%s: %s (%s) on %s: %s at element %lld\n", k->g.c->name, node->name, node->op->name,
                td_isa_name(k->isa), what, (long long)element);
    fail();
}

static void arguments_init(arguments *a, const td_node *node, const td_tensor *inputs_of, const td_tensor *outputs_of)
{
    memset(a, 0, sizeof *a);
    assert_true(node->n_inputs + node->n_outputs <= MOST_ARGUMENTS);
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            a->tensors[i] = inputs_of[node->inputs[i]];
    for (int32_t i = 0; i < node->n_outputs; i++)
        a->tensors[node->n_inputs + i] = outputs_of[node->outputs[i]];
    a->call = (td_kernel_call){.struct_size = sizeof a->call,
                               .op = node->op->name,
                               .name = node->name,
                               .attrs = node->attrs,
                               .inputs = a->tensors,
                               .outputs = a->tensors + node->n_inputs,
                               .n_attrs = node->n_attrs,
                               .n_inputs = node->n_inputs,
                               .n_outputs = node->n_outputs};
}

static void *poisoned(const void *like, int64_t bytes)
{
    if (!like || bytes <= 0)
        return NULL;
    void *memory = td_calloc_aligned((size_t)bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, (size_t)bytes);
    return memory;
}

/* Outputs get fresh memory of the same sizes. */
static void own_outputs(const checker *k, arguments *a, const td_node *node, const interpreter *run)
{
    for (int32_t i = 0; i < node->n_outputs; i++) {
        td_tensor *t = &a->tensors[node->n_inputs + i];
        int64_t bytes[3];
        td_value_bytes(k->g.graph, node->outputs[i], run->extents, bytes);
        t->data = poisoned(t->data, bytes[0]);
        t->index = poisoned(t->index, bytes[1]);
        t->count = poisoned(t->count, bytes[2]);
    }
}

static void free_outputs(arguments *a, const td_node *node)
{
    for (int32_t i = 0; i < node->n_outputs; i++) {
        td_free(a->tensors[node->n_inputs + i].data);
        td_free(a->tensors[node->n_inputs + i].index);
        td_free(a->tensors[node->n_inputs + i].count);
    }
}

/* ---- comparing -------------------------------------------------------------------------------------------------------------- */

static bool is_matrix_product(const td_node *node)
{
    static const char *const names[] = {"linear", "linear_input_gradient", "linear_weight_gradient",
                                        "matmul", "causal_attention",      "causal_attention_gradient"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(node->op->name, names[i]) == 0)
            return true;
    return false;
}

static double number_at(const td_tensor *t, int64_t i)
{
    if (t->dtype == TD_F64)
        return ((const double *)t->data)[i];
    return td_dtype_is_float(t->dtype) ? (double)td_get_f32(t, i) : (double)td_get_i64(t, i);
}

/* Elements in use: all, or those of a row-sparse tensor's rows. */
static int64_t used_elements(const td_tensor *t)
{
    if (t->kind != TD_ROW_SPARSE)
        return t->kind == TD_RAGGED ? t->entries : td_tensor_elements(t);
    int64_t n = t->count ? *(const int64_t *)t->count : 0;
    for (int32_t i = 1; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static bool same(const td_tensor *a, const td_tensor *b, int64_t i, size_t size)
{
    if (memcmp((const char *)a->data + (size_t)i * size, (const char *)b->data + (size_t)i * size, size) == 0)
        return true;
    return td_dtype_is_float(a->dtype) && isnan(number_at(a, i)) && isnan(number_at(b, i));
}

static void compare_elements(const checker *k, const td_node *node, const td_tensor *found, const td_tensor *wanted,
                             int64_t n)
{
    double tolerance = wanted->dtype == TD_F32 ? 1e-5 : wanted->dtype == TD_F16 ? 2e-3 : 1.6e-2;
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(number_at(wanted, i)));
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs(number_at(found, i) - number_at(wanted, i));
        if (!(difference <= tolerance * (1.0 + largest)))
            complain(k, node, "too far from the reference", i);
    }
}

static void compare_bits(const checker *k, const td_node *node, const td_tensor *found, const td_tensor *wanted,
                         int64_t n)
{
    size_t size = td_dtype_bytes(wanted->dtype);
    if (n == 0 || memcmp(found->data, wanted->data, (size_t)n * size) == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        if (!same(found, wanted, i, size))
            complain(k, node, "other bits than the reference", i);
}

static void compare(const checker *k, const td_node *node, const td_tensor *found, const td_tensor *wanted, bool exact)
{
    int64_t n = used_elements(wanted);
    if (used_elements(found) != n)
        complain(k, node, "another number of rows", 0);
    (exact ? compare_bits : compare_elements)(k, node, found, wanted, n);
    int64_t rows = wanted->kind == TD_ROW_SPARSE && wanted->count ? *(const int64_t *)wanted->count : 0;
    for (int64_t row = 0; row < rows; row++)
        if (((const int64_t *)found->index)[row] != ((const int64_t *)wanted->index)[row])
            complain(k, node, "another row id", row);
}

/* ---- running ----------------------------------------------------------------------------------------------------------------- */

/* One node at one run's extents, on all teams. */
static void check_at(const checker *k, const td_node *node, td_cpu_prepared *prepared, size_t scratch_bytes,
                     const interpreter *run)
{
    arguments results[N_TEAMS];
    void *scratch = td_calloc_aligned(scratch_bytes + 1);
    assert_non_null(scratch);
    for (int team = 0; team < N_TEAMS; team++) {
        arguments *a = &results[team];
        arguments_init(a, node, run->tensors, run->tensors);
        own_outputs(k, a, node, run);
        a->call.scratch = scratch;
        a->call.scratch_bytes = scratch_bytes;
        case_graph_require(&k->g, td_cpu_engine_run(prepared, &a->call, k->teams[team]));
        for (int32_t i = 0; i < node->n_outputs; i++) {
            const td_tensor *found = &a->call.outputs[i];
            compare(k, node, found, &run->tensors[node->outputs[i]], !is_matrix_product(node));
            compare(k, node, found, &results[0].call.outputs[i], true);
        }
    }
    for (int team = 0; team < N_TEAMS; team++)
        free_outputs(&results[team], node);
    td_free(scratch);
}

/* The pairs that the op allows to share memory, where they have as many bytes. */
static void check_in_place(const checker *k, const td_node *node, td_cpu_prepared *prepared, size_t scratch_bytes,
                           const interpreter *run)
{
    void *scratch = td_calloc_aligned(scratch_bytes + 1);
    assert_non_null(scratch);
    for (int pair = 0; pair < 3 && node->op->in_place[pair].output; pair++) {
        arguments a;
        int32_t out = node->op->in_place[pair].output - 1, in = node->op->in_place[pair].input - 1;
        arguments_init(&a, node, run->tensors, run->tensors);
        td_tensor *input = &a.tensors[in], *output = &a.tensors[node->n_inputs + out];
        if (input->kind != TD_DENSE || td_tensor_bytes(input) != td_tensor_bytes(output))
            continue;
        own_outputs(k, &a, node, run);
        if (input->data)
            memcpy(output->data, input->data, (size_t)td_tensor_bytes(input));
        input->data = output->data;
        a.call.scratch = scratch;
        a.call.scratch_bytes = scratch_bytes;
        case_graph_require(&k->g, td_cpu_engine_run(prepared, &a.call, k->teams[N_TEAMS - 1]));
        compare(k, node, output, &run->tensors[node->outputs[out]], !is_matrix_product(node));
        free_outputs(&a, node);
    }
    td_free(scratch);
}

static void check_node(const checker *k, const td_cpu_engine *engine, const td_node *node, const td_tensor *capacities)
{
    arguments a;
    td_cpu_prepared *prepared = NULL;
    size_t scratch_bytes = 0;
    char reason[128] = "";
    arguments_init(&a, node, capacities, capacities);
    if (!td_cpu_engine_supports(engine, &a.call, reason, sizeof reason))
        complain(k, node, reason, 0);
    case_graph_require(&k->g, td_cpu_engine_prepare(engine, &a.call, &prepared, &scratch_bytes));
    for (int run = 0; run < N_RUNS; run++) {
        check_at(k, node, prepared, scratch_bytes, k->runs[run]);
        check_in_place(k, node, prepared, scratch_bytes, k->runs[run]);
    }
    td_cpu_engine_release(prepared);
}

static void check_isa(checker *k, const td_tensor *capacities)
{
    td_cpu_engine engine;
    case_graph_require(&k->g, td_cpu_engine_init(&engine, td_backend_host(), TD_GEMM_TILES));
    engine.isa = k->isa;
    for (int64_t n = 0; n < k->g.graph->n_nodes; n++)
        check_node(k, &engine, &k->g.graph->nodes[n], capacities);
}

static td_status *(*find_reference(const char *op))(const td_kernel_call *call)
{
    return td_op_reference(op);
}

void kernel_check(const gradient_case *c)
{
    static const int64_t below[N_RUNS] = {0, 1, INT64_MAX};
    static const int32_t threads[N_TEAMS] = {1, 3};
    checker k = {.isa = TD_ISA_BASELINE};
    td_backend_set_reference(find_reference);
    case_graph_init(&k.g, c);
    td_tensor *capacities = td_calloc((size_t)k.g.graph->n_values, sizeof *capacities);
    assert_non_null(capacities);
    for (int32_t v = 0; v < k.g.graph->n_values; v++)
        td_value_tensor(k.g.graph, v, NULL, &capacities[v]);
    for (int i = 0; i < N_RUNS; i++) {
        k.runs[i] = case_graph_run(&k.g, below[i]);
        case_graph_require(&k.g, interpreter_run(k.runs[i]));
    }
    for (int i = 0; i < N_TEAMS; i++) {
        case_graph_require(&k.g, td_team_create(threads[i], NULL, 0, &k.teams[i]));
        td_team_allow_spinning(k.teams[i], false);
    }
    for (int isa = 0; isa < TD_ISA_COUNT; isa++) {
        k.isa = (td_isa)isa;
        if (td_isa_available(k.isa))
            check_isa(&k, capacities);
    }
    for (int i = 0; i < N_TEAMS; i++)
        td_team_destroy(k.teams[i]);
    for (int i = 0; i < N_RUNS; i++)
        interpreter_destroy(k.runs[i]);
    td_free(capacities);
    case_graph_deinit(&k.g);
}
