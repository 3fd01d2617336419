/* Configurations: any bytes give a configuration or an error; one that resolves prints to text that resolves to the same text. */
#include "cli/config.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"model:",
                                  "data:",
                                  "devices:",
                                  "train:",
                                  "optimizer:",
                                  "checkpoint:",
                                  "placement:",
                                  "offload:",
                                  "log:",
                                  "cpu:",
                                  "{",
                                  "}",
                                  "[",
                                  "]",
                                  ": ",
                                  ", ",
                                  "\n",
                                  "  ",
                                  "- ",
                                  "&a ",
                                  "*a",
                                  "!!",
                                  "|",
                                  ">",
                                  "'",
                                  "\"",
                                  "#",
                                  "---",
                                  "...",
                                  "? ",
                                  "<<: ",
                                  "\t",
                                  "name: ",
                                  "lr: ",
                                  "null",
                                  "true",
                                  "256MiB",
                                  "12GB/s",
                                  "8us",
                                  "1e-3",
                                  "match: ",
                                  "format: ",
                                  "criteo",
                                  "csv",
                                  "synthetic",
                                  "schedule: ",
                                  "kind: cosine",
                                  "\xef\xbb\xbf",
                                  "\xff",
                                  "~",
                                  "graph: ",
                                  NULL};

static td_status *resolve(const char *text, size_t size, td_config **out)
{
    td_status *status = td_config_parse(text, size, "f.yaml", out);
    if (!status)
        status = td_config_resolve(*out);
    if (status) {
        td_config_destroy(*out);
        *out = NULL;
    }
    return status;
}

static char *print(const td_config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    FUZZ_CHECK(stream);
    td_config_print(config, stream);
    FUZZ_CHECK(fclose(stream) == 0);
    return text;
}

/* Line by line, up to the comments that say where each value stood. */
static bool same_but_places(const char *a, const char *b)
{
    while (*a && *b) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        const char *x = memmem(a, n, "  # ", 4), *y = memmem(b, m, "  # ", 4);
        size_t left = x ? (size_t)(x - a) : n, right = y ? (size_t)(y - b) : m;
        if (left != right || memcmp(a, b, left) != 0)
            return false;
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
    return *a == *b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    td_config *config = NULL, *again = NULL;
    td_status *status = resolve((const char *)data, size, &config);
    if (status) {
        FUZZ_CHECK(strchr(td_status_message(status), ':'));
        (void)fuzz_take(status);
        return 0;
    }
    char *text = print(config);
    fuzz_ok(resolve(text, strlen(text), &again));
    char *same = print(again);
    if (!same_but_places(text, same)) {
        (void)fprintf(stderr, "%s\n---- and printed again:\n%s\n", text, same);
        abort();
    }
    free(text);
    free(same);
    td_config_destroy(config);
    td_config_destroy(again);
    return 0;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    static const char *const seeds[] = {
        "model: {name: dlrm, dim: 8, bottom: [16], top: [16]}\n"
        "data: {format: synthetic, batch: 64, train_rows: 1000, dense: 4, table_rows: [300, 100, 20]}\n"
        "devices: [cpu, {name: accel, backend: emulated, memory: 16MiB, cores: 1, link: 12GB/s, latency: 8us}]\n"
        "placement: {default: accel, rules: [{match: \"table.*\", target: cpu}]}\n"
        "optimizer:\n"
        "  - {match: \"table.*\", name: lazy_adam, lr: 1e-2, betas: [0.9, 0.99]}\n"
        "  - {name: adam, lr: 1e-2, schedule: {kind: cosine, warmup_steps: 5}}\n"
        "train: {epochs: 2, log_every: 8, on_nan: skip}\n",
        "model:     {name: wide_deep, dim: 4, hidden: [16]}\n"
        "data:\n"
        "  format: csv\n"
        "  train: visits.csv             # rows\n"
        "  batch: 64\n"
        "  label: bought\n"
        "  positive: \"yes\"\n"
        "  numeric: [minutes]\n"
        "  categorical: [city, device]\n"
        "  crosses: [[city, device]]\n"
        "offload:   {embedding: cpu}\n"
        "train:     {epochs: 4}\n"
        "checkpoint: {every: 10, keep: 2, directory: 'x y'}\n"
        "cpu: {gemm: reference, threads: 2}\n"
        "log: {level: null}\n"
        "optimizer:\n"
        "  - {match: \"wide.weight\", name: ftrl, lr: 0.1}\n"
        "  - {match: \"*\", name: adam, lr: 1e-3}\n"};
    if (index >= (int)(sizeof seeds / sizeof *seeds))
        return 0;
    size_t size = strlen(seeds[index]);
    FUZZ_CHECK(size < room);
    memcpy(buffer, seeds[index], size);
    return size;
}
