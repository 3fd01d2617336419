/* The section data: to a data set, and to loaders of it. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/reading.h"
#include "cli/setup.h"
#include "cli/terminal.h"

/* Lists as the library wants them; freed after opening. */
typedef struct lists {
    const char **numeric, **categorical;
    td_cross *crosses;
    int64_t *table_rows;
    char *train, *test, *cache;
    td_image_step *image_steps;
    td_transform transform;
} lists;

static void free_lists(lists *l)
{
    td_free(l->numeric);
    td_free(l->categorical);
    td_free(l->crosses);
    td_free(l->table_rows);
    td_free(l->image_steps);
    td_free(l->train);
    td_free(l->test);
    td_free(l->cache);
}

static td_status *strings(td_section root, const char *key, const char ***out_list, int32_t *out_n)
{
    *out_n = td_section_count(root, key);
    TD_TRY(TD_NEW(*out_list, *out_n + 1));
    for (int32_t i = 0; i < *out_n; i++)
        (*out_list)[i] = td_section_string_at(root, key, i);
    return NULL;
}

static td_status *crosses(td_section root, lists *l, td_dataset_options *options)
{
    int32_t n = td_section_count(root, "data.crosses");
    TD_TRY(TD_NEW(l->crosses, n + 1));
    for (int32_t i = 0; i < n; i++) {
        const char *a = td_section_list_at(root, "data.crosses", i, 0),
                   *b = td_section_list_at(root, "data.crosses", i, 1);
        if (!a || !b || td_section_list_at(root, "data.crosses", i, 2))
            return TD_SECTION_ERROR(root, "data.crosses",
                                    "data.crosses: item %d is no pair of columns; as [[education, occupation]]", i + 1);
        l->crosses[i] = (td_cross){a, b, td_section_int(root, "data.cross_buckets")};
    }
    options->crosses = l->crosses;
    options->n_crosses = n;
    return NULL;
}

static td_status *csv(td_section root, lists *l, td_dataset_options *options)
{
    TD_TRY(strings(root, "data.numeric", &l->numeric, &options->n_numeric));
    TD_TRY(strings(root, "data.categorical", &l->categorical, &options->n_categorical));
    options->numeric = l->numeric;
    options->categorical = l->categorical;
    TD_TRY(crosses(root, l, options));
    options->label = td_section_string(root, "data.label");
    options->positive = td_section_string(root, "data.positive");
    const char *delimiter = td_section_string(root, "data.delimiter");
    if (!strcmp(delimiter, "tab") || !strcmp(delimiter, "\\t"))
        delimiter = "\t";
    if (strlen(delimiter) != 1 || strchr("\"\r\n", delimiter[0]))
        return TD_SECTION_ERROR(root, "data.delimiter",
                                "data.delimiter: \"%s\" is not one character that may stand between values, as \",\", "
                                "\";\", \"|\" (in quotes) or tab",
                                delimiter);
    options->delimiter = delimiter[0];
    return NULL;
}

static td_status *table_rows(td_section root, lists *l, td_dataset_options *options)
{
    int32_t n = td_section_count(root, "data.table_rows");
    if (!n)
        return NULL;
    TD_TRY(TD_NEW(l->table_rows, n));
    for (int32_t i = 0; i < n; i++)
        l->table_rows[i] = td_section_int_at(root, "data.table_rows", i);
    options->table_rows = l->table_rows;
    options->n_table_rows = n;
    return NULL;
}

static void transform(td_section root, lists *l, td_dataset_options *options)
{
    static const struct {
        const char *name;
        td_transform transform;
    } names[] = {{"none", TD_TRANSFORM_NONE},
                 {"log1p", TD_TRANSFORM_LOG1P},
                 {"standardise", TD_TRANSFORM_STANDARDISE},
                 {"log1p_standardise", TD_TRANSFORM_LOG1P_STANDARDISE}};
    const char *text = td_section_string(root, "data.transform");
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i].name)) {
            l->transform = names[i].transform;
            options->transforms = &l->transform;
            options->n_transforms = 1;
        }
}

static td_status *files(td_section root, lists *l, td_dataset_options *options)
{
    TD_TRY(td_section_path(root, "data.train", &l->train));
    TD_TRY(td_section_path(root, "data.test", &l->test));
    TD_TRY(td_section_path(root, "data.cache", &l->cache));
    options->train = l->train;
    options->test = l->test;
    options->cache = l->cache;
    if (td_section_has(root, "data.train_share"))
        options->train_share = td_section_float(root, "data.train_share");
    options->most_rows = td_section_int(root, "data.most_rows");
    options->bad_rows = td_section_float(root, "data.bad_rows");
    const char *bad_ids = td_section_string(root, "data.bad_ids");
    options->skip_bad_ids = bad_ids && !strcmp(bad_ids, "skip");
    return NULL;
}

static td_status *image_step(td_section item, td_image_step *out)
{
    const char *op = td_section_string(item, "op");
    const int32_t sizes = td_section_count(item, "size");
    *out = (td_image_step){.kind = TD_IMAGE_HWC_TO_CHW};
    if (!strcmp(op, "resize")) {
        if (sizes != 1 && sizes != 2)
            return TD_SECTION_ERROR(item, "size", "resize needs size: [height, width]");
        *out = (td_image_step){.kind = TD_IMAGE_RESIZE,
                               .height = td_section_int_at(item, "size", 0),
                               .width = td_section_int_at(item, "size", sizes - 1)};
    } else if (!strcmp(op, "rescale")) {
        *out = (td_image_step){.kind = TD_IMAGE_RESCALE,
                               .factor = td_section_float(item, "factor"),
                               .shift = td_section_float(item, "shift")};
    } else if (!strcmp(op, "type_cast")) {
        *out = (td_image_step){.kind = TD_IMAGE_TYPE_CAST,
                               .dtype = strcmp(td_section_string(item, "dtype"), "u8") ? TD_F32 : TD_U8};
    }
    return NULL;
}

static td_status *image_steps(td_section root, lists *l, td_dataset_options *options)
{
    const int32_t n = td_section_count(root, "data.transforms");
    TD_TRY(TD_NEW(l->image_steps, n + 1));
    for (int32_t i = 0; i < n; i++)
        TD_TRY(image_step(td_section_item(root, "data.transforms", i), &l->image_steps[i]));
    options->image_steps = l->image_steps;
    options->n_image_steps = n;
    return NULL;
}

static td_status *fill(td_section root, lists *l, td_dataset_options *options)
{
    if (td_section_has(root, "data.train"))
        TD_TRY(files(root, l, options));
    TD_TRY(table_rows(root, l, options));
    transform(root, l, options);
    if (td_section_has(root, "data.min_count"))
        options->min_count = td_section_int(root, "data.min_count");
    if (td_section_has(root, "data.label"))
        TD_TRY(csv(root, l, options));
    if (td_section_has(root, "data.least_positive"))
        options->least_positive = td_section_float(root, "data.least_positive");
    TD_TRY(image_steps(root, l, options));
    if (td_section_has(root, "data.context"))
        options->context = td_section_int(root, "data.context");
    if (td_section_has(root, "data.test_windows"))
        options->test_windows = td_section_int(root, "data.test_windows");
    if (!td_section_has(root, "data.train_rows"))
        return NULL;
    options->synthetic = (td_synthetic_options){.train_rows = td_section_int(root, "data.train_rows"),
                                                .test_rows = td_section_int(root, "data.test_rows"),
                                                .n_dense = (int32_t)td_section_int(root, "data.dense"),
                                                .bag = td_section_int(root, "data.bag"),
                                                .skew = td_section_float(root, "data.skew"),
                                                .seed = (uint64_t)td_section_int(root, "data.generator_seed")};
    return NULL;
}

static void on_reading(void *context, const char *path, int64_t bytes, int64_t of_bytes, int64_t rows)
{
    td_reading_show(context, path, bytes, of_bytes, rows, td_clock_ns());
}

/* Shown on standard error, for standard output may be a file of JSON. */
static FILE *reading_stream(td_section root)
{
    td_log_level level = TD_LOG_INFO;
    td_log_level_parse(td_section_string(root, "log.level"), &level);
    return level <= TD_LOG_INFO && td_stream_is_terminal(stderr) ? stderr : NULL;
}

td_status *td_setup_dataset(td_section root, td_dataset **out_dataset)
{
    *out_dataset = NULL;
    const char *format = td_section_string(root, "data.format");
    if (!format)
        return TD_SECTION_ERROR(root, "data", "data.format is missing: criteo, csv, idx, ratings, synthetic or text");
    lists l = {0};
    td_reading reading = {.stream = reading_stream(root)};
    td_dataset_options options = td_dataset_defaults(format);
    td_status *status = fill(root, &l, &options);
    if (reading.stream) {
        options.on_reading = on_reading;
        options.on_reading_context = &reading;
    }
    if (!status)
        status = td_dataset_open(&options, out_dataset);
    td_reading_end(&reading);
    free_lists(&l);
    return status;
}

enum {
    WINDOWS_OUT = 3, /* of which a worker may have batches; the loader has room for all between them, the others' too */
    LEAST_AHEAD = 4, /* batches beside those */
    MOST_WINDOW = 20000
};

static td_loader_options loader_options(const td_setup *setup, td_part part)
{
    td_loader_options options = td_loader_defaults();
    options.part = part;
    options.batch = setup->batch;
    options.workers = (int32_t)td_section_int(setup->root, "data.workers");
    options.seed = (uint64_t)td_section_int(setup->root, "train.seed");
    options.epochs = 1;
    options.shuffle = false;
    return options;
}

td_status *td_setup_training_loader(const td_setup *setup, int64_t start_epoch, int64_t start_batch, td_deal *deal,
                                    td_loader **out_loader)
{
    td_loader_options options = loader_options(setup, TD_PART_TRAIN);
    options.epochs = td_section_int(setup->root, "train.epochs");
    options.shuffle = td_section_bool(setup->root, "data.shuffle");
    options.shuffle_buffer = td_section_int(setup->root, "data.shuffle_buffer");
    options.drop_remainder = td_section_bool(setup->root, "data.drop_remainder");
    options.start_epoch = start_epoch;
    options.start_batch = start_batch;
    options.wants = deal ? td_deal_wants : NULL;
    options.wants_context = deal;
    const int64_t window = td_distributed_window(setup->distributed, &setup->options);
    if (window > MOST_WINDOW)
        return TD_SECTION_ERROR(setup->root, "train.accumulate",
                                "a window of %s, over all workers, is more than the %d that a job, or hash "
                                "tables, may have; make data.batch larger instead",
                                TD_COUNTED(window, "batch"), MOST_WINDOW);
    const int64_t depth = WINDOWS_OUT * window + LEAST_AHEAD;
    options.depth = depth > options.depth ? (int32_t)depth : options.depth;
    return td_loader_create(setup->dataset, &options, out_loader);
}

td_status *td_setup_evaluation_loader(const td_setup *setup, td_part part, td_loader **out_loader)
{
    td_loader_options options = loader_options(setup, part);
    return td_loader_create(setup->dataset, &options, out_loader);
}
