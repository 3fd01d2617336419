/* Pass: results that backward computes again instead of keeping them (train.recompute). The same ops on the same numbers, so the
 * same bits; what they made the first time is free as soon as forward has no more use for it.
 *
 * Ops that a pattern matches fall into segments: those that are connected and agree in the part of the name up to where the
 * pattern's first * ends ("h.*" makes "h.0" of h.0.ln1 and h.0.up/gelu). What another segment reads is kept, or one would lead to
 * the next; what backward reads of the rest gets a copy of its op, named "<op>/again", and of all that leads to it within the
 * segment:
 *
 *     x -> a -> b -> y          x kept; backward of b reads a, so:         x -> a/again -> backward of b
 *          \____ segment                                                       ^ after the gradient of y
 *
 * Nothing but data would keep a copy from running at once, which would gain nothing. So each waits (td_node.after) for the
 * gradient that the first backward op of its segment reads, first in topological order. No cycle can come of it: that gradient
 * comes before every backward op that reads the segment, in an order that has all edges there were.
 *
 * Never computed again: lookups (their rows may have changed places by then), ops that write state, host functions, and views of
 * what is kept. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "partition/plan.h"

enum { NO_SEGMENT = -1 };

typedef struct recomputing {
    td_plan *plan;
    td_graph *graph;
    const td_option_list *rules;
    int64_t n_nodes, n_values; /* of the graph as it was */
    int32_t *order;
    int32_t *segment;    /* of each node: one of its nodes, or NO_SEGMENT */
    td_name_map by_name; /* rule and name to what the ops of it have in `segment` at first */
    char **names;
    int64_t n_names, names_capacity;
    bool *kept;   /* of each value */
    bool *wanted; /* of each value: backward reads it, or what is computed again does */
    bool *again;  /* of each node */
    /* of each segment, at its node: the value that its copies wait for; -1: backward reads nothing of it */
    int32_t *gate;
    int32_t *copy; /* of each value: the one that is computed again, or itself */
} recomputing;

/* ---- segments ----------------------------------------------------------------------------------------------------------------- */

static bool ends_component(char c)
{
    return c == '.' || c == '/' || c == '\0';
}

/* How much of a name that the pattern matches is the name of its segment: up to the end of the component with the first *. */
static size_t segment_length(const char *pattern, const char *name)
{
    size_t length = strcspn(pattern, "*?");
    if (!pattern[length])
        return strlen(name);
    while (!ends_component(name[length]))
        length++;
    return length;
}

/* Rules are kept apart, so that no pattern tears another one's segments. */
static td_status *number_name(recomputing *r, int64_t rule, const char *name, int32_t *out_number)
{
    char *key = td_format("%lld:%.*s", (long long)rule, (int)segment_length(r->rules->items[rule].match, name), name);
    if (!key)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the segments of train.recompute");
    *out_number = td_name_map_get(&r->by_name, key);
    td_status *status = NULL;
    if (*out_number < 0)
        status = td_grow(&r->names, &r->names_capacity, r->n_names, sizeof *r->names);
    if (*out_number >= 0 || status) {
        td_free(key);
        return status;
    }
    *out_number = (int32_t)r->n_names;
    r->names[r->n_names++] = key;
    return td_name_map_put(&r->by_name, key, *out_number);
}

static bool writes_state(const td_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (td_node_writes(node, i))
            return true;
    return false;
}

static bool may_run_again(const td_node *node)
{
    return !td_op_is_lookup(node->op) && !node->host_function && !writes_state(node);
}

static td_status *refuse_idle_rule(const recomputing *r, const char *pattern)
{
    char meant[TD_MEANT];
    return TD_ERROR(TD_INVALID_ARGUMENT, "train.recompute: \"%s\" matches no op%s", pattern,
                    td_meant(meant, pattern, td_plan_nearest_name(r->graph, pattern)));
}

static td_status *match_rules(recomputing *r)
{
    for (int64_t n = 0; n < r->n_nodes; n++)
        r->segment[n] = NO_SEGMENT;
    for (int64_t rule = 0; rule < r->rules->n; rule++) {
        const char *pattern = r->rules->items[rule].match;
        bool idle = true;
        for (int64_t n = 0; n < r->n_nodes; n++) {
            const td_node *node = &r->graph->nodes[n];
            if (node->phase != TD_FORWARD || !td_glob_match(pattern, node->name))
                continue;
            idle = false;
            if (r->segment[n] == NO_SEGMENT && may_run_again(node))
                TD_TRY(number_name(r, rule, node->name, &r->segment[n]));
        }
        if (idle)
            return refuse_idle_rule(r, pattern);
    }
    return NULL;
}

static int32_t top_of(int32_t *above, int32_t node)
{
    while (above[node] != node) {
        above[node] = above[above[node]];
        node = above[node];
    }
    return node;
}

/* What the rules' names have together, cut into what is connected; `above`: room for a number per node. */
static void connect(recomputing *r, int32_t *above)
{
    const td_graph *graph = r->graph;
    for (int32_t n = 0; n < r->n_nodes; n++)
        above[n] = n;
    for (int64_t k = 0; k < r->n_nodes; k++) {
        const td_node *node = &graph->nodes[r->order[k]];
        for (int32_t i = 0; i < node->n_inputs; i++) {
            int32_t producer = node->inputs[i] < 0 ? -1 : graph->values[node->inputs[i]].producer;
            if (producer >= 0 && r->segment[producer] == r->segment[r->order[k]])
                above[top_of(above, r->order[k])] = top_of(above, producer);
        }
    }
    for (int32_t n = 0; n < r->n_nodes; n++)
        r->segment[n] = r->segment[n] == NO_SEGMENT ? NO_SEGMENT : top_of(above, n);
}

/* ---- what is kept, what is wanted ------------------------------------------------------------------------------------------------ */

static int32_t segment_of(const recomputing *r, int32_t value)
{
    int32_t producer = r->graph->values[value].producer;
    return producer < 0 ? NO_SEGMENT : r->segment[producer];
}

static void find_kept(recomputing *r)
{
    const td_graph *graph = r->graph;
    for (int32_t v = 0; v < r->n_values; v++)
        r->kept[v] = segment_of(r, v) == NO_SEGMENT || graph->values[v].is_output;
    for (int32_t i = 0; i < r->plan->n_outputs; i++)
        r->kept[r->plan->outputs[i]] = true;
    r->kept[r->plan->loss] = true;
    for (int64_t n = 0; n < r->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        for (int32_t i = 0; node->phase == TD_FORWARD && i < node->n_inputs; i++)
            if (node->inputs[i] >= 0 && r->segment[n] != NO_SEGMENT && segment_of(r, node->inputs[i]) != r->segment[n])
                r->kept[node->inputs[i]] = true;
    }
    for (int64_t k = 0; k < r->n_nodes; k++) { /* a view costs nothing while the memory behind it is kept */
        const td_node *node = &graph->nodes[r->order[k]];
        if (node->op->flags & TD_OP_VIEW && r->kept[node->inputs[0]])
            r->kept[node->outputs[0]] = true;
    }
}

/* The gradient that a backward node reads, else the loss, which all of backward follows. */
static int32_t gradient_of(const recomputing *r, const td_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        int32_t producer = node->inputs[i] < 0 ? -1 : r->graph->values[node->inputs[i]].producer;
        if (producer >= 0 && r->graph->nodes[producer].phase == TD_BACKWARD)
            return node->inputs[i];
    }
    return r->plan->loss;
}

static void want_for_backward(recomputing *r)
{
    for (int64_t k = 0; k < r->n_nodes; k++) {
        const td_node *node = &r->graph->nodes[r->order[k]];
        for (int32_t i = 0; node->phase == TD_BACKWARD && i < node->n_inputs; i++) {
            int32_t value = node->inputs[i];
            if (value < 0 || r->kept[value])
                continue;
            r->wanted[value] = true;
            int32_t *gate = &r->gate[segment_of(r, value)];
            *gate = *gate < 0 ? gradient_of(r, node) : *gate;
        }
    }
}

/* From the last op to the first: what is computed again wants its inputs. */
static void find_again(recomputing *r)
{
    for (int64_t k = r->n_nodes - 1; k >= 0; k--) {
        int32_t id = r->order[k];
        const td_node *node = &r->graph->nodes[id];
        for (int32_t i = 0; r->segment[id] != NO_SEGMENT && i < node->n_outputs; i++)
            r->again[id] = r->again[id] || r->wanted[node->outputs[i]];
        for (int32_t i = 0; r->again[id] && i < node->n_inputs; i++)
            if (node->inputs[i] >= 0 && !r->kept[node->inputs[i]])
                r->wanted[node->inputs[i]] = true;
    }
}

/* ---- copies --------------------------------------------------------------------------------------------------------------------- */

/* The attributes of the copy: a mask that follows from the node's name follows from the same one. */
static int32_t copy_attrs(const td_node *node, td_attr *out)
{
    int32_t n = node->n_attrs;
    memcpy(out, node->attrs, (size_t)n * sizeof *out);
    if (node->op->flags & TD_OP_NAMED && !td_attr_find(node->attrs, n, "forward"))
        out[n++] = TD_STRING("forward", node->name);
    return n;
}

static td_status *add_copy(recomputing *r, int32_t id, td_value *inputs, td_value *outputs, td_attr *attrs)
{
    td_graph *graph = r->graph;
    const td_node node = graph->nodes[id]; /* adding moves the array */
    char *name = td_format("%s/again", node.name);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for computing \"%s\" again", node.name);
    for (int32_t i = 0; i < node.n_inputs; i++)
        inputs[i] = (td_value){graph, node.inputs[i] < 0 ? -1 : r->copy[node.inputs[i]]};
    graph->differentiating = id;
    td_graph_add(graph, node.op->name, name, inputs, node.n_inputs, attrs, copy_attrs(&node, attrs), outputs,
                 node.n_outputs);
    graph->differentiating = -1;
    td_free(name);
    if (graph->failed)
        return td_graph_check(graph);
    graph->nodes[graph->n_nodes - 1].after = r->gate[r->segment[id]];
    for (int32_t i = 0; i < node.n_outputs; i++) {
        td_value_info *copy = &graph->values[outputs[i].id], *original = &graph->values[node.outputs[i]];
        copy->class = original->class;
        copy->dtype = original->dtype; /* a pass may have made it another than the op's rule says */
        r->copy[node.outputs[i]] = r->kept[node.outputs[i]] ? node.outputs[i] : outputs[i].id;
    }
    r->plan->n_recomputed++;
    return NULL;
}

static td_status *copy_node(recomputing *r, int32_t id)
{
    const td_node *node = &r->graph->nodes[id];
    td_value *inputs = NULL, *outputs = NULL;
    td_attr *attrs = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, done, TD_NEW(inputs, node->n_inputs + 1));
    TD_TRY_OR(status, done, TD_NEW(outputs, node->n_outputs + 1));
    TD_TRY_OR(status, done, TD_NEW(attrs, node->n_attrs + 1));
    status = add_copy(r, id, inputs, outputs, attrs);
done:
    td_free(inputs);
    td_free(outputs);
    td_free(attrs);
    return status;
}

static td_status *copy_all(recomputing *r)
{
    for (int32_t v = 0; v < r->n_values; v++)
        r->copy[v] = v;
    for (int64_t k = 0; k < r->n_nodes; k++)
        if (r->again[r->order[k]])
            TD_TRY(copy_node(r, r->order[k]));
    for (int64_t n = 0; n < r->n_nodes; n++) {
        td_node *node = &r->graph->nodes[n];
        for (int32_t i = 0; node->phase == TD_BACKWARD && i < node->n_inputs; i++)
            node->inputs[i] = node->inputs[i] < 0 ? -1 : r->copy[node->inputs[i]];
    }
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------- */

static td_status *prepare(recomputing *r)
{
    TD_TRY(TD_NEW(r->segment, r->n_nodes + 1));
    TD_TRY(TD_NEW(r->again, r->n_nodes + 1));
    TD_TRY(TD_NEW(r->kept, r->n_values + 1));
    TD_TRY(TD_NEW(r->wanted, r->n_values + 1));
    TD_TRY(TD_NEW(r->copy, r->n_values + 1));
    TD_TRY(td_graph_order(r->graph, &r->order));
    TD_TRY(TD_NEW(r->gate, r->n_nodes + 1));
    TD_TRY(match_rules(r));
    connect(r, r->gate);
    memset(r->gate, 0xff, ((size_t)r->n_nodes + 1) * sizeof *r->gate);
    return NULL;
}

td_status *td_pass_recompute(td_plan *plan, const td_plan_request *request)
{
    td_graph *graph = plan->graph;
    recomputing r = {.plan = plan,
                     .graph = graph,
                     .rules = &request->options->recompute,
                     .n_nodes = graph->n_nodes,
                     .n_values = graph->n_values};
    if (!plan->training || !r.rules->n)
        return NULL;
    td_status *status = prepare(&r);
    if (!status) {
        find_kept(&r);
        want_for_backward(&r);
        find_again(&r);
        graph->phase = TD_BACKWARD;
        status = copy_all(&r);
        graph->phase = TD_FORWARD;
    }
    td_name_map_deinit(&r.by_name);
    for (int64_t i = 0; i < r.n_names; i++)
        td_free(r.names[i]);
    td_free(r.names);
    td_free(r.order);
    td_free(r.segment);
    td_free(r.kept);
    td_free(r.wanted);
    td_free(r.again);
    td_free(r.gate);
    td_free(r.copy);
    return status;
}
