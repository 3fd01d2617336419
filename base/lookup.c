/* Bags, ids and rows: see base/lookup.h. */
#include "base/lookup.h"

#include <inttypes.h>
#include <string.h>

#include "base/dedup.h"

void td_lookup_init(td_lookup *lookup, const td_kernel_call *call, const td_tensor *ids, bool bags_of_one,
                    int64_t offset, int64_t rows)
{
    *lookup = (td_lookup){.op = call->op,
                          .name = call->name,
                          .name_length = (int)strlen(call->name),
                          .ids = ids->data,
                          .rows = rows,
                          .offset = offset,
                          .wide = ids->dtype == TD_I64,
                          .length = 1};
    if (ids->kind == TD_RAGGED) {
        lookup->offsets = ids->index;
        lookup->bags = ids->dims[0];
        lookup->count = ids->entries;
        return;
    }
    lookup->count = 1;
    for (int32_t axis = 0; axis < ids->rank; axis++)
        lookup->count *= ids->dims[axis];
    lookup->bags = lookup->count;
    if (bags_of_one || ids->rank != 2)
        return;
    lookup->bags = ids->dims[0];
    lookup->length = ids->dims[1];
}

td_status *td_lookup_check_offsets(const td_lookup *lookup)
{
    const int64_t *offsets = lookup->offsets;
    if (!offsets)
        return NULL;
    if (offsets[0] != 0)
        return TD_ERROR(TD_DATA_ERROR, "%s %.*s: the first bag's offset is %" PRId64 ", it must be 0", lookup->op,
                        lookup->name_length, lookup->name, offsets[0]);
    for (int64_t bag = 0; bag < lookup->bags; bag++) {
        if (offsets[bag + 1] < offsets[bag])
            return TD_ERROR(TD_DATA_ERROR,
                            "%s %.*s: bag %" PRId64 " runs from offset %" PRId64 " to %" PRId64
                            ", offsets must not fall",
                            lookup->op, lookup->name_length, lookup->name, bag, offsets[bag], offsets[bag + 1]);
    }
    if (offsets[lookup->bags] != lookup->count)
        return TD_ERROR(TD_DATA_ERROR,
                        "%s %.*s: the last offset is %" PRId64 ", it must be the number of ids, %" PRId64, lookup->op,
                        lookup->name_length, lookup->name, offsets[lookup->bags], lookup->count);
    return NULL;
}

td_status *td_lookup_error(const td_lookup *lookup, int64_t position)
{
    td_status *status =
        td_dedup_bad_id(lookup->ids, lookup->wide ? TD_I64 : TD_I32, position, lookup->offset, lookup->rows);
    return td_status_prefix(status, "%s %.*s", lookup->op, lookup->name_length, lookup->name);
}

td_status *td_lookup_check(const td_lookup *lookup)
{
    TD_TRY(td_lookup_check_offsets(lookup));
    for (int64_t position = 0; position < lookup->count; position++) {
        if (!td_lookup_valid(lookup, td_lookup_row(lookup, position)))
            return td_lookup_error(lookup, position);
    }
    return NULL;
}
