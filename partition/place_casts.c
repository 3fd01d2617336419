/* Where casts of mixed precision are made: part of the pass place.
 *
 * A cast to 16 bit is made where its input is, one to f32 where it is read, so that 16 bit cross between devices. Nobody's place depends
 * on a cast's: what reads a value through one reads it. Casts that have a target or a rule of their own are ops like all others. */
#include <string.h>

#include "base/memory.h"
#include "partition/place.h"

static bool is_narrow(td_dtype dtype)
{
    return dtype == TD_BF16 || dtype == TD_F16;
}

bool td_place_is_free_cast(const td_plan_request *request, const td_graph *graph, const td_node *node)
{
    if (strcmp(node->op->name, "cast") != 0 || node->phase != TD_FORWARD || node->target)
        return false;
    const td_option_entry *rule = td_place_rule_of(request, node->name);
    const td_dtype from = graph->values[node->inputs[0]].dtype, to = graph->values[node->outputs[0]].dtype;
    return ((from == TD_F32 && is_narrow(to)) || (to == TD_F32 && is_narrow(from))) &&
           !(rule && !strpbrk(rule->match, "*?"));
}

/* Among the readers of a value, a lookup decides before others, then the smallest name: never the creation order. */
static bool decides_before(const td_node *a, const td_node *b)
{
    bool lookup_a = td_op_is_lookup(a->op), lookup_b = td_op_is_lookup(b->op);
    return lookup_a != lookup_b ? lookup_a : strcmp(a->name, b->name) < 0;
}

static void offer_reader(const td_graph *graph, int32_t value, int32_t node, int32_t *reader)
{
    if (value >= 0 && node >= 0 &&
        (reader[value] < 0 || decides_before(&graph->nodes[node], &graph->nodes[reader[value]])))
        reader[value] = node;
}

void td_place_find_readers(const td_plan_request *request, const td_graph *graph, int32_t *reader)
{
    memset(reader, 0xff, (size_t)graph->n_values * sizeof *reader);
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        bool offers = node->phase == TD_FORWARD && !td_place_is_free_cast(request, graph, node);
        for (int32_t i = 0; offers && i < node->n_inputs; i++)
            offer_reader(graph, node->inputs[i], n, reader);
    }
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        if (td_place_is_free_cast(request, graph, node))
            offer_reader(graph, node->inputs[0], reader[node->outputs[0]], reader);
    }
}

td_status *td_place_cast_of_result(td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    const int32_t producer = plan->graph->values[node->inputs[0]].producer;
    if (producer < 0 || !is_narrow(plan->graph->values[node->outputs[0]].dtype))
        return NULL; /* later */
    return td_place_assign(plan, id, plan->nodes[producer].device, td_strdup("a cast to 16 bit, where its input is"));
}

td_status *td_place_casts(td_plan *plan, const td_plan_request *request, const int32_t *reader)
{
    const td_graph *graph = plan->graph;
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        if (plan->nodes[n].device >= 0 || !td_place_is_free_cast(request, graph, node))
            continue;
        const int32_t from = plan->values[node->inputs[0]].device, decider = reader[node->outputs[0]];
        if (is_narrow(graph->values[node->outputs[0]].dtype) || decider < 0)
            TD_TRY(
                td_place_assign(plan, n, from >= 0 ? from : plan->standard, td_strdup("a cast, where its input is")));
        else
            TD_TRY(td_place_assign(plan, n, plan->nodes[decider].device,
                                   td_strdup("a cast from 16 bit, where it is read")));
    }
    return NULL;
}
