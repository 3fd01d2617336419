/* .tdg: any bytes give a graph or an error with a place; a graph prints to text that parses to the same text. */
#include "tandem/graph.h"
#include "tandem/ops.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"->",        "input",   "parameter", "state",   "scalar",      "f32",
                                  "i64",       "bf16",    "u8",        "ragged ", "row_sparse ", " of ",
                                  "[B<=8, ",   "]",       "[",         "(",       ")",           "{",
                                  "}",         "=",       ", ",        "\n",      "linear(",     "relu(",
                                  "concat(",   "reshape", "embedding", "#",       "\"",          "x",
                                  "output",    "loss",    "target=",   "axis=",   "B<=4",        "4611686018427387904",
                                  "transpose", "true",    "false",     "\xff",    "extent",      "host_call",
                                  NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    td_graph *graph = NULL, *again = NULL;
    char *text = NULL, *same = NULL;
    td_status *status = td_graph_parse((const char *)data, size, "f.tdg", &graph);
    FUZZ_CHECK(!status == !!graph);
    if (status) {
        FUZZ_CHECK(strncmp(td_status_message(status), "f.tdg", 5) == 0);
        (void)fuzz_take(status);
        return 0;
    }
    fuzz_ok(td_graph_print(graph, &text));
    fuzz_ok(td_graph_parse(text, strlen(text), "again.tdg", &again));
    fuzz_ok(td_graph_print(again, &same));
    FUZZ_CHECK(strcmp(text, same) == 0);
    td_text_free(text);
    td_text_free(same);
    td_graph_destroy(graph);
    td_graph_destroy(again);
    return 0;
}

static td_value build(td_graph *graph, int index)
{
    td_dim batch = td_extent(graph, "B", 8);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, 4)), y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    if (index == 0)
        return td_mse(td_linear(x, 1, "top"), y);
    td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(batch));
    td_value bags = td_input_ragged(graph, "bags", TD_I64, batch, td_extent(graph, "N", 32));
    td_value table = td_parameter(graph, "table.weight", TD_F32, TD_SHAPE(100, 4), td_init_uniform(0.1));
    td_value parts[3] = {td_embedding(table, ids, (td_embedding_options){0}), td_embedding_bag(table, bags, TD_MEAN),
                         x};
    td_value pairs = td_dot_interaction(3, parts), hidden = td_relu(td_linear(td_concat(3, parts, 1), 8, "a.0"));
    td_value norm = td_layer_norm(td_dropout(td_target(hidden, "cpu"), 0.5), 1e-5, "norm");
    td_output(norm);
    td_value all = td_concat(2, (td_value[]){norm, td_reshape(pairs, TD_SHAPE(batch, -1))}, 1);
    return td_bce_with_logits(td_linear(td_softmax(all), 1, "top"), y);
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    td_graph *graph = NULL;
    char *text = NULL;
    if (index > 1)
        return 0;
    fuzz_ok(td_graph_create(&graph));
    (void)td_name(build(graph, index), "loss");
    fuzz_ok(td_graph_print(graph, &text));
    size_t size = strlen(text);
    FUZZ_CHECK(size < room);
    memcpy(buffer, text, size);
    td_text_free(text);
    td_graph_destroy(graph);
    return size;
}
