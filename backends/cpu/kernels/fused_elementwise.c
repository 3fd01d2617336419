/* fused_elementwise: a program of elementwise ops (base/fused.h), run by the chunk. Each instruction is one vectorised loop
 * over a chunk that stays in the first-level cache; only inputs and the output move through memory.
 *
 * Results live in registers of a chunk each, given out by last use. f32 inputs of the output's shape are read where they lie;
 * others (16-bit, repeated rows, scalars) are first brought into a chunk of their own. The output is written by the last
 * instruction alone, so it may lie on any input of its size. */
#include "backends/cpu/kernels/chunks.h"
#include "base/fused.h"
#include "base/memory.h"

enum { MOST_REGISTERS = 12 };

typedef struct program {
    int32_t n, n_inputs;
    td_fused_instruction code[TD_FUSED_MOST_INSTRUCTIONS];
    int32_t target[TD_FUSED_MOST_INSTRUCTIONS]; /* register of each result */
} program;

/* ---- preparing ----------------------------------------------------------------------------------------------------------- */

/* False: it would take too many registers. */
static bool give_registers(program *p)
{
    int32_t last[TD_FUSED_MOST_INSTRUCTIONS] = {0};
    bool busy[MOST_REGISTERS] = {false};
    for (int32_t k = 0; k < p->n; k++)
        for (int32_t side = 0; side < 2; side++) {
            int32_t result = (side ? p->code[k].b : p->code[k].a) - p->n_inputs;
            if (result >= 0)
                last[result] = k;
        }
    for (int32_t k = 0; k < p->n; k++) {
        for (int32_t before = 0; before < k; before++)
            if (last[before] == k) /* read here for the last time: its register may take the result */
                busy[p->target[before]] = false;
        int32_t target = 0;
        while (target < MOST_REGISTERS && busy[target])
            target++;
        if (target == MOST_REGISTERS)
            return false;
        busy[target] = true;
        p->target[k] = target;
    }
    return true;
}

static bool read_program(const td_kernel_call *call, program *out)
{
    const td_attr *attr = td_cpu_attr(call, "program");
    out->n = attr ? attr->n_ints / TD_FUSED_INTS : 0;
    out->n_inputs = call->n_inputs;
    if (out->n < 1 || out->n > TD_FUSED_MOST_INSTRUCTIONS || call->n_inputs > TD_FUSED_MOST_INPUTS)
        return false;
    for (int32_t k = 0; k < out->n; k++)
        out->code[k] = td_fused_read(attr->ints + (ptrdiff_t)k * TD_FUSED_INTS);
    return give_registers(out);
}

static bool supports(const td_kernel_call *call)
{
    program p;
    for (int32_t i = 0; i < call->n_inputs; i++)
        if (!td_cpu_is_float(&call->inputs[i]) && !td_cpu_is(&call->inputs[i], TD_SCALAR, TD_F32))
            return false;
    return td_cpu_is_float(&call->outputs[0]) && read_program(call, &p);
}

static td_status *prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    (void)engine;
    program *p = NULL;
    TD_TRY(TD_NEW(p, 1));
    (void)read_program(call, p);
    *out_state = p;
    return NULL;
}

/* ---- running ------------------------------------------------------------------------------------------------------------- */

static void apply(const td_fused_instruction *in, const float *x, const float *z, float *y, int64_t n)
{
    const float number = in->number;
    switch ((td_fused_kind)in->kind) {
#define LOOP(name, flops, expression)                                                                                  \
    case TD_FUSED_##name:                                                                                              \
        TD_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = td_fused_apply(TD_FUSED_##name, x[i], z[i], number);                                                \
        break;
        TD_FUSED_KINDS(LOOP)
#undef LOOP
    case TD_FUSED_KIND_COUNT:
        break;
    }
    if (in->dtype == TD_BF16) {
        TD_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = td_fused_round(TD_BF16, y[i]);
    } else if (in->dtype == TD_F16) {
        TD_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = td_fused_round(TD_F16, y[i]);
    }
}

typedef struct work {
    const td_kernel_call *call;
    const program *program;
    int64_t elements[TD_FUSED_MOST_INPUTS]; /* of each input; 1 of a scalar */
    int64_t total;
} work;

/* n elements of input k from output element `begin` on. */
static const float *load(const work *w, int32_t k, int64_t begin, int64_t n, float *buffer)
{
    const td_tensor *t = &w->call->inputs[k];
    int64_t row = w->elements[k];
    if (row == w->total)
        return td_chunk_load(t, begin, n, buffer);
    if (row == 1) {
        float one = 0;
        const float *value = t->kind == TD_SCALAR ? t->data : td_chunk_load(t, 0, 1, &one);
        for (int64_t i = 0; i < n; i++)
            buffer[i] = *value;
        return buffer;
    }
    for (int64_t done = 0; done < n;) {
        int64_t from = (begin + done) % row, piece = row - from < n - done ? row - from : n - done;
        float *to = buffer + done;
        const float *found = td_chunk_load(t, from, piece, to);
        if (found != to)
            memcpy(to, found, (size_t)piece * sizeof *to);
        done += piece;
    }
    return buffer;
}

static void run_chunk(const work *w, int64_t begin, int64_t n)
{
    const program *p = w->program;
    const td_tensor *out = &w->call->outputs[0];
    float inputs[TD_FUSED_MOST_INPUTS][TD_CHUNK], registers[MOST_REGISTERS][TD_CHUNK];
    const float *values[TD_FUSED_MOST_INPUTS + TD_FUSED_MOST_INSTRUCTIONS];
    for (int32_t k = 0; k < p->n_inputs; k++)
        values[k] = load(w, k, begin, n, inputs[k]);
    for (int32_t k = 0; k < p->n; k++) {
        float *y = registers[p->target[k]];
        if (k == p->n - 1)
            y = td_chunk_target(out, begin, y);
        apply(&p->code[k], values[p->code[k].a], values[p->code[k].b], y, n);
        values[p->n_inputs + k] = y;
        if (k == p->n - 1)
            td_chunk_store(out, begin, n, y);
    }
}

static void range(void *context, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += TD_CHUNK)
        run_chunk(context, at, end - at < TD_CHUNK ? end - at : TD_CHUNK);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    work w = {.call = call, .program = state, .total = td_cpu_elements(&call->outputs[0])};
    for (int32_t k = 0; k < call->n_inputs; k++)
        w.elements[k] = call->inputs[k].kind == TD_SCALAR ? 1 : td_cpu_elements(&call->inputs[k]);
    td_cpu_for(team, w.total, TD_CPU_BLOCK / 4, range, &w);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(fused_elementwise) = {
    .op = "fused_elementwise", .supports = supports, .prepare = prepare, .destroy = td_free, .run = run};
