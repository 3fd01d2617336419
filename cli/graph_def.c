/* A plan as a GraphDef, which TensorBoard's graph page opens and colours by device: see cli/collector.h. Field numbers are those of
 * TensorFlow's graph.proto, node_def.proto and attr_value.proto. */
#include <jansson.h>

#include "cli/collector.h"
#include "profiler/protobuf.h"

static void append_attribute(td_string *node, const char *key, const char *text)
{
    td_string value = {0}, entry = {0};
    td_pb_text(&value, 2, text);
    td_pb_text(&entry, 1, key);
    td_pb_message(&entry, 2, &value);
    td_pb_message(node, 5, &entry);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void append_op(td_string *graph, const json_t *subgraph, const json_t *op)
{
    td_string node = {0};
    size_t i;
    const json_t *input;
    td_pb_text(&node, 1, text_of(op, "name"));
    td_pb_text(&node, 2, text_of(op, "op"));
    json_array_foreach(json_object_get(op, "inputs"), i, input)
        td_pb_text(&node, 3, json_string_value(input) ? json_string_value(input) : "");
    td_pb_text(&node, 4, text_of(op, "device"));
    append_attribute(&node, "subgraph", text_of(subgraph, "name"));
    append_attribute(&node, "cause", text_of(op, "cause"));
    td_pb_message(graph, 1, &node);
}

/* Inputs and parameters are nodes there; each that some op reads, once, on that op's device. */
static td_status *append_leaves(td_string *graph, const json_t *plan, json_t *known)
{
    size_t i, k, n;
    const json_t *subgraph, *op, *input;
    json_array_foreach(json_object_get(plan, "subgraphs"), i, subgraph) json_array_foreach(
        json_object_get(subgraph, "ops"), k,
        op) if (json_object_set_new(known, text_of(op, "name"),
                                    json_true())) return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the graph");
    json_array_foreach(json_object_get(plan, "subgraphs"), i, subgraph)
        json_array_foreach(json_object_get(subgraph, "ops"), k, op)
            json_array_foreach(json_object_get(op, "inputs"), n, input)
    {
        const char *name = json_string_value(input);
        td_string node = {0};
        if (!name || json_object_get(known, name))
            continue;
        if (json_object_set_new(known, name, json_true()))
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the graph");
        td_pb_text(&node, 1, name);
        td_pb_text(&node, 2, "Placeholder");
        td_pb_text(&node, 4, text_of(op, "device"));
        td_pb_message(graph, 1, &node);
    }
    return NULL;
}

td_status *td_graph_def(const struct json_t *plan, char **out_bytes, size_t *out_n)
{
    enum { PRODUCER = 27 }; /* the version of the format before which readers apply old rules */
    td_string graph = {0}, versions = {0};
    size_t i, k;
    const json_t *subgraph, *op;
    json_array_foreach(json_object_get(plan, "subgraphs"), i, subgraph)
        json_array_foreach(json_object_get(subgraph, "ops"), k, op) append_op(&graph, subgraph, op);
    json_t *known = json_object();
    td_status *status =
        known ? append_leaves(&graph, plan, known) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the graph");
    json_decref(known);
    if (status) {
        td_string_deinit(&graph);
        return status;
    }
    td_pb_varint(&versions, 1, PRODUCER);
    td_pb_message(&graph, 4, &versions);
    *out_n = graph.length;
    return td_string_finish(&graph, out_bytes);
}
