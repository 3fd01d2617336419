/* Shape rules, attributes and reference helpers that embedding and embedding bag share. Not an op. */
#ifndef TANDEM_GRAPH_OPS_LOOKUP_RULES_H
#define TANDEM_GRAPH_OPS_LOOKUP_RULES_H

#include <inttypes.h>
#include <string.h>

#include "base/half.h"
#include "base/lookup.h"
#include "graph/op.h"

#define TD_LOOKUP_OFFSET_LIMIT ((int64_t)1 << 62)

/* Input `index` is integer ids: dense of any rank up to five, or ragged where `ragged`. */
static inline td_status *lookup_require_ids(const td_infer *infer, int32_t index, bool ragged)
{
    const td_type *ids = &infer->inputs[index];
    if (ids->kind != TD_DENSE && !(ragged && ids->kind == TD_RAGGED))
        return TD_SHAPE_ERROR(infer, "ids must be dense%s",
                              ragged ? " or ragged" : " (for bags of ids use embedding_bag)");
    if (ids->dtype != TD_I64 && ids->dtype != TD_I32)
        return TD_SHAPE_ERROR(infer, "ids must be i64 or i32, not %s", td_dtype_name(ids->dtype));
    const int64_t offset = td_attr_int(infer->attrs, infer->n_attrs, "offset", 0);
    if (offset <= -TD_LOOKUP_OFFSET_LIMIT || offset >= TD_LOOKUP_OFFSET_LIMIT)
        return TD_SHAPE_ERROR(infer, "offset %" PRId64 " must lie within 2^62 of 0", offset);
    return NULL;
}

/* Input 0 is a table [rows, dim] of f32, bf16 or f16, of constant shape. */
static inline td_status *lookup_require_table(const td_infer *infer)
{
    const td_type *table = &infer->inputs[0];
    if (table->kind != TD_DENSE || (table->dtype != TD_F32 && table->dtype != TD_BF16 && table->dtype != TD_F16))
        return TD_SHAPE_ERROR(infer, "the table must be dense, of f32, bf16 or f16");
    const td_shape *shape = &infer->inputs[0].shape;
    char text[128];
    if (shape->rank != 2 || shape->dims[0].extent >= 0 || shape->dims[1].extent >= 0)
        return TD_SHAPE_ERROR(infer, "the table must be [rows, dim], two constants, not %s",
                              td_shape_text(infer->graph, shape, text, sizeof text));
    if (shape->dims[1].constant < 1)
        return TD_SHAPE_ERROR(infer, "the table's rows have no elements");
    return NULL;
}

/* Whether a table is neither a parameter nor rows of one that were pulled: its gradient flows on, and is dense. */
static inline bool lookup_is_made(td_value table)
{
    const int32_t producer = table.graph->values[table.id].producer;
    const bool pulled = producer >= 0 && strcmp(table.graph->nodes[producer].op->name, "ps_pull") == 0;
    return td_value_class(table) != TD_CLASS_PARAMETER && !pulled;
}

/* Element i of a table, widened exactly. */
static inline float lookup_element(const td_tensor *table, int64_t i)
{
    const void *data = table->data;
    if (table->dtype == TD_F32)
        return ((const float *)data)[i];
    return table->dtype == TD_BF16 ? td_bf16_to_f32(((const uint16_t *)data)[i])
                                   : td_f16_to_f32(((const uint16_t *)data)[i]);
}

/* The number of ids as a dimension. */
static inline td_status *lookup_entries(const td_infer *infer, const td_type *ids, td_dim *out)
{
    if (ids->kind == TD_RAGGED) {
        *out = ids->entries;
        return NULL;
    }
    char text[128];
    if (!td_shape_elements(&ids->shape, out))
        return TD_SHAPE_ERROR(infer, "ids %s multiply two extents; one of them must be a constant",
                              td_shape_text(infer->graph, &ids->shape, text, sizeof text));
    return NULL;
}

/* The gradient of a table: row-sparse, or dense where the op says so. `rows` comes from the attribute. */
static inline td_status *lookup_infer_table_gradient(td_infer *infer, const td_type *ids, td_dim dim, bool dense)
{
    const int64_t rows = td_attr_int(infer->attrs, infer->n_attrs, "rows", 0);
    if (rows < 0 || rows > TD_LOOKUP_OFFSET_LIMIT)
        return TD_SHAPE_ERROR(infer, "rows %" PRId64 " must not be negative", rows);
    if (dim.extent >= 0 || dim.constant < 1)
        return TD_SHAPE_ERROR(infer, "the gradient's last dimension must be a constant of at least 1");
    const td_dim dims[2] = {td_dim_constant(rows), dim};
    infer->outputs[0] =
        (td_type){.kind = dense ? TD_DENSE : TD_ROW_SPARSE, .dtype = TD_F32, .shape = td_shape_of(2, dims)};
    return dense ? NULL : lookup_entries(infer, ids, &infer->outputs[0].entries);
}

/* Reference: where the gradient of `row` is in a row-sparse tensor that is being filled, rows ascending. A row seen for the
 * first time is inserted, *out_fresh true, and what its place holds is undefined. Quadratic, needs no memory. */
static inline float *row_sparse_place(const td_tensor *out, int64_t row, int64_t dim, bool *out_fresh)
{
    int64_t *rows = out->index, *count = out->count;
    float *data = out->data;
    int64_t low = 0, high = *count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    *out_fresh = low == *count || rows[low] != row;
    if (*out_fresh) {
        memmove(rows + low + 1, rows + low, (size_t)(*count - low) * sizeof *rows);
        memmove(data + (low + 1) * dim, data + low * dim, (size_t)((*count - low) * dim) * sizeof *data);
        rows[low] = row;
        (*count)++;
    }
    return data + low * dim;
}

#endif
