/* gradient_nonfinite: one look at every element's exponent. Whoever finds one says so; others need not agree. */
#include <stdatomic.h>

#include "backends/cpu/kernels/chunks.h"

typedef struct look {
    const td_tensor *gradient;
    atomic_int found;
} look;

static bool supports(const td_kernel_call *call)
{
    const td_tensor *t = &call->inputs[0];
    return t->dtype == TD_F32 || (t->kind == TD_DENSE && (t->dtype == TD_F16 || t->dtype == TD_BF16));
}

static bool look_at_words(const uint32_t *words, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = words[i] & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    return most >= 0x7f800000u;
}

static bool look_at_halves(const uint16_t *words, int64_t n, uint16_t infinity)
{
    uint16_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t magnitude = words[i] & 0x7fffu;
        most = magnitude > most ? magnitude : most;
    }
    return most >= infinity;
}

static void look_range(void *context, int64_t begin, int64_t end)
{
    look *l = context;
    const td_tensor *t = l->gradient;
    const bool found = t->dtype == TD_F32 ? look_at_words((const uint32_t *)t->data + begin, end - begin)
                                          : look_at_halves((const uint16_t *)t->data + begin, end - begin,
                                                           t->dtype == TD_F16 ? 0x7c00 : 0x7f80);
    if (found)
        atomic_store_explicit(&l->found, 1, memory_order_relaxed);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    look l = {.gradient = &call->inputs[0]};
    int64_t n = td_cpu_elements(l.gradient);
    if (l.gradient->kind == TD_ROW_SPARSE)
        n = *(const int64_t *)l.gradient->count * td_cpu_product(l.gradient, 1, l.gradient->rank);
    td_cpu_for(team, n, TD_CPU_BLOCK, look_range, &l);
    *(int64_t *)call->outputs[0].data = atomic_load_explicit(&l.found, memory_order_relaxed);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gradient_nonfinite) = {.op = "gradient_nonfinite", .supports = supports, .run = run};
