/* Safetensors files: any bytes are a file, or refused with its name; what is a file lies within its bytes, is found by name, and is
 * read whole; and as a model's weights it is taken, or the store has not changed.
 *
 * An input is the file. The length before the header is put right where the first byte of the file is odd, so that the header's text
 * is reached more often. */
#include "base/safetensors.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 1 << 16, LENGTH = 8 };
const char *const fuzz_words[] = {"top.weight",
                                  "top.bias",
                                  "net.0.weight",
                                  "\"F32\"",
                                  "\"F16\"",
                                  "\"BF16\"",
                                  "\"F64\"",
                                  "\"I64\"",
                                  "\"BOOL\"",
                                  "\"dtype\"",
                                  "\"shape\"",
                                  "\"data_offsets\"",
                                  "[0,64]",
                                  "[",
                                  "]",
                                  "{",
                                  "}",
                                  ":",
                                  ",",
                                  "-1",
                                  "1e999",
                                  "9223372036854775807",
                                  "\"__metadata__\"",
                                  "null",
                                  "\\u0000",
                                  "\xff",
                                  NULL};

static td_store *store;
static char path[300];

static void make_store(void)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_train_options options = td_train_defaults();
    fuzz_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", 4);
    td_value x = td_input(graph, "x", TD_F32, TD_SHAPE(batch, 6)), y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 3));
    td_group(&options, "*", td_sgd(0.1));
    fuzz_ok(td_plan_train(graph, td_mse(td_linear(x, 3, "top"), y), &options, &plan));
    fuzz_ok(td_store_create(plan, &store));
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    (void)snprintf(path, sizeof path, "%s", fuzz_path("weights.safetensors"));
}

static void read_tensor(const td_safetensors *file, const td_safetensors_tensor *t, size_t size)
{
    static char data[ROOM];
    FUZZ_CHECK(t->bytes >= 0 && t->offset >= LENGTH && t->offset + t->bytes <= (int64_t)size);
    FUZZ_CHECK(t->rank >= 0 && t->rank <= TD_MAX_RANK && t->elements >= 0);
    FUZZ_CHECK(td_safetensors_find(file, t->name) == t);
    fuzz_ok(td_safetensors_read(file, t, 0, t->bytes, data));
    td_status *beyond = td_safetensors_read(file, t, t->bytes, 1, data);
    FUZZ_CHECK(beyond);
    td_status_destroy(beyond);
}

static void read_file(size_t size)
{
    td_safetensors *file = NULL;
    td_status *status = td_safetensors_open(path, &file);
    FUZZ_CHECK((file == NULL) == (status != NULL));
    if (status) {
        FUZZ_CHECK(strstr(td_status_message(status), "weights.safetensors"));
        (void)fuzz_take(status);
        return;
    }
    int64_t end = 0;
    for (int64_t i = 0; i < td_safetensors_count(file); i++) {
        const td_safetensors_tensor *t = td_safetensors_at(file, i);
        read_tensor(file, t, size);
        FUZZ_CHECK(t->offset >= end); /* in the order of their data, without overlaps */
        end = t->offset + t->bytes;
    }
    td_safetensors_close(file);
    fuzz_outcome("a file");
}

static void import_file(void)
{
    static const td_weight_name map[] = {{"top.weight", "net.0.weight", true}};
    static const char *const ignore[] = {"more*"};
    const td_weights weights = {.file = path, .map = map, .n_map = 1, .ignore = ignore, .n_ignore = 1};
    uint64_t before = 0, after = 0;
    fuzz_ok(td_store_checksum(store, &before));
    td_status *status = td_store_import(store, &weights);
    fuzz_ok(td_store_checksum(store, &after));
    FUZZ_CHECK(!status || before == after);
    if (!status)
        fuzz_outcome("taken");
    (void)fuzz_take(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[ROOM];
    if (!store)
        make_store();
    if (size > ROOM)
        return 0;
    memcpy(bytes, data, size);
    const uint8_t *close = size > LENGTH && data[0] & 1 ? memrchr(data + LENGTH, '}', size - LENGTH) : NULL;
    if (close) {
        uint64_t length = (uint64_t)(close + 1 - (data + LENGTH));
        memcpy(bytes, &length, sizeof length);
    }
    fuzz_write(path, bytes, size);
    read_file(size);
    import_file();
    return 0;
}

static void write_seed(int index)
{
    static const td_dtype dtypes[] = {TD_F32, TD_BF16, TD_F16};
    td_safetensors_writer *writer = NULL;
    char zeros[128] = {0};
    td_dtype dtype = dtypes[index % 3];
    int64_t size = dtype == TD_F32 ? 4 : 2;
    fuzz_ok(td_safetensors_create(path, &writer));
    fuzz_ok(td_safetensors_annotate(writer, "format", "pt"));
    fuzz_ok(td_safetensors_declare(writer, "net.0.weight", dtype, 2, (const int64_t[]){6, 3}));
    fuzz_ok(td_safetensors_declare(writer, "top.bias", TD_F32, 1, (const int64_t[]){3}));
    fuzz_ok(td_safetensors_declare(writer, "more", TD_I64, 0, NULL));
    fuzz_ok(td_safetensors_write(writer, "net.0.weight", 0, 18 * size, zeros));
    fuzz_ok(td_safetensors_write(writer, "top.bias", 0, 12, zeros));
    fuzz_ok(td_safetensors_write(writer, "more", 0, 8, zeros));
    fuzz_ok(td_safetensors_commit(writer));
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    if (index > 5)
        return 0;
    if (!store)
        make_store();
    write_seed(index);
    size_t size = fuzz_read(path, buffer, room);
    if (index >= 3)
        buffer[0] |= 1; /* its header's length is made anew */
    return size;
}
