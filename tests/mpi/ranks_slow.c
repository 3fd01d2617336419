/* One rank of a job is slow, run by tests/mpi/run under mpirun: an op of the model takes SLOW_NS longer there in every step. The
 * recording of all ranks must name that rank, and the milliseconds that the others wait for it.
 *
 *     ranks_slow RANK FOLDER
 *
 * Every rank notes when its slow op ended, by the clock that the ranks of one host share. What these moments say is what was
 * injected, whatever else the machine does; medians over the steps leave out a pause of one of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "profiler/advice.h"
#include "tandem/job.h"
#include "tandem/ops.h"
#include "tandem/profiler.h"
#include "tandem/session.h"
#include "tests/mpi/ranks.h"

enum { BATCH = 4, DIM = 8, STEPS = 15, FIRST = 4, RECORDED = 12, MOST_RANKS = 8 };
static const int64_t SLOW_NS = 10000000;

static td_job *job;
static bool slow;
static int64_t ended_ns[STEPS + 1];
static int64_t calls;

/* The model's own op: what goes in comes out. */
static td_status *work(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output)
{
    const int64_t begin = td_clock_ns();
    (void)context;
    (void)n_inputs;
    memcpy(output->data, inputs[0].data, sizeof(float) * BATCH * DIM);
    while (slow && td_clock_ns() - begin < SLOW_NS)
        ;
    if (++calls <= STEPS)
        ended_ns[calls] = td_clock_ns();
    return NULL;
}

static td_field fields[2];
static float x[BATCH * DIM], y[BATCH];

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    *out_end = false;
    *out_batch = (td_batch){.samples = BATCH, .n_fields = 2, .fields = fields, .owner = self};
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    *batch = (td_batch){0};
}

static void train(const char *folder)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    td_profiler *profiler = NULL;
    td_source source = {&source, next, release};
    fields[0] = (td_field){"x", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, DIM}, .data = x}};
    fields[1] = (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = y}};
    no_error(td_graph_create(&graph));
    td_shape shape = TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(DIM));
    td_value in = td_input(graph, "x", TD_F32, shape);
    td_value label = td_input(graph, "y", TD_F32, TD_SHAPE(td_dim_constant(BATCH), td_dim_constant(1)));
    td_value worked = td_host_call(graph, work, NULL, 1, &in, TD_F32, shape, "work");
    td_value loss = td_bce_with_logits(td_linear(worked, 1, "top"), label);
    td_train_options options = td_train_defaults();
    options.remote = td_job_remote(job);
    td_group(&options, "*", td_sgd(0.1));
    no_error(td_plan_train(graph, loss, &options, &plan));
    no_error(td_store_create(plan, &store));
    no_error(td_session_create(plan, store, &session));
    td_profiler_options recording = td_profiler_defaults();
    recording.directory = folder;
    recording.skip = FIRST - 2;
    recording.active = RECORDED;
    recording.rank = td_job_rank(job);
    recording.ranks = td_job_ranks(job);
    recording.role = td_job_role(job, recording.rank);
    recording.number = 1;
    no_error(td_profiler_create(&recording, &profiler));
    no_error(td_session_run(session, &source, STEPS, NULL, NULL));
    require(!td_profiler_error(profiler), "the profiler turned itself off");
    td_profiler_destroy(profiler);
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
}

/* ---- what was injected, and what the recording says ------------------------------------------------------------------------------ */

static void leave_moments(const char *folder, int32_t rank)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/moments-%d", folder, rank);
    FILE *file = fopen(path, "wb");
    require(file && fwrite(ended_ns, sizeof ended_ns, 1, file) == 1 && fclose(file) == 0, "cannot write what it noted");
}

static int by_value(const void *a, const void *b)
{
    double p = *(const double *)a, q = *(const double *)b;
    return p < q ? -1 : p > q;
}

/* The median over the recorded steps of how much later the slow rank's op ended than the last of the others'. */
static double injected_ns(const char *folder, int32_t slow_rank)
{
    static int64_t all[MOST_RANKS][STEPS + 1];
    double held[RECORDED];
    for (int32_t r = 0; r < td_job_ranks(job); r++) {
        char path[1100];
        (void)snprintf(path, sizeof path, "%s/moments-%d", folder, r);
        FILE *file = fopen(path, "rb");
        require(file && fread(all[r], sizeof all[r], 1, file) == 1 && fclose(file) == 0,
                "cannot read what ranks noted");
    }
    for (int s = 0; s < RECORDED; s++) {
        int64_t others = INT64_MIN;
        for (int32_t r = 0; r < td_job_ranks(job); r++)
            others = r != slow_rank && all[r][FIRST + s] > others ? all[r][FIRST + s] : others;
        held[s] = (double)(all[slow_rank][FIRST + s] - others);
    }
    qsort(held, RECORDED, sizeof *held, by_value);
    return held[RECORDED / 2];
}

static void check(const char *folder, int32_t slow_rank)
{
    char path[1100], name[64];
    td_job_traces *traces = NULL;
    td_analysis *analysis = NULL;
    td_advice_list list;
    (void)snprintf(path, sizeof path, "%s/trace-0001.tdt", folder);
    no_error(td_job_traces_read(path, &traces));
    no_error(td_analysis_create_of(traces, (td_whose){-1, -1}, -1, &analysis));
    require(traces->n == td_job_ranks(job) && analysis->ranks->n_steps == RECORDED,
            "not all ranks and steps are there");
    double injected = injected_ns(folder, slow_rank);
    double found = (double)analysis->ranks->times[slow_rank].held_up_median_ns;
    (void)snprintf(name, sizeof name, "%.3f ms were injected, %.3f found", 1e-6 * injected, 1e-6 * found);
    require(fabs(found - injected) <= 0.05 * injected, name);
    require(td_ranks_slowest(analysis->ranks) == slow_rank, "another rank is named");
    td_advise(analysis, &list);
    (void)snprintf(name, sizeof name, "rank %d (", slow_rank);
    bool told = false;
    for (int32_t i = 0; i < list.n; i++)
        told = told || (!strcmp(list.items[i].rule, "slow_rank") && !strncmp(list.items[i].text, name, strlen(name)));
    require(told, "no advice names it");
    printf("%s\n", name);
    td_analysis_destroy(analysis);
    td_job_traces_destroy(traces);
}

int main(int argc, char **argv)
{
    int64_t none = 0;
    require(argc == 3, "usage: ranks_slow RANK FOLDER");
    const int32_t slow_rank = atoi(argv[1]);
    no_error(td_job_open(&(td_job_options){0}, &job));
    require(slow_rank >= 0 && slow_rank < td_job_ranks(job) && td_job_ranks(job) <= MOST_RANKS, "no such rank");
    slow = td_job_rank(job) == slow_rank;
    train(argv[2]);
    leave_moments(argv[2], td_job_rank(job));
    no_error(td_job_agree(job, 0, &none)); /* all have written */
    if (td_job_rank(job) == 0)
        check(argv[2], slow_rank);
    no_error(td_job_leave(job));
    require(td_job_close(job, NULL, NULL), "MPI was not finalized");
    return 0;
}
