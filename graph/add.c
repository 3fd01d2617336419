/* Adding a node: ports and attributes are checked against the op's schema, defaults filled in, the name found, the outputs
 * inferred. Nothing of a node that fails stays in the graph but its error. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

/* A node in the making. */
typedef struct draft {
    td_graph *graph;
    const td_op *op;
    td_node node;
    td_type *inputs, *outputs;
} draft;

static void draft_deinit(draft *d)
{
    td_node_deinit(&d->node);
    td_free(d->inputs);
    td_free(d->outputs);
}

/* ---- schema ----------------------------------------------------------------------------------------------------------------- */

static int32_t count_ports(const td_port *ports, int32_t most)
{
    int32_t n = 0;
    while (n < most && ports[n].name)
        n++;
    return n;
}

/* What a value is a part of (partition/split.c), or itself: other views of a state are only read. */
static int32_t whole_of(const td_graph *graph, int32_t value)
{
    const int32_t producer = graph->values[value].producer;
    const bool part = producer >= 0 && strcmp(graph->nodes[producer].op->name, "part") == 0;
    return part ? graph->nodes[producer].inputs[0] : value;
}

static td_status *check_inputs(draft *d, const td_value *inputs, int32_t n_inputs)
{
    int32_t n_ports = count_ports(d->op->inputs, TD_MAX_PORTS);
    bool variadic = n_ports && d->op->inputs[n_ports - 1].flags & TD_PORT_VARIADIC;
    if (n_inputs > n_ports && !variadic)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s takes at most %d inputs, not %d", d->op->name, n_ports, n_inputs);
    TD_TRY(TD_NEW(d->node.inputs, n_inputs + 1));
    TD_TRY(TD_NEW(d->inputs, n_inputs + 1));
    d->node.n_inputs = n_inputs;
    for (int32_t i = 0; i < n_inputs || i < n_ports; i++) {
        const td_port *port = td_op_port(d->op, i);
        bool absent = i >= n_inputs || inputs[i].id < 0;
        if (absent && !(port->flags & TD_PORT_OPTIONAL))
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: input %d (%s) is missing", d->op->name, i, port->name);
        if (i >= n_inputs)
            continue;
        d->node.inputs[i] = absent ? -1 : inputs[i].id;
        if (absent)
            continue;
        if (inputs[i].graph != d->graph || inputs[i].id >= d->graph->n_values)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: input %d (%s) is a value of another graph", d->op->name, i,
                            port->name);
        const td_value_info *info = &d->graph->values[inputs[i].id];
        d->inputs[i] = (td_type){info->kind, info->dtype, info->shape, info->entries};
        const td_class class = d->graph->values[whole_of(d->graph, inputs[i].id)].class;
        bool state = class == TD_CLASS_PARAMETER || class == TD_CLASS_STATE || class == TD_CLASS_REPLICA;
        bool made = port->flags & TD_PORT_AFTER && info->producer >= 0; /* written again after its maker */
        if (port->flags & TD_PORT_WRITES && !state && !made)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "%s: input %d (%s) is written, so it must be a parameter or state, not \"%s\"", d->op->name,
                            i, port->name, info->name);
    }
    return NULL;
}

static const td_attr_spec *find_spec(const td_op *op, const char *key)
{
    for (const td_attr_spec *spec = op->attrs; spec && spec->name; spec++)
        if (strcmp(spec->name, key) == 0)
            return spec;
    return NULL;
}

static td_status *check_attr(const td_op *op, const td_attr *attr)
{
    static const char *const types[] = {"an integer", "a number", "a flag", "a string", "a list of integers"};
    const td_attr_spec *spec = find_spec(op, attr->key);
    if (!spec)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s has no attribute \"%s\" (tandem ops %s lists them)", op->name,
                        attr->key, op->name);
    if (spec->type != attr->type)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: attribute \"%s\" is %s", op->name, attr->key, types[spec->type]);
    return NULL;
}

static td_status *check_attrs(draft *d, const td_attr *attrs, int32_t n_attrs)
{
    int32_t n_specs = 0;
    while (d->op->attrs && d->op->attrs[n_specs].name)
        n_specs++;
    TD_TRY(TD_NEW(d->node.attrs, n_specs + n_attrs + 1));
    for (int32_t i = 0; i < n_attrs; i++) {
        TD_TRY(check_attr(d->op, &attrs[i]));
        if (td_attr_find(d->node.attrs, d->node.n_attrs, attrs[i].key))
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: attribute \"%s\" is given twice", d->op->name, attrs[i].key);
        TD_TRY(td_attr_copy(&d->node.attrs[d->node.n_attrs++], &attrs[i]));
    }
    for (int32_t i = 0; i < n_specs; i++) {
        const td_attr_spec *spec = &d->op->attrs[i];
        if (td_attr_find(d->node.attrs, d->node.n_attrs, spec->name))
            continue;
        if (spec->required)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s needs the attribute \"%s\": %s", d->op->name, spec->name,
                            spec->help ? spec->help : "");
        if (spec->type == TD_ATTR_STRING && !spec->s)
            continue;
        td_attr attr = {.key = spec->name, .type = spec->type, .i = spec->i, .f = spec->f, .s = spec->s};
        TD_TRY(td_attr_copy(&d->node.attrs[d->node.n_attrs++], &attr));
    }
    return NULL;
}

/* ---- names -------------------------------------------------------------------------------------------------------------------- */

/* "bottom.0/relu" after "bottom.0/linear"; "table.3/embedding_bag" after "table.3.weight"; "x/relu" after "x". */
static char *automatic_name(const draft *d)
{
    td_graph *graph = d->graph;
    if (graph->differentiating >= 0)
        return td_format("%s/%s", graph->nodes[graph->differentiating].name, d->op->name);
    const char *first = "";
    for (int32_t i = 0; i < d->node.n_inputs && !first[0]; i++)
        if (d->node.inputs[i] >= 0)
            first = graph->values[d->node.inputs[i]].name;
    size_t length = strlen(first), scope = strlen(graph->scope);
    const char *slash = strrchr(first, '/');
    static const char suffix[] = ".weight";
    if (slash)
        length = (size_t)(slash - first);
    else if (length >= sizeof suffix && strcmp(first + length - (sizeof suffix - 1), suffix) == 0)
        length -= sizeof suffix - 1;
    bool inside = scope && strncmp(first, graph->scope, scope) == 0;
    if (!length || (scope && !inside))
        return td_format("%s%s", graph->scope, d->op->name);
    return td_format("%.*s/%s", (int)length, first, d->op->name);
}

/* "base#i"; *out_taken: a node has that name. */
static td_status *numbered_name(const td_graph *graph, const char *base, int64_t i, char **out_name, bool *out_taken)
{
    *out_name = td_format("%s#%" PRId64, base, i);
    if (!*out_name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name");
    *out_taken = td_name_map_get(&graph->node_names, *out_name) >= 0;
    return NULL;
}

/* A free "base#i" whose predecessor is taken: the first, as numbers are given out in order. Found by doubling and halving, for
 * a sum over thousands of lookups has thousands of such names. */
static td_status *next_numbered_name(const td_graph *graph, const char *base, char **out_name)
{
    int64_t last_taken = 1, free = 2;
    bool taken = true;
    while (taken) {
        TD_TRY(numbered_name(graph, base, free, out_name, &taken));
        if (!taken)
            break;
        td_free(*out_name);
        *out_name = NULL;
        last_taken = free;
        free *= 2;
    }
    while (free - last_taken > 1) {
        int64_t middle = last_taken + (free - last_taken) / 2;
        char *name = NULL;
        td_status *status = numbered_name(graph, base, middle, &name, &taken);
        if (status || taken) {
            td_free(name);
            last_taken = middle;
        } else {
            td_free(*out_name);
            *out_name = name;
            free = middle;
        }
        TD_TRY(status);
    }
    return NULL;
}

static td_status *choose_name(draft *d, const char *name)
{
    td_graph *graph = d->graph;
    d->node.name = name ? td_format("%s%s", graph->differentiating >= 0 ? "" : graph->scope, name) : automatic_name(d);
    if (!d->node.name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name");
    if (td_name_map_get(&graph->node_names, d->node.name) < 0 && td_name_map_get(&graph->value_names, d->node.name) < 0)
        return NULL;
    if (name && graph->differentiating < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "two ops are called \"%s\": names are unique in a graph", d->node.name);
    char *base = d->node.name;
    d->node.name = NULL;
    td_status *status = next_numbered_name(graph, base, &d->node.name);
    td_free(base);
    d->node.tied = graph->differentiating < 0 && graph->phase == TD_FORWARD;
    return status;
}

/* ---- inference and adding --------------------------------------------------------------------------------------------------------- */

/* Its shape, and its entries: one number each where it is ragged, one row each where it is row-sparse. */
static bool fits(const td_graph *graph, const td_type *type)
{
    td_shape entries = type->kind == TD_ROW_SPARSE ? type->shape : (td_shape){.rank = 1};
    entries.dims[0] = type->entries;
    return td_shape_fits(graph, &type->shape) && td_shape_fits(graph, &entries);
}

static td_status *infer_outputs(draft *d, int32_t n_outputs)
{
    TD_TRY(TD_NEW(d->outputs, n_outputs + 1));
    TD_TRY(TD_NEW(d->node.outputs, n_outputs + 1));
    for (int32_t i = 0; i < n_outputs; i++)
        d->outputs[i].entries = td_dim_constant(0);
    td_infer infer = {.graph = d->graph,
                      .op = d->op->name,
                      .name = d->node.name,
                      .attrs = d->node.attrs,
                      .inputs = d->inputs,
                      .outputs = d->outputs,
                      .n_attrs = d->node.n_attrs,
                      .n_inputs = d->node.n_inputs,
                      .n_outputs = n_outputs};
    if (d->op->infer)
        TD_TRY(d->op->infer(&infer));
    for (int32_t i = 0; i < n_outputs; i++) {
        td_type *output = &d->outputs[i];
        if (output->kind != TD_RAGGED && output->kind != TD_ROW_SPARSE)
            output->entries = td_dim_constant(0); /* a rule that says nothing of them has left extent 0 */
        if (!fits(d->graph, output))
            return TD_SHAPE_ERROR(&infer, "output %d would have more than 2^59 elements, or along one dimension", i);
    }
    return NULL;
}

static const td_class phase_class[] = {TD_CLASS_ACTIVATION, TD_CLASS_GRADIENT, TD_CLASS_GRADIENT};

static td_status *add_output(draft *d, int32_t index, int32_t node_id, td_class class)
{
    td_graph *graph = d->graph;
    TD_TRY(td_grow(&graph->values, &graph->values_capacity, graph->n_values, sizeof *graph->values));
    char *name = index ? td_format("%s:%d", d->node.name, index) : td_strdup(d->node.name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for \"%s\"", d->node.name);
    td_status *status = NULL;
    if (td_name_map_get(&graph->value_names, name) >= 0)
        status = TD_ERROR(TD_INVALID_ARGUMENT, "two values are called \"%s\": names are unique in a graph", name);
    if (!status)
        status = td_name_map_put(&graph->value_names, name, (int32_t)graph->n_values);
    if (status) {
        td_free(name);
        return status;
    }
    const td_type *type = &d->outputs[index];
    graph->values[graph->n_values] = (td_value_info){.name = name,
                                                     .kind = type->kind,
                                                     .dtype = type->dtype,
                                                     .class = class,
                                                     .shape = type->shape,
                                                     .entries = type->entries,
                                                     .producer = node_id,
                                                     .output = index,
                                                     .parameter = -1};
    d->node.outputs[index] = (int32_t)graph->n_values++;
    d->node.n_outputs = index + 1;
    return NULL;
}

static td_status *commit(draft *d, int32_t n_outputs)
{
    td_graph *graph = d->graph;
    TD_TRY(td_grow(&graph->nodes, &graph->nodes_capacity, graph->n_nodes, sizeof *graph->nodes));
    int32_t id = (int32_t)graph->n_nodes;
    d->node.op = d->op;
    d->node.phase = graph->phase;
    d->node.forward = graph->differentiating;
    d->node.after = -1;
    int64_t values_before = graph->n_values;
    td_status *status = NULL;
    for (int32_t i = 0; i < n_outputs && !status; i++)
        status = add_output(d, i, id, phase_class[graph->phase]);
    if (!status)
        status = td_name_map_put(&graph->node_names, d->node.name, id);
    while (status && graph->n_values > values_before) {
        td_value_info *value = &graph->values[--graph->n_values];
        td_name_map_remove(&graph->value_names, value->name);
        td_free(value->name);
    }
    if (status)
        return status;
    graph->nodes[graph->n_nodes++] = d->node;
    d->node = (td_node){0};
    return NULL;
}

static td_status *add_node(draft *d, const char *op, const char *name, const td_value *inputs, int32_t n_inputs,
                           const td_attr *attrs, int32_t n_attrs, td_value *out_values, int32_t n_outputs)
{
    d->op = td_op_find(op);
    if (!d->op)
        return TD_ERROR(TD_NOT_FOUND, "there is no op \"%s\"; did you mean \"%s\"? (tandem ops lists them)", op,
                        td_op_nearest(op));
    TD_TRY(check_inputs(d, inputs, n_inputs));
    TD_TRY(check_attrs(d, attrs, n_attrs));
    TD_TRY(choose_name(d, name));
    TD_TRY(infer_outputs(d, n_outputs));
    TD_TRY(commit(d, n_outputs));
    const td_node *node = &d->graph->nodes[d->graph->n_nodes - 1];
    for (int32_t i = 0; i < n_outputs; i++)
        out_values[i] = (td_value){d->graph, node->outputs[i]};
    return NULL;
}

void td_graph_add(td_graph *graph, const char *op, const char *name, const td_value *inputs, int32_t n_inputs,
                  const td_attr *attrs, int32_t n_attrs, td_value *out_values, int32_t n_outputs)
{
    for (int32_t i = 0; i < n_outputs; i++)
        out_values[i] = (td_value){graph, -1};
    if (!graph || graph->failed)
        return;
    draft d = {.graph = graph};
    td_status *status = add_node(&d, op, name, inputs, n_inputs, attrs, n_attrs, out_values, n_outputs);
    draft_deinit(&d);
    td_graph_fail(graph, status);
}

td_value td_graph_add1(td_graph *graph, const char *op, const char *name, const td_value *inputs, int32_t n_inputs,
                       const td_attr *attrs, int32_t n_attrs)
{
    td_value value = TD_NO_VALUE;
    td_graph_add(graph, op, name, inputs, n_inputs, attrs, n_attrs, &value, 1);
    return value;
}
