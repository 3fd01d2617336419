/* Windows of a text, character by character, to predict each from those before it. A character is a byte; ids are the places
 * of the bytes that occur, in order. The training part is every window in the first floor(train_share * length) characters;
 * the test part is windows of the rest: so many, spread evenly, or all that lie side by side. A window is context + 1
 * characters: what is read, and the one after each. */
#include "data/reader.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "base/units.h"
#include "data/fill.h"

enum { BYTES = 256, FIRST_ROOM = 1 << 20 };

typedef struct text_data {
    uint8_t *ids; /* [length] */
    int64_t length, cut, context;
    int64_t test_windows; /* 0: side by side */
    unsigned char symbols[BYTES];
    int32_t n_symbols;
} text_data;

static void destroy(void *generator)
{
    text_data *data = generator;
    if (data)
        td_free(data->ids);
    td_free(data);
}

static void defaults(td_dataset_options *options)
{
    options->train_share = 0.9;
    options->context = 64;
    options->test_windows = 0;
}

static td_status *check(const td_dataset_options *options)
{
    if (!options->train)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: format text needs a file (data.train)");
    if (options->test)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: a text has no data.test: its last part is the test part "
                                             "(data.train_share)");
    if (options->context < 1 || options->context > INT32_MAX)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.context is %lld; it must be at least 1",
                        (long long)options->context);
    if (options->test_windows < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data.test_windows is %lld; 0 takes all that lie side by side",
                        (long long)options->test_windows);
    return NULL;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

static td_status *grow(text_data *data, const char *path, int64_t *capacity)
{
    if (data->length < *capacity)
        return NULL;
    const int64_t larger = *capacity ? 2 * *capacity : FIRST_ROOM;
    uint8_t *ids = td_realloc(data->ids, (size_t)larger, 1);
    if (!ids)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for %lld characters", path, (long long)larger);
    data->ids = ids;
    *capacity = larger;
    return NULL;
}

static td_status *read_all(gzFile file, const char *path, int64_t most, text_data *data)
{
    int64_t capacity = 0;
    for (;;) {
        TD_TRY(grow(data, path, &capacity));
        int64_t room = capacity - data->length < FIRST_ROOM ? capacity - data->length : FIRST_ROOM;
        room = most && most - data->length < room ? most - data->length : room;
        const int got = room ? gzread(file, data->ids + data->length, (unsigned)room) : 0;
        int code = Z_OK;
        const char *message = gzerror(file, &code);
        if (code == Z_ERRNO)
            return td_file_error(path, "read", errno);
        if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
            return TD_ERROR(TD_DATA_ERROR, "%s: damaged or cut off: %s", path, message);
        if (got == 0)
            return NULL;
        data->length += got;
    }
}

/* From bytes to ids. */
static void number_symbols(text_data *data)
{
    bool occurs[BYTES] = {false};
    uint8_t id[BYTES] = {0};
    for (int64_t i = 0; i < data->length; i++)
        occurs[data->ids[i]] = true;
    for (int32_t byte = 0; byte < BYTES; byte++)
        if (occurs[byte]) {
            id[byte] = (uint8_t)data->n_symbols;
            data->symbols[data->n_symbols++] = (unsigned char)byte;
        }
    for (int64_t i = 0; i < data->length; i++)
        data->ids[i] = id[data->ids[i]];
}

static td_status *read_text(const td_dataset_options *options, text_data *data)
{
    gzFile file = gzopen(options->train, "rbe");
    if (!file)
        return td_file_error(options->train, "open", errno);
    td_status *status = read_all(file, options->train, options->most_rows, data);
    (void)gzclose(file); /* only read: nothing is lost here */
    TD_TRY(status);
    number_symbols(data);
    data->context = options->context;
    data->test_windows = options->test_windows;
    data->cut = td_split_rows(data->length, options->train_share);
    if (!data->length)
        return td_status_help(TD_ERROR(TD_DATA_ERROR, "%s: it is empty: no text, so no rows", options->train),
                              "data.train: name a file that has some");
    if (data->cut <= data->context)
        return TD_ERROR(TD_DATA_ERROR, "%s: its training part has %s; a window has %lld (data.context + 1)",
                        options->train, TD_COUNTED(data->cut, "character"), (long long)data->context + 1);
    return NULL;
}

/* ---- windows ---------------------------------------------------------------------------------------------------------------- */

static int64_t test_windows(const text_data *data)
{
    const int64_t room =
        data->length - data->cut - data->context; /* first characters of a window, side by side or not */
    if (room <= 0)
        return 0;
    return data->test_windows ? data->test_windows : (room + data->context - 1) / data->context;
}

static int64_t start_of(const text_data *data, int64_t row, int64_t train_rows)
{
    const int64_t i = row - train_rows, room = data->length - data->cut - data->context;
    if (row < train_rows)
        return row;
    if (!data->test_windows)
        return data->cut + i * data->context;
    return data->cut + (data->test_windows > 1 ? i * (room - 1) / (data->test_windows - 1) : 0);
}

static td_status *fill(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                       const int32_t *which, td_tensor *tensors)
{
    const text_data *data = dataset->generator;
    for (int32_t f = 0; f < n_fields; f++) {
        int64_t *to = tensors[f].data;
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *from = data->ids + start_of(data, rows[i], dataset->schema.train_rows);
            for (int64_t k = 0; k <= data->context; k++)
                *to++ = from[k];
        }
        td_fill_dims(&dataset->fields[which[f]], n, &tensors[f]);
    }
    return NULL;
}

static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    text_data *data = NULL;
    TD_TRY(TD_NEW(data, 1));
    dataset->generator = data;
    dataset->generator_destroy = destroy;
    dataset->fill = fill;
    dataset->counts.positive_rows = -1;
    TD_TRY(read_text(options, data));
    dataset->schema.train_rows = data->cut - data->context;
    dataset->schema.test_rows = test_windows(data);
    TD_TRY(td_dataset_add_field(
        dataset, (td_field_form){
                     .name = "ids", .role = TD_FIELD_IDS, .rank = 2, .width = data->context + 1, .first_column = -1}));
    dataset->fields[0].table_rows = data->n_symbols;
    dataset->fields[0].symbols = data->symbols;
    return NULL;
}

const td_reader td_reader_text = {
    .name = "text",
    .summary = "windows of a text, character by character",
    .defaults = defaults,
    .check = check,
    .describe = describe,
};
