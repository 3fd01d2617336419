/* Pass: the proof that each device's peak (store, arena, scratch) fits its memory (the host without a limit of its own: what the
 * machine and the control group give this process), before anything is allocated. The refusal
 * names the device, how many bytes are short, the largest tenants, and placement rules that match nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "base/units.h"
#include "partition/plan.h"

enum { NAMED_TENANTS = 2 };

typedef struct tenant {
    const char *name;
    int64_t bytes, state_bytes;
} tenant;

static int compare_tenants(const void *a, const void *b)
{
    const tenant *x = a, *y = b;
    int64_t left = x->bytes + x->state_bytes, right = y->bytes + y->state_bytes;
    if (left != right)
        return left > right ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Parameters with their state, and blocks of the arena, largest first. */
static td_status *find_tenants(const td_plan *plan, int32_t site, tenant **out_tenants, int64_t *out_n)
{
    tenant *all = NULL;
    int64_t n = 0;
    TD_TRY(TD_NEW(all, plan->graph->n_values + 1));
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        all[v].name = plan->graph->values[v].name;
        bool here = value->device == site && (value->storage == TD_STORE || value->storage == TD_ARENA) &&
                    (value->table < 0 || plan->tables[value->table].storage == TD_TABLE_MEMORY);
        if (!here)
            continue;
        if (plan->graph->values[v].class == TD_CLASS_STATE)
            all[plan->graph->values[v].parameter].state_bytes += value->block_bytes;
        else
            all[v].bytes += value->block_bytes * (value->doubled ? 2 : 1);
    }
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (all[v].bytes + all[v].state_bytes)
            all[n++] = all[v];
    qsort(all, (size_t)n, sizeof *all, compare_tenants);
    *out_tenants = all;
    *out_n = n;
    return NULL;
}

static void describe_tenants(const tenant *tenants, int64_t n, td_string *text)
{
    char bytes[TD_UNIT_TEXT];
    for (int64_t i = 0; i < n && i < NAMED_TENANTS; i++) {
        td_string_format(text, "%s%s %s", i ? "; " : "", tenants[i].name,
                         td_format_bytes(bytes, (double)tenants[i].bytes));
        if (tenants[i].state_bytes)
            td_string_format(text, " + its state %s", td_format_bytes(bytes, (double)tenants[i].state_bytes));
    }
    if (n > NAMED_TENANTS)
        td_string_format(text, "; %" PRId64 " more", n - NAMED_TENANTS);
}

static td_status *refuse(const td_plan *plan, int32_t site, int64_t need, int64_t capacity)
{
    char has[TD_UNIT_TEXT], needs[TD_UNIT_TEXT], missing[TD_UNIT_TEXT], *largest = NULL;
    tenant *tenants = NULL;
    td_string text = {0};
    int64_t n = 0;
    TD_TRY(find_tenants(plan, site, &tenants, &n));
    describe_tenants(tenants, n, &text);
    td_free(tenants);
    TD_TRY(td_string_finish(&text, &largest));
    td_status *status =
        TD_ERROR(TD_DOES_NOT_FIT, "does not fit: %s has %s and the plan needs %s (%s short)", plan->sites[site].name,
                 td_format_bytes(has, (double)capacity), td_format_bytes(needs, (double)need),
                 td_format_bytes(missing, (double)(need - capacity)));
    status = td_status_help(status, "largest: %s", largest);
    for (int64_t i = 0; i < plan->n_idle_rules; i++) /* what it meant to move may be what does not fit */
        status = td_status_help(status, "%s", plan->idle_rules[i]);
    td_free(largest);
    return status;
}

/* Rows that a step in flight works on cannot leave memory. */
static td_status *check_resident(const td_plan *plan)
{
    const td_plan_paging *paging = &plan->paging;
    char bound[TD_UNIT_TEXT], needs[TD_UNIT_TEXT];
    if (!paging->file_bytes || paging->needed_bytes <= paging->resident_bytes)
        return NULL;
    return td_status_help(
        TD_ERROR(TD_DOES_NOT_FIT,
                 "does not fit: %s of tables may be in memory and two steps may touch %s of their pages",
                 td_format_bytes(bound, (double)paging->resident_bytes),
                 td_format_bytes(needs, (double)paging->needed_bytes)),
        "try: tables.resident: %lld (bytes), or a smaller data.batch", (long long)paging->needed_bytes);
}

td_status *td_pass_feasible(td_plan *plan, const td_plan_request *request)
{
    if (request->unbounded)
        return NULL;
    TD_TRY(check_resident(plan));
    for (int32_t s = 0; s < plan->n_sites; s++) {
        int64_t need = plan->arenas[s].store_bytes + plan->arenas[s].bytes;
        int64_t capacity = (int64_t)plan->sites[s].properties.memory_bytes;
        if (!capacity && plan->sites[s].is_host)
            capacity = request->host_memory_bytes;
        if (capacity && need > capacity)
            return refuse(plan, s, need, capacity);
    }
    return NULL;
}
