/* Click logs (criteo) and ratings, plain and gzip: the first byte says how they are read, the rest is the file. */
#include "tests/fuzz/read_all.h"

const char *const fuzz_words[] = {"\t", "\n",       "\r\n",         "\t\t", "0", "1",
                                  "-5", "05db9164", "\x1f\x8b\x08", "\xff", "",  NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t small[] = {100}, two[] = {50, 40};
    if (size < 1)
        return 0;
    bool ratings = data[0] & 1;
    td_dataset_options options = td_dataset_defaults(ratings ? "ratings" : "criteo");
    td_dataset *dataset = NULL;
    const char *path = fuzz_path("rows.tsv");
    fuzz_write(path, data + 1, size - 1);
    options.train = path;
    options.bad_rows = data[0] & 2 ? 1 : 0;
    options.skip_bad_ids = data[0] & 4;
    options.table_rows = ratings ? two : small;
    options.n_table_rows = !(data[0] & 8) ? 0 : ratings ? 2 : 1;
    options.most_rows = data[0] & 16 ? 5 : 0;
    options.train_share = data[0] & 32 ? 1 : 0.7;
    if (ratings && !(data[0] & 8))
        return 0; /* tables of the largest id: memory as the file asks for it */
    td_status *status = td_dataset_open(&options, &dataset);
    fuzz_read_all(status, dataset);
    return 0;
}

static size_t criteo_rows(char *text, size_t room)
{
    size_t used = 0;
    for (int i = 0; i < 12; i++) {
        used += (size_t)snprintf(text + used, room - used, "%d", i % 2);
        for (int c = 1; c < 40; c++)
            used += (size_t)snprintf(text + used, room - used, c < 14 ? "\t%d" : "\t%08x", (i + 7) * c % 50);
        used += (size_t)snprintf(text + used, room - used, "\n");
    }
    return used;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    static const char ratings[] =
        "1\t2\t3\t100\n2\t1\t5\t90\n7\t12\t4.5\t80\n1\t9\t1\t70\n30\t2\t4\t60\n4\t5\t2\t100\n";
    static const uint8_t ways[] = {2, 2 | 8, 8 | 16, 1 | 8 | 2 | 4, 1 | 8, 0};
    if (index >= (int)sizeof ways)
        return 0;
    buffer[0] = ways[index];
    if (ways[index] & 1) {
        memcpy(buffer + 1, ratings, sizeof ratings - 1);
        return sizeof ratings;
    }
    return 1 + criteo_rows((char *)buffer + 1, room - 1);
}
