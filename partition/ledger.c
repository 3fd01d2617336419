/* Pass: the ledger. Every byte of a device's peak gets one class: see td_ledger_class.
 *
 * The store's part is a sum. In the arena values share bytes at different times, so it is covered class by class: a class has the
 * bytes that its values touch and no class before it does. What no value touches is alignment, and the kernels' scratch. So the
 * classes of a device add up to its peak, to the byte. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

static const char *const names[TD_LEDGER_CLASSES] = {"parameters", "masters",     "moments", "gradients", "staging",
                                                     "log",        "activations", "scratch", "tables"};

const char *td_ledger_class_name(td_ledger_class what)
{
    return (int)what >= 0 && what < TD_LEDGER_CLASSES ? names[what] : "";
}

/* ---- the store ------------------------------------------------------------------------------------------------------------- */

static td_ledger_class stored_class(const td_plan *plan, int32_t value)
{
    if (td_plan_is_state(plan, value))
        return plan->graph->values[value].delayed ? TD_LEDGER_GRADIENTS : TD_LEDGER_MOMENTS;
    return plan->values[value].offloaded || plan->values[value].first ? TD_LEDGER_MASTERS : TD_LEDGER_PARAMETERS;
}

static void count_store(td_plan *plan)
{
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        bool paged = value->table >= 0 && plan->tables[value->table].storage != TD_TABLE_MEMORY;
        if (value->storage == TD_STORE && !paged)
            plan->ledger[value->device].bytes[stored_class(plan, v)] += value->block_bytes;
    }
    plan->ledger[plan->host].bytes[TD_LEDGER_TABLES] = plan->paging.resident_bytes + plan->paging.overhead_bytes;
}

/* ---- arenas ---------------------------------------------------------------------------------------------------------------- */

typedef struct span {
    int64_t begin, end;
    td_ledger_class class;
} span;

static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static td_ledger_class made_class(const td_plan *plan, int32_t value)
{
    const int32_t producer = plan->graph->values[value].producer;
    if (producer >= 0 && plan->graph->nodes[producer].speculates)
        return TD_LEDGER_LOG;
    switch (plan->graph->values[value].class) {
    case TD_CLASS_GRADIENT:
        return TD_LEDGER_GRADIENTS;
    case TD_CLASS_STAGING:
        return TD_LEDGER_STAGING;
    default:
        return TD_LEDGER_ACTIVATIONS;
    }
}

static int64_t collect_spans(const td_plan *plan, int32_t site, span *spans)
{
    int64_t n = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        int64_t bytes = value->block_bytes * (value->doubled ? 2 : 1);
        if (value->storage == TD_ARENA && value->device == site && bytes)
            spans[n++] = (span){value->offset, value->offset + bytes, made_class(plan, v)};
    }
    qsort(spans, (size_t)n, sizeof *spans, compare_spans);
    return n;
}

/* Bytes that spans of the first `n_classes` classes of `order` touch. `spans` are in order. */
static int64_t covered(const span *spans, int64_t n, const td_ledger_class *order, int32_t n_classes)
{
    int64_t bytes = 0, end = 0;
    for (int64_t i = 0; i < n; i++) {
        bool counts = false;
        for (int32_t k = 0; k < n_classes; k++)
            counts = counts || spans[i].class == order[k];
        if (!counts || spans[i].end <= end)
            continue;
        bytes += spans[i].end - (spans[i].begin > end ? spans[i].begin : end);
        end = spans[i].end;
    }
    return bytes;
}

static td_status *count_arena(td_plan *plan, int32_t site)
{
    static const td_ledger_class order[] = {TD_LEDGER_ACTIVATIONS, TD_LEDGER_GRADIENTS, TD_LEDGER_STAGING,
                                            TD_LEDGER_LOG};
    enum { N = sizeof order / sizeof *order };
    td_ledger *ledger = &plan->ledger[site];
    span *spans = NULL;
    TD_TRY(TD_NEW(spans, plan->graph->n_values + 1));
    int64_t n = collect_spans(plan, site, spans), before = 0;
    for (int32_t k = 0; k < N; k++) {
        int64_t now = covered(spans, n, order, k + 1);
        ledger->bytes[order[k]] += now - before; /* gradients that wait are in the store */
        before = now;
    }
    ledger->bytes[TD_LEDGER_SCRATCH] = plan->arenas[site].bytes - before;
    td_free(spans);
    return NULL;
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------- */

static td_status *verify(const td_plan *plan, const td_plan_request *request)
{
    for (int32_t s = 0; s < plan->n_sites && !request->held; s++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
            sum += plan->ledger[s].bytes[k];
        if (sum != plan->arenas[s].store_bytes + plan->arenas[s].bytes)
            return TD_ERROR(TD_INTERNAL, "ledger: the classes of %s do not add up to its peak", plan->sites[s].name);
    }
    return NULL;
}

td_status *td_pass_ledger(td_plan *plan, const td_plan_request *request)
{
    TD_TRY(TD_NEW(plan->ledger, plan->n_sites));
    count_store(plan);
    for (int32_t s = 0; s < plan->n_sites; s++)
        TD_TRY(count_arena(plan, s));
    return verify(plan, request);
}

/* ---- looking --------------------------------------------------------------------------------------------------------------- */

td_ledger td_plan_ledger(const td_plan *plan, int32_t device)
{
    return plan->ledger[device];
}

bool td_plan_ledger_without(const td_plan *plan, int32_t device, td_ledger *out_ledger)
{
    *out_ledger = plan->without ? plan->without[device] : (td_ledger){0};
    return plan->without != NULL;
}

int64_t td_plan_parameter_count(const td_plan *plan)
{
    int64_t n = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_value_info *info = &plan->graph->values[v];
        if (info->class == TD_CLASS_PARAMETER)
            n += plan->values[v].bytes[0] / (int64_t)td_dtype_bytes(info->dtype);
    }
    return n;
}

bool td_plan_split_parameter(const td_plan *plan, td_plan_split *out_split)
{
    *out_split = (td_plan_split){0};
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        if (!value->split)
            continue;
        const td_value_info *info = &plan->graph->values[v];
        const int64_t elements = value->bytes[0] / (int64_t)td_dtype_bytes(info->dtype);
        *out_split = (td_plan_split){info->name, elements, elements - value->split};
        return true;
    }
    return false;
}

const char *td_plan_unsplit(const td_plan *plan)
{
    return plan->unsplit;
}

/* The offloaded parameter that a node updates or does something to the gradient of, or -1. */
static int32_t offloaded_of(const td_plan *plan, int32_t id)
{
    const td_node *node = &plan->graph->nodes[id];
    if (node->settles) /* has nothing to do but where an early step was wrong */
        return -1;
    int32_t parameter = td_plan_updated(plan, node);
    if (parameter < 0 && node->phase != TD_UPDATE && node->n_outputs)
        parameter = plan->graph->values[node->outputs[0]].parameter;
    if (parameter < 0)
        return -1;
    const bool rest = plan->values[parameter].split && plan->nodes[id].device == plan->host;
    return plan->values[parameter].offloaded || rest ? parameter : -1;
}

/* The copy to the host that makes a gradient, or -1. */
static int32_t crossing_of(const td_plan *plan, int32_t gradient)
{
    int32_t copy = gradient < 0 ? -1 : plan->graph->values[gradient].producer;
    if (copy < 0 || plan->nodes[copy].lane != TD_QUEUE_TO_HOST)
        return -1;
    int32_t maker = plan->graph->values[plan->graph->nodes[copy].inputs[0]].producer;
    return maker >= 0 && strcmp(plan->graph->nodes[maker].op->name, "clip_factor") == 0 ? -1 : copy;
}

/* Gradients cross once, whoever reads them there. `counted`: of each node; without it nothing is counted. */
static int64_t gradient_bytes(const td_plan *plan, bool *counted)
{
    int64_t bytes = 0;
    for (int32_t n = 0; counted && n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (plan->nodes[n].lane != TD_QUEUE_COMPUTE || offloaded_of(plan, n) < 0)
            continue;
        for (int32_t i = 0; i < node->n_inputs; i++) {
            int32_t copy = crossing_of(plan, node->inputs[i]);
            if (copy < 0 || counted[copy])
                continue;
            counted[copy] = true;
            bytes += td_plan_runs(plan, copy) * (int64_t)plan->nodes[copy].cost.bytes_read;
        }
    }
    return bytes;
}

td_offload_traffic td_plan_offload_traffic(const td_plan *plan)
{
    td_offload_traffic traffic = {.gradient_slots = plan->gradient_slots.n,
                                  .parameter_slots = plan->parameter_slots.n,
                                  .gradient_slot_bytes = plan->gradient_slots.bytes,
                                  .parameter_slot_bytes = plan->parameter_slots.bytes};
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        const td_plan_node *p = &plan->nodes[n];
        if (node->n_outputs == 0 && p->lane == TD_QUEUE_TO_DEVICE)
            traffic.parameter_bytes += (int64_t)p->cost.bytes_read;
        if (p->lane != TD_QUEUE_COMPUTE || offloaded_of(plan, n) < 0 || !plan->sites[p->device].is_host)
            continue;
        traffic.update_bytes += td_plan_runs(plan, n) * (int64_t)(p->cost.bytes_read + p->cost.bytes_written);
    }
    bool *counted = td_calloc((size_t)plan->graph->n_nodes + 1, sizeof *counted);
    traffic.gradient_bytes = gradient_bytes(plan, counted);
    td_free(counted);
    return traffic;
}
