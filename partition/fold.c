/* What the host does with the gradient of an offloaded parameter becomes one pass over memory: part of the pass offload.
 *
 *     gradient bf16 -> cast -> accumulate -> clip_gradient -> adamw           W -> cast bf16 (each forward)
 *     gradient bf16 -> update_mixed(W, gradient, sum, factor) -> W in bf16
 *
 * The update takes the gradient as it crossed, adds it to the sum of the window's earlier micro-batches, clips, updates and copies the
 * parameter out in 16 bit where all that read it are casts to that. In a window's last micro-batch the sum itself is left alone
 * (td_plan_node.before_last); the norm's squares, and the search for what is not finite, are of what the update will see. A rule that
 * is not elementwise keeps its own op, with a copy after it ("copy_out"). Nothing here changes a bit: each part of the pass rounds as the op that it stands for.
 *
 * What the workers of a job share (shard.h) is updated by its rule's op, which the other workers' stretches follow; then it is copied out.
 *
 * What is read elsewhere stays: a gradient that somebody else wants in f32 is still made. */
#include <string.h>

#include "base/memory.h"
#include "graph/ops/update_part.h"
#include "partition/offload.h"
#include "partition/shard.h"

typedef struct folding {
    td_plan *plan;
    td_graph *graph;
    td_folded *folded;
    int32_t *uses; /* of each value that there was: nodes that read it, and outputs */
    int32_t *look; /* of each such value: a node that looks at it before the update does, or -1; */
    int32_t *next; /* of that node: another one, or -1 */
} folding;

static td_status *no_memory(const char *name)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the update of \"%s\"", name);
}

static bool is_op(const td_node *node, const char *name)
{
    return strcmp(node->op->name, name) == 0;
}

static bool is_narrow(td_dtype dtype)
{
    return dtype == TD_BF16 || dtype == TD_F16;
}

static bool is_float(td_dtype dtype)
{
    return dtype == TD_F32 || is_narrow(dtype);
}

/* The node of op `op` that makes a value, or NULL. */
static td_node *maker(const folding *f, int32_t value, const char *op)
{
    int32_t producer = value < 0 ? -1 : f->graph->values[value].producer;
    td_node *node = producer < 0 ? NULL : &f->graph->nodes[producer];
    return node && is_op(node, op) ? node : NULL;
}

static td_status *find_uses(folding *f)
{
    const td_graph *graph = f->graph;
    TD_TRY(TD_NEW(f->uses, graph->n_values + 1));
    TD_TRY(TD_NEW(f->look, graph->n_values + 1));
    TD_TRY(TD_NEW(f->next, graph->n_nodes + 1));
    memset(f->look, 0xff, (size_t)graph->n_values * sizeof *f->look);
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                f->uses[node->inputs[i]]++;
        if (!is_op(node, "gradient_squares") && !is_op(node, "gradient_nonfinite"))
            continue;
        f->next[n] = f->look[node->inputs[0]];
        f->look[node->inputs[0]] = n;
    }
    for (int32_t i = 0; i < f->plan->n_outputs; i++)
        f->uses[f->plan->outputs[i]]++;
    return NULL;
}

/* ---- who reads a parameter in 16 bit --------------------------------------------------------------------------------------- */

/* Of each parameter on the host that casts to one 16-bit dtype alone read: that dtype; of the casts' results: the parameter. */
static void find_narrow(folding *f)
{
    const td_graph *graph = f->graph;
    td_folded *folded = f->folded;
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const td_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs && node->phase != TD_UPDATE; i++) {
            int32_t v = node->inputs[i];
            if (v < 0 || graph->values[v].class != TD_CLASS_PARAMETER ||
                !f->plan->sites[f->plan->values[v].device].is_host)
                continue;
            td_dtype to = node->n_outputs ? graph->values[node->outputs[0]].dtype : TD_F32;
            bool casts = is_op(node, "cast") && is_narrow(to) && graph->values[v].dtype == TD_F32 && !node->target &&
                         f->plan->nodes[n].device == f->plan->host;
            bool same = folded->dtype[v] == TD_DTYPE_COUNT || folded->dtype[v] == to;
            folded->dtype[v] = casts && same ? to : TD_F32;
            if (casts)
                folded->cast_of[node->outputs[0]] = v;
        }
    }
    for (int32_t v = 0; v < graph->n_values; v++) {
        int32_t of = folded->cast_of[v];
        if (folded->dtype[v] == TD_DTYPE_COUNT)
            folded->dtype[v] = TD_F32;
        if (of >= 0 && !is_narrow(folded->dtype[of]))
            folded->cast_of[v] = -1;
    }
}

/* ---- one update ------------------------------------------------------------------------------------------------------------ */

/* What the gradient of an update is made of. */
typedef struct chain {
    int32_t gradient, sum, micro, factor; /* values; sum, micro and factor may be -1 */
    int32_t whole;                        /* what is looked at before: the sum, or the gradient in f32 */
    int32_t accumulate;                   /* the node of the sum */
} chain;

/* Whether nobody reads a value but the update, or its clipping, and who looks at it before: then it need not be whole in memory. */
static bool is_for_update_alone(const folding *f, int32_t value)
{
    int32_t looks = 0;
    for (int32_t n = f->look[value]; n >= 0; n = f->next[n])
        looks++;
    return f->uses[value] == looks + 1;
}

/* A gradient in f32, or what it is in 16 bit before it is widened. */
static int32_t behind_cast(const folding *f, int32_t value)
{
    const td_node *cast = maker(f, value, "cast");
    return cast && is_narrow(f->graph->values[cast->inputs[0]].dtype) ? cast->inputs[0] : value;
}

static chain find_chain(const folding *f, const td_node *update)
{
    chain c = {.gradient = update->inputs[1], .sum = -1, .micro = -1, .factor = -1, .accumulate = -1};
    const td_node *clip = maker(f, c.gradient, "clip_gradient");
    if (clip && f->uses[c.gradient] == 1) {
        c.factor = clip->inputs[1];
        c.gradient = clip->inputs[0];
    }
    c.whole = c.gradient;
    const td_node *accumulate = maker(f, c.gradient, "accumulate");
    if (accumulate && is_for_update_alone(f, c.gradient)) {
        c.sum = c.gradient;
        c.micro = accumulate->inputs[1];
        c.accumulate = f->graph->values[c.gradient].producer;
        c.gradient = accumulate->inputs[0];
    }
    c.gradient = behind_cast(f, c.gradient);
    return c;
}

static td_status *widen_look(td_node *look, const chain *c)
{
    int32_t *inputs = NULL;
    if (c->sum < 0) {
        look->inputs[0] = c->gradient;
        return NULL;
    }
    TD_TRY(TD_NEW(inputs, 3));
    inputs[0] = c->gradient;
    inputs[1] = c->sum;
    inputs[2] = c->micro;
    td_free(look->inputs);
    look->inputs = inputs;
    look->n_inputs = 3;
    return NULL;
}

/* The other readers of what the update takes apart. */
static td_status *rewire(folding *f, const chain *c)
{
    for (int32_t n = f->look[c->whole]; c->whole != c->gradient && n >= 0; n = f->next[n])
        if (f->graph->nodes[n].inputs[0] == c->whole) /* not yet for another parameter */
            TD_TRY(widen_look(&f->graph->nodes[n], c));
    if (c->accumulate >= 0)
        f->plan->nodes[c->accumulate].before_last = true;
    td_node *sum = maker(f, c->whole, "accumulate");
    sum = sum ? sum : maker(f, c->whole, "accumulate_replicas");
    if (sum)
        sum->inputs[0] = behind_cast(f, sum->inputs[0]); /* it widens by itself */
    return NULL;
}

/* The node's name is free for another, and it touches nothing any more. */
static td_status *retire(folding *f, td_node *node)
{
    char *name = td_format("%s/apart", node->name);
    if (!name)
        return no_memory(node->name);
    td_name_map_remove(&f->graph->node_names, node->name);
    td_free(node->name);
    node->name = name;
    for (int32_t i = 0; i < node->n_inputs; i++)
        node->inputs[i] = -1;
    return td_name_map_put(&f->graph->node_names, name, (int32_t)(node - f->graph->nodes));
}

/* A node at the end of the graph takes over the place of node `from`. */
static td_status *place_like(folding *f, int32_t from)
{
    TD_TRY(td_plan_follow(f->plan));
    td_plan_node *to = &f->plan->nodes[f->graph->n_nodes - 1];
    td_node *node = &f->graph->nodes[f->graph->n_nodes - 1];
    node->delayed = f->graph->nodes[from].delayed;
    to->device = f->plan->nodes[from].device;
    to->lane = f->plan->nodes[from].lane;
    to->cause = td_strdup(f->plan->nodes[from].cause);
    for (int32_t i = 0; i < node->n_outputs; i++)
        f->plan->values[node->outputs[i]].device = to->device;
    return to->cause ? NULL : no_memory(node->name);
}

static void note_copy(folding *f, int32_t parameter, td_value copy)
{
    f->graph->values[copy.id].class = TD_CLASS_STAGING;
    f->graph->values[copy.id].parameter = parameter;
    f->folded->copy[parameter] = copy.id;
}

/* The rule's own op stays; its result is copied out after it. */
static td_status *copy_after(folding *f, int32_t parameter, td_dtype dtype, const char *cause)
{
    const td_value input = {f->graph, parameter};
    const td_attr attr = TD_STRING("dtype", td_dtype_name(dtype));
    char *name = td_format("%s/copy_out", f->graph->values[parameter].name);
    if (!name)
        return no_memory(f->graph->values[parameter].name);
    td_value copy = td_graph_add1(f->graph, "copy_out", name, &input, 1, &attr, 1);
    td_free(name);
    if (f->graph->failed)
        return td_graph_check(f->graph);
    TD_TRY(td_plan_follow(f->plan));
    td_plan_node *p = &f->plan->nodes[f->graph->n_nodes - 1];
    f->graph->nodes[f->graph->n_nodes - 1].delayed = f->graph->values[parameter].delayed;
    p->device = f->plan->values[copy.id].device = f->plan->host;
    p->lane = TD_QUEUE_COMPUTE;
    p->cause = td_strdup(cause);
    if (!p->cause)
        return no_memory(f->graph->values[parameter].name);
    note_copy(f, parameter, copy);
    return NULL;
}

static td_status *fold_update(folding *f, int32_t id, td_dtype dtype)
{
    td_graph *graph = f->graph;
    td_node *update = &graph->nodes[id];
    const chain c = find_chain(f, update);
    const int32_t parameter = update->inputs[0];
    const bool copies = is_narrow(dtype);
    td_value inputs[MIXED_INPUTS] = {{graph, parameter}, {graph, c.gradient}}, copy = TD_NO_VALUE;
    const int32_t others[] = {c.sum, c.micro, c.factor, update->inputs[2]};
    for (int32_t i = 0; i < 4; i++)
        inputs[MIXED_SUM + i] = (td_value){graph, others[i]};
    for (int32_t s = 0; s < TD_MAX_SLOTS; s++)
        inputs[MIXED_STATES + s] = (td_value){graph, 3 + s < update->n_inputs ? update->inputs[3 + s] : -1};
    const int64_t rounding = td_attr_int(update->attrs, update->n_attrs, "rounding", 0);
    const td_attr attrs[] = {TD_INTS("rounding", &rounding, 1), TD_STRING("rule", update->op->name),
                             TD_STRING("copy", copies ? td_dtype_name(dtype) : ""), TD_INT("outputs", copies)};
    char *name = td_strdup(update->name);
    if (!name)
        return no_memory(update->name);
    td_status *status = rewire(f, &c);
    if (!status)
        status = retire(f, update);
    if (!status) {
        f->folded->gone[id] = true;
        td_graph_add(graph, "update_mixed", name, inputs, MIXED_INPUTS, attrs, 4, &copy, copies);
        status = graph->failed ? td_graph_check(graph) : place_like(f, id);
    }
    td_free(name);
    if (!status && copies)
        note_copy(f, parameter, copy);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------ */

static td_status *fold_all(folding *f)
{
    const int64_t n_nodes = f->graph->n_nodes;
    for (int32_t n = 0; n < n_nodes; n++) {
        const td_node *node = &f->graph->nodes[n];
        const td_rule *rule = node->phase == TD_UPDATE ? td_rule_find(node->op->name) : NULL;
        int32_t parameter = rule ? node->inputs[0] : -1;
        if (parameter < 0 || !f->plan->values[parameter].offloaded || !is_float(f->graph->values[parameter].dtype))
            continue;
        td_dtype dtype = f->folded->dtype[parameter];
        if (td_plan_shard_of(f->plan, parameter))
            continue;
        if (td_rule_is_elementwise(rule))
            TD_TRY(fold_update(f, n, dtype));
        else if (is_narrow(dtype))
            TD_TRY(copy_after(f, parameter, dtype, f->plan->nodes[n].cause));
    }
    for (int32_t i = 0; i < f->plan->n_shards; i++) {
        const int32_t parameter = f->plan->shards[i].parameter;
        if (f->plan->values[parameter].offloaded && is_narrow(f->folded->dtype[parameter]))
            TD_TRY(copy_after(f, parameter, f->folded->dtype[parameter], "ps.shard_optimizer brings its shares here"));
    }
    return NULL;
}

td_status *td_fold_offloaded(td_plan *plan, td_folded *out)
{
    folding f = {.plan = plan, .graph = plan->graph, .folded = out};
    const int64_t n_values = plan->graph->n_values, n_nodes = plan->graph->n_nodes;
    TD_TRY(TD_NEW(out->dtype, n_values + 1));
    TD_TRY(TD_NEW(out->cast_of, n_values + 1));
    TD_TRY(TD_NEW(out->copy, n_values + 1));
    TD_TRY(TD_NEW(out->gone, n_nodes + 1));
    out->n_values = n_values;
    out->n_nodes = n_nodes;
    for (int64_t v = 0; v < n_values; v++) {
        out->dtype[v] = TD_DTYPE_COUNT;
        out->cast_of[v] = out->copy[v] = -1;
    }
    find_narrow(&f);
    if (!plan->training)
        return NULL;
    td_status *status = find_uses(&f);
    plan->graph->phase = TD_UPDATE;
    if (!status)
        status = fold_all(&f);
    plan->graph->phase = TD_FORWARD;
    td_free(f.uses);
    td_free(f.look);
    td_free(f.next);
    return status;
}

void td_folded_deinit(td_folded *folded)
{
    td_free(folded->dtype);
    td_free(folded->cast_of);
    td_free(folded->copy);
    td_free(folded->gone);
}
