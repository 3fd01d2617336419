/* What kernels share: cutting a range over a team, and attributes by key. See kernel.h. */
#include "backends/cpu/kernel.h"

#include <string.h>

typedef struct range_context {
    td_cpu_range_fn fn;
    void *context;
    int64_t n, block;
} range_context;

static void run_block(void *context, int64_t task, int32_t thread)
{
    (void)thread;
    const range_context *range = context;
    int64_t begin = task * range->block;
    int64_t end = begin + range->block < range->n ? begin + range->block : range->n;
    range->fn(range->context, begin, end);
}

void td_cpu_for(td_team *team, int64_t n, int64_t block, td_cpu_range_fn fn, void *context)
{
    if (n <= 0)
        return;
    int64_t blocks = n / block + (n % block != 0);
    if (blocks == 1) {
        fn(context, 0, n);
        return;
    }
    range_context range = {fn, context, n, block};
    td_team_run(team, blocks, run_block, &range);
}

const td_attr *td_cpu_attr(const td_kernel_call *call, const char *key)
{
    for (int32_t i = 0; i < call->n_attrs; i++)
        if (strcmp(call->attrs[i].key, key) == 0)
            return &call->attrs[i];
    return NULL;
}

int64_t td_cpu_attr_int(const td_kernel_call *call, const char *key, int64_t fallback)
{
    const td_attr *attr = td_cpu_attr(call, key);
    return attr ? attr->i : fallback;
}

double td_cpu_attr_float(const td_kernel_call *call, const char *key, double fallback)
{
    const td_attr *attr = td_cpu_attr(call, key);
    return attr ? attr->f : fallback;
}

bool td_cpu_attr_bool(const td_kernel_call *call, const char *key, bool fallback)
{
    const td_attr *attr = td_cpu_attr(call, key);
    return attr ? attr->i != 0 : fallback;
}

const char *td_cpu_attr_string(const td_kernel_call *call, const char *key, const char *fallback)
{
    const td_attr *attr = td_cpu_attr(call, key);
    return attr && attr->s ? attr->s : fallback;
}
