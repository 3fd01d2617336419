/* early_update and settle_update: as graph/ops/early_update.c says. A piece is logged, then updated while it is in a cache; a long log is
 * written past the caches, for it is read again only where the step was wrong. */
#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "backends/cpu/kernels/seen_gradient.h"
#include "backends/cpu/kernels/update_rules.h"

enum { PARAMETER, GRADIENT, SUM, MICRO, FACTOR, COEFFICIENTS, STATES, PART_INPUTS = STATES + TD_UPDATE_MOST_STATES };
enum { SPECULATED = PART_INPUTS, FIRST, LOG, COPY };
enum { PIECE = TD_CHUNK };
static const int64_t LONG_LOG = 1 << 20; /* elements of the parameter */

typedef struct step_work {
    const td_kernel_call *call;
    const td_update_rule *rule;
    const td_tensor *copy; /* NULL: none is made */
    float *log;            /* of the parameter; each state's `stride` further */
    int64_t stride;
    td_seen_gradient seen;
    bool saves, restores, steps, past;
} step_work;

static bool takes(const td_kernel_call *call)
{
    const td_update_rule *rule = td_update_rule_of(call);
    int32_t states = 0;
    while (states < TD_UPDATE_MOST_STATES && call->inputs[STATES + states].kind != TD_NONE)
        states++;
    return rule && !rule->per_row && states >= rule->least_states && states <= rule->most_states;
}

static void save(const float *from, float *to, int64_t n, bool past)
{
#ifdef __AVX__
    if (past && n == PIECE && (uintptr_t)to % 32 == 0) {
        for (int64_t i = 0; i < n; i += 8)
            _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
        return;
    }
#endif
    (void)past;
    memcpy(to, from, (size_t)n * sizeof *to);
}

/* Not inlined: with a whole piece GCC sees that nothing is left for the last loop, and warns. */
__attribute__((noinline)) static void copy_out(const td_tensor *copy, int64_t at, int64_t n, const float *from)
{
    td_chunk_store(copy, at, n, from);
}

static void step_piece(const step_work *w, int64_t at, int64_t n)
{
    const td_tensor *inputs = w->call->inputs;
    float *arrays[2 + TD_UPDATE_MOST_STATES] = {(float *)inputs[PARAMETER].data + at}, buffer[PIECE];
    int32_t n_arrays = 1;
    for (; n_arrays <= TD_UPDATE_MOST_STATES && inputs[STATES + n_arrays - 1].kind != TD_NONE; n_arrays++)
        arrays[n_arrays] = (float *)inputs[STATES + n_arrays - 1].data + at;
    for (int32_t k = 0; k < n_arrays && w->saves; k++)
        save(arrays[k], w->log + k * w->stride + at, n, w->past);
    for (int32_t k = 0; k < n_arrays && w->restores; k++)
        memcpy(arrays[k], w->log + k * w->stride + at, (size_t)n * sizeof(float));
    if (!w->steps)
        return;
    w->rule->update(arrays[0], arrays + 1, td_seen_gradient_load(&w->seen, at, n, buffer), n,
                    inputs[COEFFICIENTS].data);
    if (w->copy)
        copy_out(w->copy, at, n, arrays[0]);
}

static void step_range(void *context, int64_t begin, int64_t end)
{
    const step_work *w = context;
    for (int64_t at = begin; at < end; at += PIECE)
        step_piece(w, at, end - at < PIECE ? end - at : PIECE);
#ifdef __AVX__
    if (w->saves && w->past)
        _mm_sfence();
#endif
}

static void run_step(const td_kernel_call *call, td_team *team, step_work w)
{
    const int64_t n = td_cpu_elements(&call->inputs[PARAMETER]);
    w.call = call;
    w.rule = td_update_rule_of(call);
    w.stride = (n + 15) / 16 * 16;
    w.past = n >= LONG_LOG;
    w.seen.gradient = &call->inputs[GRADIENT];
    w.seen.sum = td_earlier_sum(&call->inputs[SUM], &call->inputs[MICRO]);
    td_update_for(team, n, TD_CPU_BLOCK, n, step_range, &w);
}

/* ---- early_update ---------------------------------------------------------------------------------------------------------- */

static td_status *run_early(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    run_step(call, team,
             (step_work){.log = call->outputs[0].data,
                         .copy = call->n_outputs > 1 ? &call->outputs[1] : NULL,
                         .seen.factor = 1,
                         .saves = true,
                         .steps = true});
    return NULL;
}

const td_cpu_kernel TD_KERNEL(early_update) = {.op = "early_update", .supports = takes, .run = run_early};

/* ---- settle_update --------------------------------------------------------------------------------------------------------- */

static td_status *run_settle(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const bool speculated = *(const double *)call->inputs[SPECULATED].data != 0;
    step_work w = {.log = call->inputs[LOG].data,
                   .copy = call->inputs[COPY].kind == TD_NONE ? NULL : &call->inputs[COPY],
                   .seen.factor = *(const float *)call->inputs[FACTOR].data,
                   .restores = speculated,
                   .steps = *(const int64_t *)call->inputs[FIRST].data == 0};
    bool right = speculated && w.steps && w.seen.factor == 1;
    if (!right && (w.restores || w.steps))
        run_step(call, team, w);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(settle_update) = {.op = "settle_update", .supports = takes, .run = run_settle};
