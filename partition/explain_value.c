/* Where a parameter and its optimizer state live, why, and which ops read and write them: the part of td_plan_explain about values.
 *
 *     table.3.weight (parameter f32[1000, 16], 62.5 KiB) lives on cpu
 *       because "table.3/bag" reads it there (rule "table.*" (dlrm.yaml:15) says so)
 *       its state, 125 KiB beside it: table.3.weight/m, table.3.weight/v
 *       read by table.3/bag
 *       written by table.0.weight/update_rows+25 */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "partition/explain.h"

/* "parameter f32[1000, 16], 62.5 KiB". */
static void describe(const td_plan *plan, int32_t value, td_string *text)
{
    static const char *const kinds[TD_CLASS_COUNT] = {
        [TD_CLASS_INPUT] = "input",       [TD_CLASS_PARAMETER] = "parameter",   [TD_CLASS_STATE] = "optimizer state",
        [TD_CLASS_SCALAR] = "numbers",    [TD_CLASS_CONSTANT] = "constant",     [TD_CLASS_REPLICA] = "replica",
        [TD_CLASS_GRADIENT] = "gradient", [TD_CLASS_ACTIVATION] = "activation", [TD_CLASS_STAGING] = "copy"};
    const td_value_info *info = &plan->graph->values[value];
    const int64_t held = td_explained_bytes(plan, value); /* of a served table nothing is here */
    char shape[200], bytes[TD_UNIT_TEXT];
    td_string_format(text, "%s (%s %s%s%s%s)", info->name, kinds[info->class], td_dtype_name(info->dtype),
                     td_shape_text(plan->graph, &info->shape, shape, sizeof shape), held ? ", " : "",
                     held ? td_format_bytes(bytes, (double)held) : "");
}

/* Whether an input of a node is the value, or a view of it. */
static bool touches(const td_plan *plan, const td_node *node, int32_t input, int32_t value)
{
    return node->inputs[input] >= 0 && td_graph_behind_views(plan->graph, node->inputs[input]) == value;
}

static void list_kind(const td_plan *plan, int32_t value, bool writers, const char *lead, td_string *text)
{
    td_listing l = {text, lead, 0};
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        bool any = false;
        for (int32_t i = 0; i < node->n_inputs && !(node->op->flags & TD_OP_VIEW); i++)
            any = any || (touches(plan, node, i, value) && td_node_writes(node, i) == writers);
        if (any)
            td_listing_add(&l, node->name);
    }
    td_listing_end(&l);
}

static void list_ops(const td_plan *plan, int32_t value, td_string *text)
{
    list_kind(plan, value, false, "  read by ", text);
    list_kind(plan, value, true, "  written by ", text);
}

/* The update of a parameter; NULL: this plan does not train it. */
static const td_plan_node *update_of(const td_plan *plan, int32_t parameter)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        for (int32_t i = 0; node->phase == TD_UPDATE && i < node->n_inputs; i++)
            if (touches(plan, node, i, parameter) && td_node_writes(node, i))
                return &plan->nodes[n];
    }
    return NULL;
}

static void explain_home(const td_plan *plan, int32_t parameter, td_string *text)
{
    const td_plan_value *value = &plan->values[parameter];
    const td_plan_node *update = value->offloaded ? update_of(plan, parameter) : NULL;
    const char *host = plan->sites[value->device].name;
    if (update)
        td_string_format(text, " lives on %s\n  because its update runs there (%s)\n  forward is on %s: %s\n", host,
                         update->cause, plan->sites[value->used_at].name, value->cause);
    else
        td_string_format(text, " lives on %s\n  because %s\n", host, value->cause);
}

static void list_states(const td_plan *plan, int32_t parameter, td_string *text)
{
    char lead[64], bytes[TD_UNIT_TEXT];
    int64_t all = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (plan->graph->values[v].class == TD_CLASS_STATE && plan->graph->values[v].parameter == parameter)
            all += td_explained_bytes(plan, v);
    snprintf(lead, sizeof lead, "  its state, %s beside it: ", td_format_bytes(bytes, (double)all));
    td_listing l = {text, lead, 0};
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (plan->graph->values[v].class == TD_CLASS_STATE && plan->graph->values[v].parameter == parameter)
            td_listing_add(&l, plan->graph->values[v].name);
    td_listing_end(&l);
}

/* What stands for a parameter, or a state, on other devices, with those that read it there. */
static void explain_replicas(const td_plan *plan, int32_t value, td_string *text)
{
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        if (plan->graph->values[v].class != TD_CLASS_REPLICA || plan->graph->values[v].parameter != value)
            continue;
        td_string_format(text, "  on %s: ", plan->sites[plan->values[v].device].name);
        describe(plan, v, text);
        td_string_append(text, "\n");
        list_kind(plan, v, false, "    read by ", text);
        list_kind(plan, v, true, "    written by ", text);
    }
}

static void explain_source(const td_plan *plan, int32_t value, td_string *text)
{
    const td_value_info *info = &plan->graph->values[value];
    const int32_t device = plan->values[value].device;
    if (info->served)
        td_string_append(text, " lives with its state in the servers of the job\n  because offload.embedding is ps\n");
    else if (info->class == TD_CLASS_PARAMETER)
        explain_home(plan, value, text);
    else if (info->class == TD_CLASS_INPUT)
        td_string_append(text, " comes with each batch, on the host\n");
    else if (info->class == TD_CLASS_SCALAR || device < 0)
        td_string_append(text, " is passed to each op that asks for it\n");
    else if (info->parameter >= 0)
        td_string_format(text, " lives on %s\n  because it belongs to %s (colocation)\n", plan->sites[device].name,
                         plan->graph->values[info->parameter].name);
    else
        td_string_format(text, " lives on %s\n", plan->sites[device].name);
}

void td_explain_value(const td_plan *plan, int32_t value, td_string *text)
{
    const int32_t producer = plan->graph->values[value].producer;
    describe(plan, value, text);
    if (producer >= 0)
        td_string_format(text, " is made by %s on %s\n", plan->graph->nodes[producer].name,
                         plan->sites[plan->nodes[producer].device].name);
    else
        explain_source(plan, value, text);
    list_states(plan, value, text);
    list_ops(plan, value, text);
    explain_replicas(plan, value, text);
}

bool td_explain_layer(const td_plan *plan, const char *layer, td_string *text)
{
    const size_t length = strlen(layer);
    bool any = false;
    for (int32_t v = 0; v < plan->graph->n_values && length; v++) {
        const td_value_info *info = &plan->graph->values[v];
        if (info->class != TD_CLASS_PARAMETER || strncmp(info->name, layer, length) != 0 || info->name[length] != '.')
            continue;
        td_explain_value(plan, v, text);
        any = true;
    }
    return any;
}
