/* Aligned columns: see cli/table.h. Widths count characters, not bytes, of UTF-8. */
#include "cli/table.h"

#include <string.h>

#include "base/memory.h"

void td_table_init(td_table *table, int32_t columns)
{
    *table = (td_table){.columns = columns};
}

void td_table_row_of(td_table *table, const char *const *texts)
{
    for (int32_t c = 0; c < table->columns && !table->error; c++) {
        table->error = td_grow(&table->cells, &table->capacity, table->n, sizeof(char *));
        char *copy = table->error ? NULL : td_strdup(texts[c] ? texts[c] : "");
        if (!table->error && !copy)
            table->error = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a table");
        if (copy)
            table->cells[table->n++] = copy;
    }
}

static int characters(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static void print_row(const td_table *table, int64_t row, const int *widths, const char *indent, FILE *stream)
{
    fputs(indent, stream);
    int pending = 0; /* blanks owed, so that none ends a line */
    for (int32_t c = 0; c < table->columns; c++) {
        const char *text = table->cells[row * table->columns + c];
        int blanks = widths[c] - characters(text);
        if (*text)
            fprintf(stream, "%*s%s", pending + (table->right[c] ? blanks : 0), "", text);
        pending = *text ? (table->right[c] ? 0 : blanks) : pending + widths[c];
        pending += 2;
    }
    fputc('\n', stream);
}

td_status *td_table_print(td_table *table, const char *indent, FILE *stream)
{
    int widths[TD_TABLE_MOST_COLUMNS] = {0};
    for (int64_t i = 0; i < table->n; i++) {
        int width = characters(table->cells[i]);
        if (width > widths[i % table->columns])
            widths[i % table->columns] = width;
    }
    for (int64_t row = 0; !table->error && row < table->n / table->columns; row++)
        print_row(table, row, widths, indent, stream);
    for (int64_t i = 0; i < table->n; i++)
        td_free(table->cells[i]);
    td_free(table->cells);
    td_status *error = table->error;
    *table = (td_table){0};
    return error;
}
