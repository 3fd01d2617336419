/* Cache files: whatever lies there, the rows come out as if there were no cache, unless every checksum and size agrees; then nothing
 * crashes, and what comes out has the shape that the schema says. The first byte says whether the header is put right, the rest is
 * the file. */
#include <dirent.h>
#include <stddef.h>

#include "base/hash.h"
#include "data/cache_format.h"
#include "data/rows.h"
#include "tests/fuzz/read_all.h"

enum { ROOM = 1 << 16 };
const char *const fuzz_words[] = {CACHE_MAGIC, "", "a", "\x01\x02\x03\x04", NULL};

static td_status *open_rows(td_dataset **out)
{
    static const char *const numeric[] = {"a"}, *const categorical[] = {"b", "c"};
    static char rows[256], folder[256];
    if (!rows[0]) {
        static const char text[] =
            "a,b,c,d\n1,x,y,1\n2,z,y,0\n,,,1\n-3,x,z,0\n1,x,y,1\n2,x,y,0\n,q,,1\nbad,x,z,0\n4,u,w,1\n";
        (void)snprintf(rows, sizeof rows, "%s", fuzz_path("rows.csv"));
        (void)snprintf(folder, sizeof folder, "%s", fuzz_path("cache"));
        fuzz_write(rows, text, sizeof text - 1);
    }
    td_dataset_options options = td_dataset_defaults("csv");
    options.train = rows;
    options.numeric = numeric;
    options.n_numeric = 1;
    options.categorical = categorical;
    options.n_categorical = 2;
    options.label = "d";
    options.positive = "1";
    options.bad_rows = 1;
    options.cache = folder;
    *out = NULL;
    return td_dataset_open(&options, out);
}

/* The one file in the cache's folder, which the first opening makes. */
static const char *cache_file(void)
{
    static char path[512];
    if (path[0])
        return path;
    td_dataset *dataset = NULL;
    fuzz_ok(open_rows(&dataset));
    td_dataset_destroy(dataset);
    char folder[256];
    (void)snprintf(folder, sizeof folder, "%s", fuzz_path("cache"));
    DIR *entries = opendir(folder);
    FUZZ_CHECK(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    (void)closedir(entries);
    FUZZ_CHECK(path[0]);
    return path;
}

static int64_t most(int64_t number, int64_t limit)
{
    return number < 0 || number > limit ? (int64_t)((uint64_t)number % (uint64_t)(limit + 1)) : number;
}

static uint64_t body_checksum(const cache_header *header, const uint8_t *bytes)
{
    td_rows rows;
    td_rows_init(&rows, (int32_t)header->n_ids, (int32_t)header->n_numbers, header->id_bytes == 8 ? INT64_MAX : 0);
    int64_t offset = cache_records_offset(header->n_columns, header->notes_bytes), block = (int64_t)1 << rows.shift;
    uint64_t checksum = td_hash_bytes(bytes + sizeof *header, (size_t)offset - sizeof *header, 0);
    for (int64_t i = 0; i < header->rows; i += block) {
        int64_t n = header->rows - i < block ? header->rows - i : block;
        checksum = td_hash_bytes(bytes + offset + i * rows.stride, (size_t)(n * rows.stride), checksum);
    }
    return checksum;
}

/* A header that nothing speaks against: what names the form is the good file's, sizes are the input's, made to agree with as many
 * records as there are bytes for. Returns the size of the file; 0: there is no room for what it says. */
static size_t put_header_right(uint8_t *bytes, size_t size, const cache_header *good)
{
    cache_header header;
    if (size < sizeof header)
        return 0;
    memcpy(&header, bytes, sizeof header);
    memcpy(header.magic, good->magic, sizeof header.magic);
    header.version = good->version;
    header.byte_order = good->byte_order;
    header.key = good->key;
    header.n_ids = most(header.n_ids, 20);
    header.n_numbers = most(header.n_numbers, 21);
    header.n_numbers += header.n_numbers == 0; /* the label is there always */
    header.id_bytes = header.id_bytes % 2 ? 8 : header.id_bytes == 8 ? 8 : 4;
    header.n_columns = most(header.n_columns, 40);
    header.notes_bytes = most(header.notes_bytes, 1000);
    int64_t stride = td_rows_stride((int32_t)header.n_ids, (int32_t)header.n_numbers, (int32_t)header.id_bytes);
    int64_t offset = cache_records_offset(header.n_columns, header.notes_bytes);
    if (offset > (int64_t)size)
        return 0;
    header.rows = ((int64_t)size - offset) / stride;
    header.train_rows = most(header.train_rows, header.rows);
    header.body_checksum = body_checksum(&header, bytes);
    header.header_checksum = td_hash_bytes(&header, offsetof(cache_header, header_checksum), 0);
    memcpy(bytes, &header, sizeof header);
    return (size_t)(offset + header.rows * stride);
}

static void check_batch(const td_batch *batch, const td_schema *schema)
{
    for (int32_t f = 0; f < batch->n_fields; f++) {
        const td_tensor *tensor = &batch->fields[f].tensor;
        FUZZ_CHECK(tensor->rank >= 1 && tensor->dims[0] == batch->samples);
        FUZZ_CHECK(td_schema_find(schema, batch->fields[f].name));
    }
}

/* Reads what there is, right or not. */
static void read_any(const td_dataset *dataset)
{
    const td_schema *schema = td_dataset_schema(dataset);
    td_loader_options options = td_loader_defaults();
    td_loader *loader = NULL;
    if (schema->train_rows == 0)
        return;
    fuzz_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    td_batch batch;
    bool end = false;
    for (int i = 0; i < 50 && !end; i++) {
        (void)fuzz_take(source.next(source.self, &batch, &end));
        if (end)
            continue;
        check_batch(&batch, schema);
        source.release(source.self, &batch);
    }
    td_loader_destroy(loader);
}

/* What became of the file: taken, or why it was made again. */
static void tell(const td_dataset *dataset)
{
    for (int32_t i = 0; td_dataset_note(dataset, i); i++) {
        const char *reason = strstr(td_dataset_note(dataset, i), ": rebuilt, ");
        if (reason)
            fuzz_outcome(reason);
    }
    if (td_dataset_count(dataset).from_cache)
        fuzz_outcome("taken");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[ROOM];
    static cache_header good;
    td_dataset *dataset = NULL;
    if (size < 1 || size > ROOM)
        return 0;
    const char *path = cache_file();
    if (!good.version)
        FUZZ_CHECK(fuzz_read(path, (uint8_t *)&good, sizeof good) == sizeof good);
    memcpy(bytes, data + 1, size - 1);
    size_t put_right = data[0] & 1 ? put_header_right(bytes, size - 1, &good) : 0;
    fuzz_write(path, bytes, put_right ? put_right : size - 1);
    td_status *status = open_rows(&dataset);
    if (dataset)
        tell(dataset);
    if (put_right) {
        if (dataset)
            read_any(dataset);
        td_dataset_destroy(dataset);
        (void)fuzz_take(status);
        return 0;
    }
    FUZZ_CHECK(dataset && td_dataset_schema(dataset)->train_rows == 6 && td_dataset_schema(dataset)->test_rows == 2);
    fuzz_read_all(status, dataset);
    return 0;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    if (index > 1)
        return 0;
    const char *path = cache_file();
    td_dataset *dataset = NULL;
    fuzz_ok(open_rows(&dataset)); /* puts a good one there again */
    td_dataset_destroy(dataset);
    buffer[0] = (uint8_t)index;
    return 1 + fuzz_read(path, buffer + 1, room - 1);
}
