/* See shard.h. */
#include "partition/shard.h"

#include <string.h>

#include "base/glob.h"
#include "base/memory.h"

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the workers' shares of optimizer state");
}

/* ---- who has what -------------------------------------------------------------------------------------------------------------- */

td_plan_shard *td_plan_shard_of(const td_plan *plan, int32_t parameter)
{
    for (int32_t i = 0; i < plan->n_shards; i++)
        if (plan->shards[i].parameter == parameter)
            return &plan->shards[i];
    return NULL;
}

int64_t td_shard_state_bound(const td_plan_shard *shard, int64_t state_elements, int32_t worker)
{
    return shard->bounds[worker] == shard->elements ? state_elements : shard->bounds[worker];
}

/* ---- cutting ------------------------------------------------------------------------------------------------------------------- */

int64_t td_shard_grain(const td_plan *plan, const td_plan_request *request, int32_t parameter, int64_t elements)
{
    const td_value_info *info = &plan->graph->values[parameter];
    const td_option_list *groups = &request->options->groups;
    for (int64_t g = 0; g < groups->n; g++) {
        if (!td_glob_match(groups->items[g].match, info->name))
            continue;
        const td_rule *rule = groups->items[g].optimizer.name ? td_rule_find(groups->items[g].optimizer.name) : NULL;
        /* updates of 16-bit parameters round by the place of an element in its parameter */
        return rule && td_rule_is_elementwise(rule) && info->dtype == TD_F32 ? TD_BLOCK : elements;
    }
    return elements;
}

/* The nearest place to element `at` of a parameter where it may be cut. */
static int64_t nearest_cut(int64_t at, int64_t elements, int64_t grain)
{
    const int64_t cut = (at + grain / 2) / grain * grain;
    if (grain >= elements)
        return 2 * at < elements ? 0 : elements;
    return cut < elements ? cut : elements;
}

void td_shard_cut(const int64_t *elements, const int64_t *grains, int32_t n, int32_t workers, int64_t *bounds)
{
    int64_t total = 0, at = 0;
    int32_t i = 0;
    for (int32_t k = 0; k < n; k++)
        total += elements[k];
    for (int32_t w = 0; w < workers; w++) {
        const int64_t fair = (int64_t)((__int128)total * w / workers);
        for (; i < n && at + elements[i] <= fair; i++)
            at += elements[i];
        bounds[w] = at + (i < n ? nearest_cut(fair - at, elements[i], grains[i]) : 0);
    }
    bounds[workers] = total;
}

/* ---- the plan's list ------------------------------------------------------------------------------------------------------------ */

td_status *td_shard_add(td_plan *plan, int32_t parameter, int32_t bucket, int64_t at, int64_t elements,
                        const int64_t *bucket_bounds)
{
    TD_TRY(td_grow(&plan->shards, &plan->shards_capacity, plan->n_shards, sizeof *plan->shards));
    td_plan_shard *shard = &plan->shards[plan->n_shards];
    *shard = (td_plan_shard){.parameter = parameter, .bucket = bucket, .elements = elements, .squares = -1};
    TD_TRY(TD_NEW(shard->bounds, plan->shard_workers + 1));
    plan->n_shards++;
    for (int32_t w = 0; w < plan->shard_workers; w++) {
        const int64_t begin = bucket_bounds[w] - at;
        shard->bounds[w] = begin < 0 ? 0 : begin < elements ? begin : elements;
    }
    shard->bounds[plan->shard_workers] = elements;
    return NULL;
}

td_status *td_shard_add_state(td_plan_shard *shard, const char *name, td_shape shape, td_initializer initial)
{
    char *copy = td_strdup(name);
    if (!copy)
        return no_memory();
    shard->states[shard->n_states++] = (td_plan_shard_state){copy, shape, initial};
    return NULL;
}

void td_plan_drop_shards(td_plan *plan)
{
    for (int32_t i = 0; i < plan->n_shards; i++) {
        for (int32_t s = 0; s < plan->shards[i].n_states; s++)
            td_free(plan->shards[i].states[s].name);
        td_free(plan->shards[i].bounds);
    }
    td_free(plan->shards);
}

static int64_t elements_of(const td_shape *shape)
{
    int64_t n = 1;
    for (int32_t i = 0; i < shape->rank; i++)
        n *= shape->dims[i].constant;
    return n;
}

bool td_plan_shared_state(const td_plan *plan, int32_t worker, int64_t *out_bytes, int64_t *out_all_bytes)
{
    *out_bytes = *out_all_bytes = 0;
    if (!plan->n_shards || worker < 0 || worker >= plan->shard_workers)
        return false;
    for (int32_t i = 0; i < plan->n_shards; i++)
        for (int32_t s = 0; s < plan->shards[i].n_states; s++) {
            const int64_t n = elements_of(&plan->shards[i].states[s].shape);
            *out_bytes += (td_shard_state_bound(&plan->shards[i], n, worker + 1) -
                           td_shard_state_bound(&plan->shards[i], n, worker)) *
                          (int64_t)sizeof(float);
            *out_all_bytes += n * (int64_t)sizeof(float);
        }
    return true;
}

/* ---- what is known of all gradients -------------------------------------------------------------------------------------------- */

td_status *td_shard_combine(td_plan *plan, const char *name, td_value *const *values, int32_t n)
{
    td_value *inputs = NULL, *outputs = NULL;
    td_status *status = TD_NEW(inputs, n + 1);
    if (!status)
        status = TD_NEW(outputs, n + 1);
    for (int32_t i = 0; i < n && !status; i++)
        inputs[i] = *values[i];
    const td_attr attr = TD_INT("outputs", n);
    if (!status && n) {
        td_graph_add(plan->graph, "rank_combine", name, inputs, n, &attr, 1, outputs, n);
        status = plan->graph->failed ? td_graph_check(plan->graph) : NULL;
    }
    for (int32_t i = 0; i < n && !status; i++) {
        plan->graph->values[outputs[i].id].parameter = plan->graph->values[inputs[i].id].parameter;
        *values[i] = outputs[i];
    }
    td_free(inputs);
    td_free(outputs);
    return status;
}
