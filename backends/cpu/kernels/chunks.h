/* What dense kernels share: 16-bit floats by the chunk, copies of rows, and loops over two broadcast operands. Not a kernel.
 *
 * 16-bit elements are widened into a small buffer, computed in f32 and rounded once, as the reference kernels do; f32 data
 * is used where it lies. Work is cut by shape alone. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_CHUNKS_H
#define TANDEM_BACKENDS_CPU_KERNELS_CHUNKS_H

#include <string.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/narrow.h"
#include "base/prefetch.h"

/* Before a loop whose iterations are independent although its pointers may be equal (in place). */
#if defined(__clang__)
#define TD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define TD_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TD_INDEPENDENT
#endif

enum { TD_CHUNK = 512 };

static inline bool td_cpu_is_float(const td_tensor *t)
{
    return t->kind == TD_DENSE && (t->dtype == TD_F32 || t->dtype == TD_F16 || t->dtype == TD_BF16);
}

static inline size_t td_cpu_element_bytes(const td_tensor *t)
{
    static const uint8_t bytes[TD_DTYPE_COUNT] = {[TD_F32] = 4, [TD_F16] = 2, [TD_BF16] = 2, [TD_I32] = 4,
                                                  [TD_I64] = 8, [TD_U8] = 1,  [TD_BOOL] = 1, [TD_F64] = 8};
    return bytes[t->dtype];
}

/* Elements [begin, begin + n) of a float tensor, n at most TD_CHUNK: where they lie, or widened into `buffer`. */
static inline const float *td_chunk_load(const td_tensor *t, int64_t begin, int64_t n, float *buffer)
{
    if (t->dtype == TD_F32)
        return (const float *)t->data + begin;
    const uint16_t *from = (const uint16_t *)t->data + begin;
    if (t->dtype == TD_BF16)
        widen_bf16(from, n, buffer);
    else
        widen_f16(from, n, buffer);
    return buffer;
}

/* Where to compute elements from `begin` on: in place for f32, else in `buffer`; td_chunk_store then puts them there. */
static inline float *td_chunk_target(const td_tensor *t, int64_t begin, float *buffer)
{
    return t->dtype == TD_F32 ? (float *)t->data + begin : buffer;
}

static inline void td_chunk_store(const td_tensor *t, int64_t begin, int64_t n, const float *buffer)
{
    uint16_t *to = (uint16_t *)t->data + begin;
    if (t->dtype == TD_BF16)
        round_to_bf16(buffer, n, to);
    else if (t->dtype == TD_F16)
        round_to_f16(buffer, n, to);
}

/* How many elements a loop may take at once: f32 data is used where it lies, other floats by the chunk. */
static inline int64_t td_chunk_most(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (td_cpu_is_float(&call->inputs[i]) && call->inputs[i].dtype != TD_F32)
            return TD_CHUNK;
    return call->outputs[0].dtype == TD_F32 ? INT64_MAX : TD_CHUNK;
}

/* ---- elementwise over equal shapes --------------------------------------------------------------------------------------- */

/* Elements at a time, and how far ahead of them more are asked for: the hardware begins anew at every 4 KiB. */
enum { TD_PIECE = 128, TD_PIECES_AHEAD = 4 };

TD_PREFETCHES void td_fetch_piece(const td_tensor *t, int64_t begin)
{
    const int64_t bytes = (int64_t)td_cpu_element_bytes(t);
    const char *from = (const char *)t->data + begin * bytes;
    for (int64_t at = 0; at < TD_PIECE * bytes; at += TD_PREFETCH_LINE)
        __builtin_prefetch(from + at, 0, 2);
}

/* The body of a range function over up to two float inputs of the output's shape. `expression` uses x[i], z[i] (the second
 * input), and what the caller declared; it gives y[i]. */
#define TD_CHUNKED_RANGE(call, begin, end, expression)                                                                 \
    for (int64_t at_ = (begin), n_ = 0; at_ < (end); at_ += n_) {                                                      \
        float x_buffer_[TD_PIECE], z_buffer_[TD_PIECE], y_buffer_[TD_PIECE];                                           \
        const td_tensor *inputs_ = (call)->inputs;                                                                     \
        const bool has_z_ = (call)->n_inputs > 1 && td_cpu_is_float(&inputs_[1]);                                      \
        n_ = (end)-at_ < TD_PIECE ? (end)-at_ : TD_PIECE;                                                              \
        td_fetch_piece(&inputs_[0], at_ + TD_PIECES_AHEAD * TD_PIECE);                                                 \
        if (has_z_)                                                                                                    \
            td_fetch_piece(&inputs_[1], at_ + TD_PIECES_AHEAD * TD_PIECE);                                             \
        const float *x = td_chunk_load(&inputs_[0], at_, n_, x_buffer_);                                               \
        const float *z = has_z_ ? td_chunk_load(&inputs_[1], at_, n_, z_buffer_) : x;                                  \
        float *y = td_chunk_target(&(call)->outputs[0], at_, y_buffer_);                                               \
        (void)z;                                                                                                       \
        TD_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n_; i++)                                                                               \
            y[i] = (expression);                                                                                       \
        td_chunk_store(&(call)->outputs[0], at_, n_, y);                                                               \
    }

/* A kernel `symbol` of op `op` whose output has the shape of its float inputs. */
#define TD_ELEMENTWISE_KERNEL(symbol, op_name, expression)                                                             \
    static void symbol##_range(void *context, int64_t begin, int64_t end)                                              \
    {                                                                                                                  \
        const td_kernel_call *call = context;                                                                          \
        TD_CHUNKED_RANGE(call, begin, end, expression)                                                                 \
    }                                                                                                                  \
    static td_status *symbol##_run(const td_kernel_call *call, td_team *team, void *state)                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        td_cpu_for(team, td_cpu_elements(&call->outputs[0]), TD_CPU_BLOCK, symbol##_range, (void *)(uintptr_t)call);   \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    const td_cpu_kernel TD_KERNEL(symbol) = {.op = op_name, .supports = td_cpu_floats_only, .run = symbol##_run}

static inline bool td_cpu_floats_only(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is_float(&call->inputs[i]))
            return false;
    return td_cpu_is_float(&call->outputs[0]);
}

/* ---- rows of bytes ---------------------------------------------------------------------------------------------------------- */

/* `rows` rows of `bytes` each, from one distance to another. */
typedef struct td_row_copy {
    char *to;
    const char *from;
    size_t to_stride, from_stride, bytes;
    int64_t rows;
} td_row_copy;

static inline void td_row_copy_range(void *context, int64_t begin, int64_t end)
{
    const td_row_copy *c = context;
    for (int64_t row = begin; row < end; row++)
        memcpy(c->to + (size_t)row * c->to_stride, c->from + (size_t)row * c->from_stride, c->bytes);
}

static inline void td_copy_rows(td_team *team, td_row_copy copy)
{
    enum { PIECE = 1 << 16 };
    if (copy.bytes == 0 || copy.rows == 0)
        return;
    if (copy.rows == 1 && copy.bytes > PIECE) { /* one long row: in pieces */
        td_row_copy pieces = {copy.to, copy.from, PIECE, PIECE, PIECE, (int64_t)(copy.bytes / PIECE)};
        td_cpu_for(team, pieces.rows, 1, td_row_copy_range, &pieces);
        size_t done = (size_t)pieces.rows * PIECE;
        if (done < copy.bytes)
            memcpy(copy.to + done, copy.from + done, copy.bytes - done);
        return;
    }
    td_cpu_for(team, copy.rows, 1 + (int64_t)(PIECE / copy.bytes), td_row_copy_range, &copy);
}

#endif
