/* The tables of a store that take address space instead of memory: see store.h and paged_table.h. One pool of pages and one file for
 * all of them. */
#include "base/memory.h"
#include "runtime/store.h"

static int64_t row_elements(const td_plan *plan, int32_t value)
{
    int64_t elements = 1;
    const td_shape *shape = &plan->graph->values[value].shape;
    for (int32_t i = 1; i < shape->rank; i++)
        elements *= shape->dims[i].constant;
    return elements;
}

static td_status *add_array(td_store *store, const td_plan *plan, td_paged_table *table, int32_t value)
{
    const td_value_info *info = &plan->graph->values[value];
    td_initial initial = td_initial_of(store->seed, info->name, info->dtype, info->initial);
    return td_status_prefix(td_paged_table_add(table, row_elements(plan, value), initial), "\"%s\"", info->name);
}

static td_status *add_table(td_store *store, const td_plan *plan, const td_plan_table *planned)
{
    td_paged_table *table = &store->tables[store->n_tables];
    int64_t rows = plan->graph->values[planned->parameter].shape.dims[0].constant;
    TD_TRY(td_paged_table_init(table, &store->pool, rows));
    store->n_tables++;
    TD_TRY(add_array(store, plan, table, planned->parameter));
    for (int32_t i = 0; i < planned->n_states; i++)
        TD_TRY(add_array(store, plan, table, planned->states[i]));
    return NULL;
}

td_status *td_store_add_tables(td_store *store, const td_plan *plan)
{
    const td_plan_paging *paging = &plan->paging;
    td_work_file *file = NULL;
    if (!paging->bytes)
        return NULL;
    if (paging->file_bytes)
        TD_TRY(td_status_prefix(td_work_file_create(paging->path, paging->file_bytes, &file), "tables"));
    TD_TRY(td_page_pool_init(&store->pool, paging->resident_bytes, file));
    store->paging_bytes = paging->resident_bytes + paging->overhead_bytes;
    TD_TRY(TD_NEW(store->tables, plan->n_tables));
    for (int32_t t = 0; t < plan->n_tables; t++)
        if (plan->tables[t].storage != TD_TABLE_MEMORY)
            TD_TRY(add_table(store, plan, &plan->tables[t]));
    return NULL;
}

void td_store_drop_tables(td_store *store)
{
    for (int32_t t = 0; t < store->n_tables; t++)
        td_paged_table_deinit(&store->tables[t]);
    td_free(store->tables);
    td_page_pool_deinit(&store->pool);
}

void td_store_clear_tables(td_store *store)
{
    for (int32_t t = 0; t < store->n_tables; t++)
        td_paged_table_clear(&store->tables[t]);
}

/* Tables of the store are the plan's that are not in memory, in their order. */
static td_paged_table *table_of(td_store *store, const td_plan *plan, int32_t index)
{
    int32_t n = 0;
    for (int32_t t = 0; t < index; t++)
        n += plan->tables[t].storage != TD_TABLE_MEMORY;
    return &store->tables[n];
}

void td_store_join_table(td_store *store, const td_plan *plan, int32_t value, td_store_entry *entry)
{
    int32_t index = plan->values[value].table;
    if (index < 0 || plan->tables[index].storage == TD_TABLE_MEMORY)
        return;
    const td_plan_table *planned = &plan->tables[index];
    entry->table = table_of(store, plan, index);
    for (int32_t i = 0; i < planned->n_states; i++)
        if (planned->states[i] == value)
            entry->array = i + 1;
    entry->bytes = 0;
    entry->tensor.data = entry->table->arrays[entry->array].pages.base;
}
