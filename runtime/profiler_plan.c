/* A plan's description for traces: see profiler_plan.h. Everything by number, so that readers need no look-ups by name. */
#include "runtime/profiler_plan.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "runtime/remote.h"

static json_t *numbers(const int32_t *values, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static json_t *device_json(const td_session *session, int32_t index)
{
    const td_plan_site *site = &session->plan->sites[index];
    const td_device_properties *p = &site->properties;
    const td_plan_arena *arena = &session->plan->arenas[index];
    return json_pack("{s:s, s:s, s:s, s:b, s:i, s:i, s:I, s:f, s:f, s:b, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "name",
                     site->name, "backend", site->backend, "description", p->description, "host", (int)site->is_host,
                     "lanes", site->lanes, "cores", p->cores, "memory_bytes", (json_int_t)p->memory_bytes,
                     "link_bytes_per_s", p->link_bytes_per_s, "link_latency_s", p->link_latency_s, "copies_as_lists",
                     (int)(site->api->copy_ranges != NULL), "flops_per_s", p->flops_per_s, "memory_bytes_per_s",
                     p->memory_bytes_per_s, "store_bytes", (json_int_t)arena->store_bytes, "parameter_bytes",
                     (json_int_t)arena->parameter_bytes, "state_bytes", (json_int_t)arena->state_bytes, "arena_bytes",
                     (json_int_t)arena->bytes, "scratch_bytes", (json_int_t)arena->scratch_bytes);
}

static json_t *value_json(const td_session *session, int32_t index)
{
    static const char *const classes[TD_CLASS_COUNT] = {
        "input", "parameter", "state", "activation", "gradient", "scalar", "constant", "staging",
    };
    static const char *const storages[] = {"store", "input", "previous", "scalar", "arena", "alias"};
    const td_plan *plan = session->plan;
    const td_value_info *value = &plan->graph->values[index];
    const td_plan_value *planned = &plan->values[index];
    char shape[128];
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:I, s:i, s:i}", "name", value->name, "class",
                     classes[value->class], "storage", storages[planned->storage], "device", planned->device, "dtype",
                     td_dtype_name(value->dtype), "shape",
                     td_shape_text(plan->graph, &value->shape, shape, sizeof shape), "bytes",
                     (json_int_t)(planned->bytes[0] + planned->bytes[1] + planned->bytes[2]), "producer",
                     value->producer, "root", td_plan_root(plan, index));
}

static void append_attribute(td_string *text, const td_attr *attr)
{
    td_string_format(text, "%s%s=", text->length ? " " : "", attr->key);
    switch (attr->type) {
    case TD_ATTR_INT:
        td_string_format(text, "%lld", (long long)attr->i);
        break;
    case TD_ATTR_FLOAT:
        td_string_format(text, "%g", attr->f);
        break;
    case TD_ATTR_BOOL:
        td_string_append(text, attr->i ? "true" : "false");
        break;
    case TD_ATTR_STRING:
        td_string_append(text, attr->s ? attr->s : "");
        break;
    case TD_ATTR_INTS:
        for (int32_t i = 0; i < attr->n_ints; i++)
            td_string_format(text, "%s%lld", i ? "," : "", (long long)attr->ints[i]);
        break;
    }
}

/* Copies; casts to and from another precision, which are named after the value and the dtype; and lookups cut in two. */
static bool was_inserted(const td_session *session, int32_t index)
{
    const td_node *node = &session->plan->graph->nodes[index];
    const td_plan_node *p = &session->plan->nodes[index];
    size_t name = strlen(node->name),
           dtype = node->n_outputs ? strlen(td_dtype_name(session->plan->graph->values[node->outputs[0]].dtype)) : 0;
    bool named =
        !strcmp(node->op->name, "cast") && name > dtype + 1 && node->name[name - dtype - 1] == '/' &&
        !strcmp(node->name + name - dtype, td_dtype_name(session->plan->graph->values[node->outputs[0]].dtype));
    return p->lane != TD_QUEUE_COMPUTE || named || p->early == TD_EARLY_FIRST;
}

static json_t *node_json(const td_session *session, int32_t index)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    const td_node *node = &session->plan->graph->nodes[index];
    const td_plan_node *p = &session->plan->nodes[index];
    td_string attributes = {0};
    for (int32_t i = 0; i < node->n_attrs; i++)
        append_attribute(&attributes, &node->attrs[i]);
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:s, s:o, s:o, s:s, s:f, s:f, s:f, s:b, s:b, s:b, s:s}", "name", node->name, "op",
                  node->op->name, "subgraph", p->cluster, "phase", phases[node->phase], "inputs",
                  numbers(node->inputs, node->n_inputs), "outputs", numbers(node->outputs, node->n_outputs),
                  "attributes", attributes.text ? attributes.text : "", "flops", p->cost.flops, "bytes",
                  p->cost.bytes_read + p->cost.bytes_written, "estimated_ms", p->seconds * 1e3, "view",
                  (int)((node->op->flags & TD_OP_VIEW) != 0), "inserted", (int)was_inserted(session, index), "moved",
                  (int)p->moved, "why", p->cause ? p->cause : "");
    td_string_deinit(&attributes);
    return json;
}

static json_t *subgraph_json(const td_session *session, int32_t index)
{
    static const char *const lanes[] = {"compute", "to_device", "to_host"};
    const td_cluster *c = &session->plan->clusters[index];
    return json_pack("{s:s, s:i, s:s, s:f, s:f, s:b, s:o, s:o}", "name", c->name, "device", c->device, "lane",
                     lanes[c->lane], "rank", c->rank, "estimated_ms", c->seconds * 1e3, "delegated", (int)c->delegated,
                     "after", numbers(c->before, c->n_before), "next_step", numbers(c->across, c->n_across));
}

td_status *td_profiler_plan_json(const td_session *session, uint32_t first_id, char **out_text)
{
    const td_plan *plan = session->plan;
    json_t *devices = json_array(), *values = json_array(), *nodes = json_array(), *subgraphs = json_array();
    *out_text = NULL;
    for (int32_t i = 0; i < plan->n_sites; i++)
        json_array_append_new(devices, device_json(session, i));
    for (int32_t i = 0; i < plan->graph->n_values; i++)
        json_array_append_new(values, value_json(session, i));
    for (int32_t i = 0; i < plan->graph->n_nodes; i++)
        json_array_append_new(nodes, node_json(session, i));
    for (int32_t i = 0; i < plan->n_clusters; i++)
        json_array_append_new(subgraphs, subgraph_json(session, i));
    json_t *root =
        json_pack("{s:I, s:b, s:b, s:b, s:i, s:f, s:o, s:o, s:o, s:o}", "first_id", (json_int_t)first_id, "training",
                  (int)plan->training, "pipelined", (int)plan->pipelined, "early_lookup", (int)plan->early_lookup,
                  "cores", session->machine->topology->usable, "estimated_ms", plan->bound_s * 1e3, "devices", devices,
                  "values", values, "nodes", nodes, "subgraphs", subgraphs);
    if (root && plan->in_job)
        json_object_set_new(root, "worker", json_integer(plan->remote->worker));
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (text)
        *out_text = td_strdup(text);
    free(text); /* jansson's own allocation */
    return *out_text ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan's description");
}
