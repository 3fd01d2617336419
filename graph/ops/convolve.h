/* What conv2d and the ops of its gradient share: attributes, geometry, and sums in the order of base/convolution.h. Not an
 * op. */
#ifndef TANDEM_GRAPH_OPS_CONVOLVE_H
#define TANDEM_GRAPH_OPS_CONVOLVE_H

#include <math.h>

#include "graph/ops/windows.h"

#define CONVOLUTION_ATTRS                                                                                              \
    {.name = "stride", .type = TD_ATTR_INT, .i = 1, .help = "pixels between windows"},                                 \
        {.name = "padding", .type = TD_ATTR_INT, .help = "zeros on every side"},                                       \
        {.name = "dilation", .type = TD_ATTR_INT, .i = 1, .help = "pixels between the taps of a window"},              \
    {                                                                                                                  \
        .name = "groups", .type = TD_ATTR_INT, .i = 1, .help = "parts of the channels that do not see each other"      \
    }

/* ---- geometry ---------------------------------------------------------------------------------------------------------- */

static inline void convolution_read_attrs(const td_attr *attrs, int32_t n, td_convolution *c)
{
    c->stride = td_attr_int(attrs, n, "stride", 1);
    c->padding = td_attr_int(attrs, n, "padding", 0);
    c->dilation = td_attr_int(attrs, n, "dilation", 1);
    c->groups = td_attr_int(attrs, n, "groups", 1);
}

static inline td_convolution convolution_of(const td_kernel_call *call, const td_tensor *x, const td_tensor *weight,
                                            const td_tensor *y)
{
    td_convolution c = {.batch = x->dims[0],
                        .height = x->dims[2],
                        .width = x->dims[3],
                        .kernel_height = weight->dims[2],
                        .kernel_width = weight->dims[3],
                        .out_height = y->dims[2],
                        .out_width = y->dims[3]};
    convolution_read_attrs(call->attrs, call->n_attrs, &c);
    c.in = x->dims[1] / c.groups;
    c.out = y->dims[1] / c.groups;
    return c;
}

static inline td_status *convolution_require_attrs(const td_infer *infer)
{
    TD_TRY(window_require_int(infer, "stride", 1));
    TD_TRY(window_require_int(infer, "padding", 0));
    TD_TRY(window_require_int(infer, "dilation", 1));
    return window_require_int(infer, "groups", 1);
}

/* Input `index` is a weight [out, in, rows, columns], and its groups fit. */
static inline td_status *convolution_require_weight(const td_infer *infer, int32_t index, const td_convolution *c)
{
    TD_TRY(td_infer_dense(infer, index, TD_FLOATS));
    TD_TRY(td_infer_same_dtype(infer, 0, index));
    const td_shape *weight = &infer->inputs[index].shape;
    bool fits = weight->rank == 4;
    for (int32_t axis = 0; fits && axis < 4; axis++)
        fits = weight->dims[axis].extent < 0 && weight->dims[axis].constant > 0;
    char text[160];
    if (!fits || weight->dims[0].constant % c->groups != 0)
        return TD_SHAPE_ERROR(infer,
                              "weight is %s in %lld groups; it must be [out, in / groups, rows, columns], out a "
                              "multiple of the groups",
                              td_shape_text(infer->graph, weight, text, sizeof text), (long long)c->groups);
    return NULL;
}

static inline void convolution_flops(const td_kernel_call *call, const td_tensor *x, const td_tensor *weight,
                                     const td_tensor *y, td_cost *out_cost)
{
    const td_convolution c = convolution_of(call, x, weight, y);
    td_cost_bytes(call, out_cost);
    out_cost->flops = 2.0 * (double)(c.batch * c.groups * c.out) * (double)td_convolution_pixels(&c) *
                      (double)td_convolution_taps(&c);
}

/* ---- sums ------------------------------------------------------------------------------------------------------------ */

/* A sum in the making: chunks of terms. */
typedef struct chunked_sum {
    float chunk, total;
    int64_t terms, chunks;
} chunked_sum;

static inline void end_chunk(chunked_sum *s)
{
    s->total = s->chunks++ ? s->total + s->chunk : s->chunk;
    s->chunk = 0;
    s->terms = 0;
}

static inline void add_term(chunked_sum *s, float a, float b)
{
    s->chunk = fmaf(a, b, s->chunk);
    if (++s->terms == TD_CONVOLUTION_CHUNK)
        end_chunk(s);
}

static inline float sum_of(chunked_sum *s)
{
    if (s->terms)
        end_chunk(s);
    return s->total;
}

/* A pixel of a plane, zero outside. */
static inline float pixel_at(const float *plane, int64_t height, int64_t width, int64_t i, int64_t j)
{
    return i < 0 || j < 0 || i >= height || j >= width ? 0 : plane[i * width + j];
}

#endif
