/* A table of texts with a header and aligned columns, for a terminal or a file.
 *
 *     td_table table;
 *     td_table_init(&table, 3);
 *     td_table_row(&table, "device", "memory", "peak");
 *     td_table_row(&table, "cpu", "23.4 GiB", "1.22 GiB");
 *     TD_TRY(td_table_print(&table, "  ", stream));      // also frees it
 *
 * Texts are copied. The first failure (no memory) is what td_table_print returns. */
#ifndef TANDEM_CLI_TABLE_H
#define TANDEM_CLI_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/status.h"

enum { TD_TABLE_MOST_COLUMNS = 12 };

typedef struct td_table {
    int32_t columns;
    bool right[TD_TABLE_MOST_COLUMNS]; /* align to the right; set after init */
    char **cells;
    int64_t n, capacity;
    td_status *error;
} td_table;

void td_table_init(td_table *table, int32_t columns);
/* One text for each column; NULL is empty. */
#define td_table_row(table, ...) td_table_row_of((table), (const char *[]){__VA_ARGS__})
void td_table_row_of(td_table *table, const char *const *texts);
/* Prints each row after `indent`, two spaces between columns, and frees the table. */
td_status *td_table_print(td_table *table, const char *indent, FILE *stream) TD_MUST_USE;

#endif
