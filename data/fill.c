/* From parsed rows to the tensors of a batch: see data/fill.h. Row by row, because a row lies together and rows of a
 * shuffled batch do not; the rows ahead are fetched early, which is most of the time this takes. */
#include "data/fill.h"

#include "base/prefetch.h"

enum { AHEAD = 8, CACHE_LINE = 64 };

TD_PREFETCHES void fetch(const td_rows *rows, int64_t row)
{
    const unsigned char *record = td_rows_at(rows, row);
    for (int64_t at = 0; at < rows->stride; at += CACHE_LINE)
        __builtin_prefetch(record + at);
}

void td_fill_dims(const td_schema_field *field, int64_t n, td_tensor *tensor)
{
    tensor->dims[0] = n;
    if (field->rank == 2)
        tensor->dims[1] = field->width;
    for (int32_t axis = 1; field->rank == 4 && axis < 4; axis++)
        tensor->dims[axis] = field->dims[axis - 1];
}

/* An id moved to where its column's rows lie. One that would pass the largest id stays there: no table has such a row, so
 * it is refused as any other id outside its table is. */
static int64_t shifted(int64_t id, int64_t shift)
{
    int64_t moved;
    return __builtin_add_overflow(id, shift, &moved) ? INT64_MAX : moved;
}

static void fill_ids(const td_rows *rows, const unsigned char *record, const td_field_plan *plan, int64_t width,
                     int64_t *out)
{
    for (int64_t k = 0; k < width; k++)
        out[k] = shifted(td_record_id(rows, record, plan->first + (int32_t)k), plan->shifts ? plan->shifts[k] : 0);
}

/* One field of row `i` of the batch. */
static void fill_field(const td_rows *rows, unsigned char *record, const td_schema_field *field,
                       const td_field_plan *plan, int64_t i, void *data)
{
    int64_t width = field->width;
    switch (field->role) {
    case TD_FIELD_NUMBERS:
    case TD_FIELD_LABEL:
        memcpy((float *)data + i * width, td_record_numbers(rows, record) + plan->first, (size_t)width * sizeof(float));
        break;
    case TD_FIELD_IDS:
        fill_ids(rows, record, plan, width, (int64_t *)data + i * width);
        break;
    case TD_FIELD_MASK:
        ((uint8_t *)data)[i] = td_record_id(rows, record, plan->first) != 0;
        break;
    }
}

td_status *td_fill_rows(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                        const int32_t *which, td_tensor *tensors)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            fetch(&dataset->rows, rows[i + AHEAD]);
        unsigned char *record = td_rows_at(&dataset->rows, rows[i]);
        for (int32_t f = 0; f < n_fields; f++)
            fill_field(&dataset->rows, record, &dataset->fields[which[f]], &dataset->plans[which[f]], i,
                       tensors[f].data);
    }
    for (int32_t f = 0; f < n_fields; f++)
        td_fill_dims(&dataset->fields[which[f]], n, &tensors[f]);
    return NULL;
}
