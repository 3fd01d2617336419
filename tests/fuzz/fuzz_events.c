/* Event files: any bytes give values or an error with a place, and so do the payloads of the values, with and without the checksums
 * that keep most damage away from them. */
#include <fcntl.h>
#include <unistd.h>

#include "base/memory.h"
#include "profiler/event_file.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {
    "\x0a",         "\x2a",         "\x09", "\x10",    "\x15", "\x12", "\x42\x10", "\xff\xff\xff\xff\xff\x0f",
    "\x22\x7f\x3f", "\x08\x01\x12", "tag",  "scalars", NULL};

/* Every parser on the same bytes. */
static void parse(const uint8_t *data, size_t size)
{
    td_histogram histogram;
    td_event_tensor_view tensor;
    td_event_image_view image;
    const char *text = NULL;
    size_t n = 0;
    (void)fuzz_take(td_event_parse_histogram(data, size, &histogram));
    td_status *status = td_event_parse_tensor(data, size, &tensor);
    FUZZ_CHECK(status || !tensor.n || (tensor.data >= data && tensor.data + tensor.n * 4 <= data + size));
    (void)fuzz_take(status);
    (void)fuzz_take(td_event_parse_image(data, size, &image));
    status = td_event_parse_text(data, size, &text, &n);
    FUZZ_CHECK(status || ((const uint8_t *)text >= data && (const uint8_t *)text + n <= data + size));
    (void)fuzz_take(status);
}

static td_status *look(void *context, const td_event_value *value)
{
    (void)context;
    FUZZ_CHECK(value->tag && value->kind < TD_EVENT_KINDS);
    parse(value->payload, value->payload_bytes);
    return NULL;
}

static void read_file(const uint8_t *data, size_t size)
{
    const char *path = fuzz_path("events");
    fuzz_write(path, data, size);
    int file = open(path, O_RDONLY);
    int64_t offset = 0;
    bool end = false;
    td_status *status = td_event_read("f", file, &offset, INT64_MAX, look, NULL, &end);
    FUZZ_CHECK(offset >= 0 && offset <= (int64_t)size);
    FUZZ_CHECK(!status == end);
    (void)fuzz_take(status);
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    parse(data, size);
    uint8_t *framed = td_calloc(size + 16, 1); /* as one event, whose checksums are right */
    FUZZ_CHECK(framed);
    for (int i = 0; i < 8; i++)
        framed[i] = (uint8_t)((uint64_t)size >> (8 * i));
    uint32_t head = td_masked_crc32c(framed, 8), body = td_masked_crc32c(data, size);
    if (size)
        memcpy(framed + 12, data, size);
    for (size_t i = 0; i < 4; i++) {
        framed[8 + i] = (uint8_t)(head >> (8 * i));
        framed[12 + size + i] = (uint8_t)(body >> (8 * i));
    }
    read_file(framed, size + 16);
    td_free(framed);
    return 0;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    static const uint8_t scalar[] = {0x09, 0,    0, 0,    0, 0,   0,    0x10, 0x40, 0x10, 3,   0x2a,
                                     0x0a, 0x0a, 8, 0x0a, 1, 'x', 0x15, 0,    0,    0,    0x3f};
    static const uint8_t histogram[] = {0x09, 0, 0, 0, 0, 0, 0, 0, 0,    0x11, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x32,
                                        8,    0, 0, 0, 0, 0, 0, 0, 0x40, 0x3a, 8, 0, 0, 0, 0, 0, 0, 0,    0x40};
    static const uint8_t tensor[] = {0x08, 1, 0x12, 4, 0x12, 2, 0x08, 1, 0x22, 4, 0, 0, 0x80, 0x3f};
    static const uint8_t image[] = {0x08, 1, 0x10, 1, 0x18, 1, 0x22, 2, 1, 2};
    const struct {
        const uint8_t *bytes;
        size_t n;
    } seeds[] = {
        {scalar, sizeof scalar}, {histogram, sizeof histogram}, {tensor, sizeof tensor}, {image, sizeof image}};
    if (index >= (int)(sizeof seeds / sizeof *seeds) || seeds[index].n > room)
        return 0;
    memcpy(buffer, seeds[index].bytes, seeds[index].n);
    return seeds[index].n;
}
