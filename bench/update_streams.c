/* The streams of an optimizer's step without its formula: see bench/update_streams.h. */
#include "bench/update_streams.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "base/memory.h"
#include "base/prefetch.h"
#include "base/team.h"

enum { PASSES = 12, PIECE = 32, AHEAD = 256 /* elements */ };
enum { BYTES = 16, MOVED = 28 }; /* of an element: in memory, and moved */

typedef struct streams {
    float *parameter, *first, *second, *gradient;
    int16_t *narrow, *copy;
    int64_t pieces;
    int32_t tasks;
} streams;

static void touch(const streams *s, int64_t at, float *restrict p, float *restrict m, float *restrict v)
{
    for (int64_t i = 0; i < PIECE; i++) {
        const float g = s->gradient[at + i];
        m[i] = 0.5f * m[i] + g;
        v[i] = 0.5f * v[i] - g;
        p[i] += m[i] + v[i];
    }
}

/* Past the caches, so that lines which are written whole are not read first. */
static void copy_out(int16_t *to, const int16_t *piece)
{
#ifdef __SSE2__
    for (int64_t i = 0; i < PIECE; i += 8)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_load_si128((const __m128i *)(const void *)(piece + i)));
#else
    memcpy(to, piece, PIECE * sizeof *to);
#endif
}

static void touch_mixed(const streams *s, int64_t at, float *restrict p, float *restrict m, float *restrict v)
{
    int16_t piece[PIECE] __attribute__((aligned(64)));
    for (int64_t i = 0; i < PIECE; i++) {
        const float g = s->narrow[at + i];
        m[i] = 0.5f * m[i] + g;
        v[i] = 0.5f * v[i] - g;
        p[i] = 0.5f * (m[i] + v[i]);
        piece[i] = (int16_t)p[i];
    }
    copy_out(s->copy + at, piece);
}

/* The piece that comes AHEAD elements after this one, as the update itself asks for it. */
TD_PREFETCHES void fetch_ahead(const streams *s, int64_t at)
{
    const float *const arrays[] = {s->parameter + at, s->first + at, s->second + at,
                                   s->gradient ? s->gradient + at : NULL};
    for (int i = 0; i < 4 && arrays[i]; i++) {
        __builtin_prefetch(arrays[i] + AHEAD);
        __builtin_prefetch(arrays[i] + AHEAD + PIECE / 2);
    }
    if (!s->gradient)
        __builtin_prefetch(s->narrow + at + AHEAD);
}

static void task(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const streams *s = context;
    const int64_t begin = s->pieces * index / s->tasks, end = s->pieces * (index + 1) / s->tasks;
    for (int64_t at = begin * PIECE; at < end * PIECE; at += PIECE) {
        if (at + AHEAD + PIECE <= end * PIECE)
            fetch_ahead(s, at);
        if (s->gradient)
            touch(s, at, s->parameter + at, s->first + at, s->second + at);
        else
            touch_mixed(s, at, s->parameter + at, s->first + at, s->second + at);
    }
#ifdef __SSE2__
    _mm_sfence();
#endif
}

static double best_rate(td_team *team, streams *s)
{
    double best = 0;
    for (int32_t i = 0; i < PASSES; i++) {
        const int64_t begin = td_clock_ns();
        td_team_run(team, s->tasks, task, s);
        const double rate = (double)(MOVED * PIECE * s->pieces) / (1e-9 * (double)(td_clock_ns() - begin));
        best = rate > best ? rate : best;
    }
    return best;
}

td_status *td_measure_update_streams(td_update_streams kind, int32_t threads, double bytes, double *out_rate)
{
    const int64_t most = ((int64_t)512 << 20) / BYTES, elements = (int64_t)bytes / MOVED;
    streams s = {.pieces = (elements < most ? elements : most) / PIECE + 1, .tasks = threads};
    const int64_t n = s.pieces * PIECE;
    td_team *team = NULL;
    float *memory = td_calloc_aligned((size_t)(n * BYTES));
    *out_rate = 0;
    if (!memory)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: 512 MiB to measure the machine with");
    memset(memory, 0, (size_t)(n * BYTES));
    s.parameter = memory;
    s.first = memory + n;
    s.second = memory + 2 * n;
    if (kind == TD_STREAMS_F32)
        s.gradient = memory + 3 * n;
    s.narrow = (int16_t *)(void *)(memory + 3 * n);
    s.copy = s.narrow + n;
    td_status *status = td_team_create(threads, NULL, 0, &team);
    if (!status)
        *out_rate = best_rate(team, &s);
    td_team_destroy(team);
    td_free(memory);
    return status;
}
