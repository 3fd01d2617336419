/* See key_marks.h. */
#include "ps/key_marks.h"

#include "base/memory.h"

enum { BYTE_BITS = 8, MOST_SHORT_COUNT = 255 };

static size_t all_bytes(const td_key_marks *marks)
{
    return (size_t)marks->most_slots * (size_t)(marks->used_bytes + marks->count_bytes);
}

td_status *td_key_marks_init(td_key_marks *marks, int32_t used_bytes, int32_t unit_bits, uint32_t most_count,
                             int64_t most_slots)
{
    const int32_t count_bytes = most_count > MOST_SHORT_COUNT ? (int32_t)sizeof most_count : most_count > 0;
    *marks = (td_key_marks){.used_bytes = used_bytes,
                            .count_bytes = count_bytes,
                            .unit_bits = unit_bits,
                            .most_count = most_count,
                            .most_slots = most_slots};
    if (!used_bytes && !count_bytes)
        return NULL;
    marks->bytes = td_reserve(all_bytes(marks));
    return marks->bytes ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "no address space for %lld keys", (long long)most_slots);
}

void td_key_marks_deinit(td_key_marks *marks)
{
    td_unreserve(marks->bytes, all_bytes(marks));
    *marks = (td_key_marks){0};
}

void td_key_marks_clear(td_key_marks *marks)
{
    marks->base = 0;
    if (marks->bytes)
        td_reserve_drop(marks->bytes, all_bytes(marks));
}

/* ---- windows --------------------------------------------------------------------------------------------------------------------- */

static void write(uint8_t *at, int32_t bytes, uint32_t value)
{
    for (int32_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> BYTE_BITS * i);
}

/* All units from it up to that of `now`, and half as many again at least, have distances of their own. */
static uint32_t base_of(const td_key_marks *marks, uint32_t now)
{
    const uint32_t half = UINT32_C(1) << (BYTE_BITS * marks->used_bytes - 1), halves = (now >> marks->unit_bits) / half;
    return halves < 2 ? 0 : (halves - 1) * half;
}

bool td_key_marks_advance(td_key_marks *marks, uint32_t now, int64_t n_slots)
{
    const int32_t stride = marks->used_bytes + marks->count_bytes;
    const uint32_t base = marks->used_bytes ? base_of(marks, now) : 0;
    if (base <= marks->base)
        return false;
    const uint32_t by = base - marks->base;
    for (int64_t slot = 0; slot < n_slots; slot++) {
        const uint32_t distance = td_key_marks_distance(marks, slot);
        write(marks->bytes + slot * stride, marks->used_bytes, distance > by ? distance - by : 0);
    }
    marks->base = base;
    return true;
}

void td_key_marks_set_used(td_key_marks *marks, int64_t slot, uint32_t window)
{
    const int32_t stride = marks->used_bytes + marks->count_bytes;
    const uint32_t unit = window >> marks->unit_bits;
    if (marks->used_bytes)
        write(marks->bytes + slot * stride, marks->used_bytes, unit > marks->base ? unit - marks->base : 0);
}

void td_key_marks_set_count(td_key_marks *marks, int64_t slot, uint32_t count)
{
    const int32_t stride = marks->used_bytes + marks->count_bytes;
    if (marks->count_bytes)
        write(marks->bytes + slot * stride + marks->used_bytes, marks->count_bytes,
              count < marks->most_count ? count : marks->most_count);
}
