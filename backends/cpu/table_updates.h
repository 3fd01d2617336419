/* The fused updates of tables, up to what is done with one row: reading the call, checking ids, dealing them, and handing out
 * partitions. Kernels (kernels/embedding_update.c) bring the function that sums and updates the rows of a partition.
 *
 * Works on calls of embedding_update (one lookup) and embedding_updates (several tables, or several lookups of one). All ids
 * and offsets are checked before anything is written. Tables are then taken in waves of a bounded number of ids, so that
 * scratch memory stays small whatever the number of tables; a wave's partitions come largest first. */
#ifndef TANDEM_BACKENDS_CPU_TABLE_UPDATES_H
#define TANDEM_BACKENDS_CPU_TABLE_UPDATES_H

#include "backends/cpu/row_groups.h"
#include "backends/cpu/update.h"

/* A lookup whose gradient a table takes: row b of `gradient`, `pitch` apart, is that of bag b. */
typedef struct td_table_source {
    td_lookup lookup;
    const float *gradient, *weights; /* weights: per id, or NULL */
    int64_t pitch;
    bool mean;
} td_table_source;

typedef struct td_table_update {
    td_row_table rows;
    const td_table_source *sources; /* [rows.n_sources] */
    td_update_target target;
} td_table_update;

enum { TD_LONG_ROW = 512 }; /* elements; up to that, sums lie on the stack */

typedef struct td_table_task {
    const td_table_update *table;
    int32_t partition;
    float *sums; /* [2, dim] where a row is long, else NULL */
} td_table_task;

bool td_table_updates_take(const td_kernel_call *call, const td_update_rule *rule);
size_t td_table_updates_scratch(const td_kernel_call *call);
/* Calls update(task) for every partition of every table. */
td_status *td_table_updates_run(const td_kernel_call *call, const td_update_rule *rule, td_team *team,
                                void (*update)(const td_table_task *task)) TD_MUST_USE;

#endif
