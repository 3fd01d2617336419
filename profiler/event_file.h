/* TensorBoard's event files: what a training run leaves for charts, written here and read again by the board.
 *
 * A file is a sequence of records (length, masked CRC-32C of the length, payload, masked CRC-32C of the payload), each payload one
 * protobuf message `Event` of tensorflow/core/util/event.proto. The writer makes scalars, histograms, tensors, images, texts and
 * the graph; the reader takes those, from any writer. A file is only ever appended to, so one that is cut off anywhere is a good
 * one up to there.
 *
 *     td_event_writer *writer = NULL;
 *     TD_TRY(td_event_writer_open("runs/x", seconds, &writer));
 *     TD_TRY(td_event_scalars(writer, (td_event_stamp){seconds, step}, tags, values, 2));
 *     TD_TRY(td_event_writer_flush(writer));
 *     td_event_writer_close(writer);
 *
 * One thread at a time per writer or reader. */
#ifndef TANDEM_PROFILER_EVENT_FILE_H
#define TANDEM_PROFILER_EVENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* When: seconds since 1970, and the step. */
typedef struct td_event_stamp {
    double seconds;
    int64_t step;
} td_event_stamp;

/* ---- histograms -------------------------------------------------------------------------------------------------------- */

enum { TD_HISTOGRAM_BUCKETS = 40 };

/* Of the finite numbers among n. Buckets are equally wide from the least to the greatest; bucket i holds what is above the limit
 * before it and at most limits[i]; the last limit is the greatest number. */
typedef struct td_histogram {
    double least, greatest, sum, sum_squares;
    int64_t n, n_not_finite;
    int32_t n_buckets; /* 0: no finite number */
    double limits[TD_HISTOGRAM_BUCKETS], counts[TD_HISTOGRAM_BUCKETS];
} td_histogram;
void td_histogram_of(const float *numbers, int64_t n, td_histogram *out_histogram);

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

typedef struct td_event_writer td_event_writer;

/* A new file in `folder`, events.out.tfevents.<seconds>.<host>[.<number>], which no other run's file of that second is. */
td_status *td_event_writer_open(const char *folder, double seconds, td_event_writer **out_writer) TD_MUST_USE;
td_status *td_event_scalars(td_event_writer *writer, td_event_stamp stamp, const char *const *tags,
                            const double *values, int32_t n) TD_MUST_USE;
td_status *td_event_histogram(td_event_writer *writer, td_event_stamp stamp, const char *tag,
                              const td_histogram *histogram) TD_MUST_USE;
td_status *td_event_tensor(td_event_writer *writer, td_event_stamp stamp, const char *tag, const float *numbers,
                           const int64_t *dims, int32_t rank) TD_MUST_USE;
/* Rows of pixels from the top, `channels` (1: grey, 3: red, green, blue) bytes each; stored as PNG. */
td_status *td_event_image(td_event_writer *writer, td_event_stamp stamp, const char *tag, const uint8_t *pixels,
                          int64_t height, int64_t width, int32_t channels) TD_MUST_USE;
/* Markdown. */
td_status *td_event_text(td_event_writer *writer, td_event_stamp stamp, const char *tag, const char *text) TD_MUST_USE;
/* `graph`: the bytes of a GraphDef. */
td_status *td_event_graph(td_event_writer *writer, td_event_stamp stamp, const void *graph, size_t bytes) TD_MUST_USE;
/* Hands what was written so far to the operating system. Other calls do so when enough has gathered. */
td_status *td_event_writer_flush(td_event_writer *writer) TD_MUST_USE;
/* Without a flush what was gathered is lost. NULL is fine. */
void td_event_writer_close(td_event_writer *writer);

/* Greyscale or RGB as a PNG file in memory; td_free it. */
td_status *td_png_encode(const uint8_t *pixels, int64_t height, int64_t width, int32_t channels, uint8_t **out_png,
                         size_t *out_bytes) TD_MUST_USE;

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

typedef enum td_event_kind {
    TD_EVENT_SCALAR = 0,
    TD_EVENT_HISTOGRAM,
    TD_EVENT_TENSOR,
    TD_EVENT_IMAGE,
    TD_EVENT_TEXT,
    TD_EVENT_KINDS
} td_event_kind;
const char *td_event_kind_name(td_event_kind kind);

/* One value of one event. `payload` is the message of its kind (HistogramProto, TensorProto, Summary.Image), `offset` where it
 * lies in the file, so that it can be read again later; text points into the record and has no zero at its end. */
typedef struct td_event_value {
    td_event_stamp stamp;
    td_event_kind kind;
    const char *tag;
    size_t tag_bytes;
    double scalar;
    const uint8_t *payload;
    size_t payload_bytes;
    int64_t offset;
} td_event_value;
typedef td_status *(*td_on_event)(void *context, const td_event_value *value);

/* Tells every value of the whole records from *offset on, at most about `most_bytes` of them, and moves *offset behind the last
 * one. A record that is not complete yet is left for later. *out_end: there was nothing more. TD_DATA_ERROR where bytes are no
 * record (checksum, length) or no event; *offset then stays at that record, and nothing behind it can be read. */
td_status *td_event_read(const char *name, int file, int64_t *offset, int64_t most_bytes, td_on_event on_event,
                         void *context, bool *out_end) TD_MUST_USE;

/* Of payloads. Each refuses what is not such a message. */
td_status *td_event_parse_histogram(const uint8_t *payload, size_t bytes, td_histogram *out_histogram) TD_MUST_USE;
enum { TD_EVENT_MOST_DIMS = 16 };
typedef struct td_event_tensor_view {
    int64_t dims[TD_EVENT_MOST_DIMS];
    int32_t rank;
    int64_t n;           /* the product of dims, and how many numbers there are */
    const uint8_t *data; /* n little-endian f32 */
} td_event_tensor_view;
td_status *td_event_parse_tensor(const uint8_t *payload, size_t bytes, td_event_tensor_view *out_tensor) TD_MUST_USE;
typedef struct td_event_image_view {
    int64_t height, width;
    const uint8_t *file; /* PNG, or what else another writer put there */
    size_t bytes;
} td_event_image_view;
td_status *td_event_parse_image(const uint8_t *payload, size_t bytes, td_event_image_view *out_image) TD_MUST_USE;
td_status *td_event_parse_text(const uint8_t *payload, size_t bytes, const char **out_text,
                               size_t *out_bytes) TD_MUST_USE;

/* CRC-32C (Castagnoli), rotated and moved as these files have it. */
uint32_t td_masked_crc32c(const void *data, size_t bytes);

#endif
