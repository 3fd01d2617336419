/* concat and concat_gradient: rows of bytes between one whole and its parts along an axis, any dtype. */
#include "backends/cpu/kernels/chunks.h"

/* All parts to or from the whole, rows [begin, end) of the axes before the one that is cut. */
typedef struct pieces {
    const td_tensor *whole, *parts;
    int32_t n_parts, axis;
    bool to_whole;
} pieces;

static void move_rows(void *context, int64_t begin, int64_t end)
{
    const pieces *p = context;
    size_t inner = (size_t)td_cpu_product(p->whole, p->axis + 1, p->whole->rank) * td_cpu_element_bytes(p->whole);
    size_t stride = (size_t)p->whole->dims[p->axis] * inner;
    char *at = (char *)p->whole->data;
    for (int32_t i = 0; i < p->n_parts; i++) {
        size_t bytes = (size_t)p->parts[i].dims[p->axis] * inner;
        char *part = (char *)p->parts[i].data;
        for (int64_t row = begin; row < end && bytes; row++) {
            char *in_whole = at + (size_t)row * stride, *in_part = part + (size_t)row * bytes;
            memcpy(p->to_whole ? in_whole : in_part, p->to_whole ? in_part : in_whole, bytes);
        }
        at += bytes;
    }
}

/* Along the first axis each part is one long row. */
static void move_long_parts(td_team *team, const pieces *p)
{
    size_t inner = (size_t)td_cpu_product(p->whole, p->axis + 1, p->whole->rank) * td_cpu_element_bytes(p->whole);
    char *at = (char *)p->whole->data;
    for (int32_t i = 0; i < p->n_parts; i++) {
        size_t bytes = (size_t)p->parts[i].dims[p->axis] * inner;
        char *part = (char *)p->parts[i].data;
        td_copy_rows(team, (td_row_copy){p->to_whole ? at : part, p->to_whole ? part : at, bytes, bytes, bytes, 1});
        at += bytes;
    }
}

static td_status *run_pieces(td_team *team, const pieces *p)
{
    int64_t rows = td_cpu_product(p->whole, 0, p->axis), per_row = td_cpu_product(p->whole, p->axis, p->whole->rank);
    if (per_row == 0)
        return NULL;
    if (rows == 1)
        move_long_parts(team, p);
    else
        td_cpu_for(team, rows, 1 + TD_CPU_BLOCK / per_row, move_rows, (void *)(uintptr_t)p);
    return NULL;
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    pieces p = {&call->outputs[0], call->inputs, call->n_inputs, (int32_t)td_cpu_attr_int(call, "axis", 0), true};
    return run_pieces(team, &p);
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    pieces p = {&call->inputs[0], call->outputs, call->n_outputs, (int32_t)td_cpu_attr_int(call, "axis", 0), false};
    return run_pieces(team, &p);
}

const td_cpu_kernel TD_KERNEL(concat) = {.op = "concat", .run = run};
const td_cpu_kernel TD_KERNEL(concat_gradient) = {.op = "concat_gradient", .run = run_gradient};
