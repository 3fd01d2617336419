/* Plans of a trace: see plan.h. Texts stay in the JSON document, which the plan keeps. */
#include "profiler/plan.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    double value = json_number_value(json_object_get(object, key));
    return isfinite(value) ? value : 0;
}

/* Not negative. */
static int64_t count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value < 0 ? 0 : value;
}

static bool flag_of(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* Below `limit`, or -1. */
static int32_t index_of(const json_t *number, int32_t limit)
{
    json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
    return value >= 0 && value < limit ? (int32_t)value : -1;
}

static int32_t small_of(const json_t *object, const char *key)
{
    int64_t value = count_of(object, key);
    return value > 1 << 20 ? 1 << 20 : (int32_t)value;
}

/* A name among `names`, by its place; 0 for others. */
static int32_t choice_of(const json_t *object, const char *key, const char *const *names, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!strcmp(text_of(object, key), names[i]))
            return i;
    return 0;
}

/* A list of numbers below `limit`; others become -1, or are left out. */
static td_status *read_list(const json_t *list, int32_t limit, bool keep_absent, int32_t **out, int32_t *out_n)
{
    size_t n = json_array_size(list);
    *out_n = 0;
    TD_TRY(TD_NEW(*out, n + 1));
    for (size_t i = 0; i < n; i++) {
        int32_t index = index_of(json_array_get(list, i), limit);
        if (index >= 0 || keep_absent)
            (*out)[(*out_n)++] = index;
    }
    return NULL;
}

static void read_device(const json_t *json, td_trace_device *out)
{
    *out = (td_trace_device){.name = text_of(json, "name"),
                             .backend = text_of(json, "backend"),
                             .description = text_of(json, "description"),
                             .host = flag_of(json, "host"),
                             .lanes = small_of(json, "lanes"),
                             .cores = small_of(json, "cores"),
                             .memory_bytes = count_of(json, "memory_bytes"),
                             .store_bytes = count_of(json, "store_bytes"),
                             .parameter_bytes = count_of(json, "parameter_bytes"),
                             .state_bytes = count_of(json, "state_bytes"),
                             .arena_bytes = count_of(json, "arena_bytes"),
                             .link_bytes_per_s = number_of(json, "link_bytes_per_s"),
                             .link_latency_s = number_of(json, "link_latency_s"),
                             .copies_as_lists = flag_of(json, "copies_as_lists"),
                             .flops_per_s = number_of(json, "flops_per_s"),
                             .memory_bytes_per_s = number_of(json, "memory_bytes_per_s")};
}

static void read_value(const td_trace_plan *plan, const json_t *json, td_trace_value *out)
{
    *out = (td_trace_value){.name = text_of(json, "name"),
                            .class = text_of(json, "class"),
                            .storage = text_of(json, "storage"),
                            .dtype = text_of(json, "dtype"),
                            .shape = text_of(json, "shape"),
                            .device = index_of(json_object_get(json, "device"), plan->n_devices),
                            .producer = index_of(json_object_get(json, "producer"), plan->n_nodes),
                            .root = index_of(json_object_get(json, "root"), plan->n_values),
                            .bytes = count_of(json, "bytes")};
}

static td_status *read_node(const td_trace_plan *plan, const json_t *json, td_trace_node *out)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    *out = (td_trace_node){.name = text_of(json, "name"),
                           .op = text_of(json, "op"),
                           .attributes = text_of(json, "attributes"),
                           .why = text_of(json, "why"),
                           .subgraph = index_of(json_object_get(json, "subgraph"), plan->n_subgraphs),
                           .phase = (td_trace_phase)choice_of(json, "phase", phases, 3),
                           .flops = number_of(json, "flops"),
                           .bytes = number_of(json, "bytes"),
                           .estimated_ms = number_of(json, "estimated_ms"),
                           .view = flag_of(json, "view"),
                           .inserted = flag_of(json, "inserted"),
                           .moved = flag_of(json, "moved")};
    TD_TRY(read_list(json_object_get(json, "inputs"), plan->n_values, true, &out->inputs, &out->n_inputs));
    return read_list(json_object_get(json, "outputs"), plan->n_values, true, &out->outputs, &out->n_outputs);
}

static td_status *read_subgraph(const td_trace_plan *plan, const json_t *json, td_trace_subgraph *out)
{
    static const char *const lanes[] = {"compute", "to_device", "to_host"};
    *out = (td_trace_subgraph){.name = text_of(json, "name"),
                               .device = index_of(json_object_get(json, "device"), plan->n_devices),
                               .lane = (td_trace_lane)choice_of(json, "lane", lanes, 3),
                               .delegated = flag_of(json, "delegated"),
                               .rank = number_of(json, "rank"),
                               .estimated_ms = number_of(json, "estimated_ms")};
    if (out->device < 0)
        return TD_ERROR(TD_DATA_ERROR, "subgraph \"%s\" is on no device", out->name);
    TD_TRY(read_list(json_object_get(json, "after"), plan->n_subgraphs, false, &out->after, &out->n_after));
    return read_list(json_object_get(json, "next_step"), plan->n_subgraphs, false, &out->next, &out->n_next);
}

static td_status *measure(const json_t *json, const char *key, size_t most, int32_t *out_n)
{
    const json_t *list = json_object_get(json, key);
    if (!json_is_array(list))
        return TD_ERROR(TD_DATA_ERROR, "a plan without a list of %s", key);
    if (json_array_size(list) > most)
        return TD_ERROR(TD_UNSUPPORTED, "a plan of %zu %s; a trace's plan has at most %zu", json_array_size(list), key,
                        most);
    *out_n = (int32_t)json_array_size(list);
    return NULL;
}

static td_status *read_all(const json_t *json, td_trace_plan *plan)
{
    const json_t *item;
    size_t i;
    enum { MOST_DEVICES = 256, MOST = 1 << 22 };
    TD_TRY(measure(json, "devices", MOST_DEVICES, &plan->n_devices));
    TD_TRY(measure(json, "values", MOST, &plan->n_values));
    TD_TRY(measure(json, "nodes", MOST, &plan->n_nodes));
    TD_TRY(measure(json, "subgraphs", MOST, &plan->n_subgraphs));
    TD_TRY(TD_NEW(plan->devices, plan->n_devices + 1));
    TD_TRY(TD_NEW(plan->values, plan->n_values + 1));
    TD_TRY(TD_NEW(plan->nodes, plan->n_nodes + 1));
    TD_TRY(TD_NEW(plan->subgraphs, plan->n_subgraphs + 1));
    json_array_foreach(json_object_get(json, "devices"), i, item) read_device(item, &plan->devices[i]);
    json_array_foreach(json_object_get(json, "values"), i, item) read_value(plan, item, &plan->values[i]);
    json_array_foreach(json_object_get(json, "nodes"), i, item) TD_TRY(read_node(plan, item, &plan->nodes[i]));
    json_array_foreach(json_object_get(json, "subgraphs"), i, item)
        TD_TRY(read_subgraph(plan, item, &plan->subgraphs[i]));
    return NULL;
}

td_status *td_trace_plan_parse(json_t *json, td_trace_plan *out_plan)
{
    enum { MOST_WORKERS = 1 << 20 };
    json_int_t first = json_integer_value(json_object_get(json, "first_id"));
    *out_plan = (td_trace_plan){.json = json,
                                .training = flag_of(json, "training"),
                                .pipelined = flag_of(json, "pipelined"),
                                .cores = small_of(json, "cores"),
                                .worker = index_of(json_object_get(json, "worker"), MOST_WORKERS),
                                .estimated_ms = number_of(json, "estimated_ms")};
    td_status *status =
        first >= 0 && first < UINT_MAX / 2 ? NULL : TD_ERROR(TD_DATA_ERROR, "a plan whose first_id is no id");
    out_plan->first_id = (uint32_t)first;
    if (!status)
        status = read_all(json, out_plan);
    if (status)
        td_trace_plan_deinit(out_plan);
    return status;
}

void td_trace_plan_deinit(td_trace_plan *plan)
{
    for (int32_t i = 0; plan->nodes && i < plan->n_nodes; i++) {
        td_free(plan->nodes[i].inputs);
        td_free(plan->nodes[i].outputs);
    }
    for (int32_t i = 0; plan->subgraphs && i < plan->n_subgraphs; i++) {
        td_free(plan->subgraphs[i].after);
        td_free(plan->subgraphs[i].next);
    }
    td_free(plan->devices);
    td_free(plan->values);
    td_free(plan->nodes);
    td_free(plan->subgraphs);
    json_decref(plan->json);
    *plan = (td_trace_plan){0};
}
