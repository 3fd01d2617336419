/* update_mixed: a rule over pieces that stay in the cache: the gradient widened before it, the parameters rounded and copied out after
 * it. Where the copy is too long to stay in a cache anyway it is written past it, so that its lines are not read first. */
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "backends/cpu/kernels/update_rules.h"

enum { PARAMETER, GRADIENT, COEFFICIENTS, COPY, STATES, PIECE = 512 };
static const int64_t LONG_COPY = 1 << 21; /* elements */

static bool supports(const td_kernel_call *call)
{
    const td_update_rule *rule = td_update_rule_of(call);
    int32_t states = call->n_inputs - STATES;
    return rule && !rule->per_row && states >= rule->least_states && states <= rule->most_states;
}

/* As td_f16_to_f32 and td_f32_to_f16, by the instructions that they follow bit for bit. */
static void widen(const uint16_t *from, td_dtype dtype, int64_t n, float *restrict out)
{
    int64_t i = 0;
    if (dtype == TD_BF16) {
        for (; i < n; i++)
            out[i] = td_bf16_to_f32(from[i]);
        return;
    }
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (; i < n; i++)
        out[i] = td_f16_to_f32(from[i]);
}

/* Not inlined: with a whole piece GCC sees that nothing is left for the last loop, and warns. */
__attribute__((noinline)) static void narrow(const float *from, td_dtype dtype, int64_t n, uint16_t *restrict out)
{
    int64_t i = 0;
    if (dtype == TD_BF16) {
        for (; i < n; i++)
            out[i] = td_f32_to_bf16(from[i]);
        return;
    }
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        out[i] = td_f32_to_f16(from[i]);
}

/* A whole piece, past the caches where there are instructions for it and the copy is aligned. */
static void copy_out(const float *from, td_dtype dtype, int64_t n, uint16_t *out, bool past)
{
#ifdef __F16C__
    if (past && n == PIECE && (uintptr_t)out % 32 == 0) {
        uint16_t piece[PIECE] __attribute__((aligned(32)));
        narrow(from, dtype, n, piece);
        for (int64_t i = 0; i < n; i += 16)
            _mm256_stream_si256((__m256i *)(void *)(out + i),
                                _mm256_load_si256((const __m256i *)(const void *)(piece + i)));
        return;
    }
#endif
    (void)past;
    narrow(from, dtype, n, out);
}

typedef struct mixed_work {
    const td_update_rule *rule;
    const td_kernel_call *call;
    bool past;
} mixed_work;

static void update_range(void *context, int64_t begin, int64_t end)
{
    const mixed_work *work = context;
    const td_tensor *inputs = work->call->inputs, *gradient = &inputs[GRADIENT], *copy = &inputs[COPY];
    float wide[PIECE];
    for (int64_t at = begin; at < end; at += PIECE) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        float *states[TD_UPDATE_MOST_STATES] = {NULL}, *parameter = (float *)inputs[PARAMETER].data + at;
        const float *from = wide;
        for (int32_t s = STATES; s < work->call->n_inputs; s++)
            states[s - STATES] = (float *)inputs[s].data + at;
        if (gradient->dtype == TD_F32)
            from = (const float *)gradient->data + at;
        else
            widen((const uint16_t *)gradient->data + at, gradient->dtype, n, wide);
        work->rule->update(parameter, states, from, n, inputs[COEFFICIENTS].data);
        copy_out(parameter, copy->dtype, n, (uint16_t *)copy->data + at, work->past);
    }
#ifdef __F16C__
    if (work->past)
        _mm_sfence();
#endif
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    int64_t n = td_cpu_elements(&call->inputs[PARAMETER]);
    mixed_work work = {td_update_rule_of(call), call, n >= LONG_COPY};
    td_cpu_for(team, n, TD_CPU_BLOCK, update_range, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(update_mixed) = {.op = "update_mixed", .supports = supports, .run = run};
