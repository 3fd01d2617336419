/* What is inside the values of event files: histograms, tensors, images, texts. See profiler/event_file.h. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "profiler/event_file.h"
#include "profiler/protobuf.h"

static td_status *no_message(const char *what)
{
    return TD_ERROR(TD_DATA_ERROR, "an event holds bytes that are no %s", what);
}

/* ---- histograms ------------------------------------------------------------------------------------------------------------- */

/* Numbers of a packed field; more than fit are added to the last: those of another writer may be many. */
static int32_t unpack(const td_pb_field *field, double *numbers, bool add)
{
    int32_t n = 0;
    size_t total = field->n / 8, group = (total + TD_HISTOGRAM_BUCKETS - 1) / TD_HISTOGRAM_BUCKETS;
    for (size_t i = 0; i < total; i++) {
        uint64_t bits = 0;
        for (int b = 0; b < 8; b++)
            bits |= (uint64_t)field->bytes[8 * i + (size_t)b] << (8 * b);
        n = (int32_t)(i / group) + 1;
        numbers[n - 1] = (add ? numbers[n - 1] : 0) + td_pb_as_double(bits);
    }
    return n;
}

static bool is_drawable(const td_histogram *h)
{
    bool good = isfinite(h->least) && isfinite(h->greatest) && isfinite(h->sum) && isfinite(h->sum_squares);
    for (int32_t i = 0; i < h->n_buckets; i++)
        good = good && !isnan(h->limits[i]) && isfinite(h->counts[i]);
    return good;
}

td_status *td_event_parse_histogram(const uint8_t *payload, size_t bytes, td_histogram *out_histogram)
{
    td_histogram *h = out_histogram;
    *h = (td_histogram){0};
    int32_t n_counts = 0;
    td_pb_walk walk = td_pb_begin(payload, bytes);
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        double *const numbers[] = {&h->least, &h->greatest, NULL, &h->sum, &h->sum_squares};
        double number = td_pb_as_double(field.integer);
        bool plain = field.wire == TD_PB_FIXED64 && field.number >= 1 && field.number <= 5;
        if (plain && field.number == 3)
            h->n = number >= 0 && number < 9e15 ? (int64_t)number : 0;
        else if (plain)
            *numbers[field.number - 1] = number;
        else if (field.wire == TD_PB_BYTES && field.number == 6)
            h->n_buckets = unpack(&field, h->limits, false);
        else if (field.wire == TD_PB_BYTES && field.number == 7)
            n_counts = unpack(&field, h->counts, true);
    }
    return walk.broken || n_counts != h->n_buckets || !is_drawable(h) ? no_message("histogram") : NULL;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

static bool take_dims(const td_pb_field *shape, td_event_tensor_view *tensor)
{
    td_pb_walk walk = td_pb_begin(shape->bytes, shape->n);
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        if (field.number != 2 || field.wire != TD_PB_BYTES)
            continue;
        if (tensor->rank == TD_EVENT_MOST_DIMS)
            return false;
        int64_t size = 0;
        td_pb_walk inner = td_pb_begin(field.bytes, field.n);
        for (td_pb_field dim; td_pb_next(&inner, &dim);)
            if (dim.number == 1 && dim.wire == TD_PB_VARINT)
                size = (int64_t)dim.integer;
        tensor->dims[tensor->rank++] = size;
        if (inner.broken || size < 0 || !td_multiply_checked(tensor->n, size, &tensor->n))
            return false;
    }
    return !walk.broken;
}

td_status *td_event_parse_tensor(const uint8_t *payload, size_t bytes, td_event_tensor_view *out_tensor)
{
    enum { DT_FLOAT = 1 };
    td_event_tensor_view *t = out_tensor;
    *t = (td_event_tensor_view){.n = 1};
    td_pb_walk walk = td_pb_begin(payload, bytes);
    size_t n = 0;
    bool good = true, is_float = false;
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        if (field.number == 1 && field.wire == TD_PB_VARINT)
            is_float = field.integer == DT_FLOAT;
        else if (field.number == 2 && field.wire == TD_PB_BYTES && !t->rank)
            good = good && take_dims(&field, t);
        else if ((field.number == 4 || field.number == 5) && field.wire == TD_PB_BYTES) {
            t->data = field.bytes; /* tensor_content, or packed float_val: the same bytes */
            n = field.n;
        }
    }
    good = good && is_float && !walk.broken && t->n <= INT64_MAX / 4 && n == (size_t)t->n * 4;
    return good ? NULL : no_message("tensor of f32");
}

/* ---- images and texts --------------------------------------------------------------------------------------------------------- */

td_status *td_event_parse_image(const uint8_t *payload, size_t bytes, td_event_image_view *out_image)
{
    *out_image = (td_event_image_view){0};
    td_pb_walk walk = td_pb_begin(payload, bytes);
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        if (field.number == 1 && field.wire == TD_PB_VARINT)
            out_image->height = (int64_t)(int32_t)field.integer;
        else if (field.number == 2 && field.wire == TD_PB_VARINT)
            out_image->width = (int64_t)(int32_t)field.integer;
        else if (field.number == 4 && field.wire == TD_PB_BYTES) {
            out_image->file = field.bytes;
            out_image->bytes = field.n;
        }
    }
    return walk.broken || !out_image->file ? no_message("image") : NULL;
}

td_status *td_event_parse_text(const uint8_t *payload, size_t bytes, const char **out_text, size_t *out_bytes)
{
    *out_text = NULL;
    td_pb_walk walk = td_pb_begin(payload, bytes);
    for (td_pb_field field; td_pb_next(&walk, &field);)
        if (field.number == 8 && field.wire == TD_PB_BYTES && !*out_text) {
            *out_text = (const char *)field.bytes;
            *out_bytes = field.n;
        }
    return walk.broken || !*out_text ? no_message("text") : NULL;
}
