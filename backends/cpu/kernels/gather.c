/* gather: rows picked by indices, any dtype; and gather_gradient of f32, which adds rows in the order of their positions. */
#include <inttypes.h>
#include <stdio.h>

#include "backends/cpu/kernels/chunks.h"
#include "base/units.h"

typedef struct picking {
    const td_kernel_call *call;
    const td_tensor *indices;
    int64_t rows, width;
    size_t bytes;
} picking;

static inline int64_t index_at(const td_tensor *indices, int64_t i)
{
    return indices->dtype == TD_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
}

/* The first position whose index is no row. */
static td_status *check_indices(const picking *p)
{
    int64_t n = td_cpu_elements(p->indices);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = index_at(p->indices, i);
        if (index < 0 || index >= p->rows)
            return TD_ERROR(TD_DATA_ERROR, "%s %s: index %" PRId64 " at position %" PRId64 " is outside the %s of x",
                            p->call->op, p->call->name, index, i, TD_COUNTED(p->rows, "row"));
    }
    return NULL;
}

static void pick_range(void *context, int64_t begin, int64_t end)
{
    const picking *p = context;
    const char *from = p->call->inputs[0].data;
    char *to = p->call->outputs[0].data;
    for (int64_t i = begin; i < end; i++)
        memcpy(to + (size_t)i * p->bytes, from + (size_t)index_at(p->indices, i) * p->bytes, p->bytes);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *x = &call->inputs[0];
    int64_t width = td_cpu_product(x, 1, x->rank);
    picking p = {call, &call->inputs[1], x->dims[0], width, (size_t)width * td_cpu_element_bytes(x)};
    TD_TRY(check_indices(&p));
    if (p.bytes)
        td_cpu_for(team, td_cpu_elements(p.indices), 1 + TD_CPU_BLOCK / width, pick_range, &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gather) = {.op = "gather", .run = run};

/* Rows [begin, end) of dx: every index is looked at, those of these rows are added. */
static void add_range(void *context, int64_t begin, int64_t end)
{
    const picking *p = context;
    const float *dy = p->call->inputs[0].data;
    float *dx = p->call->outputs[0].data;
    int64_t n = td_cpu_elements(p->indices);
    memset(dx + begin * p->width, 0, (size_t)((end - begin) * p->width) * sizeof *dx);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = index_at(p->indices, i);
        if (row < begin || row >= end)
            continue;
        for (int64_t column = 0; column < p->width; column++)
            dx[row * p->width + column] += dy[i * p->width + column];
    }
}

static bool supports_gradient(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32);
}

static td_status *run_gradient(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    enum { TASKS = 16 }; /* each looks at all indices */
    const td_tensor *dx = &call->outputs[0];
    picking p = {call, &call->inputs[1], dx->dims[0], td_cpu_product(dx, 1, dx->rank), 0};
    TD_TRY(check_indices(&p));
    if (p.width)
        td_cpu_for(team, p.rows, p.rows / TASKS + 1, add_range, &p);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gather_gradient) = {
    .op = "gather_gradient", .supports = supports_gradient, .widens = true, .run = run_gradient};
