/* embedding_update and embedding_updates: the ids of a batch are grouped by row, then each touched row is summed and updated
 * in one go, without locks.
 *
 * The gradient of a row: for each source (a lookup of the table) its positions in ascending order, the first taken as it is,
 * each out_gradient[bag] times its weight, divided by the bag's number of ids, each step rounded; then the sources' sums in
 * order. Leaving out a weight of 1 or a count of 1 changes nothing. Rows are independent of each other, so neither partitions
 * nor threads show in the bits. */
#include "backends/cpu/kernels/row_sums.h"
#include "backends/cpu/kernels/update_rules.h"

static bool supports(const td_kernel_call *call)
{
    return td_table_updates_take(call, td_update_rule_of(call));
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return td_table_updates_scratch(call);
}

/* The gradient of one row whose items may be of several sources; sums: [2, dim]. */
static const float *row_gradient(const td_table_task *task, const td_row_groups *groups, int64_t group, float *sums)
{
    const td_table_update *table = task->table;
    const int64_t dim = table->target.dim;
    row_span span = {table->sources, groups->items, groups->order + groups->starts[group],
                     groups->starts[group + 1] - groups->starts[group]};
    if (table->rows.n_sources == 1)
        return row_sum(&span, dim, sums);
    const float *total = NULL;
    int64_t left = span.n;
    for (int32_t s = 0; left; s++, span.source++) {
        const int64_t end = td_row_source_end(&table->rows, task->partition, s);
        for (span.n = 0; span.n < left && span.order[span.n] < end;)
            span.n++;
        if (!span.n)
            continue;
        const float *more = row_sum(&span, dim, total == sums ? sums + dim : sums);
        for (int64_t k = 0; total && k < dim; k++)
            sums[k] = total[k] + more[k];
        total = total ? sums : more;
        left -= span.n;
        span.order += span.n;
    }
    return total;
}

enum { GRADIENTS_AHEAD = 4, MOST_ASKED = 4 }; /* groups; gradients of a group */

/* Asks for the first gradients of a row's sum: those of a table of several sources come in their order. */
TD_PREFETCHES void prefetch_gradients(const td_table_task *task, const td_row_groups *groups, int64_t group)
{
    const td_table_source *source = task->table->sources;
    const int64_t end = groups->starts[group + 1];
    for (int64_t i = groups->starts[group]; i < end && i < groups->starts[group] + MOST_ASKED; i++)
        td_prefetch_row(source->gradient + groups->items[groups->order[i]].bag * source->pitch,
                        task->table->target.dim * (int64_t)sizeof(float));
}

static void update_partition(const td_table_task *task)
{
    const td_table_update *table = task->table;
    const td_update_target *target = &table->target;
    td_row_workspace workspace;
    td_row_groups groups;
    const bool near_gradients = table->rows.n_sources == 1;
    float near[2 * TD_LONG_ROW], *sums = task->sums ? task->sums : near;
    td_row_groups_find(&table->rows, task->partition, &workspace, &groups);
    for (int64_t g = 0; g < groups.n && g < TD_UPDATE_PREFETCH_ROWS; g++)
        td_update_prefetch(target, groups.rows[g]);
    for (int64_t g = 0; g < groups.n; g++) {
        if (g + TD_UPDATE_PREFETCH_ROWS < groups.n)
            td_update_prefetch(target, groups.rows[g + TD_UPDATE_PREFETCH_ROWS]);
        if (near_gradients && g + GRADIENTS_AHEAD < groups.n)
            prefetch_gradients(task, &groups, g + GRADIENTS_AHEAD);
        td_update_row(target, groups.rows[g], row_gradient(task, &groups, g, sums));
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    return td_table_updates_run(call, td_update_rule_of(call), team, update_partition);
}

const td_cpu_kernel TD_KERNEL(embedding_update) = {
    .op = "embedding_update", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
const td_cpu_kernel TD_KERNEL(embedding_updates) = {
    .op = "embedding_updates", .supports = supports, .scratch_bytes = scratch_bytes, .run = run};
