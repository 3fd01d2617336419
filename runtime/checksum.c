/* td_store_checksum. Tables (what lookups read row by row) are summed over rows, and rows that hold their initial values are left
 * out: so the sum is the same wherever rows are kept, and whether untouched ones exist at all. Other parameters are summed over
 * blocks of 1,024 elements, all of them. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "runtime/store.h"

enum { BLOCK = 1024, PIECE_BYTES = 4 << 20 };

typedef struct summing {
    const td_store *store;
    const td_store_entry *entry;
    int32_t index;
    int64_t unit, n_units; /* elements of a row or block; how many there are */
    int64_t size;          /* bytes of an element */
    uint64_t name, sum;
    char *piece, *initial; /* two buffers of PIECE_BYTES, or of one row if that is longer */
} summing;

static void add_units(summing *s, int64_t first, int64_t n, int64_t elements)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = i * s->unit, count = elements - begin < s->unit ? elements - begin : s->unit;
        const char *bytes = s->piece + begin * s->size;
        if (s->entry->by_rows && memcmp(bytes, s->initial + begin * s->size, (size_t)(count * s->size)) == 0)
            continue;
        s->sum += td_hash_bytes(bytes, (size_t)(count * s->size), td_hash_number((uint64_t)(first + i), s->name));
    }
}

/* Units [first, first + n), as many as the buffers hold. */
static td_status *add_piece(summing *s, int64_t first, int64_t n)
{
    int64_t begin = first * s->unit, total = td_tensor_elements(&s->entry->tensor), end = (first + n) * s->unit;
    int64_t elements = (end < total ? end : total) - begin;
    TD_TRY(td_store_read(s->store, s->index, begin, elements, s->piece));
    if (s->entry->by_rows)
        td_initial_fill(&s->entry->initial, begin, elements, s->initial);
    add_units(s, first, n, elements);
    return NULL;
}

/* How many rows from this one on are there, `most` at most. */
static int64_t run_of_rows(const td_paged_table *table, int64_t row, int64_t most)
{
    int64_t n = 1;
    while (n < most && td_paged_table_next(table, row + n) == row + n)
        n++;
    return n;
}

static td_status *add_entry(summing *s)
{
    const td_paged_table *table = s->entry->table;
    int64_t most = PIECE_BYTES / (s->unit * s->size);
    most = most > 0 ? most : 1;
    s->piece = td_calloc((size_t)(most * s->unit), (size_t)s->size);
    s->initial = td_calloc(s->entry->by_rows ? (size_t)(most * s->unit) : 1, (size_t)s->size);
    if (!s->piece || !s->initial)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a checksum");
    for (int64_t first = table ? td_paged_table_next(table, 0) : 0; first >= 0 && first < s->n_units;) {
        int64_t left = s->n_units - first, n = left < most ? left : most;
        n = table ? run_of_rows(table, first, n) : n;
        TD_TRY(add_piece(s, first, n));
        first = table ? td_paged_table_next(table, first + n) : first + n;
    }
    return NULL;
}

static td_status *add_parameter(const td_store *store, int32_t index, uint64_t *sum)
{
    const td_store_entry *entry = &store->entries[index];
    int64_t elements = td_tensor_elements(&entry->tensor);
    summing s = {.store = store,
                 .entry = entry,
                 .index = index,
                 .unit = BLOCK,
                 .size = (int64_t)td_dtype_bytes(entry->tensor.dtype),
                 .name = td_hash_string(entry->name, 0)};
    if (elements == 0)
        return NULL;
    if (entry->is_remote) {
        td_status *failed = store->remote->checksum(store->remote->self, entry->remote_table, &s.sum);
        *sum += s.sum;
        return failed;
    }
    if (entry->by_rows)
        s.unit = elements / entry->tensor.dims[0];
    s.n_units = elements / s.unit + (elements % s.unit != 0);
    td_status *status = add_entry(&s);
    td_free(s.piece);
    td_free(s.initial);
    *sum += s.sum;
    return status;
}

td_status *td_store_checksum(const td_store *store, uint64_t *out_checksum)
{
    *out_checksum = 0;
    for (int32_t i = 0; i < store->n_entries; i++)
        if (store->entries[i].is_parameter)
            TD_TRY(add_parameter(store, i, out_checksum));
    return NULL;
}
