/* A whole, independent copy of a graph: plans keep one, so that neither the user's graph nor a plan can change the other. */
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

static td_status *copy_text(const char *text, char **out)
{
    *out = text ? td_strdup(text) : NULL;
    return text && !*out ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory while copying a graph") : NULL;
}

static td_status *copy_array(const void *from, int64_t n, size_t size, void *out_pointer)
{
    void *copy = td_calloc((size_t)n + 1, size);
    if (!copy)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory while copying a graph");
    if (n)
        memcpy(copy, from, (size_t)n * size);
    memcpy(out_pointer, &copy, sizeof copy);
    return NULL;
}

/* `out` is zeroed and counted in the graph already, so td_graph_destroy frees what a failure leaves. */
static td_status *copy_node(td_node *out, const td_node *node)
{
    *out = *node;
    out->name = out->target = NULL;
    out->attrs = NULL;
    out->inputs = out->outputs = NULL;
    out->n_attrs = 0;
    TD_TRY(copy_text(node->name, &out->name));
    TD_TRY(copy_text(node->target, &out->target));
    TD_TRY(copy_array(node->inputs, node->n_inputs, sizeof *node->inputs, &out->inputs));
    TD_TRY(copy_array(node->outputs, node->n_outputs, sizeof *node->outputs, &out->outputs));
    TD_TRY(TD_NEW(out->attrs, node->n_attrs + 1));
    for (int32_t i = 0; i < node->n_attrs; i++) {
        out->n_attrs++;
        TD_TRY(td_attr_copy(&out->attrs[i], &node->attrs[i]));
    }
    return NULL;
}

static td_status *copy_values(td_graph *copy, const td_graph *graph)
{
    for (int64_t i = 0; i < graph->n_values; i++) {
        td_value_info *value = &copy->values[i];
        *value = graph->values[i];
        value->name = NULL;
        value->scalars = NULL;
        copy->n_values++;
        TD_TRY(copy_text(graph->values[i].name, &value->name));
        if (value->n_scalars)
            TD_TRY(copy_array(graph->values[i].scalars, value->n_scalars, sizeof *value->scalars, &value->scalars));
        TD_TRY(td_name_map_put(&copy->value_names, value->name, (int32_t)i));
    }
    return NULL;
}

static td_status *copy_all(td_graph *copy, const td_graph *graph)
{
    TD_TRY(TD_NEW(copy->extents, graph->n_extents + 1));
    TD_TRY(TD_NEW(copy->values, graph->n_values + 1));
    TD_TRY(TD_NEW(copy->nodes, graph->n_nodes + 1));
    copy->extents_capacity = graph->n_extents + 1;
    copy->values_capacity = graph->n_values + 1;
    copy->nodes_capacity = graph->n_nodes + 1;
    for (int64_t i = 0; i < graph->n_extents; i++) {
        TD_TRY(copy_text(graph->extents[i].name, &copy->extents[i].name));
        copy->extents[i].capacity = graph->extents[i].capacity;
        copy->n_extents++;
    }
    TD_TRY(copy_values(copy, graph));
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        copy->n_nodes++;
        TD_TRY(copy_node(&copy->nodes[i], &graph->nodes[i]));
        TD_TRY(td_name_map_put(&copy->node_names, copy->nodes[i].name, (int32_t)i));
    }
    copy->phase = graph->phase;
    return NULL;
}

td_status *td_graph_clone(const td_graph *graph, td_graph **out_graph)
{
    td_graph *copy = NULL;
    *out_graph = NULL;
    TD_TRY(td_graph_create(&copy));
    td_status *status = copy_all(copy, graph);
    if (status) {
        td_graph_destroy(copy);
        return status;
    }
    *out_graph = copy;
    return NULL;
}
