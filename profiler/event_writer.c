/* Writing event files: see profiler/event_file.h. Field numbers are those of TensorFlow's event.proto, summary.proto,
 * tensor.proto. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_error.h"
#include "base/memory.h"
#include "profiler/event_file.h"
#include "profiler/protobuf.h"

enum { GATHERED_BYTES = 1 << 16 };

struct td_event_writer {
    int file;
    char *path;
    td_string gathered; /* whole records */
};

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an event");
}

/* ---- records ------------------------------------------------------------------------------------------------------------ */

uint32_t td_masked_crc32c(const void *data, size_t bytes)
{
    enum { REVERSED_POLYNOMIAL = 0x82f63b78 };
    /* Four bits at a time: a table of 16 is enough for what is written here. */
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *at = data;
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void append_number(td_string *out, uint64_t number, int bytes)
{
    uint8_t little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (uint8_t)(number >> (8 * i));
    td_string_append_bytes(out, little, (size_t)bytes);
}

/* Drops the event. */
static td_status *write_event(td_event_writer *writer, td_string *event)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)event->length >> (8 * i));
    td_string record = {0};
    td_string_append_bytes(&record, length, sizeof length);
    append_number(&record, td_masked_crc32c(length, sizeof length), 4);
    td_string_append_bytes(&record, event->text, event->length);
    append_number(&record, td_masked_crc32c(event->text, event->length), 4);
    bool failed = record.failed || event->failed;
    if (!failed)
        td_string_append_bytes(&writer->gathered, record.text, record.length);
    td_string_deinit(&record);
    td_string_deinit(event);
    if (failed || writer->gathered.failed)
        return no_memory();
    return writer->gathered.length < GATHERED_BYTES ? NULL : td_event_writer_flush(writer);
}

static void begin_event(td_string *event, td_event_stamp stamp)
{
    td_pb_double(event, 1, stamp.seconds);
    if (stamp.step)
        td_pb_varint(event, 2, (uint64_t)stamp.step);
}

/* One value, whose message is dropped, as an event of its own. */
static td_status *write_value(td_event_writer *writer, td_event_stamp stamp, td_string *value)
{
    td_string summary = {0}, event = {0};
    td_pb_message(&summary, 1, value);
    begin_event(&event, stamp);
    td_pb_message(&event, 5, &summary);
    return write_event(writer, &event);
}

/* ---- files -------------------------------------------------------------------------------------------------------------- */

td_status *td_event_writer_flush(td_event_writer *writer)
{
    const char *at = writer->gathered.text;
    size_t left = writer->gathered.length;
    while (left) {
        ssize_t n = td_file_inject() ? -1 : write(writer->file, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return td_file_error(writer->path, "write", n ? errno : ENOSPC);
        at += n;
        left -= (size_t)n;
    }
    writer->gathered.length = 0;
    return NULL;
}

/* The name of this machine as part of a file name. */
static void host_name(char *buffer, size_t bytes)
{
    buffer[0] = '\0';
    if (gethostname(buffer, bytes - 1) || !buffer[0])
        snprintf(buffer, bytes, "host");
    buffer[bytes - 1] = '\0';
    for (char *c = buffer; *c; c++)
        if (*c == '/')
            *c = '_';
}

static td_status *create_file(td_event_writer *writer, const char *folder, double seconds)
{
    char host[256];
    host_name(host, sizeof host);
    for (int number = 0; number < 1000; number++) {
        char suffix[16] = "";
        if (number)
            snprintf(suffix, sizeof suffix, ".%d", number);
        td_free(writer->path);
        writer->path = td_format("%s/events.out.tfevents.%010lld.%s%s", folder, (long long)seconds, host, suffix);
        if (!writer->path)
            return no_memory();
        writer->file =
            td_file_inject() ? -1 : open(writer->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (writer->file >= 0)
            return NULL;
        if (errno != EEXIST)
            break;
    }
    return td_file_error(writer->path, "create", errno);
}

td_status *td_event_writer_open(const char *folder, double seconds, td_event_writer **out_writer)
{
    *out_writer = NULL;
    td_event_writer *writer;
    TD_TRY(TD_NEW(writer, 1));
    writer->file = -1;
    td_status *status = create_file(writer, folder, seconds);
    if (!status) {
        td_string event = {0};
        begin_event(&event, (td_event_stamp){seconds, 0});
        td_pb_text(&event, 3, "brain.Event:2");
        status = write_event(writer, &event);
    }
    if (status)
        td_event_writer_close(writer);
    else
        *out_writer = writer;
    return status;
}

void td_event_writer_close(td_event_writer *writer)
{
    if (!writer)
        return;
    if (writer->file >= 0)
        close(writer->file);
    td_string_deinit(&writer->gathered);
    td_free(writer->path);
    td_free(writer);
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

td_status *td_event_scalars(td_event_writer *writer, td_event_stamp stamp, const char *const *tags,
                            const double *values, int32_t n)
{
    td_string summary = {0}, event = {0};
    for (int32_t i = 0; i < n; i++) {
        td_string value = {0};
        td_pb_text(&value, 1, tags[i]);
        td_pb_float(&value, 2, (float)values[i]);
        td_pb_message(&summary, 1, &value);
    }
    begin_event(&event, stamp);
    td_pb_message(&event, 5, &summary);
    return write_event(writer, &event);
}

td_status *td_event_histogram(td_event_writer *writer, td_event_stamp stamp, const char *tag,
                              const td_histogram *histogram)
{
    td_string message = {0}, limits = {0}, counts = {0}, value = {0};
    for (int32_t i = 0; i < histogram->n_buckets; i++) {
        td_pb_raw_double(&limits, histogram->limits[i]);
        td_pb_raw_double(&counts, histogram->counts[i]);
    }
    td_pb_double(&message, 1, histogram->least);
    td_pb_double(&message, 2, histogram->greatest);
    td_pb_double(&message, 3, (double)histogram->n);
    td_pb_double(&message, 4, histogram->sum);
    td_pb_double(&message, 5, histogram->sum_squares);
    td_pb_message(&message, 6, &limits);
    td_pb_message(&message, 7, &counts);
    td_pb_text(&value, 1, tag);
    td_pb_message(&value, 5, &message);
    return write_value(writer, stamp, &value);
}

/* SummaryMetadata: which plug-in of TensorBoard shows it; 2: a tensor. */
static void append_metadata(td_string *value, const char *plugin)
{
    td_string data = {0}, metadata = {0};
    td_pb_text(&data, 1, plugin);
    td_pb_message(&metadata, 1, &data);
    td_pb_varint(&metadata, 4, 2);
    td_pb_message(value, 9, &metadata);
}

static void append_shape(td_string *tensor, const int64_t *dims, int32_t rank)
{
    td_string shape = {0};
    for (int32_t i = 0; i < rank; i++) {
        td_string dim = {0};
        td_pb_varint(&dim, 1, (uint64_t)dims[i]);
        td_pb_message(&shape, 2, &dim);
    }
    td_pb_message(tensor, 2, &shape);
}

td_status *td_event_tensor(td_event_writer *writer, td_event_stamp stamp, const char *tag, const float *numbers,
                           const int64_t *dims, int32_t rank)
{
    enum { DT_FLOAT = 1 };
    td_string tensor = {0}, value = {0};
    size_t n = 1;
    for (int32_t i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    td_pb_varint(&tensor, 1, DT_FLOAT);
    append_shape(&tensor, dims, rank);
    td_pb_bytes(&tensor, 4, numbers, n * sizeof *numbers); /* little-endian, as every machine this runs on */
    td_pb_text(&value, 1, tag);
    td_pb_message(&value, 8, &tensor);
    append_metadata(&value, "tandem_tensor");
    return write_value(writer, stamp, &value);
}

td_status *td_event_text(td_event_writer *writer, td_event_stamp stamp, const char *tag, const char *text)
{
    enum { DT_STRING = 7 };
    td_string tensor = {0}, value = {0};
    td_pb_varint(&tensor, 1, DT_STRING);
    append_shape(&tensor, (int64_t[]){1}, 1);
    td_pb_text(&tensor, 8, text);
    td_pb_text(&value, 1, tag);
    td_pb_message(&value, 8, &tensor);
    append_metadata(&value, "text");
    return write_value(writer, stamp, &value);
}

td_status *td_event_image(td_event_writer *writer, td_event_stamp stamp, const char *tag, const uint8_t *pixels,
                          int64_t height, int64_t width, int32_t channels)
{
    uint8_t *png = NULL;
    size_t bytes = 0;
    TD_TRY(td_png_encode(pixels, height, width, channels, &png, &bytes));
    td_string image = {0}, value = {0};
    td_pb_varint(&image, 1, (uint64_t)height);
    td_pb_varint(&image, 2, (uint64_t)width);
    td_pb_varint(&image, 3, (uint64_t)channels);
    td_pb_bytes(&image, 4, png, bytes);
    td_free(png);
    td_pb_text(&value, 1, tag);
    td_pb_message(&value, 4, &image);
    return write_value(writer, stamp, &value);
}

td_status *td_event_graph(td_event_writer *writer, td_event_stamp stamp, const void *graph, size_t bytes)
{
    td_string event = {0};
    begin_event(&event, stamp);
    td_pb_bytes(&event, 4, graph, bytes);
    return write_event(writer, &event);
}
