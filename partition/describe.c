/* The dump of a plan after a pass: see describe.h. */
#include "partition/describe.h"

#include <inttypes.h>

#include "base/memory.h"
#include "base/string.h"
#include "partition/rewrite.h"

static const char *const phase_names[] = {"forward", "backward", "update"};
static const char *const lane_names[] = {"compute", "to_device", "to_host"};

static void describe_value(const td_plan *plan, int32_t value, td_string *text)
{
    const td_plan_value *v = &plan->values[value];
    char shape[200];
    td_string_format(text, " %s %s%s", plan->graph->values[value].name, td_dtype_name(plan->graph->values[value].dtype),
                     td_shape_text(plan->graph, &plan->graph->values[value].shape, shape, sizeof shape));
    if (!plan->sequence || v->device < 0)
        return;
    if (v->storage == TD_ARENA && v->block_bytes)
        td_string_format(text, "@%" PRId64 "+%" PRId64 "%s", v->offset, v->block_bytes, v->doubled ? "x2" : "");
    if (v->storage == TD_ALIAS)
        td_string_format(text, "=%s", plan->graph->values[v->root].name);
}

static void describe_node(const td_plan *plan, int32_t id, td_string *text)
{
    const td_node *node = &plan->graph->nodes[id];
    const td_plan_node *p = &plan->nodes[id];
    td_string_format(text, "%s %s %s", node->name, node->op->name, phase_names[node->phase]);
    if (p->device >= 0)
        td_string_format(text, " on %s/%s (%s)", plan->sites[p->device].name, lane_names[p->lane],
                         p->cause ? p->cause : "");
    if (p->cluster >= 0)
        td_string_format(text, " cluster %d.%d", p->cluster, p->position);
    td_string_append(text, " :");
    for (int32_t i = 0; i < node->n_inputs; i++)
        td_string_format(text, " %s", node->inputs[i] >= 0 ? plan->graph->values[node->inputs[i]].name : "-");
    td_string_append(text, " ->");
    for (int32_t i = 0; i < node->n_outputs; i++)
        describe_value(plan, node->outputs[i], text);
    td_string_append(text, "\n");
}

/* What the pass took away or turned. */
static void describe_rewrites(const td_plan *plan, int64_t first, td_string *text)
{
    for (int64_t i = first; i < plan->n_rewritten; i++) {
        const td_plan_rewritten *r = &plan->rewritten[i];
        td_string_format(text, "# %s: %s %s -> %s\n", td_rewrite_of(r->rule)->name, r->name, r->op->name, r->into);
    }
}

td_status *td_plan_describe_pass(const td_plan *plan, int64_t first_rewritten, char **out_text)
{
    td_string text = {0};
    int32_t *order = NULL;
    TD_TRY(td_graph_order(plan->graph, &order));
    describe_rewrites(plan, first_rewritten, &text);
    for (int64_t i = 0; i < plan->graph->n_nodes; i++)
        describe_node(plan, order[i], &text);
    td_free(order);
    return td_string_finish(&text, out_text);
}
