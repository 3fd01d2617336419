/* The little of protobuf's wire format that event files need: fields written into a growing text, and a walk over the fields of a
 * message that survives any bytes. Nested messages are made in a text of their own and appended. */
#ifndef TANDEM_PROFILER_PROTOBUF_H
#define TANDEM_PROFILER_PROTOBUF_H

#include <string.h>

#include "base/string.h"

enum { TD_PB_VARINT = 0, TD_PB_FIXED64 = 1, TD_PB_BYTES = 2, TD_PB_FIXED32 = 5 };

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static inline void td_pb_raw_varint(td_string *out, uint64_t number)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; number >= 128; number >>= 7)
        bytes[n++] = (uint8_t)(number | 128);
    bytes[n++] = (uint8_t)number;
    td_string_append_bytes(out, bytes, n);
}

static inline void td_pb_key(td_string *out, uint32_t field, uint32_t wire)
{
    td_pb_raw_varint(out, (uint64_t)field << 3 | wire);
}

static inline void td_pb_varint(td_string *out, uint32_t field, uint64_t number)
{
    td_pb_key(out, field, TD_PB_VARINT);
    td_pb_raw_varint(out, number);
}

static inline void td_pb_raw_double(td_string *out, double number)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(bits >> (8 * i));
    td_string_append_bytes(out, bytes, sizeof bytes);
}

static inline void td_pb_double(td_string *out, uint32_t field, double number)
{
    td_pb_key(out, field, TD_PB_FIXED64);
    td_pb_raw_double(out, number);
}

static inline void td_pb_float(td_string *out, uint32_t field, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24)};
    td_pb_key(out, field, TD_PB_FIXED32);
    td_string_append_bytes(out, bytes, sizeof bytes);
}

static inline void td_pb_bytes(td_string *out, uint32_t field, const void *bytes, size_t n)
{
    td_pb_key(out, field, TD_PB_BYTES);
    td_pb_raw_varint(out, n);
    td_string_append_bytes(out, bytes, n);
}

static inline void td_pb_text(td_string *out, uint32_t field, const char *text)
{
    td_pb_bytes(out, field, text, strlen(text));
}

/* A message made before, which is dropped; one that ran out of memory makes `out` one that did. */
static inline void td_pb_message(td_string *out, uint32_t field, td_string *message)
{
    td_pb_bytes(out, field, message->text, message->length);
    out->failed = out->failed || message->failed;
    td_string_deinit(message);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

typedef struct td_pb_walk {
    const uint8_t *at, *end;
    bool broken; /* the bytes were no message; set before the walk ends */
} td_pb_walk;

typedef struct td_pb_field {
    uint32_t number, wire;
    uint64_t integer;     /* varint, fixed64, fixed32 */
    const uint8_t *bytes; /* TD_PB_BYTES */
    size_t n;
} td_pb_field;

static inline td_pb_walk td_pb_begin(const uint8_t *bytes, size_t n)
{
    return (td_pb_walk){bytes, n ? bytes + n : bytes, false};
}

static inline bool td_pb_read_varint(td_pb_walk *walk, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && walk->at < walk->end; shift += 7) {
        uint8_t byte = *walk->at++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128))
            return true;
    }
    walk->broken = true;
    return false;
}

static inline bool td_pb_read_fixed(td_pb_walk *walk, unsigned bytes, uint64_t *out)
{
    *out = 0;
    if ((size_t)(walk->end - walk->at) < bytes) {
        walk->broken = true;
        return false;
    }
    for (unsigned i = 0; i < bytes; i++)
        *out |= (uint64_t)*walk->at++ << (8 * i);
    return true;
}

/* False at the end of the message, and where it is broken. */
static inline bool td_pb_next(td_pb_walk *walk, td_pb_field *out)
{
    uint64_t key, length;
    if (walk->broken || walk->at == walk->end || !td_pb_read_varint(walk, &key))
        return false;
    *out = (td_pb_field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    switch (out->wire) {
    case TD_PB_VARINT:
        return td_pb_read_varint(walk, &out->integer);
    case TD_PB_FIXED64:
        return td_pb_read_fixed(walk, 8, &out->integer);
    case TD_PB_FIXED32:
        return td_pb_read_fixed(walk, 4, &out->integer);
    case TD_PB_BYTES:
        if (!td_pb_read_varint(walk, &length))
            return false;
        walk->broken = length > (size_t)(walk->end - walk->at);
        if (walk->broken)
            return false;
        out->bytes = walk->at;
        out->n = (size_t)length;
        walk->at += length;
        return true;
    default:
        walk->broken = true;
        return false;
    }
}

static inline double td_pb_as_double(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline float td_pb_as_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float number;
    memcpy(&number, &low, sizeof number);
    return number;
}

#endif
