/* dropout and its gradient: sixteen blocks of random bits at a time, so 64 elements of a sample. */
#include "backends/cpu/kernels/chunks.h"
#include "base/philox.h"

enum { SEED, UPDATE, FIRST_SAMPLE, LANES = 16, WORDS = 4, PIECE = LANES * WORDS };

static bool supports(const td_kernel_call *call)
{
    return td_cpu_is(&call->inputs[0], TD_DENSE, TD_F32);
}

typedef struct mask_work {
    const float *x;
    float *out;
    td_philox_key key;
    uint64_t update;
    int64_t first_sample, per_sample, blocks; /* blocks of bits per sample */
    float rate, scale;
} mask_work;

/* Words of the blocks index .. index + 15, in the order in which elements use them. */
static void random_words(const mask_work *work, uint64_t index, uint32_t out[PIECE])
{
    uint32_t words[WORDS][LANES];
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t block[WORDS];
        td_philox_block(work->key, index + (uint64_t)lane, work->update, block);
        for (int word = 0; word < WORDS; word++)
            words[word][lane] = block[word];
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int word = 0; word < WORDS; word++)
            out[WORDS * lane + word] = words[word][lane];
}

/* Elements [begin, end) of one sample; `from` is where the sample begins. */
static void mask_sample(const mask_work *work, int64_t from, uint64_t first_block, int64_t begin, int64_t end)
{
    for (int64_t piece = begin / PIECE * PIECE; piece < end; piece += PIECE) {
        uint32_t words[PIECE];
        random_words(work, first_block + (uint64_t)(piece / WORDS), words);
        const int64_t first = piece < begin ? begin : piece, last = piece + PIECE < end ? piece + PIECE : end;
        const uint32_t *word = words + (first - piece);
        const float *x = work->x + from + first;
        float *out = work->out + from + first;
        const float rate = work->rate, scale = work->scale;
        TD_INDEPENDENT
        for (int64_t i = 0; i < last - first; i++)
            out[i] = td_philox_uniform(word[i]) < rate ? 0 : x[i] * scale;
    }
}

static void mask_range(void *context, int64_t begin, int64_t end)
{
    const mask_work *work = context;
    for (int64_t at = begin; at < end;) {
        const int64_t sample = at / work->per_sample, from = sample * work->per_sample;
        const int64_t stop = from + work->per_sample < end ? from + work->per_sample : end;
        mask_sample(work, from, (uint64_t)((work->first_sample + sample) * work->blocks), at - from, stop - from);
        at = stop;
    }
}

static void copy_range(void *context, int64_t begin, int64_t end)
{
    const mask_work *work = context;
    memcpy(work->out + begin, work->x + begin, (size_t)(end - begin) * sizeof(float));
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const td_tensor *x = &call->inputs[0];
    const int64_t *random = call->n_inputs > 1 && call->inputs[1].kind != TD_NONE ? call->inputs[1].data : NULL;
    const int64_t n = td_cpu_elements(x), rows = x->rank ? x->dims[0] : 1;
    const double rate = td_cpu_attr_float(call, "rate", 0);
    mask_work work = {
        .x = x->data, .out = call->outputs[0].data, .rate = (float)rate, .scale = (float)(1 / (1 - rate))};
    if (n == 0)
        return NULL;
    if (!random || random[UPDATE] < 0) {
        if (work.out != work.x)
            td_cpu_for(team, n, TD_CPU_BLOCK, copy_range, &work);
        return NULL;
    }
    work.key = td_philox_key_of((uint64_t)random[SEED], "dropout", td_cpu_attr_string(call, "forward", call->name));
    work.update = (uint64_t)random[UPDATE];
    work.first_sample = random[FIRST_SAMPLE];
    work.per_sample = n / rows * td_cpu_attr_int(call, "rows_per_sample", 1);
    work.blocks = (work.per_sample + WORDS - 1) / WORDS;
    td_cpu_for(team, n, TD_CPU_BLOCK, mask_range, &work);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(dropout) = {.op = "dropout", .supports = supports, .widens = true, .run = run};
const td_cpu_kernel TD_KERNEL(dropout_gradient) = {
    .op = "dropout_gradient", .supports = supports, .widens = true, .run = run};
