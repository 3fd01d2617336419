/* How fast one worker pulls from one server, and pushes gradients of row-wise Adagrad to it:
 *
 *     mpirun -n 2 build/release/tests/ps_rate [ROUNDS [KEYS [DIM]]]
 *
 * Each round has KEYS (53,248) distinct random keys of a table of 4 million rows of DIM (16) f32 numbers. A pull is timed from the
 * call to the rows; a push from the call until the server says that it is applied. One JSON line with medians and quartiles, and
 * what copying as many bytes takes on this machine. Rounds before all rows have begun are slower, so the first fifth is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/remote.h"
#include "tandem/job.h"

enum { ROWS = 4000000 };

static void require(td_status *status)
{
    if (!status)
        return;
    fprintf(stderr, "ps_rate: %s\n", td_status_message(status));
    _exit(1);
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* n of the table's rows, ascending: one of each stretch of ROWS / n. */
static void draw(int64_t *keys, int64_t n, int64_t round)
{
    uint64_t state = (uint64_t)round * 77 + 5;
    for (int64_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        keys[i] = ROWS / n * i + (int64_t)((state >> 33) % (uint64_t)(ROWS / n));
    }
}

static double copy_ms(int64_t bytes)
{
    char *from = td_realloc(NULL, (size_t)bytes, 1), *to = td_realloc(NULL, (size_t)bytes, 1);
    double best = 1e9;
    for (int i = 0; from && to && i < 20; i++) {
        memset(from, i, (size_t)bytes);
        const int64_t begin = td_clock_ns();
        memcpy(to, from, (size_t)bytes);
        const double ms = (double)(td_clock_ns() - begin) / 1e6;
        best = ms < best ? ms : best;
    }
    td_free(from);
    td_free(to);
    return best;
}

static void print(const char *name, double *ms, int64_t n, double rows, double bytes)
{
    qsort(ms, (size_t)n, sizeof *ms, compare_numbers);
    printf("{\"case\": \"%s\", \"median_ms\": %.3f, \"q1_ms\": %.3f, \"q3_ms\": %.3f, \"runs\": %lld, \"rows_per_s\": "
           "%.3g, "
           "\"bytes_per_s\": %.3g, \"copy_ms\": %.3f}\n",
           name, ms[n / 2], ms[n / 4], ms[3 * n / 4], (long long)n, rows / ms[n / 2] * 1e3, bytes / ms[n / 2] * 1e3,
           copy_ms((int64_t)bytes));
}

static void work(td_job *job, int64_t rounds, int64_t n, int64_t dim)
{
    const td_remote *remote = td_job_remote(job);
    const td_remote_table table = {.name = "table",
                                   .rows = ROWS,
                                   .dim = dim,
                                   .seed = 1,
                                   .initial = {TD_INIT_UNIFORM, -0.01, 0.01},
                                   .rule = "rowwise_adagrad",
                                   .state_names = {"acc"},
                                   .state_per_row = {true},
                                   .n_states = 1};
    const float coefficients[TD_COEFFICIENTS] = {1, 0.01F, 1e-10F};
    int64_t *keys = td_calloc((size_t)n, sizeof *keys), *places = td_calloc((size_t)n, sizeof *places), rows = 0;
    float *data = td_calloc((size_t)(n * dim), sizeof *data);
    double *pulls = td_calloc((size_t)rounds, sizeof *pulls), *pushes = td_calloc((size_t)rounds, sizeof *pushes);
    td_remote_part part = {
        .n = n, .keys = keys, .rows = data, .places = places, .gradients = data, .coefficients = coefficients};
    require(remote->add_table(remote->self, &table, &part.table));
    for (int64_t i = 0; i < n; i++)
        places[i] = i;
    for (int64_t r = -rounds / 4; r < rounds; r++) {
        draw(keys, n, r);
        const int64_t begin = td_clock_ns();
        require(remote->pull(remote->self, &part, 1, true));
        const int64_t pulled = td_clock_ns();
        require(remote->push(remote->self, &part, 1));
        require(remote->count(remote->self, part.table, &rows)); /* answered after the push is applied */
        if (r < 0)
            continue;
        pulls[r] = (double)(pulled - begin) / 1e6;
        pushes[r] = (double)(td_clock_ns() - pulled) / 1e6;
    }
    const double bytes = (double)n * (double)(8 + 4 * dim);
    print("ps.pull", pulls, rounds, (double)n, bytes);
    print("ps.push.rowwise_adagrad", pushes, rounds, (double)n, bytes);
    td_free(keys);
    td_free(places);
    td_free(data);
    td_free(pulls);
    td_free(pushes);
}

int main(int argc, char **argv)
{
    const int64_t rounds = argc > 1 ? atoll(argv[1]) : 200, n = argc > 2 ? atoll(argv[2]) : 53248;
    const int64_t dim = argc > 3 ? atoll(argv[3]) : 16;
    td_job *job = NULL;
    if (rounds < 1 || n < 1 || n > ROWS || dim < 1) {
        fprintf(stderr, "usage: mpirun -n 2 ps_rate [ROUNDS [KEYS [DIM]]]\n");
        return 2;
    }
    require(td_job_open(&(td_job_options){.servers = 1}, &job));
    if (td_job_worker(job) == 0) {
        work(job, rounds, n, dim);
        require(td_job_leave(job));
    } else if (td_job_worker(job) < 0) {
        require(td_job_serve(job));
    } else {
        require(td_job_leave(job));
    }
    return td_job_close(job, NULL, NULL) ? 0 : 1;
}
