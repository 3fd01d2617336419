/* update_mixed: a rule over pieces that stay in the cache: the gradient widened, summed and clipped before it, the parameters rounded
 * and copied out after it. Parts are cut into blocks as if they lay one behind the other, so that many small tensors share one dispatch.
 * Where a copy is too long to stay in a cache anyway it is written past it, so that its lines are not read first. */
#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "backends/cpu/kernels/seen_gradient.h"
#include "backends/cpu/kernels/update_rules.h"

enum { PARAMETER, GRADIENT, SUM, MICRO, FACTOR, COEFFICIENTS, STATES, PART_INPUTS = STATES + TD_UPDATE_MOST_STATES };
enum { PIECE = TD_CHUNK };
static const int64_t LONG_COPY = 1 << 21; /* elements */

static int32_t count_states(const td_tensor *part)
{
    int32_t n = 0;
    while (n < TD_UPDATE_MOST_STATES && part[STATES + n].kind != TD_NONE)
        n++;
    return n;
}

static bool supports(const td_kernel_call *call)
{
    const td_update_rule *rule = td_update_rule_of(call);
    bool takes = rule && !rule->per_row;
    for (int32_t first = 0; takes && first < call->n_inputs; first += PART_INPUTS) {
        int32_t states = count_states(&call->inputs[first]);
        takes = states >= rule->least_states && states <= rule->most_states;
    }
    return takes;
}

/* Not inlined: with a whole piece GCC sees that nothing is left for the last loop, and warns. */
__attribute__((noinline)) static void narrow(const td_tensor *copy, int64_t at, int64_t n, const float *from)
{
    td_chunk_store(copy, at, n, from);
}

/* A whole piece, past the caches where there are instructions for it and the copy is aligned. */
static void copy_out(const float *from, const td_tensor *copy, int64_t at, int64_t n, bool past)
{
#ifdef __F16C__
    uint16_t *out = (uint16_t *)copy->data + at;
    if (past && n == PIECE && (uintptr_t)out % 32 == 0) {
        uint16_t piece[PIECE] __attribute__((aligned(32)));
        narrow(&(td_tensor){.dtype = copy->dtype, .data = piece}, 0, n, from);
        for (int64_t i = 0; i < n; i += 16)
            _mm256_stream_si256((__m256i *)(void *)(out + i),
                                _mm256_load_si256((const __m256i *)(const void *)(piece + i)));
        return;
    }
#endif
    (void)past;
    narrow(copy, at, n, from);
}

typedef struct mixed_part {
    const td_tensor *inputs, *copy;
    td_seen_gradient seen;
    int64_t rounding;
} mixed_part;

/* The whole units of a span that a rule takes as one loop; returns where the rest begins. */
static int64_t update_narrow(const td_update_rule *rule, const mixed_part *part, int64_t begin, int64_t end, bool past)
{
    const td_tensor *inputs = part->inputs, *gradient = &inputs[GRADIENT], *copy = part->copy;
    const int64_t n = (end - begin) / TD_UPDATE_UNIT * TD_UPDATE_UNIT;
    if (!rule->update_narrow || inputs[PARAMETER].dtype != TD_F32 || gradient->dtype == TD_F32 || part->seen.sum)
        return begin;
    float *states[TD_UPDATE_MOST_STATES] = {NULL};
    td_update_narrow narrow = {.gradient = (const uint16_t *)gradient->data + begin,
                               .copy = copy ? (uint16_t *)copy->data + begin : NULL,
                               .is_bf16 = gradient->dtype == TD_BF16,
                               .copy_is_bf16 = copy && copy->dtype == TD_BF16,
                               .factor = part->seen.factor};
    narrow.past = past && (uintptr_t)narrow.copy % 32 == 0;
    for (int32_t s = 0; s < TD_UPDATE_MOST_STATES && inputs[STATES + s].kind != TD_NONE; s++)
        states[s] = (float *)inputs[STATES + s].data + begin;
    rule->update_narrow((float *)inputs[PARAMETER].data + begin, states, &narrow, n, inputs[COEFFICIENTS].data);
    return begin + n;
}

static void update_span(const td_update_rule *rule, const mixed_part *part, int64_t begin, int64_t end, bool past)
{
    const td_tensor *inputs = part->inputs;
    const td_dtype dtype = inputs[PARAMETER].dtype;
    const uint64_t update = td_update_of(inputs[COEFFICIENTS].data);
    float buffer[PIECE], wide[PIECE];
    for (int64_t at = update_narrow(rule, part, begin, end, past); at < end; at += PIECE) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        float *states[TD_UPDATE_MOST_STATES] = {NULL};
        float *parameter = dtype == TD_F32 ? (float *)inputs[PARAMETER].data + at : wide;
        if (dtype != TD_F32)
            (void)td_chunk_load(&inputs[PARAMETER], at, n, wide);
        for (int32_t s = 0; s < TD_UPDATE_MOST_STATES && inputs[STATES + s].kind != TD_NONE; s++)
            states[s] = (float *)inputs[STATES + s].data + at;
        rule->update(parameter, states, td_seen_gradient_load(&part->seen, at, n, buffer), n,
                     inputs[COEFFICIENTS].data);
        if (dtype != TD_F32 && part->rounding)
            td_narrow_row(wide, dtype, at, n, part->rounding, update, (uint16_t *)inputs[PARAMETER].data + at);
        else if (dtype != TD_F32)
            narrow(&inputs[PARAMETER], at, n, wide);
        if (part->copy)
            copy_out(parameter, part->copy, at, n, past);
    }
}

typedef struct mixed_work {
    const td_update_rule *rule;
    const td_kernel_call *call;
} mixed_work;

static mixed_part part_at(const td_kernel_call *call, int32_t index)
{
    const td_tensor *inputs = &call->inputs[index * PART_INPUTS];
    mixed_part part = {.inputs = inputs, .copy = call->n_outputs ? &call->outputs[index] : NULL};
    const td_attr *rounding = td_cpu_attr(call, "rounding");
    part.rounding = rounding && index < rounding->n_ints ? rounding->ints[index] : 0;
    part.seen = (td_seen_gradient){.gradient = &inputs[GRADIENT],
                                   .sum = td_earlier_sum(&inputs[SUM], &inputs[MICRO]),
                                   .factor = inputs[FACTOR].kind == TD_NONE ? 1 : *(const float *)inputs[FACTOR].data};
    return part;
}

static int64_t blocks_of(const td_tensor *part)
{
    return (td_cpu_elements(&part[PARAMETER]) + TD_CPU_BLOCK - 1) / TD_CPU_BLOCK;
}

/* Blocks [begin, end) of all parts, one behind the other. */
static void update_blocks(void *context, int64_t begin, int64_t end)
{
    const mixed_work *work = context;
    bool past = false;
    int64_t first = 0;
    for (int32_t p = 0; p < work->call->n_inputs / PART_INPUTS && first < end; p++) {
        const mixed_part part = part_at(work->call, p);
        const int64_t blocks = blocks_of(part.inputs), n = td_cpu_elements(&part.inputs[PARAMETER]);
        const int64_t from = begin > first ? begin - first : 0, to = end - first < blocks ? end - first : blocks;
        const bool long_copy = part.copy && n >= LONG_COPY;
        if (from < to)
            update_span(work->rule, &part, from * TD_CPU_BLOCK, to * TD_CPU_BLOCK < n ? to * TD_CPU_BLOCK : n,
                        long_copy);
        past = past || (long_copy && from < to);
        first += blocks;
    }
#ifdef __AVX__
    if (past)
        _mm_sfence();
#endif
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const mixed_work work = {td_update_rule_of(call), call};
    int64_t blocks = 0, elements = 0;
    for (int32_t first = 0; first < call->n_inputs; first += PART_INPUTS) {
        blocks += blocks_of(&call->inputs[first]);
        elements += td_cpu_elements(&call->inputs[first + PARAMETER]);
    }
    td_update_for(team, blocks, 1, elements, update_blocks, (void *)(uintptr_t)&work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(update_mixed) = {.op = "update_mixed", .supports = supports, .run = run};
