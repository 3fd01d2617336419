/* Pass: every op, parameter and state gets a device, and keeps the cause.
 *
 * Precedence: the op's own primitive_target > name rule > what offload.* implies > colocation (a lookup goes where its table
 * is ruled to live; a parameter goes where it is read; state and update follow their parameter; a backward op follows the op
 * it differentiates; a cast to 16 bit is made where its input is, one to f32 where it is read, so that 16 bit cross between
 * devices) > capability > the default device. An unmarked op that the default device cannot run moves to the host
 * and is listed; a marked one is an error. Nothing here depends on the order in which nodes were made. */
#include <string.h>

#include "base/glob.h"
#include "base/memory.h"
#include "partition/place.h"

static td_status *set_cause(char **cause, char *text)
{
    td_free(*cause);
    *cause = text;
    return text ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a placement's cause");
}

static int32_t find(const td_plan *plan, const char *name)
{
    return td_plan_find_site(plan->sites, plan->n_sites, plan->host, plan->standard, name);
}

static td_status *unknown_device(const td_plan *plan, const char *who, const char *name)
{
    char *names = td_plan_site_names(plan->sites, plan->n_sites);
    td_status *status =
        TD_ERROR(TD_INVALID_ARGUMENT, "%s asks for device \"%s\"; there is: %s", who, name, names ? names : "");
    td_free(names);
    return status;
}

const td_option_entry *td_place_rule_of(const td_plan_request *request, const char *name)
{
    const td_option_list *rules = &request->options->placements;
    for (int64_t i = 0; i < rules->n; i++)
        if (td_glob_match(rules->items[i].match, name))
            return &rules->items[i];
    return NULL;
}

/* ---- choosing for forward ops ------------------------------------------------------------------------------------------------- */

typedef struct choice {
    int32_t site; /* -1: none yet */
    bool marked;  /* the user said so: a device that cannot run it is an error */
    char *cause;
} choice;

static td_status *choose(choice *c, int32_t site, bool marked, char *cause)
{
    c->site = site;
    c->marked = marked;
    return set_cause(&c->cause, cause);
}

static td_status *by_target(const td_plan *plan, const td_node *node, choice *c)
{
    if (!node->target)
        return NULL;
    int32_t site = find(plan, node->target);
    if (site < 0) {
        char *who = td_format("op \"%s\"", node->name);
        td_status *status = unknown_device(plan, who ? who : node->name, node->target);
        td_free(who);
        return status;
    }
    return choose(c, site, true, td_format("its primitive_target is \"%s\"", node->target));
}

static td_status *by_rule(const td_plan *plan, const td_plan_request *request, const char *name, const char *through,
                          choice *c)
{
    const td_option_entry *rule = td_place_rule_of(request, name);
    if (!rule)
        return NULL;
    return choose(c, find(plan, rule->value), true, td_format("%s%s says so", rule->cause, through));
}

/* The table of a lookup, or -1. */
static int32_t table_of(const td_graph *graph, const td_node *node)
{
    int32_t value = td_op_is_lookup(node->op) ? node->inputs[0] : -1;
    return value >= 0 && graph->values[value].class == TD_CLASS_PARAMETER ? value : -1;
}

static td_status *by_default(td_plan *plan, int32_t id, choice *c)
{
    const td_node *node = &plan->graph->nodes[id];
    bool supported = false;
    char reason[160] = "";
    if (node->op->flags & TD_OP_HOST_ONLY)
        return choose(
            c, plan->host, false,
            td_strdup(node->op->flags & TD_OP_REMOTE ? "it speaks with other ranks" : "it is a host function"));
    TD_TRY(td_plan_supports(plan->graph, &plan->sites[plan->standard], id, &supported, reason, sizeof reason));
    if (supported)
        return choose(c, plan->standard, false, td_strdup("default device"));
    plan->nodes[id].moved = true;
    return choose(c, plan->host, false, td_format("%s cannot run it: %s", plan->sites[plan->standard].name, reason));
}

/* A pattern that happens to match a host function does not mean it: only its own name would. */
static bool is_spared(const td_plan_request *request, const td_node *node)
{
    const td_option_entry *rule = td_place_rule_of(request, node->name);
    return rule && node->op->flags & TD_OP_HOST_ONLY && strpbrk(rule->match, "*?");
}

static td_status *choose_forward(td_plan *plan, const td_plan_request *request, int32_t id, choice *c)
{
    const td_graph *graph = plan->graph;
    const td_node *node = &graph->nodes[id];
    int32_t table = table_of(graph, node);
    TD_TRY(by_target(plan, node, c));
    if (c->site < 0 && !is_spared(request, node))
        TD_TRY(by_rule(plan, request, node->name, "", c));
    if (c->site < 0 && request->options->offload_embedding && td_op_is_lookup(node->op))
        TD_TRY(choose(c, plan->host, true, td_strdup("offload.embedding is cpu")));
    if (c->site < 0 && table >= 0) {
        TD_TRY(by_rule(plan, request, graph->values[table].name, " of its table", c));
        if (c->site < 0 && request->home) {
            int32_t home = request->home(request->home_context, graph->values[table].name);
            bool replica = request->replicated && home == plan->host &&
                           request->replicated(request->home_context, graph->values[table].name, plan->standard,
                                               graph->values[node->inputs[0]].dtype);
            if (home >= 0 && !replica)
                TD_TRY(choose(c, home, false, td_strdup("its table is there")));
        }
    }
    return c->site < 0 ? by_default(plan, id, c) : NULL;
}

static td_status *check_capable(td_plan *plan, int32_t id, const choice *c)
{
    const td_node *node = &plan->graph->nodes[id];
    bool supported = false;
    char reason[160] = "";
    TD_TRY(td_plan_supports(plan->graph, &plan->sites[c->site], id, &supported, reason, sizeof reason));
    if (supported || !c->marked)
        return NULL;
    td_status *status = TD_ERROR(TD_UNSUPPORTED, "%s \"%s\" cannot run on %s: %s; it is there because %s",
                                 node->op->name, node->name, plan->sites[c->site].name, reason, c->cause);
    return td_status_help(status, "try: a target or rule \"%s\" for it, or none: it then moves by itself",
                          plan->sites[plan->host].name);
}

td_status *td_place_assign(td_plan *plan, int32_t id, int32_t site, char *cause)
{
    plan->nodes[id].device = site;
    const td_node *node = &plan->graph->nodes[id];
    for (int32_t i = 0; i < node->n_outputs; i++)
        plan->values[node->outputs[i]].device = site;
    return set_cause(&plan->nodes[id].cause, cause);
}

static td_status *assign(td_plan *plan, int32_t id, choice *c)
{
    char *cause = c->cause;
    c->cause = NULL;
    return td_place_assign(plan, id, c->site, cause);
}

static td_status *place_forward(td_plan *plan, const td_plan_request *request, int32_t id)
{
    choice c = {.site = -1};
    td_status *status = choose_forward(plan, request, id, &c);
    if (!status)
        status = check_capable(plan, id, &c);
    if (!status)
        status = assign(plan, id, &c);
    td_free(c.cause);
    return status;
}

/* A view lives where its input does: it is no memory of its own. */
static void follow_view(td_plan *plan, int32_t id, choice *c)
{
    const td_node *node = &plan->graph->nodes[id];
    if (!(node->op->flags & TD_OP_VIEW) || node->target || node->inputs[0] < 0)
        return;
    int32_t producer = plan->graph->values[node->inputs[0]].producer;
    if (producer >= 0)
        c->site = plan->nodes[producer].device;
}

static td_status *place_view(td_plan *plan, const td_plan_request *request, int32_t id)
{
    choice c = {.site = -1};
    follow_view(plan, id, &c);
    if (c.site < 0)
        return place_forward(plan, request, id);
    td_status *status = choose(&c, c.site, false, td_strdup("a view, where its input is"));
    if (!status)
        status = assign(plan, id, &c);
    td_free(c.cause);
    return status;
}

/* ---- parameters ------------------------------------------------------------------------------------------------------------------ */

static td_status *put_parameter(td_plan *plan, int32_t value, int32_t site, char *cause)
{
    plan->values[value].device = site;
    return set_cause(&plan->values[value].cause, cause);
}

static td_status *place_parameter(td_plan *plan, const td_plan_request *request, int32_t value, int32_t reader)
{
    const char *name = plan->graph->values[value].name;
    const int32_t home = request->home ? request->home(request->home_context, name) : -1;
    const td_option_entry *rule = td_place_rule_of(request, name);
    if (home >= 0)
        return put_parameter(plan, value, home, td_strdup("the store has it there"));
    if (rule && (reader < 0 || !td_op_is_lookup(plan->graph->nodes[reader].op)))
        return put_parameter(plan, value, find(plan, rule->value), td_format("%s says so", rule->cause));
    if (reader >= 0)
        return put_parameter(
            plan, value, plan->nodes[reader].device,
            td_format("\"%s\" reads it there (%s)", plan->graph->nodes[reader].name, plan->nodes[reader].cause));
    return put_parameter(plan, value, plan->standard, td_strdup("default device"));
}

/* Sums of a parameter's gradients of one micro-batch are made where they are, so that one gradient crosses; sums over micro-batches,
 * and what clipping does, are made where the update is. */
static int32_t follow_parameter(const td_plan *plan, const td_node *node, int32_t parameter)
{
    bool beside = node->op->flags & TD_OP_KEEPS || strcmp(node->op->name, "gradient_squares") == 0 ||
                  strcmp(node->op->name, "clip_gradient") == 0;
    return plan->values[parameter].offloaded && !beside ? plan->values[parameter].used_at
                                                        : plan->values[parameter].device;
}

static td_status *place_sources(td_plan *plan, const td_plan_request *request, const int32_t *reader)
{
    const td_graph *graph = plan->graph;
    for (int32_t v = 0; v < graph->n_values; v++) {
        if (graph->values[v].class == TD_CLASS_PARAMETER)
            TD_TRY(place_parameter(plan, request, v, reader[v]));
        else if (graph->values[v].class == TD_CLASS_INPUT)
            plan->values[v].device = plan->host;
        else if (graph->values[v].class == TD_CLASS_SCALAR)
            plan->values[v].device = -1;
    }
    return NULL;
}

static td_status *place_sources_and_casts(td_plan *plan, const td_plan_request *request)
{
    int32_t *reader = NULL;
    TD_TRY(TD_NEW(reader, plan->graph->n_values + 1));
    td_place_find_readers(request, plan->graph, reader);
    td_status *status = place_sources(plan, request, reader);
    if (!status)
        status = td_place_offloaded(plan, request);
    if (!status)
        status = td_place_casts(plan, request, reader);
    td_free(reader);
    return status;
}

/* ---- backward and update -------------------------------------------------------------------------------------------------------- */

/* Where most flags are; where gradients are clipped, their sums meet with "clip" anyway. */
static int32_t flags_site(const td_plan *plan, const td_node *node)
{
    const int32_t clip = td_name_map_get(&plan->graph->node_names, "clip");
    int32_t best = plan->host, most = 0;
    if (plan->reports_norm && clip >= 0 && plan->nodes[clip].device >= 0)
        return plan->nodes[clip].device;
    for (int32_t site = 0; site < plan->n_sites; site++) {
        int32_t n = 0;
        for (int32_t i = 1; i < node->n_inputs; i++)
            n += plan->values[node->inputs[i]].device == site;
        if (n > most) {
            most = n;
            best = site;
        }
    }
    return best;
}

/* The cast of an offloaded parameter to 16 bit will be a replica: its gradients are summed where that is, and cross in 16 bit; the
 * parameter's own gradient is widened where the update is. -1: the node is no part of that. */
static int32_t beside_replica(const td_plan *plan, const td_node *node)
{
    const td_graph *graph = plan->graph;
    const td_node *cast = node->phase == TD_BACKWARD && node->forward >= 0 ? &graph->nodes[node->forward] : NULL;
    if (!cast || node->after >= 0 || strcmp(cast->op->name, "cast") != 0 || !plan->values[cast->inputs[0]].offloaded)
        return -1;
    const bool last = strcmp(node->op->name, "cast") == 0 && graph->values[node->outputs[0]].parameter >= 0;
    return last ? plan->host : plan->values[cast->inputs[0]].used_at;
}

static td_status *choose_follower(td_plan *plan, const td_plan_request *request, int32_t id, choice *c)
{
    const td_graph *graph = plan->graph;
    const td_node *node = &graph->nodes[id];
    if (node->phase == TD_UPDATE && node->n_inputs && node->inputs[0] >= 0) {
        int32_t parameter = node->inputs[0];
        if (plan->values[parameter].offloaded)
            return choose(c, plan->host, false, td_why_offloaded(plan, request, node));
        if (plan->values[parameter].split)
            return choose(c, plan->values[parameter].device, false,
                          td_format("offload.optimizer leaves its first %lld elements where it is read",
                                    (long long)plan->values[parameter].split));
        if (plan->values[parameter].kept)
            return choose(c, plan->values[parameter].device, false,
                          td_strdup("offload.optimizer leaves it where its parameter is read"));
        return choose(c, plan->values[parameter].device, false,
                      td_format("it updates \"%s\", which lives there (colocation)", graph->values[parameter].name));
    }
    const int32_t apart = beside_replica(plan, node);
    if (apart >= 0)
        return choose(c, apart, false, td_strdup("what reads the parameter in 16 bit is there"));
    if (strcmp(node->op->name, "first_overflow") == 0)
        return choose(c, flags_site(plan, node), false, td_strdup("most of what it looks at is there"));
    const td_option_entry *own = td_place_rule_of(request, node->name);
    if (node->forward >= 0 && own && own != td_place_rule_of(request, graph->nodes[node->forward].name))
        return by_rule(plan, request, node->name, "", c);
    if (node->forward >= 0 && node->after >= 0)
        return choose(c, plan->nodes[node->forward].device, false,
                      td_format("it computes \"%s\" again, which runs there (train.recompute)",
                                graph->nodes[node->forward].name));
    if (node->forward >= 0)
        return choose(
            c, plan->nodes[node->forward].device, false,
            td_format("it is the gradient of \"%s\", which runs there (colocation)", graph->nodes[node->forward].name));
    int32_t parameter = node->n_outputs ? graph->values[node->outputs[0]].parameter : -1;
    for (int32_t i = 0; parameter < 0 && i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && plan->values[node->inputs[i]].device >= 0)
            return choose(c, plan->values[node->inputs[i]].device, false, td_strdup("its first input is there"));
    return choose(c, parameter >= 0 ? follow_parameter(plan, node, parameter) : plan->standard, false,
                  td_strdup("its parameter lives there (colocation)"));
}

static td_status *place_follower(td_plan *plan, const td_plan_request *request, int32_t id)
{
    choice c = {.site = -1};
    bool supported = true;
    char reason[160] = "";
    td_status *status = choose_follower(plan, request, id, &c);
    if (!status)
        status = td_plan_supports(plan->graph, &plan->sites[c.site], id, &supported, reason, sizeof reason);
    if (!status && !supported) {
        plan->nodes[id].moved = !(plan->graph->nodes[id].op->flags & TD_OP_REMOTE); /* it is meant to be there */
        status = choose(&c, plan->host, false, td_format("%s cannot run it: %s", plan->sites[c.site].name, reason));
    }
    if (!status)
        status = assign(plan, id, &c);
    td_free(c.cause);
    return status;
}

/* A whole-table gradient on the host would be as large as the table, every step. */
static td_status *refuse_dense_host_gradient(const td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    bool dense = strcmp(node->op->name, "embedding_gradient_dense") == 0 ||
                 strcmp(node->op->name, "embedding_bag_gradient_dense") == 0;
    if (!dense || plan->n_sites == 1 || plan->nodes[id].device != plan->host)
        return NULL;
    return TD_ERROR(TD_UNSUPPORTED,
                    "embedding \"%s\" runs on the host and asks for a dense gradient, the size of its whole "
                    "table; leave \"dense\" off (row-sparse), or place it on an accelerator",
                    plan->graph->nodes[node->forward].name);
}

static td_status *verify(const td_plan *plan)
{
    for (int64_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (plan->nodes[n].device < 0)
            return TD_ERROR(TD_INTERNAL, "place: \"%s\" has no device", node->name);
        for (int32_t i = 0; i < node->n_inputs; i++)
            if (td_node_writes(node, i) && plan->values[node->inputs[i]].device != plan->nodes[n].device)
                return TD_ERROR(TD_UNSUPPORTED,
                                "\"%s\" writes \"%s\" but runs on another device (%s, not %s): state never "
                                "crosses",
                                node->name, plan->graph->values[node->inputs[i]].name,
                                plan->sites[plan->nodes[n].device].name,
                                plan->sites[plan->values[node->inputs[i]].device].name);
    }
    return NULL;
}

/* A rule for a device that is not there is a mistake, whatever it matches. */
static td_status *check_rules(const td_plan *plan, const td_plan_request *request)
{
    const td_option_list *rules = &request->options->placements;
    for (int64_t i = 0; i < rules->n; i++)
        if (find(plan, rules->items[i].value) < 0)
            return unknown_device(plan, rules->items[i].cause, rules->items[i].value);
    return NULL;
}

td_status *td_pass_place(td_plan *plan, const td_plan_request *request)
{
    int32_t *order = NULL;
    TD_TRY(check_rules(plan, request));
    TD_TRY(td_plan_note_idle_rules(plan, request));
    TD_TRY(td_plan_follow(plan));
    TD_TRY(td_graph_order(plan->graph, &order));
    td_status *status = NULL;
    int64_t n = plan->graph->n_nodes;
    for (int64_t i = 0; i < n && !status; i++)
        if (td_place_is_free_cast(request, plan->graph, &plan->graph->nodes[order[i]]))
            status = td_place_cast_of_result(plan, order[i]);
        else if (plan->graph->nodes[order[i]].phase == TD_FORWARD)
            status = place_view(plan, request, order[i]);
    if (!status)
        status = place_sources_and_casts(plan, request);
    for (int64_t i = 0; i < n && !status; i++)
        if (plan->graph->nodes[order[i]].phase != TD_FORWARD)
            status = place_follower(plan, request, order[i]);
    for (int32_t i = 0; i < n && !status; i++)
        status = refuse_dense_host_gradient(plan, i);
    td_free(order);
    return status ? status : verify(plan);
}
