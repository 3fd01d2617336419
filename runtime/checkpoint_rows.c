/* See checkpoint_rows.h. Everything goes through pieces of a few MiB. */
#include "runtime/checkpoint_rows.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

enum { PIECE_BYTES = 4 << 20, SPAN_BYTES = 1 << 20, GAP_BYTES = 4096 };

/* Some rows: indices and their data. */
typedef struct piece {
    int64_t *rows;
    char *data;
    int64_t most, n;
} piece;

static td_status *piece_init(piece *p, int64_t row_bytes)
{
    *p = (piece){.most = PIECE_BYTES / (row_bytes > 8 ? row_bytes : 8)};
    p->most = p->most > 0 ? p->most : 1;
    p->rows = td_calloc((size_t)p->most, sizeof *p->rows);
    p->data = td_calloc((size_t)p->most, (size_t)row_bytes);
    return p->rows && p->data ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
}

static void piece_deinit(piece *p)
{
    td_free(p->rows);
    td_free(p->data);
}

/* ---- writing -------------------------------------------------------------------------------------------------------------------- */

/* A stretch of the table that is read in one go, rows between those that are there with it: up to SPAN_BYTES, with gaps that are
 * not worth a read of their own. */
typedef struct span {
    const td_paged_table *table;
    const td_paged_table_array *array;
    char *bytes;
    int64_t first, n; /* rows */
} span;

/* The longest span from `row` on; lists what is there of it in the piece. *out_next: where to go on, or -1. */
static void open_span(span *s, piece *p, int64_t row, int64_t *out_next)
{
    const int64_t row_bytes = s->array->row_bytes, most = SPAN_BYTES / row_bytes, gap = GAP_BYTES / row_bytes;
    s->first = row;
    s->n = 0;
    do {
        p->rows[p->n++] = row;
        s->n = row + 1 - s->first;
        row = td_paged_table_next(s->table, row + 1);
    } while (row >= 0 && p->n < p->most && row - (s->first + s->n) <= gap && row + 1 - s->first <= most);
    *out_next = row;
}

/* The next rows that are there, from `row` on; *out_next: where to go on, or -1. */
static td_status *gather(span *s, piece *p, int64_t row, int64_t *out_next)
{
    const int64_t row_bytes = s->array->row_bytes;
    for (p->n = 0; p->n < p->most && row >= 0;) {
        int64_t listed = p->n;
        open_span(s, p, row, &row);
        TD_TRY(td_page_array_read(&s->array->pages, s->first * row_bytes, s->n * row_bytes, s->bytes));
        for (int64_t i = listed; i < p->n; i++)
            memcpy(p->data + i * row_bytes, s->bytes + (p->rows[i] - s->first) * row_bytes, (size_t)row_bytes);
    }
    *out_next = row;
    return NULL;
}

int64_t td_checkpoint_row_bytes(const td_store_entry *entry)
{
    if (entry->table)
        return entry->table->arrays[entry->array].row_bytes;
    const int64_t rows = entry->tensor.dims[0];
    return rows ? td_tensor_elements(&entry->tensor) / rows * (int64_t)td_dtype_bytes(entry->tensor.dtype) : 0;
}

td_status *td_checkpoint_write_rows(td_safetensors_writer *writer, const td_store_entry *entry, const char *tensor,
                                    const char *rows)
{
    const int64_t row_bytes = td_checkpoint_row_bytes(entry);
    int64_t done = 0, row = td_paged_table_next(entry->table, 0);
    span s = {.table = entry->table, .array = &entry->table->arrays[entry->array]};
    piece p;
    td_status *status = piece_init(&p, row_bytes);
    s.bytes = td_calloc(1, (size_t)(row_bytes > SPAN_BYTES ? row_bytes : SPAN_BYTES));
    if (!status && !s.bytes)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
    for (; row >= 0 && !status; done += p.n) {
        status = gather(&s, &p, row, &row);
        if (!status)
            status = td_safetensors_write(writer, tensor, done * row_bytes, p.n * row_bytes, p.data);
        if (!status && rows)
            status = td_safetensors_write(writer, rows, done * 8, p.n * 8, p.rows);
    }
    td_free(s.bytes);
    piece_deinit(&p);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

td_status *td_checkpoint_check_rows(const td_packed *packed, int64_t table_rows, int64_t *before)
{
    piece p;
    td_status *status = piece_init(&p, 8);
    for (int64_t done = 0; done < packed->rows->elements && !status; done += p.n) {
        p.n = packed->rows->elements - done < p.most ? packed->rows->elements - done : p.most;
        status = td_safetensors_read(packed->rows_file, packed->rows, done * 8, p.n * 8, p.rows);
        for (int64_t i = 0; i < p.n && !status; *before = p.rows[i++])
            if (p.rows[i] <= *before || p.rows[i] >= table_rows)
                status = TD_ERROR(TD_DATA_ERROR,
                                  "\"%s\": row %" PRId64 " after row %" PRId64 " of a table of %" PRId64 " rows",
                                  packed->rows->name, p.rows[i], *before, table_rows);
    }
    piece_deinit(&p);
    return status;
}

/* A stretch of the packed rows, from `done` on. */
static td_status *read_piece(const td_packed *packed, piece *p, int64_t done, int64_t row_elements)
{
    int64_t left = packed->rows->elements - done;
    p->n = left < p->most ? left : p->most;
    TD_TRY(td_safetensors_read(packed->rows_file, packed->rows, done * 8, p->n * 8, p->rows));
    return td_source_read(&packed->source, done * row_elements, p->n * row_elements, p->data);
}

static td_status *into_remote(const td_store *store, const td_store_entry *entry, const td_packed *packed)
{
    const int64_t row_bytes = td_checkpoint_row_bytes(entry);
    piece p;
    if (!store->remote->leads)
        return NULL; /* the first worker loads for all */
    td_status *status = piece_init(&p, row_bytes);
    for (int64_t done = 0; done < packed->rows->elements && !status; done += p.n) {
        status = read_piece(packed, &p, done, row_bytes / (int64_t)td_dtype_bytes(entry->tensor.dtype));
        if (!status)
            status = store->remote->write(store->remote->self, entry->remote_table, entry->array, p.rows, p.n, p.data);
    }
    piece_deinit(&p);
    return status;
}

static td_status *into_table(const td_store_entry *entry, const td_packed *packed)
{
    const td_paged_table_array *array = &entry->table->arrays[entry->array];
    int64_t row_bytes = array->row_bytes;
    piece p;
    td_status *status = piece_init(&p, row_bytes);
    for (int64_t done = 0; done < packed->rows->elements && !status; done += p.n) {
        status = read_piece(packed, &p, done, array->row_elements);
        for (int64_t i = 0; i < p.n && !status; i++)
            status = td_paged_table_write(entry->table, entry->array, p.rows[i], 1, p.data + i * row_bytes);
    }
    piece_deinit(&p);
    return status;
}

/* Rows in memory are written in order, the listed ones over their initial values. */
typedef struct filling {
    td_store *store;
    int32_t index;
    char *rows; /* of the window [first, first + n) */
    int64_t first, n, most, row_bytes, row_elements, total;
} filling;

static td_status *open_window(filling *f, int64_t first)
{
    const td_store_entry *entry = &f->store->entries[f->index];
    f->first = first;
    f->n = f->total - first < f->most ? f->total - first : f->most;
    td_initial_fill(&entry->initial, first * f->row_elements, f->n * f->row_elements, f->rows);
    return NULL;
}

static td_status *close_window(const filling *f)
{
    return td_store_write(f->store, f->index, f->first * f->row_elements, f->n * f->row_elements, f->rows);
}

static td_status *put_row(filling *f, int64_t row, const char *data)
{
    while (row >= f->first + f->n) {
        TD_TRY(close_window(f));
        TD_TRY(open_window(f, f->first + f->n));
    }
    memcpy(f->rows + (row - f->first) * f->row_bytes, data, (size_t)f->row_bytes);
    return NULL;
}

static td_status *fill_from(filling *f, const td_packed *packed, piece *p)
{
    for (int64_t done = 0; done < packed->rows->elements; done += p->n) {
        TD_TRY(read_piece(packed, p, done, f->row_elements));
        for (int64_t i = 0; i < p->n; i++)
            TD_TRY(put_row(f, p->rows[i], p->data + i * f->row_bytes));
    }
    return NULL;
}

static td_status *fill_all(filling *f, const td_packed *packs, int32_t n, piece *p)
{
    TD_TRY(open_window(f, 0));
    for (int32_t i = 0; i < n; i++)
        TD_TRY(fill_from(f, &packs[i], p));
    TD_TRY(close_window(f));
    while (f->first + f->n < f->total) {
        TD_TRY(open_window(f, f->first + f->n));
        TD_TRY(close_window(f));
    }
    return NULL;
}

static td_status *into_memory(td_store *store, int32_t index, const td_packed *packs, int32_t n)
{
    const td_tensor *tensor = &store->entries[index].tensor;
    filling f = {.store = store, .index = index, .total = tensor->dims[0]};
    if (f.total == 0)
        return NULL;
    f.row_elements = td_tensor_elements(tensor) / f.total;
    f.row_bytes = f.row_elements * (int64_t)td_dtype_bytes(tensor->dtype);
    f.most = PIECE_BYTES / (f.row_bytes > 0 ? f.row_bytes : 1) + 1;
    piece p;
    td_status *status = piece_init(&p, f.row_bytes);
    f.rows = td_calloc((size_t)f.most, (size_t)f.row_bytes);
    if (!status && !f.rows)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checkpoint");
    if (!status)
        status = fill_all(&f, packs, n, &p);
    td_free(f.rows);
    piece_deinit(&p);
    return status;
}

/* Row by row over what is there. */
static td_status *over_memory(td_store *store, int32_t index, const td_packed *packed)
{
    const td_store_entry *entry = &store->entries[index];
    const int64_t row_bytes = td_checkpoint_row_bytes(entry);
    const int64_t row_elements = row_bytes / (int64_t)td_dtype_bytes(entry->tensor.dtype);
    piece p;
    td_status *status = piece_init(&p, row_bytes);
    for (int64_t done = 0; done < packed->rows->elements && !status; done += p.n) {
        status = read_piece(packed, &p, done, row_elements);
        for (int64_t i = 0; i < p.n && !status; i++)
            status = td_store_write(store, index, p.rows[i] * row_elements, row_elements, p.data + i * row_bytes);
    }
    piece_deinit(&p);
    return status;
}

td_status *td_checkpoint_change_rows(td_store *store, int32_t index, const td_packed *packs, int32_t n)
{
    const td_store_entry *entry = &store->entries[index];
    for (int32_t i = 0; i < n; i++)
        TD_TRY(entry->is_remote ? into_remote(store, entry, &packs[i])
               : entry->table   ? into_table(entry, &packs[i])
                                : over_memory(store, index, &packs[i]));
    return NULL;
}

td_status *td_checkpoint_read_rows(td_store *store, int32_t index, const td_packed *packs, int32_t n)
{
    const td_store_entry *entry = &store->entries[index];
    if (!entry->is_remote && !entry->table)
        return into_memory(store, index, packs, n);
    return td_checkpoint_change_rows(store, index, packs, n); /* they are empty */
}
