/* The machine's limits: see bench/machine.h. */
#include "bench/machine.h"

#include <dlfcn.h>
#include <string.h>
#ifdef TANDEM_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include "base/clock.h"
#include "base/memory.h"
#include "base/team.h"

enum { REPEATS = 5 };

double td_machine_peak(const td_machine_limits *limits)
{
    return limits->flops > limits->flops_bf16 ? limits->flops : limits->flops_bf16;
}

double td_bench_bound(const td_machine_limits *limits, double flops, double stream_bytes, double row_bytes)
{
    const double peak = td_machine_peak(limits);
    double seconds = peak > 0 ? flops / peak : 0;
    if (limits->stream_bytes > 0)
        seconds += stream_bytes / limits->stream_bytes;
    if (limits->gather_bytes > 0)
        seconds += row_bytes / limits->gather_bytes;
    return seconds;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------- */

typedef struct traffic {
    char *from, *to;
    int64_t bytes, row_size, rows; /* of `from` */
    int64_t per_task;              /* bytes to copy, or rows to gather */
    float sums[64];                /* so that reading is not left out */
} traffic;

static void copy_task(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    traffic *t = context;
    memcpy(t->to + index * t->per_task, t->from + index * t->per_task, (size_t)t->per_task);
}

/* Rows in an order without a pattern; each address is known early, so that several rows are on their way at once. */
static void gather_task(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    traffic *t = context;
    enum { AHEAD = 16 };
    int64_t ahead[AHEAD];
    uint64_t state = (uint64_t)index * 0x9E3779B97F4A7C15u + 1;
    float sum = 0;
    for (int64_t i = 0; i < t->per_task + AHEAD; i++) {
        const char *row = i >= AHEAD ? t->from + ahead[i % AHEAD] * t->row_size : NULL;
        for (int64_t b = 0; row && b < t->row_size; b += 64)
            sum += *(const float *)(row + b);
        state = state * 6364136223846793005u + 1442695040888963407u;
        ahead[i % AHEAD] = (int64_t)((state >> 33) % (uint64_t)t->rows);
        for (int64_t b = 0; b < t->row_size; b += 64)
            __builtin_prefetch(t->from + ahead[i % AHEAD] * t->row_size + b);
    }
    t->sums[index % 64] = sum;
}

/* Bytes per second at the fastest of some repeats: a limit is what was reached once. */
static double best_rate(td_team *team, int64_t tasks, td_team_task task, traffic *t, double bytes)
{
    double best = 0;
    for (int32_t i = 0; i < REPEATS; i++) {
        int64_t begin = td_clock_ns();
        td_team_run_dynamic(team, tasks, task, t);
        double rate = bytes / (1e-9 * (double)(td_clock_ns() - begin));
        best = rate > best ? rate : best;
    }
    return best;
}

/* Copies of `streamed` bytes, half read and half written, so often that clock and team do not show. */
static double stream_rate(td_team *team, traffic *t, double streamed)
{
    enum { TASKS = 8 };
    static const double enough = 64 << 20;
    double bytes = streamed < 65536 ? 65536 : streamed > (double)t->bytes ? (double)t->bytes : streamed, best = 0;
    int64_t times = bytes < enough ? (int64_t)(enough / bytes) : 1;
    t->per_task = (int64_t)bytes / 2 / TASKS;
    for (int32_t i = 0; i < REPEATS; i++) {
        int64_t begin = td_clock_ns();
        for (int64_t k = 0; k < times; k++)
            td_team_run(team, TASKS, copy_task, t);
        double rate = (double)(2 * TASKS * t->per_task * times) / (1e-9 * (double)(td_clock_ns() - begin));
        best = rate > best ? rate : best;
    }
    return best;
}

static td_status *measure_memory(td_team *team, double row_size, double streamed, td_machine_limits *limits)
{
    enum { TASKS = 64 };
    traffic t = {.bytes = (int64_t)512 << 20};
    t.from = td_calloc_aligned((size_t)t.bytes);
    if (!t.from)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: 512 MiB to measure the machine with");
    memset(t.from, 1, (size_t)t.bytes);
    t.to = t.from + t.bytes / 2;
    t.per_task = t.bytes / 2 / TASKS;
    limits->copy_bytes = best_rate(team, TASKS, copy_task, &t, (double)t.bytes);
    limits->stream_bytes = stream_rate(team, &t, streamed);
    if (row_size >= 1) {
        t.row_size = ((int64_t)row_size + 63) / 64 * 64;
        t.rows = t.bytes / t.row_size;
        t.per_task = ((int64_t)256 << 20) / t.row_size / TASKS;
        double bytes = row_size * (double)(t.per_task * TASKS);
        limits->gather_bytes = best_rate(team, TASKS, gather_task, &t, bytes);
    }
    td_free(t.from);
    return NULL;
}

/* ---- arithmetic ---------------------------------------------------------------------------------------------------------------- */

#ifdef TANDEM_HAVE_ONEDNN
/* oneDNN's threads are OpenMP's, whose runtime is the one that oneDNN brought along. */
static void set_threads(int32_t threads)
{
    void *found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set)(int) = NULL;
    if (!found)
        return;
    memcpy(&set, &found, sizeof set); /* ISO C has no cast from an object to a function pointer */
    set(threads);
}

static double product_rate(int32_t threads, int64_t n, const float *a, const float *b, float *c)
{
    double best = 0;
    set_threads(threads);
    for (int32_t i = 0; i < REPEATS; i++) {
        int64_t begin = td_clock_ns();
        if (dnnl_sgemm('N', 'N', n, n, n, 1, a, n, b, n, 0, c, n) != dnnl_success)
            return 0;
        double rate = 2.0 * (double)(n * n * n) / (1e-9 * (double)(td_clock_ns() - begin));
        best = rate > best ? rate : best;
    }
    return best;
}

static td_status *measure_products(int32_t threads, bool in_bf16, td_machine_limits *limits)
{
    const int64_t n = 2048;
    float *all = td_calloc_aligned(3 * sizeof(float) * (size_t)(n * n));
    if (!all)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: three matrices to measure the machine with");
    for (int64_t i = 0; i < 2 * n * n; i++)
        all[i] = (float)(i % 7) - 3;
    limits->flops = product_rate(threads, n, all, all + n * n, all + 2 * n * n);
    limits->flops_bf16 = in_bf16 ? td_machine_bf16_rate() : 0;
    limits->flops_one = threads == 1 ? limits->flops : product_rate(1, n, all, all + n * n, all + 2 * n * n);
    td_free(all);
    return NULL;
}
#else
static td_status *measure_products(int32_t threads, bool in_bf16, td_machine_limits *limits)
{
    (void)threads;
    (void)in_bf16;
    limits->flops = limits->flops_one = 0;
    return NULL;
}
#endif

td_status *td_machine_measure(int32_t threads, double row_size, double streamed, bool in_bf16,
                              td_machine_limits *out_limits)
{
    td_team *team = NULL;
    *out_limits = (td_machine_limits){0};
    TD_TRY(td_team_create(threads, NULL, 0, &team));
    td_status *status = measure_memory(team, row_size, streamed, out_limits);
    td_team_destroy(team);
    return status ? status : measure_products(threads, in_bf16, out_limits);
}
