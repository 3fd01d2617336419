/* Reading event files: see profiler/event_file.h. Any bytes give values or an error with a place; no length is believed before it
 * is compared with what is there. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "profiler/event_file.h"
#include "profiler/protobuf.h"

enum { HEAD_BYTES = 12, FOOT_BYTES = 4, MOST_RECORD = 1 << 30 };

const char *td_event_kind_name(td_event_kind kind)
{
    static const char *const names[TD_EVENT_KINDS] = {"scalar", "histogram", "tensor", "image", "text"};
    return names[kind];
}

/* ---- one event ------------------------------------------------------------------------------------------------------------ */

/* What a walk over an event found, and where the event lies in the file. */
typedef struct event {
    td_event_stamp stamp;
    const uint8_t *record;
    int64_t offset; /* of `record` */
    td_on_event on_event;
    void *context;
} event;

/* TensorProto's dtype: what else there is nobody shows. */
static td_event_kind tensor_kind(const uint8_t *bytes, size_t n)
{
    enum { DT_STRING = 7 };
    td_pb_walk walk = td_pb_begin(bytes, n);
    for (td_pb_field field; td_pb_next(&walk, &field);)
        if (field.number == 1 && field.wire == TD_PB_VARINT)
            return field.integer == DT_STRING ? TD_EVENT_TEXT : TD_EVENT_TENSOR;
    return TD_EVENT_TENSOR;
}

/* A scalar as newer writers have it: a tensor of one number. */
static bool is_scalar_plugin(const uint8_t *bytes, size_t n)
{
    td_pb_walk walk = td_pb_begin(bytes, n);
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        td_pb_walk inner = td_pb_begin(field.bytes, field.number == 1 && field.wire == TD_PB_BYTES ? field.n : 0);
        for (td_pb_field name; td_pb_next(&inner, &name);)
            if (name.number == 1 && name.wire == TD_PB_BYTES)
                return name.n == 7 && !memcmp(name.bytes, "scalars", 7);
    }
    return false;
}

static void become_scalar(td_event_value *value)
{
    td_event_tensor_view tensor;
    td_status *status = td_event_parse_tensor(value->payload, value->payload_bytes, &tensor);
    if (!status && tensor.n == 1) {
        float number;
        memcpy(&number, tensor.data, sizeof number);
        value->kind = TD_EVENT_SCALAR;
        value->scalar = (double)number;
    }
    td_status_destroy(status);
}

/* Takes one field of a Summary.Value; true where it is the value itself. */
static bool take_field(const event *e, const td_pb_field *field, td_event_value *value)
{
    if (field->number == 2 && field->wire == TD_PB_FIXED32) {
        value->scalar = (double)td_pb_as_float(field->integer);
        return true;
    }
    bool image = field->number == 4, histogram = field->number == 5, tensor = field->number == 8;
    if (field->wire != TD_PB_BYTES || (!image && !histogram && !tensor))
        return false;
    value->kind = image ? TD_EVENT_IMAGE : histogram ? TD_EVENT_HISTOGRAM : tensor_kind(field->bytes, field->n);
    value->payload = field->bytes;
    value->payload_bytes = field->n;
    value->offset = e->offset + (field->bytes - e->record);
    return true;
}

static td_status *tell_value(const event *e, const uint8_t *bytes, size_t n, bool *out_broken)
{
    td_event_value value = {.stamp = e->stamp};
    td_pb_walk walk = td_pb_begin(bytes, n);
    bool found = false, scalar = false;
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        if (field.number == 1 && field.wire == TD_PB_BYTES) {
            value.tag = (const char *)field.bytes;
            value.tag_bytes = field.n;
        } else if (field.number == 9 && field.wire == TD_PB_BYTES) {
            scalar = is_scalar_plugin(field.bytes, field.n);
        } else {
            found = take_field(e, &field, &value) || found;
        }
    }
    *out_broken = walk.broken;
    if (scalar && value.kind == TD_EVENT_TENSOR && value.payload)
        become_scalar(&value);
    return found && value.tag && !walk.broken ? e->on_event(e->context, &value) : NULL;
}

static td_status *tell_summary(const event *e, const uint8_t *bytes, size_t n, bool *out_broken)
{
    td_pb_walk walk = td_pb_begin(bytes, n);
    td_status *status = NULL;
    bool broken = false;
    for (td_pb_field field; !status && !broken && td_pb_next(&walk, &field);)
        if (field.number == 1 && field.wire == TD_PB_BYTES)
            status = tell_value(e, field.bytes, field.n, &broken);
    *out_broken = broken || walk.broken;
    return status;
}

static td_status *tell_event(event *e, size_t n, bool *out_broken)
{
    const uint8_t *summary = NULL;
    size_t summary_bytes = 0;
    td_pb_walk walk = td_pb_begin(e->record, n);
    for (td_pb_field field; td_pb_next(&walk, &field);) {
        if (field.number == 1 && field.wire == TD_PB_FIXED64)
            e->stamp.seconds = td_pb_as_double(field.integer);
        else if (field.number == 2 && field.wire == TD_PB_VARINT)
            e->stamp.step = (int64_t)field.integer;
        else if (field.number == 5 && field.wire == TD_PB_BYTES) {
            summary = field.bytes;
            summary_bytes = field.n;
        }
    }
    *out_broken = walk.broken || !isfinite(e->stamp.seconds);
    return summary && !*out_broken ? tell_summary(e, summary, summary_bytes, out_broken) : NULL;
}

/* ---- records -------------------------------------------------------------------------------------------------------------- */

static uint64_t little(const uint8_t *bytes, int n)
{
    uint64_t number = 0;
    for (int i = 0; i < n; i++)
        number |= (uint64_t)bytes[i] << (8 * i);
    return number;
}

/* False, without an error, where the file ends before. */
static td_status *read_at(const char *name, int file, int64_t offset, uint8_t *bytes, size_t n, bool *out_whole)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(file, bytes + done, n - done, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno != EINTR)
            return td_file_error(name, "read", errno);
        if (!got)
            break;
        done += got > 0 ? (size_t)got : 0;
    }
    *out_whole = done == n;
    return NULL;
}

static td_status *damaged(const char *name, int64_t offset, const char *what)
{
    return TD_ERROR(TD_DATA_ERROR, "%s: at byte %lld: %s; what is behind it cannot be read", name, (long long)offset,
                    what);
}

typedef struct record {
    uint8_t *bytes;
    int64_t capacity;
    size_t n;
    bool whole;
} record;

static td_status *read_record(const char *name, int file, int64_t offset, int64_t file_bytes, record *r)
{
    uint8_t head[HEAD_BYTES];
    TD_TRY(read_at(name, file, offset, head, sizeof head, &r->whole));
    if (!r->whole)
        return NULL;
    uint64_t length = little(head, 8);
    if (little(head + 8, 4) != td_masked_crc32c(head, 8))
        return damaged(name, offset, "no record begins here (the checksum of its length is wrong)");
    if (length > MOST_RECORD)
        return damaged(name, offset, "a record of more than 1 GiB");
    r->whole = length + HEAD_BYTES + FOOT_BYTES <= (uint64_t)(file_bytes - offset);
    if (!r->whole)
        return NULL;
    r->n = (size_t)length;
    if (r->capacity < (int64_t)length + FOOT_BYTES) {
        uint8_t *larger = td_realloc(r->bytes, (size_t)length + FOOT_BYTES, 1);
        if (!larger)
            return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for a record of %llu bytes", name,
                            (unsigned long long)length);
        r->bytes = larger;
        r->capacity = (int64_t)length + FOOT_BYTES;
    }
    TD_TRY(read_at(name, file, offset + HEAD_BYTES, r->bytes, r->n + FOOT_BYTES, &r->whole));
    if (r->whole && little(r->bytes + r->n, 4) != td_masked_crc32c(r->bytes, r->n))
        return damaged(name, offset, "the checksum of a record is wrong");
    return NULL;
}

td_status *td_event_read(const char *name, int file, int64_t *offset, int64_t most_bytes, td_on_event on_event,
                         void *context, bool *out_end)
{
    struct stat info;
    *out_end = false;
    if (fstat(file, &info))
        return td_file_error(name, "read", errno);
    record r = {0};
    td_status *status = NULL;
    int64_t first = *offset;
    while (!status && *offset - first < most_bytes) {
        status = read_record(name, file, *offset, info.st_size, &r);
        *out_end = !r.whole;
        if (status || !r.whole)
            break;
        event e = {.record = r.bytes, .offset = *offset + HEAD_BYTES, .on_event = on_event, .context = context};
        bool broken = false;
        status = tell_event(&e, r.n, &broken);
        if (!status && broken)
            status = damaged(name, *offset, "a record that is no event");
        if (!status)
            *offset += HEAD_BYTES + (int64_t)r.n + FOOT_BYTES;
    }
    td_free(r.bytes);
    return status;
}
