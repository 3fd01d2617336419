/* host_call: a user's function as an op, on the host. The function and its context live in the node (td_node); whoever runs
 * the graph calls it from there, so there is no reference kernel, and no gradient either. */
#include "graph/ops/rules.h"

static const td_attr_spec attrs[] = {
    {.name = "dtype", .type = TD_ATTR_STRING, .required = true, .help = "of the result"},
    {.name = "shape", .type = TD_ATTR_INTS, .required = true, .help = "of the result"},
    {0},
};

static td_status *infer(td_infer *infer)
{
    infer->outputs[0].kind = TD_DENSE;
    TD_TRY(td_infer_dtype_attr(infer, &infer->outputs[0].dtype));
    return td_infer_shape_attr(infer, &infer->outputs[0].shape);
}

const td_op td_op_host_call = {
    .name = "host_call",
    .summary = "a user's function",
    .inputs = {{"x", TD_PORT_VARIADIC | TD_PORT_OPTIONAL}},
    .outputs = {{"y", 0}},
    .attrs = attrs,
    .flags = TD_OP_HOST_ONLY,
    .infer = infer,
    .no_gradient = "the engine cannot look into a function",
};

td_value td_host_call(td_graph *graph, td_host_function function, void *context, int32_t n_inputs,
                      const td_value *inputs, td_dtype dtype, td_shape shape, const char *name)
{
    int64_t numbers[3 * TD_MAX_RANK];
    td_attr given[] = {TD_STRING("dtype", td_dtype_name(dtype)), td_shape_attr(&shape, numbers)};
    if (!function && !td_graph_failed(graph))
        td_graph_fail(graph, TD_ERROR(TD_INVALID_ARGUMENT, "host_call %s: no function given", name ? name : ""));
    td_value y = td_graph_add1(graph, "host_call", name, inputs, n_inputs, given, 2);
    if (y.id < 0)
        return y;
    td_node *node = &graph->nodes[graph->values[y.id].producer];
    node->host_function = function;
    node->host_context = context;
    return y;
}
