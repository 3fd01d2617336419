/* Ids of served tables while they are recorded: how often they repeat, and which come most. See runtime/profiler.h.
 *
 * It costs a look at a few hundred ids of a batch, on the run's thread, beside making them distinct, which looks at all. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "base/memory.h"
#include "base/record.h"
#include "runtime/profiler.h"

enum { TOLD = 16 }; /* hot keys of each group */

/* "deep.0.weight and 2 more". */
static char *tables_of(const td_plan *plan, int32_t k)
{
    const char *first = NULL;
    int32_t more = 0;
    for (int32_t t = 0; t < plan->n_served; t++) {
        if (plan->served[t].keys != k)
            continue;
        more += first != NULL;
        first = first ? first : plan->served[t].name;
    }
    if (more)
        return td_format("%s and %d more", first, more);
    return td_strdup(first ? first : plan->keys[k].name);
}

static td_profiler_keys *group_of(td_profiler *profiler, const td_plan *plan, int32_t k)
{
    while (profiler->n_keys <= k) {
        td_status *status =
            td_grow(&profiler->keys, &profiler->keys_capacity, profiler->n_keys, sizeof *profiler->keys);
        if (status) {
            td_status_destroy(status);
            return NULL;
        }
        profiler->keys[profiler->n_keys] = (td_profiler_keys){0};
        profiler->n_keys++;
    }
    if (!profiler->keys[k].tables)
        profiler->keys[k].tables = tables_of(plan, k);
    profiler->keys[k].hashed = plan->keys[k].hashed;
    return &profiler->keys[k];
}

void td_profiler_count_keys(const td_plan *plan, int32_t k, const int64_t *ids, int64_t n, int64_t distinct)
{
    td_profiler *profiler = td_record_on() && plan->training ? td_profiler_current() : NULL;
    if (!profiler)
        return;
    pthread_mutex_lock(&profiler->mutex);
    td_profiler_keys *group = profiler->recording ? group_of(profiler, plan, k) : NULL;
    if (group)
        td_hot_keys_add(&group->hot, ids, n, distinct);
    pthread_mutex_unlock(&profiler->mutex);
}

static json_t *group_json(const td_profiler_keys *group)
{
    td_hot_keys hot = group->hot;
    json_t *list = json_array();
    td_hot_keys_sort(&hot);
    for (int64_t i = 0; i < hot.n && i < TOLD; i++) {
        const int64_t id = group->hashed ? td_id_of_key(hot.keys[i]) : hot.keys[i];
        json_array_append_new(list, json_pack("[I, I]", (json_int_t)id, (json_int_t)hot.counts[i]));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "tables", group->tables, "batches", (json_int_t)hot.batches,
                     "ids", (json_int_t)hot.ids, "distinct", (json_int_t)hot.distinct, "sampled", (json_int_t)hot.seen,
                     "hot", list);
}

char *td_profiler_keys_json(td_profiler *profiler)
{
    json_t *list = json_array();
    for (int64_t k = 0; k < profiler->n_keys; k++)
        if (profiler->keys[k].tables && profiler->keys[k].hot.batches)
            json_array_append_new(list, group_json(&profiler->keys[k]));
    bool any = json_array_size(list) > 0;
    json_t *root = json_pack("{s:o}", "keys", list);
    char *text = root && any ? json_dumps(root, JSON_COMPACT) : NULL, *copy = text ? td_strdup(text) : NULL;
    free(text); /* jansson's own allocation */
    json_decref(root);
    return copy;
}

void td_profiler_free_keys(td_profiler *profiler)
{
    for (int64_t k = 0; k < profiler->n_keys; k++)
        td_free(profiler->keys[k].tables);
    td_free(profiler->keys);
}
