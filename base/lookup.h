/* What the ids of an embedding mean: which ids a bag holds, which row an id picks, and the errors about both.
 *
 * One reading for the reference kernels, the CPU kernels and the fused updates, so that all refuse the same ids with the
 * same words. It looks at host memory; it copies and keeps nothing. An id outside its table is always an error here, never
 * a row of zeros: skipping bad ids is the data reader's business. */
#ifndef TANDEM_BASE_LOOKUP_H
#define TANDEM_BASE_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/backend.h"
#include "tandem/status.h"

/* Ids are read at positions 0 .. count - 1; bag b holds the positions [td_lookup_begin(b), td_lookup_begin(b + 1)). */
typedef struct td_lookup {
    const char *op, *name; /* for messages */
    int name_length;
    const void *ids;             /* int64 or int32 */
    const int64_t *offsets;      /* ragged: bags + 1 of them; else NULL */
    int64_t count, bags, length; /* length: ids per bag where offsets is NULL */
    int64_t rows, offset;        /* row = id + offset, in [0, rows) */
    bool wide;                   /* int64 ids */
} td_lookup;

/* Reads the header of `ids`: ragged [bags]; dense [bags, length] or, with one id per bag, [..]. `bags_of_one`: every id is
 * its own bag whatever the shape. `offset` must be within +-2^62. */
void td_lookup_init(td_lookup *lookup, const td_kernel_call *call, const td_tensor *ids, bool bags_of_one,
                    int64_t offset, int64_t rows);
/* Checks offsets and every id; the error names op, node, position, id and rule. Call it before reading rows. */
td_status *td_lookup_check(const td_lookup *lookup) TD_MUST_USE;
/* Checks the offsets only: first 0, ascending, last `count`. */
td_status *td_lookup_check_offsets(const td_lookup *lookup) TD_MUST_USE;
/* The error about the id at a position. */
td_status *td_lookup_error(const td_lookup *lookup, int64_t position) TD_MUST_USE;

static inline int64_t td_lookup_begin(const td_lookup *lookup, int64_t bag)
{
    return lookup->offsets ? lookup->offsets[bag] : bag * lookup->length;
}

static inline int64_t td_lookup_id(const td_lookup *lookup, int64_t position)
{
    return lookup->wide ? ((const int64_t *)lookup->ids)[position] : ((const int32_t *)lookup->ids)[position];
}

/* The row at a position, valid or not: compare with rows as unsigned numbers. */
static inline int64_t td_lookup_row(const td_lookup *lookup, int64_t position)
{
    return (int64_t)((uint64_t)td_lookup_id(lookup, position) + (uint64_t)lookup->offset);
}

static inline bool td_lookup_valid(const td_lookup *lookup, int64_t row)
{
    return (uint64_t)row < (uint64_t)lookup->rows;
}

#endif
