/* td_plan_train and td_plan_evaluate: options become opened devices and a request, the partitioner does the rest. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "runtime/machine.h"
#include "runtime/remote.h"
#include "runtime/store.h"

static td_status *check(td_graph *graph, td_train_options *options)
{
    if (options->error) {
        td_status *error = options->error;
        options->error = NULL;
        return error;
    }
    TD_TRY(td_graph_check(graph));
    if (!options->machine)
        TD_TRY(td_machine_open(options, &options->machine));
    return NULL;
}

/* ---- the cache ------------------------------------------------------------------------------------------------------------- */

static void describe_optimizer(td_string *text, const td_optimizer *o)
{
    td_string_format(text, " %s %a %a %a %a %a %a %a %a %a %a %a %d", o->name ? o->name : "frozen", o->lr, o->momentum,
                     o->beta1, o->beta2, o->epsilon, o->weight_decay, o->alpha, o->l1, o->l2, o->lr_power,
                     o->initial_accumulator, (int)o->nesterov);
    td_string_format(text, " %d %" PRId64 " %" PRId64 " %" PRId64 " %a %a", (int)o->schedule.kind,
                     o->schedule.warmup_steps, o->schedule.total_steps, o->schedule.every, o->schedule.factor,
                     o->schedule.final_factor);
}

/* Everything a plan depends on, as text: equal keys, equal plans. *out_key stays NULL for graphs with host functions, whose
 * addresses text cannot hold. */
static td_status *make_key(td_graph *graph, const td_plan_request *request, char **out_key)
{
    td_string text = {0};
    char *printed = NULL;
    const td_train_options *options = request->options;
    *out_key = NULL;
    for (int64_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].host_function)
            return NULL;
    TD_TRY(td_graph_print(graph, &printed));
    td_string_format(
        &text,
        "loss %d seed %" PRIu64
        " clip %a embedding %d optimizer %d %a serial %d early %d stochastic %d nan %d level %d dumps %d default %d\n",
        request->loss, options->seed, options->clip_norm, (int)options->offload_embedding,
        (int)options->offload_optimizer, options->offload_ratio, (int)options->no_pipeline, (int)options->early_lookup,
        (int)options->stochastic_rounding, (int)options->on_nan, (int)options->jit_level, (int)options->keep_dumps,
        request->default_site);
    td_string_format(&text, "tables %d %s %s %" PRId64 " %" PRId64 "\n", (int)options->tables.storage,
                     options->tables.match ? options->tables.match : "*",
                     options->tables.path ? options->tables.path : ".", options->tables.resident_bytes,
                     options->tables.least_bytes);
    for (int32_t i = 0; i < request->n_outputs; i++)
        td_string_format(&text, "output %d\n", request->outputs[i]);
    for (int64_t i = 0; i < options->hashes.n; i++) {
        const td_hash_options *h = &options->hashes.items[i];
        td_string_format(&text, "hash %s %" PRId64 " %a %" PRId64 " %" PRId64 " %d\n", h->match, h->admit_count,
                         h->admit_probability, h->capacity, h->live, (int)h->evict);
    }
    td_string_format(&text, "job %p served %d shared %d\n", (const void *)options->remote,
                     (int)options->serve_embedding, (int)options->shard_optimizer);
    td_string_format(&text, "precision %d scale %a %" PRId64 " %" PRId64 " %a\n", (int)options->precision,
                     options->loss_scale.initial, options->loss_scale.growth_interval, options->loss_scale.hysteresis,
                     options->loss_scale.minimum);
    td_string_format(&text, "delayed %d exact %d no master %d\n", (int)options->offload_delayed,
                     (int)options->no_speculation, (int)options->no_master);
    td_string_format(&text, "window %d %d %d skipped %" PRId64 "\n", options->accumulate, options->replicas,
                     (int)options->reduction, options->most_skipped);
    for (int64_t i = 0; i < options->accumulate_changes.n; i++)
        td_string_format(&text, "from %" PRId64 " %d\n", options->accumulate_changes.items[i].from,
                         options->accumulate_changes.items[i].accumulate);
    for (int64_t i = 0; i < options->keep_fp32.n; i++)
        td_string_format(&text, "keep %s\n", options->keep_fp32.items[i].match);
    for (int64_t i = 0; i < options->report_gradients.n; i++)
        td_string_format(&text, "report %s\n", options->report_gradients.items[i].match);
    for (int64_t i = 0; i < options->recompute.n; i++)
        td_string_format(&text, "recompute %s\n", options->recompute.items[i].match);
    for (int64_t i = 0; i < options->placements.n; i++)
        td_string_format(&text, "place %s %s %s\n", options->placements.items[i].match,
                         options->placements.items[i].value, options->placements.items[i].cause);
    for (int64_t i = 0; i < options->groups.n; i++) {
        td_string_format(&text, "group %s", options->groups.items[i].match);
        describe_optimizer(&text, &options->groups.items[i].optimizer);
        td_string_append(&text, "\n");
    }
    td_string_append(&text, printed);
    td_text_free(printed);
    return td_string_finish(&text, out_key);
}

td_plan *td_machine_find_plan(td_machine *machine, const char *key)
{
    td_plan *found = NULL;
    pthread_mutex_lock(&machine->mutex);
    for (int64_t i = 0; i < machine->n_cached && !found; i++)
        if (strcmp(machine->cached[i]->key, key) == 0)
            found = td_plan_retain(machine->cached[i]);
    pthread_mutex_unlock(&machine->mutex);
    return found;
}

td_status *td_machine_keep_plan(td_machine *machine, td_plan *plan)
{
    pthread_mutex_lock(&machine->mutex);
    td_status *status =
        td_grow(&machine->cached, &machine->cached_capacity, machine->n_cached, sizeof *machine->cached);
    if (!status)
        machine->cached[machine->n_cached++] = td_plan_retain(plan);
    pthread_mutex_unlock(&machine->mutex);
    return status;
}

void td_machine_forget_plans(td_machine *machine)
{
    for (int64_t i = 0; machine && i < machine->n_cached; i++)
        td_plan_release(machine->cached[i]);
    if (machine)
        machine->n_cached = 0;
}

/* ---- planning ----------------------------------------------------------------------------------------------------------------- */

/* What might help a plan that does not fit, from the smaller change to the larger. */
typedef struct remedy {
    bool optimizer, embedding, file;
    const char *settings;
} remedy;
static const remedy remedies[] = {{true, false, false, "offload.optimizer: cpu"},
                                  {false, true, false, "offload.embedding: cpu"},
                                  {true, true, false, "offload.embedding: cpu, offload.optimizer: cpu"},
                                  {false, false, true, "tables.storage: file"},
                                  {false, true, true, "offload.embedding: cpu, tables.storage: file"}};

/* The plan with a remedy; NULL where it changes nothing or does not help. */
static td_plan *try_remedy(const remedy *r, const td_graph *graph, const td_plan_request *request, td_machine *machine)
{
    td_train_options options = *request->options;
    bool elsewhere = machine->n_sites > 1, training = request->loss >= 0;
    if ((r->embedding && (options.offload_embedding || !elsewhere)) ||
        (r->optimizer && (options.offload_optimizer == TD_OFFLOAD_AUTO ||
                          (options.offload_optimizer && options.offload_ratio >= 1) || !elsewhere || !training)) ||
        (r->file && options.tables.storage == TD_TABLE_FILE))
        return NULL;
    options.offload_embedding = options.offload_embedding || r->embedding;
    if (r->optimizer) {
        options.offload_optimizer = TD_OFFLOAD_CPU;
        options.offload_ratio = 1;
    }
    if (r->file)
        options.tables = (td_table_options){.storage = TD_TABLE_FILE, .path = options.tables.path};
    td_plan_request other = *request;
    other.options = &options;
    td_plan *plan = NULL;
    td_graph *copy = NULL;
    td_status *status = td_graph_clone(graph, &copy);
    if (!status)
        status = td_plan_build(copy, machine->sites, machine->n_sites, &other, td_machine_retain(machine),
                               td_machine_release, &plan);
    td_status_destroy(status);
    return plan;
}

/* The settings that would help a plan that does not fit, found by making that plan. */
static td_status *advise(td_status *refusal, const td_graph *graph, const td_plan_request *request, td_machine *machine)
{
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
        td_plan *plan = try_remedy(&remedies[i], graph, request, machine);
        if (!plan)
            continue;
        td_plan_device_summary d = td_plan_device(plan, remedies[i].file ? machine->host : machine->standard);
        char peak[TD_UNIT_TEXT];
        refusal = td_status_help(refusal, "try: %s (then %s needs %s)", remedies[i].settings, d.name,
                                 td_format_bytes(peak, (double)d.peak_bytes));
        td_plan_release(plan);
        return refusal;
    }
    return td_status_help(refusal,
                          "no setting of offload or tables makes it fit; what may: a smaller data.batch or model, "
                          "train.recompute, or more memory");
}

/* What the same training holds with nothing of the optimizer offloaded, whether that fits or not: the ledger shows both. */
static td_status *add_ledger_without(td_plan *plan, const td_graph *graph, const td_plan_request *request,
                                     td_machine *machine)
{
    td_train_options options = *request->options;
    td_plan_request other = *request;
    td_graph *copy = NULL;
    td_plan *without = NULL;
    if (!options.offload_optimizer)
        return NULL;
    options.offload_optimizer = TD_OFFLOAD_NONE;
    options.offload_delayed = false;
    other.options = &options;
    other.unbounded = true;
    TD_TRY(TD_NEW(plan->without, plan->n_sites));
    TD_TRY(td_graph_clone(graph, &copy));
    TD_TRY(td_plan_build(copy, machine->sites, machine->n_sites, &other, td_machine_retain(machine), td_machine_release,
                         &without));
    memcpy(plan->without, without->ledger, (size_t)plan->n_sites * sizeof *plan->without);
    td_plan_release(without);
    return NULL;
}

static td_status *build_once(td_graph *graph, const td_plan_request *request, td_machine *machine, td_plan **out_plan)
{
    td_graph *copy = NULL;
    TD_TRY(td_graph_clone(graph, &copy));
    return td_plan_build(copy, machine->sites, machine->n_sites, request, td_machine_retain(machine),
                         td_machine_release, out_plan);
}

/* A plan that keeps more, in place of *best where it fits. */
static td_status *try_to_keep(td_graph *graph, const td_plan_request *request, td_machine *machine, td_plan **best,
                              bool *out_fits)
{
    td_plan *plan = NULL;
    td_status *status = build_once(graph, request, machine, &plan);
    *out_fits = !status;
    if (td_status_code(status) == TD_DOES_NOT_FIT) {
        td_status_destroy(status);
        return NULL;
    }
    if (status)
        return status;
    td_plan_release(*best);
    *best = plan;
    return NULL;
}

/* *n: the most that it may be, by halving between what fits and `too_many`. */
static td_status *keep_most(td_graph *graph, const td_plan_request *request, td_machine *machine, int64_t *n,
                            int64_t too_many, td_plan **best)
{
    int64_t fits = 0;
    td_status *status = NULL;
    while (too_many - fits > 1 && !status) {
        bool does = false;
        *n = fits + (too_many - fits) / 2;
        status = try_to_keep(graph, request, machine, best, &does);
        fits = does ? *n : fits;
        too_many = does ? too_many : *n;
    }
    *n = fits;
    return status;
}

/* offload.optimizer: auto. The most parameters that may stay on devices, and then the most blocks of the next one: what fits with
 * some fits with fewer. A plan with none of them there that does not fit is the refusal. */
static td_status *build_fitting(td_graph *graph, td_plan_request *request, td_machine *machine, td_plan **out_plan)
{
    td_plan *best = NULL;
    request->keep = INT64_MAX;
    td_status *status = build_once(graph, request, machine, out_plan);
    if (td_status_code(status) != TD_DOES_NOT_FIT)
        return status;
    td_status_destroy(status);
    status = NULL;
    request->keep = 0;
    TD_TRY(build_once(graph, request, machine, &best));
    status = keep_most(graph, request, machine, &request->keep, best->n_movable, &best);
    if (!status)
        status = keep_most(graph, request, machine, &request->keep_blocks, best->splits + 1, &best);
    if (status)
        td_plan_release(best);
    else
        *out_plan = best;
    return status;
}

static td_status *build(td_graph *graph, const td_plan_request *request, td_machine *machine, td_plan **out_plan)
{
    bool automatic = request->loss >= 0 && request->options->offload_optimizer == TD_OFFLOAD_AUTO;
    td_plan_request mine = *request;
    td_status *status =
        automatic ? build_fitting(graph, &mine, machine, out_plan) : build_once(graph, request, machine, out_plan);
    if (!status && (*out_plan)->training)
        status = add_ledger_without(*out_plan, graph, request, machine);
    if (status && *out_plan) {
        td_plan_release(*out_plan);
        *out_plan = NULL;
    }
    return td_status_code(status) == TD_DOES_NOT_FIT ? advise(status, graph, request, machine) : status;
}

static td_status *plan_graph(td_graph *graph, const td_plan_request *request, td_machine *machine, td_plan **out_plan)
{
    char *key = NULL;
    if (!request->home)
        TD_TRY(make_key(graph, request, &key));
    if (!key)
        return build(graph, request, machine, out_plan);
    *out_plan = td_machine_find_plan(machine, key);
    if (*out_plan) {
        td_free(key);
        return NULL;
    }
    td_status *status = build(graph, request, machine, out_plan);
    if (status) {
        td_free(key);
        return status;
    }
    (*out_plan)->key = key;
    status = td_machine_keep_plan(machine, *out_plan);
    if (status) {
        td_plan_release(*out_plan);
        *out_plan = NULL;
    }
    return status;
}

static td_status *check_delay(const td_train_options *options)
{
    if (!options->offload_delayed)
        return NULL;
    if (options->offload_optimizer == TD_OFFLOAD_NONE)
        return td_status_help(
            TD_ERROR(TD_INVALID_ARGUMENT,
                     "offload.delayed is true and offload.optimizer is none: an update is delayed so that the "
                     "host makes it while the device computes the next step, and no update is the host's"),
            "try: offload.optimizer: cpu, or offload.delayed: false");
    if (options->remote && options->hashes.n)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "offload.delayed is true and tables.hash has tables: theirs are updates of "
                        "rows by whoever owns them, which no step makes late; leave one of both out");
    if (options->remote)
        return TD_ERROR(
            TD_INVALID_ARGUMENT,
            "offload.delayed is true in a distributed job, whose steps wait for the gradients of all workers: "
            "a delay would change the results and hide nothing");
    return NULL;
}

/* What waits for all gradients of a window cannot be had while windows run ahead of each other. */
static td_status *check_consistency(const td_train_options *options)
{
    if (options->shard_optimizer && options->remote && options->remote->may_be_stale)
        return TD_ERROR(TD_UNSUPPORTED, "ps.shard_optimizer has the workers wait in each window for what the others "
                                        "update: it needs ps.consistency: sync");
    if (!options->remote || !options->remote->may_be_stale || !td_options_wait_for_gradients(options))
        return NULL;
    return TD_ERROR(TD_UNSUPPORTED,
                    "train.clip_norm, train.on_nan: skip and train.precision: fp16 wait for all gradients of a "
                    "window: they need ps.consistency: sync");
}

td_status *td_plan_train(td_graph *graph, td_value loss, td_train_options *options, td_plan **out_plan)
{
    *out_plan = NULL;
    TD_TRY(check(graph, options));
    td_machine *machine = options->machine;
    td_plan_request request = {.loss = loss.id,
                               .options = options,
                               .default_site = machine->standard,
                               .host_site = machine->host,
                               .host_memory_bytes = machine->topology->memory_bytes,
                               .replicas =
                                   options->remote && !options->remote->is_local ? options->remote->replicas : 0,
                               .alone = options->remote && options->remote->is_local,
                               .asks_ahead = options->remote && options->remote->asks_ahead,
                               .workers = options->remote ? options->remote->workers : 0,
                               .worker = options->remote ? options->remote->worker : 0};
    if (loss.id < 0 || loss.graph != graph)
        return TD_ERROR(TD_INVALID_ARGUMENT, "td_plan_train: the loss is not a value of this graph");
    TD_TRY(check_delay(options));
    TD_TRY(check_consistency(options));
    TD_TRY(plan_graph(graph, &request, machine, out_plan));
    for (int64_t i = 0; i < (*out_plan)->n_idle_rules; i++)
        td_log(TD_LOG_WARNING, "placement: %s", (*out_plan)->idle_rules[i]);
    return NULL;
}

td_status *td_plan_evaluate(td_graph *graph, const td_value *outputs, int32_t n_outputs, td_train_options *options,
                            const td_store *store, td_plan **out_plan)
{
    int32_t *ids = NULL;
    *out_plan = NULL;
    TD_TRY(check(graph, options));
    td_machine *machine = options->machine;
    TD_TRY(TD_NEW(ids, n_outputs + 1));
    for (int32_t i = 0; i < n_outputs; i++) {
        ids[i] = outputs[i].graph == graph ? outputs[i].id : -1;
        if (ids[i] < 0) {
            td_free(ids);
            return TD_ERROR(TD_INVALID_ARGUMENT, "td_plan_evaluate: output %d is not a value of this graph", i);
        }
    }
    td_plan_request request = {.loss = -1,
                               .outputs = ids,
                               .n_outputs = n_outputs,
                               .options = options,
                               .default_site = machine->standard,
                               .host_site = machine->host,
                               .host_memory_bytes = machine->topology->memory_bytes,
                               .home = store ? td_store_home : NULL,
                               .held = store ? td_store_held : NULL,
                               .replicated = store ? td_store_replicated : NULL,
                               .home_context = store};
    td_status *status = plan_graph(graph, &request, machine, out_plan);
    td_free(ids);
    return status;
}
