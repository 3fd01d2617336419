/* Checkpoints: a manifest and a shard of any bytes load, or are refused before the store changes.
 *
 * An input: one byte (1: the manifest's checksums are put right), the manifest's length (four bytes, little-endian), the manifest,
 * the shard. */
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "tandem/ops.h"
#include "tandem/session.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 1 << 16, HEAD = 5 };
const char *const fuzz_words[] = {"param/",
                                  "state/",
                                  "table.weight",
                                  "top.weight",
                                  "\"F32\"",
                                  "\"dtype\"",
                                  "\"shape\"",
                                  "\"data_offsets\"",
                                  "[0,64]",
                                  "{",
                                  "}",
                                  "[",
                                  "]",
                                  ",",
                                  ":",
                                  "\"steps\": ",
                                  "\"position\": ",
                                  "\"epoch\": ",
                                  "\"shards\": ",
                                  "\"file\": ",
                                  "\"loss\": ",
                                  "null",
                                  "-1",
                                  "\"__metadata__\"",
                                  "../",
                                  "shard-0000.safetensors",
                                  "1e999",
                                  "\xff",
                                  NULL};

static td_store *store;
static char folder[256], manifest[300], shard[300];

static void make_store(void)
{
    td_graph *graph = NULL;
    td_plan *plan = NULL;
    td_train_options options = td_train_defaults();
    fuzz_ok(td_graph_create(&graph));
    td_dim batch = td_extent(graph, "B", 4);
    td_value ids = td_input(graph, "ids", TD_I64, TD_SHAPE(batch)),
             y = td_input(graph, "y", TD_F32, TD_SHAPE(batch, 1));
    td_value table = td_parameter(graph, "table.weight", TD_F32, TD_SHAPE(5, 3), td_init_uniform(0.1));
    td_value loss = td_mse(td_linear(td_embedding(table, ids, (td_embedding_options){0}), 1, "top"), y);
    td_group(&options, "table*", td_adagrad(0.1));
    td_group(&options, "*", td_adam(0.1));
    fuzz_ok(td_plan_train(graph, loss, &options, &plan));
    fuzz_ok(td_store_create(plan, &store));
    td_plan_release(plan);
    td_train_options_deinit(&options);
    td_graph_destroy(graph);
    (void)snprintf(folder, sizeof folder, "%s", fuzz_path("checkpoint"));
    (void)snprintf(manifest, sizeof manifest, "%s/manifest.json", folder);
    (void)snprintf(shard, sizeof shard, "%s/shard-0000.safetensors", folder);
}

/* Puts 16 digits after the first place that says `before`. */
static void put_digits(char *text, size_t size, const char *before, uint64_t number)
{
    char digits[17], *at = memmem(text, size, before, strlen(before));
    if (!at || at + strlen(before) + 16 > text + size)
        return;
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)number);
    memcpy(at + strlen(before), digits, 16);
}

/* The manifest with the checksum of the shard's bytes, and its own, in the first places that look like them. */
static void put_checksums_right(char *text, size_t size, const uint8_t *bytes, size_t n)
{
    put_digits(text, size, "\"xxh64\": \"", td_hash_bytes(bytes, n, 0));
    json_t *root = json_loadb(text, size, 0, NULL);
    (void)json_object_del(root, "checksum");
    char *bare = root ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (bare)
        put_digits(text, size, "\"checksum\": \"", td_hash_bytes(bare, strlen(bare), 0));
    free(bare); /* jansson's own allocation */
    json_decref(root);
}

static void load(void)
{
    uint64_t before = 0, after = 0;
    int64_t steps = td_store_steps(store);
    td_data_position position = {0};
    fuzz_ok(td_store_checksum(store, &before));
    td_status *status = td_store_load(store, folder, &position);
    fuzz_ok(td_store_checksum(store, &after));
    FUZZ_CHECK(!status || (before == after && td_store_steps(store) == steps));
    if (status) {
        FUZZ_CHECK(strstr(td_status_message(status), folder));
        (void)fuzz_take(status);
        return;
    }
    FUZZ_CHECK(td_store_steps(store) >= 0 && td_store_updates(store) >= 0 &&
               td_store_updates(store) <= td_store_steps(store));
    FUZZ_CHECK(position.epoch >= 0 && position.batch >= 0);
    fuzz_outcome("loaded");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[ROOM];
    uint32_t length = 0;
    if (!store)
        make_store();
    if (size < HEAD || size > ROOM)
        return 0;
    memcpy(&length, data + 1, sizeof length);
    if (length > size - HEAD)
        length = (uint32_t)(size - HEAD);
    memcpy(text, data + HEAD, length);
    if (data[0] & 1)
        put_checksums_right(text, length, data + HEAD + length, size - HEAD - length);
    (void)mkdir(folder, 0777);
    fuzz_write(manifest, text, length);
    fuzz_write(shard, data + HEAD + length, size - HEAD - length);
    load();
    return 0;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    if (index > 1)
        return 0;
    if (!store)
        make_store();
    fuzz_ok(td_store_save(store, folder, (td_data_position){1, 2}));
    buffer[0] = (uint8_t)index;
    uint32_t length = (uint32_t)fuzz_read(manifest, buffer + HEAD, room - HEAD);
    memcpy(buffer + 1, &length, sizeof length);
    return HEAD + length + fuzz_read(shard, buffer + HEAD + length, room - HEAD - length);
}
