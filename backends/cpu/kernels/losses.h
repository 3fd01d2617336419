/* What the kernels of losses share: a mean over elements in blocks, and the factor of a gradient. Not a kernel.
 *
 * Losses of single elements are added in double, lane by lane within blocks of TD_SUM_BLOCK, block sums in order, and divided
 * once (see base/sums.h): blocks may be made by any thread. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_LOSSES_H
#define TANDEM_BACKENDS_CPU_KERNELS_LOSSES_H

#include "backends/cpu/kernels/chunks.h"
#include "base/sums.h"

static inline bool td_loss_takes(const td_kernel_call *call, td_dtype label)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32) && call->inputs[1].kind == TD_DENSE &&
           (call->inputs[1].dtype == label || (label == TD_I64 && call->inputs[1].dtype == TD_I32));
}

static inline int64_t td_loss_blocks(int64_t n)
{
    return n / TD_SUM_BLOCK + (n % TD_SUM_BLOCK != 0);
}

/* The sum of one block. */
static inline double td_loss_block_sum(const float *losses, int64_t n)
{
    double lanes[TD_SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + TD_SUM_LANES <= n; i += TD_SUM_LANES)
        for (int lane = 0; lane < TD_SUM_LANES; lane++)
            lanes[lane] += (double)losses[i + lane];
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] += (double)losses[i];
    return td_fold_lanes_double(lanes);
}

static inline float td_loss_mean(const double *block_sums, int64_t n)
{
    double total = 0;
    for (int64_t block = 0; block < td_loss_blocks(n); block++)
        total += block_sums[block];
    return n ? (float)(total / (double)n) : 0;
}

/* The loss's gradient, a scalar or a dense [1], divided by the number of samples in double and rounded once. */
static inline float td_loss_factor(const td_tensor *gradient, int64_t n)
{
    const double seed =
        gradient->dtype == TD_F64 ? *(const double *)gradient->data : (double)*(const float *)gradient->data;
    return n ? (float)(seed / (double)n) : 0;
}

/* ---- losses of one logit and one label each --------------------------------------------------------------------------------- */

static inline size_t td_loss_scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return (size_t)td_loss_blocks(td_cpu_elements(&call->inputs[0])) * sizeof(double);
}

/* Kernels `symbol` and `symbol`_gradient. `loss` is the loss of x and y; `slope` its derivative, to be multiplied by f times
 * `scale`. */
#define TD_LOSS_KERNELS(symbol, loss, scale, slope)                                                                    \
    static bool symbol##_supports(const td_kernel_call *call)                                                          \
    {                                                                                                                  \
        return td_loss_takes(call, TD_F32);                                                                            \
    }                                                                                                                  \
    static void symbol##_block(void *context, int64_t begin, int64_t end)                                              \
    {                                                                                                                  \
        const td_kernel_call *call = context;                                                                          \
        const float *a_ = (const float *)call->inputs[0].data + begin,                                                 \
                    *b_ = (const float *)call->inputs[1].data + begin;                                                 \
        float losses_[TD_SUM_BLOCK];                                                                                   \
        for (int64_t i = 0; i < end - begin; i++) {                                                                    \
            const float x = a_[i], y = b_[i];                                                                          \
            losses_[i] = (loss);                                                                                       \
        }                                                                                                              \
        ((double *)call->scratch)[begin / TD_SUM_BLOCK] = td_loss_block_sum(losses_, end - begin);                     \
    }                                                                                                                  \
    static td_status *symbol##_run(const td_kernel_call *call, td_team *team, void *state)                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        const int64_t n_ = td_cpu_elements(&call->inputs[0]);                                                          \
        td_cpu_for(team, n_, TD_SUM_BLOCK, symbol##_block, (void *)(uintptr_t)call);                                   \
        *(float *)call->outputs[0].data = td_loss_mean(call->scratch, n_);                                             \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    static void symbol##_gradient_range(void *context, int64_t begin, int64_t end)                                     \
    {                                                                                                                  \
        const td_kernel_call *call = context;                                                                          \
        const float *a_ = call->inputs[0].data, *b_ = call->inputs[1].data;                                            \
        const float f_ = (scale)*td_loss_factor(&call->inputs[2], td_cpu_elements(&call->inputs[0]));                  \
        float *out_ = call->outputs[0].data;                                                                           \
        TD_INDEPENDENT                                                                                                 \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            const float x = a_[i], y = b_[i];                                                                          \
            out_[i] = f_ * (slope);                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static td_status *symbol##_gradient_run(const td_kernel_call *call, td_team *team, void *state)                    \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        td_cpu_for(team, td_cpu_elements(&call->inputs[0]), TD_CPU_BLOCK, symbol##_gradient_range,                     \
                   (void *)(uintptr_t)call);                                                                           \
        return NULL;                                                                                                   \
    }

#endif
