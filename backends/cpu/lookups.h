/* What the kernels that read tables by id share: reading a call's ids, checking them span by span, and prefetching.
 *
 * Ids are checked by the thread that reads them, just before it does; of several bad ones the first position is reported,
 * whichever thread met it. */
#ifndef TANDEM_BACKENDS_CPU_LOOKUPS_H
#define TANDEM_BACKENDS_CPU_LOOKUPS_H

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/kernel.h"
#include "base/lookup.h"
#include "base/prefetch.h"

enum { TD_LOOKUP_PREFETCH = 16 }; /* rows asked for ahead of the one being read */

typedef struct td_cpu_lookup {
    td_lookup ids;
    const void *table;
    td_dtype dtype; /* of the table: f32, bf16 or f16 */
    int64_t dim;
    _Atomic int64_t bad; /* first position with a bad id; INT64_MAX: none so far */
} td_cpu_lookup;

static inline void td_cpu_lookup_init(td_cpu_lookup *lookup, const td_kernel_call *call, const td_tensor *ids,
                                      bool bags_of_one, const td_tensor *table)
{
    td_lookup_init(&lookup->ids, call, ids, bags_of_one, td_cpu_attr_int(call, "offset", 0), table->dims[0]);
    lookup->table = table->data;
    lookup->dtype = table->dtype;
    lookup->dim = table->dims[1];
    atomic_init(&lookup->bad, INT64_MAX);
}

/* Whether all ids at positions [begin, end) are good. */
static inline bool td_cpu_lookup_good(td_cpu_lookup *lookup, int64_t begin, int64_t end)
{
    int64_t i = begin;
    while (i < end && td_lookup_valid(&lookup->ids, td_lookup_row(&lookup->ids, i)))
        i++;
    if (i >= end)
        return true;
    int64_t known = atomic_load(&lookup->bad);
    while (i < known && !atomic_compare_exchange_weak(&lookup->bad, &known, i)) {
    }
    return false;
}

/* The error about the first bad id, or NULL. */
static inline td_status *td_cpu_lookup_result(const td_cpu_lookup *lookup)
{
    const int64_t bad = atomic_load(&lookup->bad);
    return bad == INT64_MAX ? NULL : td_lookup_error(&lookup->ids, bad);
}

static inline const void *td_cpu_lookup_row(const td_cpu_lookup *lookup, int64_t position)
{
    const int64_t size = lookup->dtype == TD_F32 ? 4 : 2;
    return (const char *)lookup->table + td_lookup_row(&lookup->ids, position) * lookup->dim * size;
}

/* Asks for the row at a good position. */
TD_PREFETCHES void td_cpu_lookup_prefetch(const td_cpu_lookup *lookup, int64_t position)
{
    td_prefetch_row(td_cpu_lookup_row(lookup, position), lookup->dim * (lookup->dtype == TD_F32 ? 4 : 2));
}

/* How many bags (of `per_bag` rows each, on average) make a piece of work worth sharing: a function of shape alone. A short row
 * takes as long as a line of memory. */
static inline int64_t td_cpu_lookup_block(int64_t bags, int64_t rows, int64_t dim)
{
    enum { FLOATS = 65536, LINE = 16 };
    const int64_t per_bag = (bags ? rows / bags + 1 : 1) * (dim > LINE ? dim : LINE);
    return per_bag < FLOATS ? FLOATS / per_bag : 1;
}

static inline bool td_cpu_lookup_takes_table(const td_tensor *table)
{
    return table->kind == TD_DENSE && (table->dtype == TD_F32 || table->dtype == TD_BF16 || table->dtype == TD_F16);
}

static inline bool td_cpu_lookup_takes_ids(const td_tensor *ids)
{
    return (ids->kind == TD_DENSE || ids->kind == TD_RAGGED) && (ids->dtype == TD_I64 || ids->dtype == TD_I32);
}

/* For messages about part `index` of an op that does several: the index-th word of `names` (may be NULL). */
static inline void td_cpu_lookup_name(td_lookup *lookup, const char *op, const char *names, int32_t index)
{
    lookup->op = op;
    for (; names && index > 0; index--) {
        names = strchr(names, ' ');
        names = names ? names + 1 : NULL;
    }
    if (!names)
        return;
    lookup->name = names;
    lookup->name_length = (int)strcspn(names, " ");
}

static inline const float *td_cpu_optional(const td_kernel_call *call, int32_t input)
{
    return input < call->n_inputs && call->inputs[input].kind != TD_NONE ? call->inputs[input].data : NULL;
}

#endif
