/* How readers put a data set together: fields, notes, counts. See data/dataset.h. */
#include "data/dataset.h"

#include "base/memory.h"
#include "base/units.h"

td_status *td_dataset_add_note(td_dataset *dataset, const char *text)
{
    TD_TRY(td_grow(&dataset->notes, &dataset->notes_capacity, dataset->n_notes, sizeof *dataset->notes));
    char *note = td_strdup(text);
    if (!note)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a note about the data");
    dataset->notes[dataset->n_notes++] = note;
    return NULL;
}

/* Names and sizes of the field's columns, and each one's shift into the common range. */
static td_status *list_columns(const td_dataset *dataset, td_field_form form, td_schema_field *field,
                               td_field_plan *plan)
{
    int64_t n = form.ragged || form.rank == 1 ? 1 : form.width;
    const char **names = NULL;
    int64_t *rows = NULL, total = 0;
    TD_TRY(TD_NEW(names, n));
    field->columns = names;
    TD_TRY(TD_NEW(rows, n));
    field->column_rows = rows;
    if (form.shifted)
        TD_TRY(TD_NEW(plan->shifts, n));
    for (int64_t i = 0; i < n; i++) {
        const td_column_counts *column = &dataset->columns[form.first_column + i];
        names[i] = column->name;
        rows[i] = form.role == TD_FIELD_IDS ? column->table_rows : 0;
        if (form.shifted)
            plan->shifts[i] = total;
        if (form.shifted && !td_add_checked(total, rows[i], &total))
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: the tables of field \"%s\" have more than 2^63 rows together",
                            form.name);
        total = !form.shifted && rows[i] > total ? rows[i] : total;
    }
    field->table_rows = total;
    return NULL;
}

/* Whether columns and record have what the field takes from them. */
static bool exists(const td_dataset *dataset, td_field_form form)
{
    bool ids = form.role == TD_FIELD_IDS || form.role == TD_FIELD_MASK;
    int64_t have = ids ? dataset->rows.n_ids : dataset->rows.n_numbers;
    int64_t names = form.ragged || form.rank == 1 ? 1 : form.width;
    return (dataset->rows.stride == 0 || form.first + form.width <= have) &&
           (form.first_column < 0 || form.first_column + names <= dataset->n_columns);
}

td_status *td_dataset_add_field(td_dataset *dataset, td_field_form form)
{
    static const td_dtype dtypes[] = {
        [TD_FIELD_NUMBERS] = TD_F32, [TD_FIELD_IDS] = TD_I64, [TD_FIELD_LABEL] = TD_F32, [TD_FIELD_MASK] = TD_U8};
    int64_t n = dataset->schema.n_fields;
    if (!exists(dataset, form))
        return TD_ERROR(TD_INTERNAL, "data: field \"%s\" takes columns that the rows do not have", form.name);
    TD_TRY(td_grow(&dataset->fields, &dataset->fields_capacity, n, sizeof *dataset->fields));
    TD_TRY(td_grow(&dataset->plans, &dataset->plans_capacity, n, sizeof *dataset->plans));
    td_schema_field *field = &dataset->fields[n];
    *field = (td_schema_field){.role = form.role,
                               .kind = form.ragged ? TD_RAGGED : TD_DENSE,
                               .dtype = form.dtype != TD_F32 ? form.dtype : dtypes[form.role],
                               .rank = form.rank,
                               .width = form.width,
                               .dims = {form.dims[0], form.dims[1], form.dims[2]}};
    dataset->plans[n] = (td_field_plan){.first = form.first};
    dataset->schema.n_fields++; /* from here on td_dataset_destroy frees what it holds */
    field->name = td_strdup(form.name);
    if (!field->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for field \"%s\"", form.name);
    if (form.role == TD_FIELD_LABEL)
        dataset->schema.label = field->name;
    return form.first_column < 0 ? NULL : list_columns(dataset, form, field, &dataset->plans[n]);
}

td_status *td_dataset_add_table(td_dataset *dataset, int32_t index, int32_t first_column)
{
    char *name = td_format("ids_t%d", index);
    if (!name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for field \"ids_t%d\"", index);
    td_status *status = td_dataset_add_field(dataset, (td_field_form){.name = name,
                                                                      .role = TD_FIELD_IDS,
                                                                      .rank = 1,
                                                                      .width = 1,
                                                                      .first = index,
                                                                      .first_column = first_column + index});
    td_free(name);
    dataset->schema.n_tables += status == NULL;
    return status;
}

void td_dataset_take_columns(td_dataset *dataset, td_columns *columns)
{
    dataset->columns = columns->counts;
    dataset->n_columns = columns->n_numbers + columns->n_ids;
    columns->counts = NULL;
}

/* Takes the note; NULL: there was no memory for it. */
static td_status *add_formatted(td_dataset *dataset, char *note)
{
    td_status *status =
        note ? td_dataset_add_note(dataset, note) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a note on bad rows");
    td_free(note);
    return status;
}

td_status *td_dataset_take_bad_rows(td_dataset *dataset, const td_bad_rows *bad)
{
    int64_t more = bad->bad;
    dataset->counts.bad_rows = bad->bad;
    for (int32_t i = 0; i < TD_BAD_ROWS_KEPT && bad->first[i]; i++, more--)
        TD_TRY(add_formatted(dataset, td_format("%s; the row is left out", bad->first[i])));
    if (more)
        TD_TRY(add_formatted(dataset, td_format("%s left out besides (data.bad_rows)", TD_COUNTED(more, "bad row"))));
    return NULL;
}
