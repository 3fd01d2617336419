/* The text form of graphs: what it looks like, that it round-trips, that errors say where, and that no bytes break the
 * parser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"
#include "tests/base/check.h"

static const char small[] = "tdg 1\n"
                            "extent B<=2048\n"
                            "input x f32 [B<=2048, 13]\n"
                            "parameter fc.weight f32 [8, 13] uniform(-0.2773500981126146, 0.2773500981126146)\n"
                            "parameter fc.bias f32 [8] uniform(-0.2773500981126146, 0.2773500981126146) frozen\n"
                            "fc/linear = linear(x, fc.weight, fc.bias) -> f32 [B<=2048, 8]\n"
                            "fc/gelu = gelu(fc/linear) form=\"tanh\" on accel -> f32 [B<=2048, 8]\n"
                            "scalar factor f32 [1] = 0.1\n"
                            "fc/scale_by = scale_by(fc/gelu, factor) -> f32 [B<=2048, 8]\n"
                            "fc/reshape = reshape(fc/scale_by) shape=[2*B<=4096, 4] -> f32 [2*B<=4096, 4]\n"
                            "parts = split(fc/reshape) axis=1 outputs=2 -> f32 [2*B<=4096, 2], f32 [2*B<=4096, 2]\n"
                            "parts/add = add(parts, parts:1) -> f32 [2*B<=4096, 2]\n"
                            "output parts/add\n";

static td_graph *build_small(void)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_create(&graph));
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(td_extent(graph, "B", 2048), 13));
    td_value hidden = td_target(td_gelu(td_linear(x, 8, "fc"), true), "accel");
    (void)td_freeze(td_graph_find(graph, "fc.bias"));
    td_value scaled = td_scale_by(hidden, td_scalar(graph, "factor", TD_F32, 1, (double[]){0.1}));
    td_value parts[2];
    td_split(td_reshape(scaled, TD_SHAPE(-1, 4)), 1, 2, parts);
    (void)td_name(parts[0], "parts");
    td_output(td_add(parts[0], parts[1]));
    assert_ok(td_graph_check(graph));
    return graph;
}

/* A recommender with most kinds of ops, differentiated. */
static td_graph *build_large(void)
{
    td_graph *graph = NULL;
    int32_t *gradients = NULL;
    assert_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", 16);
    td_value dense = td_input(graph, "dense", TD_F32, TD_SHAPE(batch, 4)),
             label = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value ids = td_input_ragged(graph, "ids", TD_I64, batch, td_extent(graph, "N", 50));
    td_value one = td_input(graph, "one", TD_I32, TD_SHAPE(batch));
    td_value table = td_parameter(graph, "table.weight", TD_F32, TD_SHAPE(100, 4), td_init_uniform(0.1));
    td_value vectors[3] = {td_softmax(td_layer_norm(td_dropout(td_linear(dense, 4, "in"), 0.1), 1e-5, "norm")),
                           td_embedding_bag(table, ids, TD_MEAN), td_embedding(table, one, (td_embedding_options){0})};
    td_value pairs = td_transpose(td_reshape(vectors[1], TD_SHAPE(batch, 2, 2)), 3, (int32_t[]){0, 2, 1});
    td_value crossed = td_cross_layer(vectors[0], td_name(td_reshape(pairs, TD_SHAPE(batch, 4)), "flat"), "cross");
    td_value joined = td_concat(2, (td_value[]){td_dot_interaction(3, vectors), crossed}, 1);
    td_value logit = td_linear(td_relu(td_mul(joined, td_sigmoid(joined))), 1, "top");
    td_value loss = td_bce_with_logits(td_add(logit, td_reduce_sum(td_slice(joined, 1, 1, 2), 1, true)), label);
    td_value seed = td_scalar(graph, "seed", TD_F32, 1, (double[]){1});
    assert_ok(td_graph_differentiate(graph, loss, seed, &gradients));
    td_free(gradients);
    return graph;
}

static td_graph *parse(const char *text)
{
    td_graph *graph = NULL;
    assert_ok(td_graph_parse(text, strlen(text), "model.tdg", &graph));
    return graph;
}

static void assert_prints(const td_graph *graph, const char *wanted)
{
    char *text = NULL;
    assert_ok(td_graph_print(graph, &text));
    assert_string_equal(text, wanted);
    td_text_free(text);
}

static void test_print_writes_one_readable_line_per_node(void **state)
{
    (void)state;
    td_graph *graph = build_small();
    assert_prints(graph, small);
    td_graph_destroy(graph);
}

static void test_parse_gives_an_equal_graph(void **state)
{
    (void)state;
    td_graph *graph = parse(small);
    assert_prints(graph, small);
    assert_int_equal(td_value_dim(td_graph_find(graph, "fc/reshape"), 0), 4096);
    assert_true(graph->values[td_graph_find(graph, "fc.bias").id].frozen);
    assert_true(graph->values[td_graph_find(graph, "parts/add").id].is_output);
    assert_string_equal(graph->nodes[1].target, "accel");
    td_graph_destroy(graph);
}

/* By hand: comments, blanks, no stated types, defaults left out, a capacity said once. */
static void test_parse_takes_what_a_person_writes(void **state)
{
    (void)state;
    td_graph *graph = parse("# a model\n\ntdg 1   # the version\r\n"
                            "input x f32 [B<=4,3]\n"
                            "\tinput y f32 [ B , 3 ]\n"
                            "parameter w.1 f32 [3]\n");
    td_graph_destroy(graph);
    graph = parse("tdg 1\ninput x f32 [B<=4,3]\ninput ids ragged i64 [B] of N<=9\nparameter w f32 [3]\n"
                  "\"my node\"=mul(x,w)\nz = cast(\"my node\") dtype=\"bf16\"");
    assert_prints(graph, "tdg 1\nextent B<=4\nextent N<=9\ninput x f32 [B<=4, 3]\ninput ids ragged i64 [B<=4] of N<=9\n"
                         "parameter w f32 [3] constant(0)\n\"my node\" = mul(x, w) -> f32 [B<=4, 3]\n"
                         "z = cast(\"my node\") dtype=\"bf16\" -> bf16 [B<=4, 3]\n");
    td_graph_destroy(graph);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------------- */

static void test_numbers_keep_their_bits(void **state)
{
    (void)state;
    static const double numbers[] = {0.1,  -0.0,       1.0 / 3.0, 5e-324,   1.7976931348623157e308,
                                     1e23, 123456789., HUGE_VAL,  2.5e-300, -7.0};
    enum { N = sizeof numbers / sizeof *numbers };
    td_graph *graph = NULL;
    char *text = NULL;
    assert_ok(td_graph_create(&graph));
    (void)td_scalar(graph, "numbers", TD_F64, N, numbers);
    assert_ok(td_graph_print(graph, &text));
    td_graph *parsed = parse(text);
    assert_memory_equal(parsed->values[0].scalars, numbers, sizeof numbers);
    td_text_free(text);
    td_graph_destroy(graph);
    td_graph_destroy(parsed);
}

/* ---- errors -------------------------------------------------------------------------------------------------------------------- */

static void refuse(const char *text, const char *message)
{
    td_graph *graph = NULL;
    td_status *status = td_graph_parse(text, strlen(text), "m.tdg", &graph);
    assert_null(graph);
    assert_non_null(status);
    if (!strstr(td_status_message(status), message))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), message);
    td_status_destroy(status);
}

#define HEAD "tdg 1\ninput x f32 [B<=4, 3]\n"

static void test_errors_say_where(void **state)
{
    (void)state;
    refuse("", "m.tdg:1:1: there is no graph here");
    refuse("graph 1\n", "m.tdg:1:1: the first line of a graph's text is \"tdg 1\"");
    refuse("tdg 2\n", "m.tdg:1:1: this is version 2");
    refuse(HEAD "y = rely(x)\n", "m.tdg:3:5: there is no op \"rely\"; did you mean \"relu\"?");
    refuse(HEAD "y = relu(z)\n", "m.tdg:3:10: there is no value \"z\" above this line");
    refuse(HEAD "y = relu(z)\nw = relu(x)\nz = relu(w)\n",
           "m.tdg:3:10: \"z\" is made on line 5, below this one: move that line up");
    refuse(HEAD "a = add(x, c)\nb = relu(a)\nc = tanh(b)\n",
           "m.tdg:3:12: the graph has a cycle, each op feeds the next: \"a\" (line 3) -> \"b\" (line 4) -> \"c\" (line "
           "5) -> \"a\"; cut it at one of them");
    refuse(HEAD "a = relu(a)\n", "m.tdg:3:10: the graph has a cycle, each op feeds the next: \"a\" (line 3) -> \"a\"");
    refuse(HEAD "y = relu(x) -> f32 [B<=4, 2]\n", "m.tdg:3:15: output 0 of y is f32 [B<=4, 3], not f32 [B<=4, 2]");
    refuse(HEAD "y = relu(x) -> f32 [B<=5, 3]\n", "m.tdg:3:21: extent \"B\" has capacity 4 already, not 5");
    refuse(HEAD "y = relu(x) slope=2\n", "m.tdg:3:13: relu has no attribute \"slope\"");
    refuse(HEAD "y = scale(x)\n", "m.tdg:3:1: scale needs the attribute \"factor\"");
    refuse(HEAD "y = scale(x) factor=fast\n", "m.tdg:3:21: \"fast\" is not a number");
    refuse(HEAD "y = relu(x) relu\n", "m.tdg:3:13: found \"relu\", expected an attribute");
    refuse(HEAD "y = relu(x\n", "m.tdg:3:11: found the line's end, expected \")\"");
    refuse(HEAD "x = relu(x)\n", "m.tdg:3:1: \"x\" exists already");
    refuse(HEAD "input x f32 [3]\n", "m.tdg:3:7: two values are called \"x\"");
    refuse(HEAD "inptu z f32 [3]\n", "m.tdg:3:1: \"inptu\" begins no line (\"input\" does)");
    refuse(HEAD "input z f33 [3]\n", "m.tdg:3:9: \"f33\" is no type");
    refuse(HEAD "input z f32 [C]\n", "m.tdg:3:14: extent \"C\" has no capacity yet: write C<=N");
    refuse(HEAD "input z f32 [2*C<=5]\n", "m.tdg:3:14: 2*C+0 cannot have the capacity 5");
    refuse(HEAD "input z f32 [99999999999999999999]\n", "m.tdg:3:14: this number is beyond 64 bits");
    refuse(HEAD "input z f32 [1, 1, 1, 1, 1, 1, 1]\n", "a shape has at most 6 dimensions");
    refuse(HEAD "input z ragged i64 [2, 2] of 5\n", "m.tdg:3:19: a ragged value has one dimension");
    refuse(HEAD "parameter \"w f32 [3]\n", "m.tdg:3:11: this quote is not closed");
    refuse(HEAD "parameter w f32 [B<=4]\n", "m.tdg:3:11: \"w\": dimension 0 depends on extent \"B\"");
    refuse(HEAD "parameter w f32 [3] uniform(1)\n", "m.tdg:3:30: found ')', expected \",\"");
    refuse(HEAD "input z f32 [3] frozen\n", "m.tdg:3:17: td_freeze: \"z\" is not a parameter");
    refuse(HEAD "output z\n", "m.tdg:3:8: there is no value \"z\"");
    refuse(HEAD "scalar s f32 [2] = 1\n", "m.tdg:3:21: found the line's end, expected \",\"");
    refuse(HEAD "y, z = split(x) axis=1 outputs=3\n", "m.tdg:3:1: \"y\" begins no line");
    refuse(HEAD "y = split(x) axis=1 outputs=3 -> f32 [B<=4, 1]\n", "split has 3 outputs here, and 1 type is stated");
    refuse(HEAD "y = host_call(x) dtype=\"f32\" shape=[3]\n", "m.tdg:3:5: a host_call cannot be loaded from text");
    refuse(HEAD "y = matmul(x, x)\n", "m.tdg:3:1: matmul y: a is [B<=4, 3] and b is [B<=4, 3]");
    refuse(HEAD "\x01\n", "m.tdg:3:1: found byte 0x01, expected a name or a keyword");
}

static void test_host_calls_print_but_do_not_load(void **state)
{
    (void)state;
    td_graph *graph = NULL, *parsed = NULL;
    char *text = NULL;
    assert_ok(td_graph_create(&graph));
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(3));
    (void)td_host_call(graph, (td_host_function)(uintptr_t)16, NULL, 1, &x, TD_F32, TD_SHAPE(2), "mine");
    assert_ok(td_graph_print(graph, &text));
    assert_non_null(strstr(text, "mine = host_call(x) dtype=\"f32\" shape=[2] -> f32 [2]\n"));
    assert_error(td_graph_parse(text, strlen(text), "m.tdg", &parsed), TD_DATA_ERROR, "a host_call cannot be loaded");
    td_text_free(text);
    td_graph_destroy(graph);
}

/* ---- any bytes ------------------------------------------------------------------------------------------------------------------ */

static uint64_t random_state;
static uint64_t next_random(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static const char *const pieces[] = {
    "tdg 1\n",
    "input ",
    "parameter ",
    "scalar s f32 [1] = ",
    "extent ",
    " -> ",
    "f32 [",
    "B<=",
    "]",
    "[",
    "(",
    ")",
    ", ",
    " = ",
    "\"",
    "\\",
    "\\x41",
    "#",
    "\n",
    "9223372036854775807",
    "0",
    "-1",
    "nan",
    "1e999",
    "ragged i64 [3] of 7",
    "row_sparse f32 [4, 2] of 3",
    "y = concat(x, x) axis=0\n",
    "z = reshape(x) shape=[B, 13]\n",
    "w = split(x) axis=1 outputs=65536\n",
    "u = transpose(x) permutation=[1, 0]\n",
    "v = slice(x) axis=1 begin=9223372036854775807 size=2\n",
    "t = reduce_to(x) axes=[0, 1] drop=1\n",
    "on cpu",
    " backward of fc/gelu",
    "e = embedding_bag(fc.weight, ids)\n",
    "d = dot_interaction(x, x)\n",
    "n = layer_norm(x, fc.bias, fc.bias)\n",
    "9223372036854775807*B",
    "g = gather_gradient(x, x) shape=[0, 576460752303423488]\n",
    "a = adam(fc.weight, fc.weight, factor)\n",
    "4611686018427387904",
};

static const char *const numbers[] = {
    "0", "1", "2", "3", "4", "100", "4096", "576460752303423488", "9223372036854775807"};

/* One change: a byte, a number, a piece, a cut, a copied part. */
static size_t mutate(char *text, size_t length, size_t capacity)
{
    size_t at = length ? next_random(length) : 0, n;
    const char *piece;
    switch (next_random(6)) {
    case 0:
        if (length)
            text[at] = (char)next_random(256);
        return length;
    case 1:
        if (length)
            text[at] ^= (char)(1u << next_random(7));
        return length;
    case 2: /* cut */
        n = next_random(20);
        n = n < length - at ? n : length - at;
        memmove(text + at, text + at + n, length - at - n);
        return length - n;
    case 3: /* another number in place of one */
        while (at < length && (text[at] < '0' || text[at] > '9'))
            at++;
        for (n = at; n < length && text[n] >= '0' && text[n] <= '9';)
            n++;
        memmove(text + at, text + n, length - n);
        length -= n - at;
        piece = numbers[next_random(sizeof numbers / sizeof *numbers)];
        n = strlen(piece);
        break;
    case 4: /* piece */
        piece = pieces[next_random(sizeof pieces / sizeof *pieces)];
        n = strlen(piece);
        break;
    default: /* a part of the text again */
        n = next_random(80);
        n = n < length - at ? n : length - at;
        piece = text + at;
        at = length ? next_random(length) : 0;
    }
    char part[128];
    if (length + n > capacity || n > sizeof part)
        return length;
    memcpy(part, piece, n);
    memmove(text + at + n, text + at, length - at);
    memcpy(text + at, part, n);
    return length + n;
}

/* The text has no zero behind it, so reading beyond shows under the address sanitizer. */
static void parse_exactly(const char *text, size_t length)
{
    td_graph *graph = NULL, *again = NULL;
    char *copy = malloc(length ? length : 1), *first = NULL, *second = NULL;
    assert_non_null(copy);
    memcpy(copy, text, length);
    td_status *status = td_graph_parse(copy, length, "fuzz", &graph);
    free(copy);
    if (status) {
        assert_null(graph);
        assert_ptr_equal(strstr(td_status_message(status), "fuzz:"), td_status_message(status));
        td_status_destroy(status);
        return;
    }
    assert_ok(td_graph_print(graph, &first));
    assert_ok(td_graph_parse(first, strlen(first), "again", &again));
    assert_ok(td_graph_print(again, &second));
    assert_string_equal(first, second);
    td_text_free(first);
    td_text_free(second);
    td_graph_destroy(graph);
    td_graph_destroy(again);
}

static void test_no_bytes_break_the_parser(void **state)
{
    (void)state;
    enum { ROUNDS = 8000, CAPACITY = 32768 };
    static char text[CAPACITY];
    const char *chosen = getenv("TD_TEST_SEED");
    uint64_t seed = chosen ? strtoull(chosen, NULL, 0) : 1;
    char *large = NULL;
    td_graph *graph = build_large();
    assert_ok(td_graph_print(graph, &large));
    print_message("seed %llu (TD_TEST_SEED)\n", (unsigned long long)seed);
    random_state = seed;
    for (int round = 0; round < ROUNDS; round++) {
        const char *base = round % 2 ? large : small;
        size_t length = strlen(base);
        memcpy(text, base, length);
        for (uint64_t n = 1 + next_random(6); n > 0; n--)
            length = mutate(text, length, CAPACITY);
        parse_exactly(text, length);
    }
    td_text_free(large);
    td_graph_destroy(graph);
}

static void test_a_differentiated_graph_round_trips(void **state)
{
    (void)state;
    td_graph *graph = build_large();
    char *text = NULL;
    assert_ok(td_graph_print(graph, &text));
    td_graph *parsed = parse(text);
    assert_prints(parsed, text);
    for (int64_t i = 0; i < graph->n_values; i++)
        assert_int_equal(parsed->values[i].parameter, graph->values[i].parameter);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        assert_int_equal(parsed->nodes[i].phase, graph->nodes[i].phase);
        assert_int_equal(parsed->nodes[i].forward, graph->nodes[i].forward);
    }
    td_text_free(text);
    td_graph_destroy(graph);
    td_graph_destroy(parsed);
}

static void test_every_prefix_is_a_graph_or_an_error(void **state)
{
    (void)state;
    for (size_t length = 0; length < sizeof small; length++)
        parse_exactly(small, length);
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------- */

typedef struct trip {
    td_graph *graph;
    char *text;
} trip;

static td_status *there_and_back(void *context)
{
    trip *t = context;
    TD_TRY(td_graph_parse(small, sizeof small - 1, "m.tdg", &t->graph));
    td_status *status = td_graph_print(t->graph, &t->text);
    if (status)
        td_graph_destroy(t->graph);
    return status;
}

static void undo_trip(void *context)
{
    trip *t = context;
    td_text_free(t->text);
    td_graph_destroy(t->graph);
}

static void test_text_survives_every_allocation_failure(void **state)
{
    (void)state;
    trip t = {0};
    assert_true(assert_survives_allocation_failures(there_and_back, undo_trip, &t) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print_writes_one_readable_line_per_node),
        cmocka_unit_test(test_parse_gives_an_equal_graph),
        cmocka_unit_test(test_parse_takes_what_a_person_writes),
        cmocka_unit_test(test_a_differentiated_graph_round_trips),
        cmocka_unit_test(test_numbers_keep_their_bits),
        cmocka_unit_test(test_errors_say_where),
        cmocka_unit_test(test_host_calls_print_but_do_not_load),
        cmocka_unit_test(test_no_bytes_break_the_parser),
        cmocka_unit_test(test_every_prefix_is_a_graph_or_an_error),
        cmocka_unit_test(test_text_survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
