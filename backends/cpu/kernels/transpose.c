/* transpose: axes in another order, any dtype. Where the last axis stays last, runs of it are copied; else square tiles of
 * the output's last axis and of the axis that is the input's last are moved together, so that both sides stay in cache. */
#include "backends/cpu/kernels/chunks.h"

enum { TILE = 32 };

typedef struct permutation {
    const char *from;
    char *to;
    size_t size;
    int32_t rank;
    int64_t dims[TD_MAX_RANK];    /* of the output */
    int64_t strides[TD_MAX_RANK]; /* elements of the input per step along an output axis */
    int64_t outer;                /* tasks: see task_origin */
    int32_t fast;                 /* the output axis along which the input is contiguous */
} permutation;

static permutation permutation_make(const td_kernel_call *call)
{
    const td_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const td_attr *order = td_cpu_attr(call, "permutation");
    permutation p = {.from = x->data, .to = y->data, .size = td_cpu_element_bytes(x), .rank = y->rank, .outer = 1};
    for (int32_t i = 0; i < y->rank; i++) {
        p.dims[i] = y->dims[i];
        p.strides[i] = td_cpu_product(x, (int32_t)order->ints[i] + 1, x->rank);
        if (order->ints[i] == x->rank - 1)
            p.fast = i;
    }
    for (int32_t i = 0; i + 1 < p.rank; i++)
        p.outer *= i == p.fast ? (p.dims[i] + TILE - 1) / TILE : p.dims[i];
    return p;
}

/* Input and output elements where task `task` starts: one index of each axis but the last, tiles of the fast one. Returns
 * how many elements along the fast axis the task has. */
static int64_t task_origin(const permutation *p, int64_t task, int64_t *out_from, int64_t *out_to)
{
    int64_t from = 0, to = 0, step = p->dims[p->rank - 1], width = 1;
    for (int32_t axis = p->rank - 2; axis >= 0; axis--) {
        int64_t tile = axis == p->fast ? TILE : 1, count = (p->dims[axis] + tile - 1) / tile;
        int64_t index = task % count * tile;
        task /= count;
        if (axis == p->fast)
            width = p->dims[axis] - index < TILE ? p->dims[axis] - index : TILE;
        from += index * p->strides[axis];
        to += index * step;
        step *= p->dims[axis];
    }
    *out_from = from;
    *out_to = to;
    return width;
}

/* `width` rows, `fast_step` apart in the output and 1 in the input, of `n` elements, 1 apart in the output and `stride` in
 * the input. */
#define MOVE(type)                                                                                                     \
    static void move_##type(const type *from, type *to, int64_t width, int64_t fast_step, int64_t n, int64_t stride)   \
    {                                                                                                                  \
        for (int64_t begin = 0; begin < n; begin += TILE) {                                                            \
            int64_t end = begin + TILE < n ? begin + TILE : n;                                                         \
            for (int64_t row = 0; row < width; row++)                                                                  \
                for (int64_t i = begin; i < end; i++)                                                                  \
                    to[row * fast_step + i] = from[row + i * stride];                                                  \
        }                                                                                                              \
    }
MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)

static void move_tile(const permutation *p, int64_t from, int64_t to, int64_t width)
{
    int64_t n = p->dims[p->rank - 1], stride = p->strides[p->rank - 1], fast_step = 1;
    for (int32_t axis = p->fast + 1; axis < p->rank; axis++)
        fast_step *= p->dims[axis];
    const char *source = p->from + (size_t)from * p->size;
    char *target = p->to + (size_t)to * p->size;
    if (p->size == 1)
        move_uint8_t((const uint8_t *)source, (uint8_t *)target, width, fast_step, n, stride);
    else if (p->size == 2)
        move_uint16_t((const uint16_t *)source, (uint16_t *)target, width, fast_step, n, stride);
    else if (p->size == 4)
        move_uint32_t((const uint32_t *)source, (uint32_t *)target, width, fast_step, n, stride);
    else
        move_uint64_t((const uint64_t *)source, (uint64_t *)target, width, fast_step, n, stride);
}

static void tasks_range(void *context, int64_t begin, int64_t end)
{
    const permutation *p = context;
    int64_t n = p->dims[p->rank - 1];
    for (int64_t task = begin; task < end; task++) {
        int64_t from, to, width = task_origin(p, task, &from, &to);
        if (p->fast == p->rank - 1)
            memcpy(p->to + (size_t)to * p->size, p->from + (size_t)from * p->size, (size_t)n * p->size);
        else
            move_tile(p, from, to, width);
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    int64_t n = td_cpu_elements(&call->outputs[0]);
    if (n == 0)
        return NULL;
    if (call->inputs[0].rank < 2) {
        size_t bytes = (size_t)n * td_cpu_element_bytes(&call->inputs[0]);
        td_copy_rows(team, (td_row_copy){call->outputs[0].data, call->inputs[0].data, bytes, bytes, bytes, 1});
        return NULL;
    }
    permutation p = permutation_make(call);
    td_cpu_for(team, p.outer, 1 + TD_CPU_BLOCK / (1 + n / p.outer), tasks_range, &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(transpose) = {.op = "transpose", .run = run};
