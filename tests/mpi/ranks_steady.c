/* Two ranks, workers and servers both, train a model, run by tests/mpi/run under mpirun: after the first windows no step allocates, and
 * no rank ever takes more than its plan, td_job_staging and the rows it serves.
 *
 *     ranks_steady clip|plain      two served tables; gradients are clipped or not: offers or pushes
 *     ranks_steady local           the same tables on every worker: their row-sparse gradients are summed up
 *     ranks_steady dense|shared    a large layer, whose state each worker has, or a half of it
 *
 * With a large layer the first worker then saves checkpoints to a folder: they take pieces of memory, whatever the others have to give. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "runtime/store.h"
#include "tandem/job.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/mpi/ranks.h"

enum { BATCH = 2048, DIM = 32, ROWS = 6000, BATCHES = 3, WARM = 15, STEPS = 60, FEW = 12, WIDTH = 800, SMALL = 8 };
/* Lanes, kernels, a server's threads and the letters of MPI: what does not grow with the tables or the batch. */
static const int64_t CONSTANT = 512 << 10;

static td_job *job;
static int64_t ids[BATCHES][2][BATCH], given;
static float labels[BATCH], numbers[SMALL][WIDTH];
static td_field fields[BATCHES][3];

static bool is_served, is_dense, is_shared;

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    *out_end = false;
    *out_batch = (td_batch){.samples = is_dense ? SMALL : BATCH,
                            .n_fields = is_dense ? 2 : 3,
                            .fields = fields[given++ % BATCHES],
                            .owner = self};
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    (void)self;
    *batch = (td_batch){0};
}

static void make_batches(int32_t worker)
{
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < BATCH; i++) {
            ids[b][0][i] = (i * 7 + b * 1000 + worker * 500) % ROWS;
            ids[b][1][i] = (i / 2 * 11 + b) % ROWS;
        }
        const td_tensor first = {.kind = TD_DENSE, .dtype = TD_I64, .rank = 1, .dims = {BATCH}, .data = ids[b][0]};
        td_tensor second = first;
        second.data = ids[b][1];
        fields[b][0] = (td_field){"a", first};
        fields[b][1] = (td_field){"b", second};
        fields[b][2] =
            (td_field){"y", {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {BATCH, 1}, .data = labels}};
    }
}

static void make_dense_batches(int32_t worker)
{
    for (int i = 0; i < SMALL; i++)
        for (int k = 0; k < WIDTH; k++)
            numbers[i][k] = (float)((i * 7 + k + worker) % 11) / 11;
    for (int b = 0; b < BATCHES; b++) {
        const td_tensor x = {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {SMALL, WIDTH}, .data = numbers};
        const td_tensor y = {.kind = TD_DENSE, .dtype = TD_F32, .rank = 2, .dims = {SMALL, 1}, .data = labels};
        fields[b][0] = (td_field){"x", x};
        fields[b][1] = (td_field){"y", y};
    }
}

static td_value build_dense(td_graph *g)
{
    td_value x = td_input(g, "x", TD_F32, TD_SHAPE(SMALL, WIDTH)), y = td_input(g, "y", TD_F32, TD_SHAPE(SMALL, 1));
    return td_bce_with_logits(td_linear(td_linear(x, WIDTH, "large"), 1, "top"), y);
}

static td_value build(td_graph *g)
{
    const td_dim batch = td_dim_constant(BATCH);
    td_value a = td_input(g, "a", TD_I64, TD_SHAPE(batch)), b = td_input(g, "b", TD_I64, TD_SHAPE(batch)),
             y = td_input(g, "y", TD_F32, TD_SHAPE(batch, 1));
    const td_shape shape = TD_SHAPE(ROWS, DIM);
    td_value first = td_parameter(g, "table.0", TD_F32, shape, td_init_normal(0, 1)),
             second = td_parameter(g, "table.1", TD_F32, shape, td_init_normal(0, 1));
    td_value vectors[] = {td_embedding(first, a, (td_embedding_options){0}),
                          td_embedding(second, b, (td_embedding_options){0})};
    return td_bce_with_logits(td_linear(td_concat(2, vectors, 1), 1, "top"), y);
}

/* What of this process's memory is beyond what the job and the graph had before. */
static int64_t planned(const td_plan *plan)
{
    int64_t worker = 0, server = 0, mine = 0, all = 0;
    require(td_job_staging(plan, td_job_workers(job), td_job_servers(job), &worker, &server), "it has no messages");
    const td_job_served served = td_job_count_served(job);
    require(served.tables == (is_served ? 2 : 0) && (served.rows > 0) == is_served, "it serves other rows");
    require(td_plan_shared_state(plan, td_job_worker(job), &mine, &all) == is_shared, "state is shared or not");
    require(!is_shared || (mine < all / 2 + (64 << 10) && all > 2 * WIDTH * WIDTH * 4), "it has more than its half");
    require(!is_shared || td_plan_device(plan, 0).state_bytes < (uint64_t)mine + (64 << 10),
            "it keeps more than it has");
    return (int64_t)td_plan_device(plan, 0).peak_bytes + worker + server + served.row_bytes + served.overhead_bytes;
}

static void all_are_here(void)
{
    int64_t none = 0;
    no_error(td_job_agree(job, 0, &none));
}

/* Twice, for a second one must not find what the first has left. */
static void save(td_store *store, const char *folder)
{
    enum {
        OTHERS = 3 << 20 /* the other's largest piece, WIDTH * WIDTH / 2 numbers; what a checksum reads at a time */
    };
    char path[600], text[160];
    for (int time = 0; time < 2; time++) {
        const int64_t before = (int64_t)td_memory_read().bytes_now;
        td_memory_reset_peak();
        all_are_here();
        (void)snprintf(path, sizeof path, "%s/checkpoint-%d", folder, time);
        no_error(td_job_worker(job) ? td_store_lend(store) : td_store_save(store, path, (td_data_position){0, 0}));
        all_are_here();
        const int64_t taken = (int64_t)td_memory_read().bytes_peak - before, most = TD_CHECKPOINT_PIECE + OTHERS;
        (void)snprintf(text, sizeof text, "a checkpoint took %lld bytes", (long long)taken);
        require(taken <= most, text);
    }
}

int main(int argc, char **argv)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    td_source source = {&source, next, release};
    char text[160];
    require(argc == 3, "usage: ranks_steady clip|plain|local|dense|shared FOLDER");
    is_shared = !strcmp(argv[1], "shared");
    is_dense = is_shared || !strcmp(argv[1], "dense");
    is_served = !is_dense && strcmp(argv[1], "local") != 0;
    no_error(td_job_open(&(td_job_options){0}, &job));
    (is_dense ? make_dense_batches : make_batches)(td_job_worker(job));
    no_error(td_graph_create(&graph));
    td_value loss = is_dense ? build_dense(graph) : build(graph);
    td_train_options options = td_train_defaults();
    options.remote = td_job_remote(job);
    options.serve_embedding = is_served;
    options.shard_optimizer = is_shared;
    if (!strcmp(argv[1], "clip") || is_shared)
        options.clip_norm = 0.01;
    td_group(&options, "table*", td_adagrad(0.01));
    td_group(&options, "*", is_dense ? td_adam(0.01) : td_sgd(0.1));
    no_error(td_plan_train(graph, loss, &options, &plan));
    const int64_t before = (int64_t)td_memory_read().bytes_now;
    td_memory_reset_peak();
    no_error(td_store_create(plan, &store));
    no_error(td_session_create(plan, store, &session));
    no_error(td_session_run(session, &source, WARM, NULL, NULL));
    all_are_here();
    const uint64_t allocations = td_memory_read().allocations;
    all_are_here();
    no_error(td_session_run(session, &source, STEPS, NULL, NULL));
    all_are_here();
    const int64_t more = (int64_t)(td_memory_read().allocations - allocations);
    (void)snprintf(text, sizeof text, "%lld allocations in %d steps", (long long)more, STEPS);
    require(more <= FEW, text); /* more messages may wait at the same time than ever did before */
    const int64_t taken = (int64_t)td_memory_read().bytes_peak - before, most = planned(plan) + CONSTANT;
    (void)snprintf(text, sizeof text, "it took %lld bytes, where the plan says %lld at most", (long long)taken,
                   (long long)most);
    require(taken <= most, text);
    printf("%s\n", text);
    if (is_dense)
        save(store, argv[2]);
    all_are_here();
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    no_error(td_job_leave(job));
    require(td_job_close(job, NULL, NULL), "MPI was not finalized");
    return 0;
}
