/* What the kernels of conv2d share: geometry from a call, and planes laid out so that windows never leave them. Not a kernel. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_CONV2D_H
#define TANDEM_BACKENDS_CPU_KERNELS_CONV2D_H

#include <string.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/panel.h"
#include "base/convolution.h"
#include "base/memory.h"

enum {
    CONV_SLOTS = 16, /* samples laid out at once: bounds the scratch */
    CONV_TASKS = 32  /* wanted, where there is as much to share */
};

static inline td_convolution conv_geometry(const td_kernel_call *call, const td_tensor *x, const td_tensor *weight,
                                           const td_tensor *y)
{
    td_convolution c = {.batch = x->dims[0],
                        .groups = td_cpu_attr_int(call, "groups", 1),
                        .height = x->dims[2],
                        .width = x->dims[3],
                        .kernel_height = weight->dims[2],
                        .kernel_width = weight->dims[3],
                        .out_height = y->dims[2],
                        .out_width = y->dims[3],
                        .stride = td_cpu_attr_int(call, "stride", 1),
                        .padding = td_cpu_attr_int(call, "padding", 0),
                        .dilation = td_cpu_attr_int(call, "dilation", 1)};
    c.in = x->dims[1] / c.groups;
    c.out = y->dims[1] / c.groups;
    return c;
}

static inline int64_t conv_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t conv_blocks(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Columns of a panel for so many channels. */
static inline int64_t conv_lanes(int64_t channels)
{
    return channels <= 8 ? 8 : 16;
}

static inline void conv_panel(const panel *p, int64_t lanes, int64_t rows)
{
    if (lanes == 8)
        panel_8(p, rows);
    else
        panel_16(p, rows);
}

/* A plane [rows, columns] in a larger one: pixel (i, j) comes to (top + i spacing, left + j spacing), zeros lie around and
 * between; what falls outside is left out. */
typedef struct conv_layout {
    int64_t rows, columns, height, width, top, left, spacing;
} conv_layout;

/* Whether the larger plane is the plane itself. */
static inline bool conv_is_same(const conv_layout *l)
{
    return l->rows == l->height && l->columns == l->width && l->top == 0 && l->left == 0 && l->spacing == 1;
}

/* The pixels [*begin, *end) of `n` that come to lie inside `size`. */
static inline void conv_inside(int64_t n, int64_t first, int64_t spacing, int64_t size, int64_t *begin, int64_t *end)
{
    *begin = first < 0 ? conv_least(n, conv_blocks(-first, spacing)) : 0;
    *end = first < size ? conv_least(n, conv_blocks(size - first, spacing)) : 0;
}

static inline void conv_lay_out(const conv_layout *l, const float *from, int64_t planes, float *to)
{
    const int64_t s = l->spacing;
    int64_t top, bottom, left, right;
    conv_inside(l->rows, l->top, s, l->height, &top, &bottom);
    conv_inside(l->columns, l->left, s, l->width, &left, &right);
    memset(to, 0, (size_t)(planes * l->height * l->width) * sizeof *to);
    for (int64_t plane = 0; plane < planes; plane++, to += l->height * l->width, from += l->rows * l->columns)
        for (int64_t i = top; i < bottom; i++) {
            float *restrict row = to + (l->top + i * s) * l->width + l->left;
            const float *restrict pixels = from + i * l->columns;
            if (s == 1 && left < right)
                memcpy(row + left, pixels + left, (size_t)(right - left) * sizeof *row);
            for (int64_t j = left; j < right && s > 1; j++)
                row[j * s] = pixels[j];
        }
}

static inline bool conv_supports(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].kind != TD_NONE && !td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

#endif
