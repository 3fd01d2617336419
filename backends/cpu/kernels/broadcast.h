/* Loops over two operands that broadcast to an output. Not a kernel.
 *
 * Neighbouring axes along which an operand repeats in the same way are merged, so that the innermost loop is as long as it
 * can be, with each operand either running along or standing still. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_BROADCAST_H
#define TANDEM_BACKENDS_CPU_KERNELS_BROADCAST_H

#include "backends/cpu/kernels/chunks.h"

typedef struct td_broadcast {
    const td_kernel_call *call;
    int32_t rank; /* at least 1 */
    int64_t dims[TD_MAX_RANK];
    int64_t strides[2][TD_MAX_RANK]; /* of the operands; 0 along repeated axes */
} td_broadcast;

/* The operand's size along axis `axis` of the output, 1 where it has none. */
static inline int64_t td_broadcast_size(const td_tensor *out, const td_tensor *in, int32_t axis)
{
    int32_t own = axis - (out->rank - in->rank);
    return own < 0 ? 1 : in->dims[own];
}

static inline td_broadcast td_broadcast_make(const td_kernel_call *call)
{
    const td_tensor *out = &call->outputs[0];
    td_broadcast b = {.call = call};
    int64_t step[2] = {1, 1};
    bool repeats[2][TD_MAX_RANK];
    /* from the last axis on, which lands at position 0 */
    for (int32_t axis = out->rank - 1; axis >= 0; axis--) {
        int64_t size = out->dims[axis];
        if (size == 1)
            continue;
        bool now[2];
        for (int k = 0; k < 2; k++)
            now[k] = td_broadcast_size(out, &call->inputs[k], axis) == 1;
        int32_t last = b.rank - 1;
        if (b.rank && repeats[0][last] == now[0] && repeats[1][last] == now[1]) {
            b.dims[last] *= size;
        } else {
            last = b.rank++;
            b.dims[last] = size;
            for (int k = 0; k < 2; k++) {
                repeats[k][last] = now[k];
                b.strides[k][last] = now[k] ? 0 : step[k];
            }
        }
        for (int k = 0; k < 2; k++)
            step[k] *= now[k] ? 1 : size;
    }
    if (b.rank == 0)
        b.dims[b.rank++] = 1;
    return b;
}

/* Where the operands stand at output element i. */
static inline void td_broadcast_offsets(const td_broadcast *b, int64_t i, int64_t offsets[2])
{
    offsets[0] = offsets[1] = 0;
    for (int32_t axis = 0; axis < b->rank; axis++) {
        int64_t coordinate = i % b->dims[axis];
        i /= b->dims[axis];
        offsets[0] += coordinate * b->strides[0][axis];
        offsets[1] += coordinate * b->strides[1][axis];
    }
}

/* n elements of operand k from `offset` on, or one of them n times. */
static inline const float *td_broadcast_load(const td_broadcast *b, int k, int64_t offset, int64_t n, float *buffer)
{
    if (b->strides[k][0] || n == 1)
        return td_chunk_load(&b->call->inputs[k], offset, n, buffer);
    float one, value = *td_chunk_load(&b->call->inputs[k], offset, 1, &one);
    for (int64_t i = 0; i < n; i++)
        buffer[i] = value;
    return buffer;
}

/* How many elements a loop may take at once: repeated ones are written out by the chunk. */
static inline int64_t td_broadcast_most(const td_broadcast *b)
{
    return b->strides[0][0] && b->strides[1][0] ? td_chunk_most(b->call) : TD_CHUNK;
}

/* Elements [begin, end) of the output; `expression` of x[i] and z[i] gives y[i]. */
#define TD_BROADCAST_RANGE(b, begin, end, expression)                                                                  \
    for (int64_t at_ = (begin), most_ = td_broadcast_most(b), n_ = 0; at_ < (end); at_ += n_) {                        \
        float x_buffer_[TD_CHUNK], z_buffer_[TD_CHUNK], y_buffer_[TD_CHUNK];                                           \
        int64_t offsets_[2], inner_ = (b)->dims[0] - at_ % (b)->dims[0];                                               \
        n_ = (end)-at_ < inner_ ? (end)-at_ : inner_;                                                                  \
        n_ = n_ < most_ ? n_ : most_;                                                                                  \
        td_broadcast_offsets((b), at_, offsets_);                                                                      \
        const float *x = td_broadcast_load((b), 0, offsets_[0], n_, x_buffer_);                                        \
        const float *z = td_broadcast_load((b), 1, offsets_[1], n_, z_buffer_);                                        \
        float *y = td_chunk_target(&(b)->call->outputs[0], at_, y_buffer_);                                            \
        TD_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n_; i++)                                                                               \
            y[i] = (expression);                                                                                       \
        td_chunk_store(&(b)->call->outputs[0], at_, n_, y);                                                            \
    }

/* A kernel `symbol` of op `op_name` for two float operands. */
#define TD_BROADCAST_KERNEL(symbol, op_name, expression)                                                               \
    static void symbol##_range(void *context, int64_t begin, int64_t end)                                              \
    {                                                                                                                  \
        const td_broadcast *b = context;                                                                               \
        TD_BROADCAST_RANGE(b, begin, end, expression)                                                                  \
    }                                                                                                                  \
    static td_status *symbol##_run(const td_kernel_call *call, td_team *team, void *state)                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        td_broadcast b = td_broadcast_make(call);                                                                      \
        td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, symbol##_range, &b);                        \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    const td_cpu_kernel TD_KERNEL(symbol) = {.op = op_name, .supports = td_cpu_floats_only, .run = symbol##_run}

#endif
