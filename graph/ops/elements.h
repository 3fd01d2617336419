/* Elements of a tensor by dtype, for reference kernels: read as float, double or integer, write back rounded.
 *
 * 16-bit floats are computed in f32 and rounded once (to nearest, ties to even) when they are written. Not for optimized
 * kernels: these calls switch on the dtype for each element. */
#ifndef TANDEM_GRAPH_OPS_ELEMENTS_H
#define TANDEM_GRAPH_OPS_ELEMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/half.h"
#include "tandem/backend.h"

/* An element of an f32, f16 or bf16 tensor. */
static inline float td_get_f32(const td_tensor *t, int64_t i)
{
    if (t->dtype == TD_F16)
        return td_f16_to_f32(((const uint16_t *)t->data)[i]);
    if (t->dtype == TD_BF16)
        return td_bf16_to_f32(((const uint16_t *)t->data)[i]);
    return ((const float *)t->data)[i];
}

/* Element i of a gradient, plus, where inputs `sum` and `micro` follow it, that of the sum of its window's earlier micro-batches. */
static inline float td_get_summed(const td_tensor *gradient, int32_t n_inputs, int64_t i)
{
    const float g = td_get_f32(&gradient[0], i);
    const bool summed = n_inputs > 2 && gradient[1].kind != TD_NONE && ((const double *)gradient[2].data)[0] == 0;
    return summed ? ((const float *)gradient[1].data)[i] + g : g;
}

static inline void td_set_f32(const td_tensor *t, int64_t i, float value)
{
    if (t->dtype == TD_F16)
        ((uint16_t *)t->data)[i] = td_f32_to_f16(value);
    else if (t->dtype == TD_BF16)
        ((uint16_t *)t->data)[i] = td_f32_to_bf16(value);
    else
        ((float *)t->data)[i] = value;
}

/* An element of an i64, i32, u8 or bool tensor. */
static inline int64_t td_get_i64(const td_tensor *t, int64_t i)
{
    if (t->dtype == TD_I64)
        return ((const int64_t *)t->data)[i];
    if (t->dtype == TD_I32)
        return ((const int32_t *)t->data)[i];
    return ((const uint8_t *)t->data)[i];
}

/* Keeps the low bits, as two's complement arithmetic does. */
static inline void td_set_i64(const td_tensor *t, int64_t i, int64_t value)
{
    if (t->dtype == TD_I64)
        ((int64_t *)t->data)[i] = value;
    else if (t->dtype == TD_I32)
        ((int32_t *)t->data)[i] = (int32_t)(uint32_t)(uint64_t)value;
    else
        ((uint8_t *)t->data)[i] = (uint8_t)value;
}

static inline bool td_dtype_is_float(td_dtype dtype)
{
    return dtype == TD_F32 || dtype == TD_F16 || dtype == TD_BF16 || dtype == TD_F64;
}

/* Where element `i` (row-major) of `out` comes from in `in`, which broadcasts to it. */
static inline int64_t td_broadcast_index(const td_tensor *out, const td_tensor *in, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int32_t axis = out->rank - 1; axis >= out->rank - in->rank; axis--) {
        int64_t coordinate = i % out->dims[axis];
        int64_t size = in->dims[axis - (out->rank - in->rank)];
        i /= out->dims[axis];
        index += (size == 1 ? 0 : coordinate) * stride;
        stride *= size;
    }
    return index;
}

/* A tensor as [outer, size of `axis`, inner], row-major. */
static inline int64_t td_outer_elements(const td_tensor *t, int32_t axis)
{
    int64_t n = 1;
    for (int32_t i = 0; i < axis; i++)
        n *= t->dims[i];
    return n;
}
static inline int64_t td_inner_elements(const td_tensor *t, int32_t axis)
{
    int64_t n = 1;
    for (int32_t i = axis + 1; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

#endif
