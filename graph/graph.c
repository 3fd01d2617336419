/* Building a graph: extents, sources, nodes and their names. See graph.h for what always holds and tandem/graph.h for the
 * builder's promises. Gradients are in differentiate.c, orders in order.c, the text form in text_*.c. */
#include "graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

td_status *td_graph_create(td_graph **out_graph)
{
    *out_graph = NULL;
    td_graph *graph = NULL;
    TD_TRY(TD_NEW(graph, 1));
    graph->differentiating = -1;
    graph->scope = td_strdup("");
    if (!graph->scope) {
        td_free(graph);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a graph");
    }
    *out_graph = graph;
    return NULL;
}

void td_node_deinit(td_node *node)
{
    for (int32_t i = 0; i < node->n_attrs; i++)
        td_attr_deinit(&node->attrs[i]);
    td_free(node->attrs);
    td_free(node->inputs);
    td_free(node->outputs);
    td_free(node->name);
    td_free(node->target);
}

void td_graph_destroy(td_graph *graph)
{
    if (!graph)
        return;
    for (int64_t i = 0; i < graph->n_nodes; i++)
        td_node_deinit(&graph->nodes[i]);
    for (int64_t i = 0; i < graph->n_values; i++) {
        td_free(graph->values[i].name);
        td_free(graph->values[i].scalars);
    }
    for (int64_t i = 0; i < graph->n_extents; i++)
        td_free(graph->extents[i].name);
    td_free(graph->nodes);
    td_free(graph->values);
    td_free(graph->extents);
    td_free(graph->scope);
    td_name_map_deinit(&graph->node_names);
    td_name_map_deinit(&graph->value_names);
    td_status_destroy(graph->error);
    td_free(graph);
}

void td_graph_fail(td_graph *graph, td_status *status)
{
    if (graph->failed || !status) {
        td_status_destroy(status);
        return;
    }
    graph->failed = true;
    graph->error = status;
}

bool td_graph_failed(const td_graph *graph)
{
    return graph->failed;
}

td_status *td_graph_check(td_graph *graph)
{
    if (graph->error) {
        td_status *error = graph->error;
        graph->error = NULL;
        return error;
    }
    if (graph->failed)
        return TD_ERROR(TD_INVALID_ARGUMENT, "the graph is unfinished: an earlier error stopped its building");
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const td_node *node = &graph->nodes[i];
        if (node->tied)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "two ops would be called \"%.*s\": name one of them with td_name or build it "
                            "in a scope of its own",
                            (int)strcspn(node->name, "#"), node->name);
    }
    int32_t *order = NULL;
    TD_TRY(td_graph_order(graph, &order));
    td_free(order);
    return NULL;
}

/* ---- dtypes, extents, shapes ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t bytes;
} dtypes[TD_DTYPE_COUNT] = {
    [TD_F32] = {"f32", 4}, [TD_F16] = {"f16", 2}, [TD_BF16] = {"bf16", 2}, [TD_I32] = {"i32", 4},
    [TD_I64] = {"i64", 8}, [TD_U8] = {"u8", 1},   [TD_BOOL] = {"bool", 1}, [TD_F64] = {"f64", 8}};

const char *td_dtype_name(td_dtype dtype)
{
    return (unsigned)dtype < TD_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

size_t td_dtype_bytes(td_dtype dtype)
{
    return (unsigned)dtype < TD_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

td_dim td_dim_constant(int64_t n)
{
    return (td_dim){-1, 0, n};
}

td_dim td_dim_self(td_dim dim)
{
    return dim;
}

td_shape td_shape_of(int32_t rank, const td_dim *dims)
{
    td_shape shape = {.rank = rank <= TD_MAX_RANK ? rank : TD_MAX_RANK};
    for (int32_t i = 0; i < shape.rank; i++)
        shape.dims[i] = dims[i];
    return shape;
}

static td_status *add_extent(td_graph *graph, const char *name, int64_t capacity, int32_t *out_index)
{
    for (int64_t i = 0; i < graph->n_extents; i++) {
        if (strcmp(graph->extents[i].name, name) != 0)
            continue;
        *out_index = (int32_t)i;
        if (graph->extents[i].capacity == capacity)
            return NULL;
        return TD_ERROR(TD_INVALID_ARGUMENT, "extent \"%s\" has capacity %" PRId64 " already, not %" PRId64, name,
                        graph->extents[i].capacity, capacity);
    }
    if (capacity < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "extent \"%s\": capacity %" PRId64 " is negative", name, capacity);
    if (!name[0])
        return TD_ERROR(TD_INVALID_ARGUMENT, "an extent needs a name");
    TD_TRY(td_grow(&graph->extents, &graph->extents_capacity, graph->n_extents, sizeof *graph->extents));
    char *copy = td_strdup(name);
    if (!copy)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for extent \"%s\"", name);
    graph->extents[graph->n_extents] = (td_extent_info){copy, capacity};
    *out_index = (int32_t)graph->n_extents++;
    return NULL;
}

td_dim td_extent(td_graph *graph, const char *name, int64_t capacity)
{
    int32_t index = 0;
    if (graph->failed)
        return td_dim_constant(1);
    td_graph_fail(graph, add_extent(graph, name, capacity, &index));
    return graph->failed ? td_dim_constant(1) : (td_dim){index, 1, 0};
}

int64_t td_dim_capacity(const td_graph *graph, td_dim dim)
{
    return dim.extent < 0 ? dim.constant : dim.multiple * graph->extents[dim.extent].capacity + dim.constant;
}

int64_t td_graph_extent_capacity(const td_graph *graph, td_dim dim)
{
    return td_dim_capacity(graph, dim);
}

int64_t td_dim_actual(td_dim dim, const int64_t *extents)
{
    return dim.extent < 0 ? dim.constant : dim.multiple * extents[dim.extent] + dim.constant;
}

void td_value_tensor(const td_graph *graph, int32_t value, const int64_t *extents, td_tensor *out_tensor)
{
    const td_value_info *info = &graph->values[value];
    *out_tensor = (td_tensor){.kind = info->kind, .dtype = info->dtype, .rank = info->shape.rank};
    for (int32_t i = 0; i < info->shape.rank; i++)
        out_tensor->dims[i] =
            extents ? td_dim_actual(info->shape.dims[i], extents) : td_dim_capacity(graph, info->shape.dims[i]);
    out_tensor->entries = extents ? td_dim_actual(info->entries, extents) : td_dim_capacity(graph, info->entries);
}

void td_value_bytes(const td_graph *graph, int32_t value, const int64_t *extents, int64_t out_bytes[3])
{
    td_tensor t;
    td_value_tensor(graph, value, extents, &t);
    int64_t total = td_tensor_bytes(&t);
    out_bytes[0] = total;
    out_bytes[1] = out_bytes[2] = 0;
    if (t.kind == TD_RAGGED)
        out_bytes[1] = (t.dims[0] + 1) * 8;
    if (t.kind == TD_ROW_SPARSE) {
        out_bytes[1] = t.entries * 8;
        out_bytes[2] = 8;
    }
    out_bytes[0] -= out_bytes[1] + out_bytes[2];
}

/* ---- sources -------------------------------------------------------------------------------------------------------------------- */

static td_status *check_shape(const td_graph *graph, const char *name, const td_shape *shape, bool constants_only)
{
    for (int32_t i = 0; i < shape->rank; i++) {
        td_dim dim = shape->dims[i];
        if (dim.extent >= graph->n_extents)
            return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\": dimension %d is an extent of another graph", name, i);
        if (constants_only && dim.extent >= 0)
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "\"%s\": dimension %d depends on extent \"%s\"; a parameter's are constants", name, i,
                            graph->extents[dim.extent].name);
        if (dim.constant < 0)
            return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\": dimension %d is %" PRId64 ", not a size", name, i,
                            dim.constant);
    }
    if (!td_shape_fits(graph, shape))
        return TD_ERROR(TD_INVALID_ARGUMENT, "\"%s\": more than 2^59 elements, or along one dimension", name);
    return NULL;
}

static td_status *check_name(const char *name)
{
    if (!name || !name[0])
        return TD_ERROR(TD_INVALID_ARGUMENT, "an input, parameter or op needs a name that is not empty");
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '"' || *c == 0x7f)
            return TD_ERROR(TD_INVALID_ARGUMENT, "name \"%s\": spaces, quotes and control characters are not allowed",
                            name);
    return NULL;
}

static td_status *append_value(td_graph *graph, char *name, const td_value_info *info, int32_t *out_id)
{
    if (td_name_map_get(&graph->value_names, name) >= 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "two values are called \"%s\": names are unique in a graph", name);
    TD_TRY(td_grow(&graph->values, &graph->values_capacity, graph->n_values, sizeof *graph->values));
    TD_TRY(td_name_map_put(&graph->value_names, name, (int32_t)graph->n_values));
    td_value_info *value = &graph->values[graph->n_values];
    *value = *info;
    value->name = name;
    *out_id = (int32_t)graph->n_values++;
    return NULL;
}

static td_status *add_source(td_graph *graph, td_value_info *info, const char *name, int32_t *out_id)
{
    TD_TRY(check_name(name));
    bool constants_only = info->class == TD_CLASS_PARAMETER || info->class == TD_CLASS_STATE;
    TD_TRY(check_shape(graph, name, &info->shape, constants_only));
    TD_TRY(check_shape(graph, name, &(td_shape){.rank = 1, .dims = {info->entries}}, constants_only));
    char *full = info->class == TD_CLASS_PARAMETER ? td_format("%s%s", graph->scope, name) : td_strdup(name);
    if (!full)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for \"%s\"", name);
    info->producer = -1;
    info->parameter = -1;
    td_status *status = append_value(graph, full, info, out_id);
    if (status)
        td_free(full);
    return status;
}

static td_value source(td_graph *graph, td_value_info info, const char *name)
{
    int32_t id = -1;
    if (graph->failed)
        return (td_value){graph, -1};
    td_graph_fail(graph, add_source(graph, &info, name, &id));
    return (td_value){graph, id};
}

td_value td_graph_add_source(td_graph *graph, td_class class, td_kind kind, const char *name, td_dtype dtype,
                             td_shape shape, td_dim entries)
{
    return source(
        graph, (td_value_info){.class = class, .kind = kind, .dtype = dtype, .shape = shape, .entries = entries}, name);
}

td_value td_input(td_graph *graph, const char *name, td_dtype dtype, td_shape shape)
{
    return td_graph_add_source(graph, TD_CLASS_INPUT, TD_DENSE, name, dtype, shape, td_dim_constant(0));
}

td_value td_input_ragged(td_graph *graph, const char *name, td_dtype dtype, td_dim bags, td_dim ids)
{
    return td_graph_add_source(graph, TD_CLASS_INPUT, TD_RAGGED, name, dtype, td_shape_of(1, &bags), ids);
}

td_value td_parameter(td_graph *graph, const char *name, td_dtype dtype, td_shape shape, td_initializer initial)
{
    td_value_info info = {.class = TD_CLASS_PARAMETER,
                          .kind = TD_DENSE,
                          .dtype = dtype,
                          .shape = shape,
                          .initial = initial,
                          .entries = td_dim_constant(0)};
    return source(graph, info, name);
}

td_value td_scalar(td_graph *graph, const char *name, td_dtype dtype, int32_t n, const double *initial)
{
    if (graph->failed)
        return (td_value){graph, -1};
    td_dim dim = td_dim_constant(n);
    td_value_info info = {.class = TD_CLASS_SCALAR,
                          .kind = TD_SCALAR,
                          .dtype = dtype,
                          .shape = td_shape_of(1, &dim),
                          .entries = td_dim_constant(0),
                          .n_scalars = n};
    info.scalars = td_calloc((size_t)n, sizeof *info.scalars);
    if (!info.scalars) {
        td_graph_fail(graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for scalar \"%s\"", name));
        return (td_value){graph, -1};
    }
    for (int32_t i = 0; initial && i < n; i++)
        info.scalars[i] = initial[i];
    td_value value = source(graph, info, name);
    if (value.id < 0)
        td_free(info.scalars);
    return value;
}

td_initializer td_init_constant(double value)
{
    return (td_initializer){TD_INIT_CONSTANT, value, 0};
}

td_initializer td_init_uniform(double bound)
{
    return (td_initializer){TD_INIT_UNIFORM, -bound, bound};
}

td_initializer td_init_normal(double mean, double deviation)
{
    return (td_initializer){TD_INIT_NORMAL, mean, deviation};
}

/* ---- looking ------------------------------------------------------------------------------------------------------------------------ */

td_value td_graph_find(td_graph *graph, const char *name)
{
    return (td_value){graph, td_name_map_get(&graph->value_names, name)};
}

static const td_value_info *info_of(td_value value)
{
    return value.graph && value.id >= 0 ? &value.graph->values[value.id] : NULL;
}

const char *td_value_name(td_value value)
{
    const td_value_info *info = info_of(value);
    return info ? info->name : "";
}

td_dtype td_value_dtype(td_value value)
{
    const td_value_info *info = info_of(value);
    return info ? info->dtype : TD_F32;
}

td_kind td_value_kind(td_value value)
{
    const td_value_info *info = info_of(value);
    return info ? info->kind : TD_NONE;
}

td_class td_value_class(td_value value)
{
    const td_value_info *info = info_of(value);
    return info ? info->class : TD_CLASS_ACTIVATION;
}

td_shape td_value_shape(td_value value)
{
    const td_value_info *info = info_of(value);
    return info ? info->shape : (td_shape){0};
}

int64_t td_value_dim(td_value value, int32_t axis)
{
    const td_value_info *info = info_of(value);
    if (!info)
        return 1; /* after an error: any size will do, nothing is built from it */
    int32_t at = axis < 0 ? axis + info->shape.rank : axis;
    return at < 0 || at >= info->shape.rank ? 1 : td_dim_capacity(value.graph, info->shape.dims[at]);
}

/* ---- marks ---------------------------------------------------------------------------------------------------------------------------- */

td_value td_freeze(td_value parameter)
{
    if (parameter.id < 0 || parameter.graph->failed)
        return parameter;
    td_value_info *info = &parameter.graph->values[parameter.id];
    if (info->class != TD_CLASS_PARAMETER)
        td_graph_fail(parameter.graph,
                      TD_ERROR(TD_INVALID_ARGUMENT, "td_freeze: \"%s\" is not a parameter", info->name));
    info->frozen = true;
    return parameter;
}

void td_output(td_value value)
{
    if (value.id >= 0)
        value.graph->values[value.id].is_output = true;
}

static td_node *producer_of(td_value value, const char *call)
{
    if (!value.graph || value.id < 0 || value.graph->failed)
        return NULL;
    const td_value_info *info = &value.graph->values[value.id];
    if (info->producer < 0)
        td_graph_fail(value.graph, TD_ERROR(TD_INVALID_ARGUMENT, "%s: no op makes \"%s\"", call, info->name));
    return info->producer < 0 ? NULL : &value.graph->nodes[info->producer];
}

td_value td_target(td_value value, const char *device)
{
    td_node *node = producer_of(value, "td_target");
    if (!node)
        return value;
    char *copy = device ? td_strdup(device) : NULL;
    if (device && !copy)
        td_graph_fail(value.graph, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the target of \"%s\"", node->name));
    td_free(node->target);
    node->target = copy;
    return value;
}

static char *output_name(const char *node, int32_t output)
{
    return output ? td_format("%s:%d", node, output) : td_strdup(node);
}

/* Gives the node and its outputs their new names in both maps. `name` is taken. */
static td_status *rename_node(td_graph *graph, int32_t id, char *name)
{
    td_node *node = &graph->nodes[id];
    td_name_map_remove(&graph->node_names, node->name);
    td_free(node->name);
    node->name = name;
    TD_TRY(td_name_map_put(&graph->node_names, name, id));
    for (int32_t i = 0; i < node->n_outputs; i++) {
        td_value_info *value = &graph->values[node->outputs[i]];
        char *renamed = output_name(name, i);
        if (!renamed)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the name \"%s\"", name);
        td_name_map_remove(&graph->value_names, value->name);
        td_free(value->name);
        value->name = renamed;
        if (td_name_map_get(&graph->value_names, renamed) >= 0)
            return TD_ERROR(TD_INVALID_ARGUMENT, "two values are called \"%s\": names are unique in a graph", renamed);
        TD_TRY(td_name_map_put(&graph->value_names, renamed, node->outputs[i]));
    }
    node->tied = false;
    return NULL;
}

td_value td_name(td_value value, const char *name)
{
    td_node *node = producer_of(value, "td_name");
    if (!node)
        return value;
    td_graph *graph = value.graph;
    td_status *status = check_name(name);
    char *full = status ? NULL : td_format("%s%s", graph->scope, name);
    if (!status && !full)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the name \"%s\"", name);
    if (!status && td_name_map_get(&graph->node_names, full) >= 0) {
        status = TD_ERROR(TD_INVALID_ARGUMENT, "two ops are called \"%s\": names are unique in a graph", full);
        td_free(full);
    } else if (!status) {
        status = rename_node(graph, (int32_t)(node - graph->nodes), full);
    }
    td_graph_fail(graph, status);
    return value;
}

void td_scope_push(td_graph *graph, const char *scope)
{
    if (graph->failed)
        return;
    td_status *status = check_name(scope);
    char *longer = status ? NULL : td_format("%s%s/", graph->scope, scope);
    if (longer) {
        td_free(graph->scope);
        graph->scope = longer;
        return;
    }
    td_graph_fail(graph, status ? status : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for scope \"%s\"", scope));
}

void td_scope_pop(td_graph *graph)
{
    size_t length = strlen(graph->scope);
    if (!length) {
        if (!graph->failed)
            td_graph_fail(graph, TD_ERROR(TD_INVALID_ARGUMENT, "td_scope_pop without td_scope_push"));
        return;
    }
    graph->scope[length - 1] = '\0';
    char *slash = strrchr(graph->scope, '/');
    *(slash ? slash + 1 : graph->scope) = '\0';
}
