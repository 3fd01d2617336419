/* A program of its own that trains a model with the installed libtandem: ratings of items, from an embedding per item and four
 * numbers per sample. The table of embeddings is placed on the host, the rest on a small emulated accelerator. The data is made
 * here, by a rule that the model can learn, so the loss must fall. Exits 0 if it did. */
#include <stdio.h>
#include <stdlib.h>
#include <tandem/tandem.h>

enum { ITEMS = 1000, NUMBERS = 4, DIM = 8, BATCH = 64, BATCHES = 600 };

/* ---- data: a source hands out batches; the session asks for the next one while steps run ------------------------------- */

typedef struct ratings {
    int64_t batches; /* handed out so far */
    uint64_t random;
} ratings;

typedef struct rating_batch {
    int64_t item[BATCH];
    float number[BATCH * NUMBERS], rating[BATCH];
    td_field fields[3];
} rating_batch;

static float uniform(ratings *self) /* [0, 1) */
{
    self->random = self->random * 6364136223846793005u + 1442695040888963407u;
    return (float)(self->random >> 40) / (float)(1 << 24);
}

static td_field field(const char *name, td_dtype dtype, int32_t rank, int64_t columns, void *data)
{
    td_tensor tensor = {.kind = TD_DENSE, .dtype = dtype, .rank = rank, .dims = {BATCH, columns}, .data = data};
    return (td_field){.name = name, .tensor = tensor};
}

static td_status *next_batch(void *self, td_batch *out_batch, bool *out_end)
{
    ratings *source = self;
    *out_end = source->batches == BATCHES;
    if (*out_end)
        return NULL;
    rating_batch *batch = malloc(sizeof *batch);
    if (!batch)
        return TD_ERROR(TD_OUT_OF_MEMORY, "no memory for a batch of %d ratings", BATCH);
    for (int i = 0; i < BATCH; i++) {
        batch->item[i] = (int64_t)(uniform(source) * ITEMS);
        batch->rating[i] = (float)(batch->item[i] % 7) / 7.0f; /* what the embeddings have to find out */
        for (int j = 0; j < NUMBERS; j++) {
            float number = batch->number[i * NUMBERS + j] = uniform(source) - 0.5f;
            batch->rating[i] += number * (float)(j + 1) / NUMBERS;
        }
    }
    batch->fields[0] = field("item", TD_I64, 1, 0, batch->item);
    batch->fields[1] = field("number", TD_F32, 2, NUMBERS, batch->number);
    batch->fields[2] = field("rating", TD_F32, 2, 1, batch->rating);
    *out_batch = (td_batch){
        .samples = BATCH, .index = source->batches++, .n_fields = 3, .fields = batch->fields, .owner = batch};
    return NULL;
}

static void release_batch(void *self, td_batch *batch)
{
    (void)self;
    free(batch->owner);
}

/* ---- the model, the plan, the training --------------------------------------------------------------------------------- */

static td_value build(td_graph *graph)
{
    td_dim batch = td_extent(graph, "B", BATCH);
    td_value item = td_input(graph, "item", TD_I64, TD_SHAPE(batch));
    td_value number = td_input(graph, "number", TD_F32, TD_SHAPE(batch, NUMBERS));
    td_value rating = td_input(graph, "rating", TD_F32, TD_SHAPE(batch, 1));

    td_value table = td_parameter(graph, "table.weight", TD_F32, TD_SHAPE(ITEMS, DIM), td_init_uniform(0.05));
    td_value embedding = td_embedding_bag(table, item, TD_SUM);
    td_target(embedding, "cpu"); /* the lookup and its table stay on the host */
    td_value hidden = td_relu(td_linear(number, 16, "bottom"));
    td_value prediction = td_linear(td_concat(2, (td_value[]){hidden, embedding}, 1), 1, "top");
    return td_mse(prediction, rating);
}

typedef struct progress {
    double first, last; /* mean loss of the first and of the last 50 steps */
} progress;

static bool on_step(void *context, const td_step_report *report)
{
    progress *seen = context;
    if (report->step <= 50)
        seen->first += report->loss / 50;
    if (report->step > BATCHES - 50)
        seen->last += report->loss / 50;
    if (report->step % 100 == 0)
        printf("step %lld  loss %.5f\n", (long long)report->step, report->loss);
    return true; /* go on */
}

static td_status *train(progress *out_seen)
{
    td_status *status = NULL;
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_store *store = NULL;
    td_session *session = NULL;
    ratings data = {.random = 1};
    td_source source = {.self = &data, .next = next_batch, .release = release_batch};

    td_train_options options = td_train_defaults();
    td_add_device(&options, "accel", "emulated:memory=8MiB,cores=1");
    td_group(&options, "table.*", td_adagrad(0.1));
    td_group(&options, "*", td_adamw(0.01));

    TD_TRY_OR(status, out, td_graph_create(&graph));
    td_value loss = build(graph);
    TD_TRY_OR(status, out, td_plan_train(graph, loss, &options, &plan)); /* what can be refused is refused here */
    TD_TRY_OR(status, out, td_store_create(plan, &store));               /* parameters and optimizer state */
    TD_TRY_OR(status, out, td_session_create(plan, store, &session));
    TD_TRY_OR(status, out, td_session_run(session, &source, 0, on_step, out_seen));
out:
    td_session_destroy(session);
    td_store_release(store);
    td_plan_release(plan);
    td_graph_destroy(graph);
    td_train_options_deinit(&options);
    return status;
}

int main(void)
{
    progress seen = {0};
    td_status *status = train(&seen);
    if (status) {
        fprintf(stderr, "train: %s\n", td_status_message(status));
        td_status_destroy(status);
        return 1;
    }
    printf("mean loss %.5f over the first 50 steps, %.5f over the last 50\n", seen.first, seen.last);
    return seen.last < 0.25 * seen.first ? 0 : 1;
}
