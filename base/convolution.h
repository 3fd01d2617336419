/* Two-dimensional convolutions and pooling windows: their geometry, and the order of their sums, for reference kernels and
 * vector kernels alike. Not a kernel.
 *
 * Float addition is not associative, so an order is part of an op's meaning here (compare base/sums.h). Sums over the taps
 * (channel, row, column of the filter, ascending) or over the output's pixels (row-major) are cut into chunks of
 * TD_CONVOLUTION_CHUNK terms; a chunk is summed from zero with fma, and chunks are added in order. A tap outside the image
 * is a term of zero. The weight's gradient cuts the samples into parts, by shape alone (td_convolution_cut): chunks of all
 * samples of a part are added in order, then the parts. */
#ifndef TANDEM_BASE_CONVOLUTION_H
#define TANDEM_BASE_CONVOLUTION_H

#include <stdint.h>

enum {
    TD_CONVOLUTION_CHUNK = 256, /* terms; a panel of 16 lanes of as many is 16 KiB: it stays in the first cache */
    TD_CONVOLUTION_PARTS = 16   /* of the samples of a weight's gradient, at most */
};

/* x [batch, groups * in, height, width], weight [groups * out, in, kernel_height, kernel_width],
 * y [batch, groups * out, out_height, out_width]. Stride, padding and dilation are alike in both directions. */
typedef struct td_convolution {
    int64_t batch, groups, in, out; /* channels of one group */
    int64_t height, width, kernel_height, kernel_width, out_height, out_width;
    int64_t stride, padding, dilation;
} td_convolution;

/* Positions of a window along one axis; 0 when it does not fit once. */
static inline int64_t td_convolution_positions(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                                               int64_t dilation)
{
    const int64_t span = (kernel - 1) * dilation + 1, room = size + 2 * padding;
    return room < span ? 0 : (room - span) / stride + 1;
}

/* Taps of one output channel; pixels of one output plane. */
static inline int64_t td_convolution_taps(const td_convolution *c)
{
    return c->in * c->kernel_height * c->kernel_width;
}
static inline int64_t td_convolution_pixels(const td_convolution *c)
{
    return c->out_height * c->out_width;
}

/* Samples of a part of the weight's gradient (the last part may have fewer): few where output channels make enough work to
 * share, so that the parts' sums stay small beside them. */
static inline int64_t td_convolution_cut(const td_convolution *c)
{
    const int64_t blocks = c->groups * ((c->out + 15) / 16);
    int64_t parts = blocks < 2 * TD_CONVOLUTION_PARTS ? 2 * TD_CONVOLUTION_PARTS / blocks : 1;
    parts = parts > TD_CONVOLUTION_PARTS ? TD_CONVOLUTION_PARTS : parts;
    return c->batch > parts ? (c->batch + parts - 1) / parts : 1;
}

#endif
