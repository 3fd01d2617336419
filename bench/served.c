/* Rows of a served table: one worker pulls them from one server, or pushes gradients of row-wise Adagrad to it.
 *
 *     mpirun -n 2 tandem bench --case ps.pull
 *
 * Each round has --batch (53,248) distinct random keys of a table of --rows (4 million) rows of --dim (16) f32 numbers, all of which
 * have begun. A pull is timed from the call to the rows, a push from the call until the server says that it is applied. There is
 * no graph here: the job is called as a session would call it. */
#include "bench/served.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench/workload.h"
#include "runtime/remote.h"

enum { KEYS = 53248, ROWS = 4000000, DIM = 16, ROUNDS = 200, LEAST_WARM_UP = 20 };

typedef struct served {
    const td_remote *remote;
    td_remote_part part;
    int64_t *keys, *places;
    float *rows;
    int64_t n, dim, table_rows;
    bool pushes; /* what is timed */
    float coefficients[TD_COEFFICIENTS];
} served;

static td_status *make_table(served *s)
{
    const td_remote_table table = {.name = "table",
                                   .rows = s->table_rows,
                                   .dim = s->dim,
                                   .seed = 1,
                                   .initial = {TD_INIT_UNIFORM, -0.01, 0.01},
                                   .rule = "rowwise_adagrad",
                                   .state_names = {"acc"},
                                   .state_per_row = {true},
                                   .n_states = 1};
    TD_TRY(TD_NEW(s->keys, s->n));
    TD_TRY(TD_NEW(s->places, s->n));
    TD_TRY(TD_NEW(s->rows, s->n * s->dim));
    for (int64_t i = 0; i < s->n; i++)
        s->places[i] = i;
    s->coefficients[0] = 1;
    s->coefficients[1] = 0.01F;
    s->coefficients[2] = 1e-10F;
    s->part = (td_remote_part){.n = s->n,
                               .keys = s->keys,
                               .rows = s->rows,
                               .places = s->places,
                               .gradients = s->rows,
                               .coefficients = s->coefficients};
    return s->remote->add_table(s->remote->self, &table, &s->part.table);
}

static td_status *begin_all_rows(served *s)
{
    td_remote_part part = s->part;
    for (int64_t first = 0; first < s->table_rows; first += part.n) {
        part.n = s->table_rows - first < s->n ? s->table_rows - first : s->n;
        for (int64_t i = 0; i < part.n; i++)
            s->keys[i] = first + i;
        TD_TRY(s->remote->pull(s->remote->self, &part, 1, true));
    }
    return NULL;
}

/* Ascending: one of each stretch of the table. */
static void draw(const served *s, td_bench_random *random)
{
    const int64_t stretch = s->table_rows / s->n;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = (int64_t)(td_bench_uniform(random) * (double)stretch);
        s->keys[i] = stretch * i + (at < stretch ? at : stretch - 1);
    }
}

static td_status *round_of(served *s, double *out_seconds)
{
    static const td_remote_place alone = {.ends_replica = true, .ends_window = true, .samples = 1, .weight = 1};
    int64_t begun = 0;
    const int64_t begin = td_clock_ns();
    TD_TRY(s->remote->pull(s->remote->self, &s->part, 1, true));
    const int64_t pulled = td_clock_ns();
    TD_TRY(s->remote->push(s->remote->self, &s->part, 1, &alone));
    TD_TRY(s->remote->count(s->remote->self, s->part.table, &begun)); /* answered after the push is applied */
    *out_seconds = 1e-9 * (double)(s->pushes ? td_clock_ns() - pulled : pulled - begin);
    return NULL;
}

static td_status *time_rounds(served *s, int32_t runs, double *times)
{
    td_bench_random random = {.state = 5};
    double warm;
    TD_TRY(make_table(s));
    TD_TRY(begin_all_rows(s));
    for (int32_t r = -LEAST_WARM_UP; r < runs; r++) {
        draw(s, &random);
        TD_TRY(round_of(s, r < 0 ? &warm : &times[r]));
    }
    return NULL;
}

/* What must move at least: a row comes from anywhere, a pushed one goes back, with its state; keys and rows travel in order. */
static void describe(const served *s, int32_t runs, td_workload *work)
{
    const double row = 4 * (double)s->dim, n = (double)s->n;
    work->runs = runs;
    work->row_size = row;
    work->row_bytes = s->pushes ? 2 * n * (row + 4) : n * row;
    work->stream_bytes = n * (8 + row);
    td_workload_fact(work, "keys", n);
    td_workload_fact(work, "rows", (double)s->table_rows);
    td_workload_fact(work, "dim", (double)s->dim);
}

static td_status *work(td_job *job, served *s, td_workload *w, double **out_times)
{
    s->remote = td_job_remote(job);
    td_status *status = TD_NEW(*out_times, w->runs);
    if (!status)
        status = time_rounds(s, w->runs, *out_times);
    td_free(s->keys);
    td_free(s->places);
    td_free(s->rows);
    return status ? status : td_job_leave(job);
}

static td_status *check(const td_bench_case *which, const td_bench_request *request, const served *s)
{
    TD_TRY(td_bench_has_not(which, "--tables", (double)request->tables));
    TD_TRY(td_bench_has_not(which, "--bag", (double)request->bag));
    TD_TRY(td_bench_has_not(which, "--alpha", request->alpha));
    TD_TRY(td_bench_has_not(which, "--threads", (double)request->threads));
    TD_TRY(td_bench_has_not(which, "--ops", request->ops));
    if (s->n > s->table_rows)
        return TD_ERROR(TD_INVALID_ARGUMENT, "bench: %s: %lld distinct keys of %lld rows", which->name, (long long)s->n,
                        (long long)s->table_rows);
    return NULL;
}

static td_status *needs_ranks(const td_bench_case *which)
{
    return td_status_help(
        TD_ERROR(TD_INVALID_ARGUMENT, "bench: %s needs two ranks, a worker and a server", which->name),
        "mpirun -n 2 tandem bench --case %s", which->name);
}

static td_status *take_part(const td_bench_case *which, served *s, td_workload *w, double **out_times)
{
    td_job *job = NULL;
    TD_TRY(td_job_open(&(td_job_options){.servers = 1}, &job));
    td_status *status = NULL;
    if (td_job_workers(job) != 1)
        status = needs_ranks(which);
    else if (td_job_worker(job) < 0)
        status = td_job_serve(job);
    else
        status = work(job, s, w, out_times);
    const bool finalized = td_job_close(job, status, NULL);
    return status || finalized ? status : TD_ERROR(TD_IO, "MPI was not finalized");
}

td_status *td_bench_run_served(const td_bench_case *which, const td_bench_request *request, td_workload *out_work,
                               double **out_times)
{
    served s = {.n = request->batch ? request->batch : KEYS,
                .dim = request->dim ? request->dim : DIM,
                .table_rows = request->rows ? request->rows : ROWS,
                .pushes = strcmp(which->name, "ps.push") == 0};
    *out_times = NULL;
    TD_TRY(check(which, request, &s));
    if (!td_job_is_wanted())
        return needs_ranks(which);
    describe(&s, request->runs ? request->runs : ROUNDS, out_work);
    td_status *status = take_part(which, &s, out_work, out_times);
    if (status) {
        td_free(*out_times);
        *out_times = NULL;
    }
    return status;
}

/* It has no graph: who wants one (losses, an export) cannot have it. */
td_status *td_bench_served(const td_bench_case *self, const td_bench_request *request, td_workload *out)
{
    (void)request;
    (void)out;
    return TD_ERROR(TD_INVALID_ARGUMENT, "bench: %s trains nothing, so it has no losses", self->name);
}
