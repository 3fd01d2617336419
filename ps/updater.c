/* The kernel of an optimizer's rule, of the cpu backend, over the rows of a shard in place: the same code that updates local
 * tables, so the same bits. One thread: an owner's shards are updated one after the other. */
#include "ps/shard.h"

#include <string.h>

#include "backends/registry.h"
#include "base/memory.h"
#include "graph/op.h"

enum { PARAMETER, GRADIENT, COEFFICIENTS, STATES, MOST_INPUTS = STATES + TD_MAX_SLOTS };

struct td_updater {
    const td_backend_api *api;
    td_device *device;
    td_queue *queue;
    td_event *event;
    td_kernel *kernel;
    void *scratch;
    size_t scratch_bytes;
    td_attr rounding;
    td_tensor inputs[MOST_INPUTS];
    td_kernel_call call;
};

static td_status *check_rule(const td_shard_definition *d)
{
    const td_rule *rule = td_rule_find(d->rule);
    if (!rule)
        return TD_ERROR(TD_NOT_FOUND, "table \"%s\": there is no optimizer \"%s\"", d->name, d->rule);
    if (rule->refuses_row_sparse)
        return TD_ERROR(TD_UNSUPPORTED, "table \"%s\": optimizer \"%s\" does not take its row-sparse gradient: %s",
                        d->name, d->rule, rule->refuses_row_sparse);
    return NULL;
}

static void describe(td_updater *u, const td_shard *shard)
{
    const td_shard_definition *d = &shard->definition;
    const int64_t rows = shard->most_slots;
    u->inputs[PARAMETER] = (td_tensor){.kind = TD_DENSE,
                                       .dtype = (td_dtype)d->dtype,
                                       .rank = 2,
                                       .dims = {rows, d->dim},
                                       .data = shard->arrays[0].base};
    u->inputs[GRADIENT] =
        (td_tensor){.kind = TD_ROW_SPARSE, .dtype = TD_F32, .rank = 2, .dims = {rows, d->dim}, .entries = rows};
    u->inputs[COEFFICIENTS] = (td_tensor){.kind = TD_SCALAR, .dtype = TD_F32, .rank = 1, .dims = {TD_COEFFICIENTS}};
    for (int32_t s = 0; s < d->n_states; s++)
        u->inputs[STATES + s] = (td_tensor){.kind = TD_DENSE,
                                            .dtype = TD_F32,
                                            .rank = d->state_per_row[s] ? 1 : 2,
                                            .dims = {rows, d->state_per_row[s] ? 0 : d->dim},
                                            .data = shard->arrays[1 + s].base};
    u->rounding = TD_INT("rounding", 0);
    u->call = (td_kernel_call){.struct_size = sizeof u->call,
                               .op = td_rule_find(d->rule)->name,
                               .name = shard->definition.name,
                               .attrs = &u->rounding,
                               .n_attrs = 1,
                               .inputs = u->inputs,
                               .n_inputs = STATES + d->n_states};
}

static td_status *open(td_updater *u)
{
    td_queue_options options = {
        .struct_size = sizeof options, .kind = TD_QUEUE_COMPUTE, .threads = 1, .flags = TD_QUEUE_SHARES_CORES};
    TD_TRY(td_backend_find("cpu", &u->api));
    TD_TRY(u->api->device_open(td_backend_host(), "cores=1", &u->device));
    TD_TRY(u->api->queue_open(u->device, &options, &u->queue));
    TD_TRY(u->api->event_create(u->device, &u->event));
    TD_TRY(u->api->kernel_prepare(u->device, &u->call, &u->kernel, &u->scratch_bytes));
    u->scratch = td_calloc_aligned(u->scratch_bytes + 64);
    return u->scratch ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an update");
}

td_status *td_updater_create(td_shard *shard, td_updater **out_updater)
{
    td_updater *u = NULL;
    *out_updater = NULL;
    TD_TRY(check_rule(&shard->definition));
    TD_TRY(TD_NEW(u, 1));
    describe(u, shard);
    td_status *status = open(u);
    if (status) {
        td_updater_destroy(u);
        return td_status_prefix(status, "table \"%s\"", shard->definition.name);
    }
    *out_updater = u;
    return NULL;
}

void td_updater_destroy(td_updater *u)
{
    if (!u)
        return;
    if (u->kernel)
        u->api->kernel_release(u->device, u->kernel);
    if (u->event)
        u->api->event_destroy(u->event);
    if (u->queue)
        u->api->queue_close(u->queue);
    if (u->device)
        u->api->device_close(u->device);
    td_free(u->scratch);
    td_free(u);
}

td_status *td_updater_run(td_updater *u, const int64_t *slots, int64_t n, const float *gradients,
                          const float *coefficients)
{
    int64_t count = n;
    td_tensor *gradient = &u->inputs[GRADIENT];
    gradient->data = (void *)(uintptr_t)gradients;
    gradient->index = (void *)(uintptr_t)slots;
    gradient->count = &count;
    gradient->entries = n;
    u->inputs[COEFFICIENTS].data = (void *)(uintptr_t)coefficients;
    u->call.scratch = u->scratch;
    u->call.scratch_bytes = u->scratch_bytes;
    TD_TRY(u->api->kernel_run(u->queue, u->kernel, &u->call));
    TD_TRY(u->api->event_record(u->event, u->queue));
    return u->api->event_wait(u->event);
}
