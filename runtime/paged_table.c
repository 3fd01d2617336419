/* See paged_table.h. The pool's mutex orders touching; rows that are there and held need no lock to be read or updated. */
#include "runtime/paged_table.h"

#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

enum { WORD_BITS = 64 };

static int64_t words_of(int64_t bits)
{
    return bits / WORD_BITS + 1;
}

td_status *td_paged_table_init(td_paged_table *table, td_page_pool *pool, int64_t rows)
{
    *table = (td_paged_table){.rows = rows, .pool = pool};
    table->there = td_reserve((size_t)words_of(rows) * sizeof *table->there);
    table->occupied = td_reserve((size_t)words_of(words_of(rows)) * sizeof *table->occupied);
    if (table->there && table->occupied)
        return NULL;
    td_paged_table_deinit(table);
    return TD_ERROR(TD_OUT_OF_MEMORY, "no address space for a table of %lld rows", (long long)rows);
}

void td_paged_table_deinit(td_paged_table *table)
{
    for (int32_t a = 0; a < table->n_arrays; a++)
        td_page_array_deinit(&table->arrays[a].pages);
    td_unreserve(table->there, (size_t)words_of(table->rows) * sizeof *table->there);
    td_unreserve(table->occupied, (size_t)words_of(words_of(table->rows)) * sizeof *table->occupied);
    *table = (td_paged_table){0};
}

void td_paged_table_clear(td_paged_table *table)
{
    for (int32_t a = 0; a < table->n_arrays; a++)
        td_page_array_clear(&table->arrays[a].pages);
    td_reserve_drop(table->there, (size_t)words_of(table->rows) * sizeof *table->there);
    td_reserve_drop(table->occupied, (size_t)words_of(words_of(table->rows)) * sizeof *table->occupied);
    table->n_there = 0;
}

td_status *td_paged_table_add(td_paged_table *table, int64_t row_elements, td_initial initial)
{
    td_paged_table_array *array = &table->arrays[table->n_arrays];
    if (table->n_arrays == TD_PAGED_TABLE_ARRAYS)
        return TD_ERROR(TD_INTERNAL, "a table has %d arrays at most", TD_PAGED_TABLE_ARRAYS);
    *array = (td_paged_table_array){.initial = initial, .row_elements = row_elements};
    array->row_bytes = row_elements * (int64_t)td_dtype_bytes(initial.dtype);
    TD_TRY(td_page_array_init(&array->pages, table->pool, table->rows * array->row_bytes));
    table->n_arrays++;
    return NULL;
}

/* ---- rows ----------------------------------------------------------------------------------------------------------------------- */

static bool is_there(const td_paged_table *table, int64_t row)
{
    return table->there[row / WORD_BITS] >> (row % WORD_BITS) & 1;
}

/* Holds the row in all arrays; a new one gets its initial values. */
static td_status *hold_row(td_paged_table *table, int64_t row, bool write)
{
    bool is_new = !is_there(table, row);
    for (int32_t a = 0; a < table->n_arrays; a++) {
        td_paged_table_array *array = &table->arrays[a];
        int64_t begin = row * array->row_bytes;
        TD_TRY(td_page_array_hold(&array->pages, begin, begin + array->row_bytes, write || is_new));
        if (is_new && !td_initial_is_zero(&array->initial))
            td_initial_fill(&array->initial, row * array->row_elements, array->row_elements, array->pages.base + begin);
    }
    if (is_new) {
        int64_t word = row / WORD_BITS;
        table->there[word] |= (uint64_t)1 << (row % WORD_BITS);
        table->occupied[word / WORD_BITS] |= (uint64_t)1 << (word % WORD_BITS);
        table->n_there++;
    }
    return NULL;
}

static int64_t row_at(const td_tensor *ids, int64_t position, int64_t offset)
{
    int64_t id = ids->dtype == TD_I32 ? ((const int32_t *)ids->data)[position] : ((const int64_t *)ids->data)[position];
    return (int64_t)((uint64_t)id + (uint64_t)offset);
}

/* Pages that are on the disk are asked for some rows ahead of being waited for. */
static td_status *touch_span(td_paged_table *table, const td_tensor *ids, int64_t begin, int64_t end, int64_t offset,
                             bool write)
{
    for (int64_t i = begin; i < end && table->pool->file; i++) {
        int64_t row = row_at(ids, i, offset);
        for (int32_t a = 0; a < table->n_arrays && (uint64_t)row < (uint64_t)table->rows; a++)
            td_page_array_will_hold(&table->arrays[a].pages, row * table->arrays[a].row_bytes,
                                    (row + 1) * table->arrays[a].row_bytes);
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t row = row_at(ids, i, offset);
        if ((uint64_t)row < (uint64_t)table->rows)
            TD_TRY(hold_row(table, row, write));
    }
    return NULL;
}

td_status *td_paged_table_touch(td_paged_table *table, const td_tensor *ids, int64_t offset, bool write)
{
    enum { SPAN = 256 };
    td_tensor rows = *ids;
    if (ids->kind == TD_ROW_SPARSE) /* the numbers of its rows */
        rows = (td_tensor){
            .kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {*(const int64_t *)ids->count}, .data = ids->index};
    ids = &rows;
    int64_t n = ids->kind == TD_RAGGED ? ids->entries : td_tensor_elements(ids);
    td_status *status = NULL;
    pthread_mutex_lock(&table->pool->mutex);
    for (int64_t begin = 0; begin < n && !status; begin += SPAN)
        status = touch_span(table, ids, begin, begin + SPAN < n ? begin + SPAN : n, offset, write);
    pthread_mutex_unlock(&table->pool->mutex);
    return status;
}

/* ---- reading and writing ---------------------------------------------------------------------------------------------------------- */

td_status *td_paged_table_read(td_paged_table *table, int32_t index, int64_t row, int64_t n_rows, void *out)
{
    td_paged_table_array *array = &table->arrays[index];
    for (int64_t r = row, end; r < row + n_rows; r = end) {
        char *to = (char *)out + (r - row) * array->row_bytes;
        bool there = is_there(table, r);
        for (end = r + 1; end < row + n_rows && is_there(table, end) == there;)
            end++;
        if (there)
            TD_TRY(td_page_array_read(&array->pages, r * array->row_bytes, (end - r) * array->row_bytes, to));
        else
            td_initial_fill(&array->initial, r * array->row_elements, (end - r) * array->row_elements, to);
    }
    return NULL;
}

/* Whether a whole row holds its initial values. */
static bool is_initial(const td_paged_table_array *array, int64_t row, const void *data)
{
    enum { PIECE = 64 };
    uint64_t piece[PIECE]; /* any dtype */
    int64_t size = (int64_t)td_dtype_bytes(array->initial.dtype);
    for (int64_t done = 0; done < array->row_elements; done += PIECE) {
        int64_t n = array->row_elements - done < PIECE ? array->row_elements - done : PIECE;
        td_initial_fill(&array->initial, row * array->row_elements + done, n, piece);
        if (memcmp(piece, (const char *)data + done * size, (size_t)(n * size)) != 0)
            return false;
    }
    return true;
}

/* The part [begin, end) of a row, in bytes. */
static td_status *write_part(td_paged_table *table, int32_t index, int64_t row, int64_t begin, int64_t end,
                             const void *data)
{
    td_paged_table_array *array = &table->arrays[index];
    if (!is_there(table, row) && end - begin == array->row_bytes && is_initial(array, row, data))
        return NULL;
    if (is_there(table, row)) /* the other arrays stay as they are, wherever they are */
        TD_TRY(td_page_array_hold(&array->pages, row * array->row_bytes, (row + 1) * array->row_bytes, true));
    else
        TD_TRY(hold_row(table, row, true));
    memcpy(array->pages.base + row * array->row_bytes + begin, data, (size_t)(end - begin));
    return NULL;
}

/* Every row is an advance of its own: what was written before may go to the file. */
td_status *td_paged_table_write(td_paged_table *table, int32_t index, int64_t row, int64_t n_rows, const void *data)
{
    int64_t row_bytes = table->arrays[index].row_bytes;
    for (int64_t r = 0; r < n_rows; r++) {
        td_page_pool_advance(table->pool);
        TD_TRY(write_part(table, index, row + r, 0, row_bytes, (const char *)data + r * row_bytes));
    }
    return NULL;
}

/* The rows that elements [first, first + n) lie in, one at a time: `row`, and its bytes [begin, end) among them. */
typedef struct part {
    int64_t row, begin, end;
} part;

static part next_part(const td_paged_table_array *array, int64_t first_byte, int64_t end_byte)
{
    int64_t row = first_byte / array->row_bytes, begin = first_byte % array->row_bytes;
    int64_t end = end_byte - row * array->row_bytes;
    return (part){row, begin, end < array->row_bytes ? end : array->row_bytes};
}

static td_status *read_part(td_paged_table *table, int32_t index, part p, char *out)
{
    td_paged_table_array *array = &table->arrays[index];
    int64_t size = (int64_t)td_dtype_bytes(array->initial.dtype);
    if (is_there(table, p.row))
        return td_page_array_read(&array->pages, p.row * array->row_bytes + p.begin, p.end - p.begin, out);
    td_initial_fill(&array->initial, (p.row * array->row_bytes + p.begin) / size, (p.end - p.begin) / size, out);
    return NULL;
}

td_status *td_paged_table_read_elements(td_paged_table *table, int32_t index, int64_t first, int64_t n, void *out)
{
    td_paged_table_array *array = &table->arrays[index];
    int64_t size = (int64_t)td_dtype_bytes(array->initial.dtype), begin = first * size, end = (first + n) * size;
    for (int64_t at = begin; at < end;) {
        part p = next_part(array, at, end);
        TD_TRY(read_part(table, index, p, (char *)out + (at - begin)));
        at += p.end - p.begin;
    }
    return NULL;
}

td_status *td_paged_table_write_elements(td_paged_table *table, int32_t index, int64_t first, int64_t n,
                                         const void *data)
{
    td_paged_table_array *array = &table->arrays[index];
    int64_t size = (int64_t)td_dtype_bytes(array->initial.dtype), begin = first * size, end = (first + n) * size;
    for (int64_t at = begin; at < end;) {
        part p = next_part(array, at, end);
        td_page_pool_advance(table->pool);
        TD_TRY(write_part(table, index, p.row, p.begin, p.end, (const char *)data + (at - begin)));
        at += p.end - p.begin;
    }
    return NULL;
}

int64_t td_paged_table_next(const td_paged_table *table, int64_t row)
{
    if (row >= table->rows)
        return -1;
    int64_t word = row / WORD_BITS, words = words_of(table->rows);
    uint64_t bits = table->there[word] & UINT64_MAX << (row % WORD_BITS);
    while (!bits) {
        if (++word == words)
            return -1;
        if (word % WORD_BITS == 0 && !table->occupied[word / WORD_BITS]) {
            word += WORD_BITS - 1; /* 4096 rows of which none is there */
            if (word >= words - 1)
                return -1;
            continue;
        }
        bits = table->there[word];
    }
    return word * WORD_BITS + __builtin_ctzll(bits);
}
