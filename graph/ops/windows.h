/* What convolutions and pooling share: attributes of windows that slide over images, and their shape rule. Not an op. */
#ifndef TANDEM_GRAPH_OPS_WINDOWS_H
#define TANDEM_GRAPH_OPS_WINDOWS_H

#include "base/convolution.h"
#include "graph/ops/rules.h"

/* Input `index` must be floats [N, C, H, W]; channels, height and width constant. */
static inline td_status *window_require_images(const td_infer *infer, int32_t index)
{
    TD_TRY(td_infer_dense(infer, index, TD_FLOATS));
    const td_shape *x = &infer->inputs[index].shape;
    bool fits = x->rank == 4;
    for (int32_t axis = 1; fits && axis < 4; axis++)
        fits = x->dims[axis].extent < 0 && x->dims[axis].constant > 0;
    char text[160];
    if (!fits)
        return TD_SHAPE_ERROR(infer, "%s is %s; it must be [samples, channels, height, width], the last three constant",
                              td_infer_port(infer, index), td_shape_text(infer->graph, x, text, sizeof text));
    return NULL;
}

static inline int64_t window_int(const td_attr *attrs, int32_t n_attrs, const char *key, int64_t least,
                                 int64_t fallback)
{
    const int64_t value = td_attr_int(attrs, n_attrs, key, fallback);
    return value < least ? fallback : value;
}

/* An attribute of inference that must be at least `least` and small enough to compute with. */
static inline td_status *window_require_int(const td_infer *infer, const char *key, int64_t least)
{
    const int64_t value = td_attr_int(infer->attrs, infer->n_attrs, key, least);
    if (value >= least && value <= INT32_MAX)
        return NULL;
    return TD_SHAPE_ERROR(infer, "%s %lld must be from %lld to %d", key, (long long)value, (long long)least, INT32_MAX);
}

/* How often a window fits, or an error. */
static inline td_status *window_positions(const td_infer *infer, const char *axis, int64_t size, int64_t kernel,
                                          int64_t stride, int64_t padding, int64_t dilation, td_dim *out)
{
    const int64_t n = td_convolution_positions(size, kernel, stride, padding, dilation);
    *out = td_dim_constant(n);
    if (n >= 1)
        return NULL;
    return TD_SHAPE_ERROR(infer, "a window of %lld (dilation %lld) does not fit into %s %lld with padding %lld",
                          (long long)kernel, (long long)dilation, axis, (long long)size, (long long)padding);
}

#endif
