/* gradient_nonfinite: one look at every element's exponent. Whoever finds one says so; others need not agree. */
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/kernels/seen_gradient.h"

typedef struct look {
    td_seen_gradient seen;
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

/* Sums that overflow are found too: they are made as the update makes them. */
static bool look_at_sums(const td_seen_gradient *seen, int64_t begin, int64_t end)
{
    float buffer[TD_CHUNK];
    uint32_t words[TD_CHUNK];
    bool found = false;
    for (int64_t at = begin; at < end && !found; at += TD_CHUNK) {
        const int64_t n = end - at < TD_CHUNK ? end - at : TD_CHUNK;
        memcpy(words, td_seen_gradient_load(seen, at, n, buffer), (size_t)n * sizeof *words);
        found = look_at_words(words, n);
    }
    return found;
}

static bool look_at_gradient(const td_tensor *t, int64_t begin, int64_t end)
{
    return t->dtype == TD_F32
               ? look_at_words((const uint32_t *)t->data + begin, end - begin)
               : look_at_halves((const uint16_t *)t->data + begin, end - begin, t->dtype == TD_F16 ? 0x7c00 : 0x7f80);
}

static void look_range(void *context, int64_t begin, int64_t end)
{
    look *l = context;
    if (l->seen.sum ? look_at_sums(&l->seen, begin, end) : look_at_gradient(l->seen.gradient, begin, end))
        atomic_store_explicit(&l->found, 1, memory_order_relaxed);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *gradient = &call->inputs[0];
    look l = {.seen = {.gradient = gradient, .factor = 1}};
    int64_t n = td_cpu_elements(gradient);
    if (gradient->kind == TD_ROW_SPARSE)
        n = *(const int64_t *)gradient->count * td_cpu_product(gradient, 1, gradient->rank);
    if (call->n_inputs > 2)
        l.seen.sum = td_earlier_sum(&call->inputs[1], &call->inputs[2]);
    td_cpu_for(team, n, TD_CPU_BLOCK, look_range, &l);
    *(int64_t *)call->outputs[0].data = atomic_load_explicit(&l.found, memory_order_relaxed);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(gradient_nonfinite) = {.op = "gradient_nonfinite", .supports = supports, .run = run};
