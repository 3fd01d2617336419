/* Training options: lists that remember their first error, so that building them reads as a list of facts. */
#include <string.h>

#include "base/memory.h"
#include "runtime/machine.h"
#include "tandem/plan.h"

td_train_options td_train_defaults(void)
{
    return (td_train_options){.seed = 1,
                              .jit_level = TD_O2,
                              .accumulate = 1,
                              .replicas = 1,
                              .offload_ratio = 1,
                              .most_skipped = 100,
                              .loss_scale = {.initial = 65536, .growth_interval = 2000, .hysteresis = 2, .minimum = 1}};
}

static void list_deinit(td_option_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        td_free(list->items[i].match);
        td_free(list->items[i].value);
        td_free(list->items[i].cause);
        td_free((void *)(uintptr_t)list->items[i].optimizer.name);
    }
    td_free(list->items);
    *list = (td_option_list){0};
}

void td_train_options_deinit(td_train_options *options)
{
    list_deinit(&options->devices);
    list_deinit(&options->placements);
    list_deinit(&options->groups);
    list_deinit(&options->keep_fp32);
    list_deinit(&options->recompute);
    list_deinit(&options->report_gradients);
    for (int64_t i = 0; i < options->hashes.n; i++)
        td_free((void *)(uintptr_t)options->hashes.items[i].match);
    td_free(options->hashes.items);
    td_free(options->accumulate_changes.items);
    td_free(options->default_device);
    td_free((void *)(uintptr_t)options->tables.match);
    td_free((void *)(uintptr_t)options->tables.path);
    td_machine_forget_plans(options->machine);
    td_machine_release(options->machine);
    td_status_destroy(options->error);
    *options = td_train_defaults();
}

static void fail(td_train_options *options, td_status *status)
{
    if (options->error)
        td_status_destroy(status);
    else
        options->error = status;
}

static td_status *copy_text(const char *text, char **out)
{
    *out = text ? td_strdup(text) : NULL;
    return text && !*out ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for options") : NULL;
}

static td_status *append(td_option_list *list, const char *match, const char *value, const char *cause,
                         const td_optimizer *optimizer)
{
    td_option_entry entry = {0};
    char *name = NULL;
    td_status *status = NULL;
    TD_TRY_OR(status, failed, copy_text(match, &entry.match));
    TD_TRY_OR(status, failed, copy_text(value, &entry.value));
    TD_TRY_OR(status, failed, copy_text(cause, &entry.cause));
    TD_TRY_OR(status, failed, copy_text(optimizer ? optimizer->name : NULL, &name));
    TD_TRY_OR(status, failed, td_grow(&list->items, &list->capacity, list->n, sizeof *list->items));
    if (optimizer)
        entry.optimizer = *optimizer;
    entry.optimizer.name = name;
    list->items[list->n++] = entry;
    return NULL;
failed:
    td_free(entry.match);
    td_free(entry.value);
    td_free(entry.cause);
    td_free(name);
    return status;
}

void td_add_device(td_train_options *options, const char *name, const char *what)
{
    if (options->machine) {
        fail(options,
             TD_ERROR(TD_INVALID_ARGUMENT, "device \"%s\" comes too late: a plan was made with these options", name));
        return;
    }
    for (int64_t i = 0; i < options->devices.n; i++)
        if (strcmp(options->devices.items[i].match, name) == 0) {
            fail(options, TD_ERROR(TD_INVALID_ARGUMENT, "two devices are called \"%s\"", name));
            return;
        }
    td_status *status = append(&options->devices, name, what ? what : name, NULL, NULL);
    if (status)
        fail(options, status);
}

void td_default_device(td_train_options *options, const char *name)
{
    if (options->machine) {
        fail(options,
             TD_ERROR(TD_INVALID_ARGUMENT, "default device \"%s\" comes too late: a plan was made with these options",
                      name ? name : "(the first accelerator)"));
        return;
    }
    td_free(options->default_device);
    td_status *status = copy_text(name, &options->default_device);
    if (status)
        fail(options, status);
}

void td_place_because(td_train_options *options, const char *match, const char *target, const char *cause)
{
    td_status *status = append(&options->placements, match, target, cause, NULL);
    if (status)
        fail(options, status);
}

void td_place(td_train_options *options, const char *match, const char *target)
{
    char *cause = td_format("the rule \"%s\"", match);
    if (!cause)
        fail(options, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for options"));
    else
        td_place_because(options, match, target, cause);
    td_free(cause);
}

void td_group(td_train_options *options, const char *match, td_optimizer optimizer)
{
    td_status *status = append(&options->groups, match, NULL, NULL, &optimizer);
    if (status)
        fail(options, status);
}

void td_tables(td_train_options *options, td_table_options tables)
{
    char *match = NULL, *path = NULL;
    td_status *status = copy_text(tables.match, &match);
    if (!status)
        status = copy_text(tables.path, &path);
    if (!status && (tables.resident_bytes < 0 || tables.least_bytes < 0))
        status = TD_ERROR(TD_INVALID_ARGUMENT, "td_tables: sizes must not be negative");
    if (status) {
        td_free(match);
        td_free(path);
        fail(options, status);
        return;
    }
    td_free((void *)(uintptr_t)options->tables.match);
    td_free((void *)(uintptr_t)options->tables.path);
    options->tables = tables;
    options->tables.match = match;
    options->tables.path = path;
}

static td_status *add_hash(td_hash_list *list, const td_hash_options *hash)
{
    enum { MOST_LIVE = (1 << 23) - 1 }; /* what three bytes tell apart: ps/key_marks.h */
    char *match = NULL;
    if (hash->admit_count < 0 || hash->admit_count > UINT32_MAX || hash->capacity < 0 || hash->live < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "td_hash: counts must not be negative, admit_count below 2^32");
    if (hash->live > MOST_LIVE)
        return TD_ERROR(TD_INVALID_ARGUMENT, "td_hash: live is %d windows at most, not %lld", MOST_LIVE,
                        (long long)hash->live);
    if (!(hash->admit_probability >= 0 && hash->admit_probability <= 1))
        return TD_ERROR(TD_INVALID_ARGUMENT, "td_hash: a probability is 0 to 1, not %g", hash->admit_probability);
    TD_TRY(copy_text(hash->match ? hash->match : "*", &match));
    td_status *status = td_grow(&list->items, &list->capacity, list->n, sizeof *list->items);
    if (status) {
        td_free(match);
        return status;
    }
    list->items[list->n] = *hash;
    list->items[list->n++].match = match;
    return NULL;
}

void td_hash(td_train_options *options, td_hash_options hash)
{
    td_status *status = add_hash(&options->hashes, &hash);
    if (status)
        fail(options, status);
}

void td_keep_fp32(td_train_options *options, const char *match)
{
    td_status *status = append(&options->keep_fp32, match, NULL, NULL, NULL);
    if (status)
        fail(options, status);
}

void td_report_gradients(td_train_options *options, const char *match)
{
    td_status *status = append(&options->report_gradients, match, NULL, NULL, NULL);
    if (status)
        fail(options, status);
}

void td_recompute(td_train_options *options, const char *match)
{
    td_status *status = append(&options->recompute, match, NULL, NULL, NULL);
    if (status)
        fail(options, status);
}

void td_accumulate_from(td_train_options *options, int64_t step, int32_t accumulate)
{
    td_accumulate_changes *changes = &options->accumulate_changes;
    td_status *status = NULL;
    if (step < 2 || (changes->n && step <= changes->items[changes->n - 1].from))
        status =
            TD_ERROR(TD_INVALID_ARGUMENT,
                     "accumulation changes from step %lld on, after one from step %lld on: steps must ascend from 2",
                     (long long)step, (long long)(changes->n ? changes->items[changes->n - 1].from : 1));
    if (!status)
        status = td_grow(&changes->items, &changes->capacity, changes->n, sizeof *changes->items);
    if (status) {
        fail(options, status);
        return;
    }
    changes->items[changes->n++] = (td_accumulate_change){step, accumulate};
}
