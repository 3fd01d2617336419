/* What a CPU kernel is, and how one is added.
 *
 * A kernel is one constant table in backends/cpu/kernels/<file>.c, exported under TD_KERNEL(<symbol>) and listed once in
 * backends/cpu/kernels.def. Each file is compiled once per instruction set (TD_ISA is baseline, avx2 or avx512), so write
 * plain loops that the compiler can vectorise; the table of the best instruction set is picked at run time. Start from
 * kernels/_template.c. The emulated device runs the very same kernels. A few have forms for processors with bf16 instructions
 * besides (TD_ISA is avx512_bf16 or amx_bf16: kernels/pairs.h, kernels/amx.h).
 *
 *     static td_status *run(const td_kernel_call *call, td_team *team, void *state) { ... }
 *     const td_cpu_kernel TD_KERNEL(relu) = {.op = "relu", .supports = supports, .run = run};
 *
 * What always holds: results depend on the call alone, never on the number of threads (work is cut by shape: use
 * td_cpu_for, or td_team_run with a number of tasks computed from the extents) nor on the instruction set (fixed
 * expression order, fmaf where a fused multiply-add is wanted, reductions in an order that is written down). A kernel
 * allocates nothing and takes no lock while it runs; small buffers (up to 64 KiB) may live on the stack. Several kernels
 * may name the same op: the first whose `supports` says yes is taken. An op, dtype or shape that no kernel takes runs on
 * the engine's reference kernel, so a kernel need only take the cases that it is made for. */
#ifndef TANDEM_BACKENDS_CPU_KERNEL_H
#define TANDEM_BACKENDS_CPU_KERNEL_H

#include "base/team.h"
#include "tandem/backend.h"
#include "tandem/status.h"

typedef struct td_cpu_engine td_cpu_engine; /* backends/cpu/engine.h */

typedef struct td_cpu_kernel {
    const char *op; /* as in `tandem ops` */
    /* Whether the kernel takes this call (dims at capacity, data NULL). Must hold for all extents below. NULL: takes all. */
    bool (*supports)(const td_kernel_call *call);
    /* 16-bit operands are widened for it, into scratch, and its results rounded (backends/cpu/widened.h) */
    bool widens;
    /* Optional. Makes a state of the kernel's own (prepared primitives, say) for a call at capacity. */
    td_status *(*prepare)(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state);
    void (*destroy)(void *state);
    /* Optional. Bytes of call->scratch wanted, at most, for any extents up to these. A function of shapes and attributes
     * alone, so that a plan does not depend on the machine. `state` is prepare's. */
    size_t (*scratch_bytes)(const td_kernel_call *call, const void *state);
    /* At actual extents, which may be 0. Runs on the calling thread and the team's; one run at a time per state. */
    td_status *(*run)(const td_kernel_call *call, td_team *team, void *state);
} td_cpu_kernel;

#ifndef TD_ISA
#define TD_ISA baseline
#endif
#define TD_KERNEL_PASTE_(symbol, isa) td_cpu_kernel_##symbol##_##isa
#define TD_KERNEL_PASTE(symbol, isa) TD_KERNEL_PASTE_(symbol, isa)
/* The exported name of a table, or of any other symbol that a kernel file must export, for the instruction set at hand. */
#define TD_KERNEL(symbol) TD_KERNEL_PASTE(symbol, TD_ISA)

/* ---- cutting work ------------------------------------------------------------------------------------------------------ */

/* Elements [begin, end) of some range. */
typedef void (*td_cpu_range_fn)(void *context, int64_t begin, int64_t end);
/* Runs fn over [0, n) in blocks of `block` elements (the last one shorter), in any order, over the team. One block, or
 * none, runs on the calling thread without waking anybody. */
void td_cpu_for(td_team *team, int64_t n, int64_t block, td_cpu_range_fn fn, void *context);
/* A block size for elementwise work: small enough to share, large enough to pay for the sharing. */
enum { TD_CPU_BLOCK = 16384 };

/* ---- looking at a call ------------------------------------------------------------------------------------------------- */

/* NULL when the attribute is absent. */
const td_attr *td_cpu_attr(const td_kernel_call *call, const char *key);
int64_t td_cpu_attr_int(const td_kernel_call *call, const char *key, int64_t fallback);
double td_cpu_attr_float(const td_kernel_call *call, const char *key, double fallback);
bool td_cpu_attr_bool(const td_kernel_call *call, const char *key, bool fallback);
const char *td_cpu_attr_string(const td_kernel_call *call, const char *key, const char *fallback);

/* Product of dims [from, to). */
static inline int64_t td_cpu_product(const td_tensor *tensor, int32_t from, int32_t to)
{
    int64_t product = 1;
    for (int32_t i = from; i < to; i++)
        product *= tensor->dims[i];
    return product;
}

/* Elements of a dense tensor. */
static inline int64_t td_cpu_elements(const td_tensor *tensor)
{
    return td_cpu_product(tensor, 0, tensor->rank);
}

static inline bool td_cpu_is(const td_tensor *tensor, td_kind kind, td_dtype dtype)
{
    return tensor->kind == kind && tensor->dtype == dtype;
}

static inline bool td_cpu_same_dims(const td_tensor *a, const td_tensor *b)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

#endif
