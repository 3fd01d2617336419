/* PNG files in memory, by zlib: eight bits a channel, one filter (none) for every row. */
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "base/string.h"
#include "profiler/event_file.h"

static void append_big_endian(td_string *out, uint32_t number)
{
    uint8_t bytes[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number};
    td_string_append_bytes(out, bytes, sizeof bytes);
}

static void append_chunk(td_string *out, const char type[4], const uint8_t *data, size_t bytes)
{
    uLong sum = crc32(0, (const Bytef *)type, 4);
    append_big_endian(out, (uint32_t)bytes);
    td_string_append_bytes(out, type, 4);
    td_string_append_bytes(out, data, bytes);
    append_big_endian(out, (uint32_t)(bytes ? crc32(sum, data, (uInt)bytes) : sum));
}

/* Each row behind a zero, its filter; compressed. */
static td_status *deflate_rows(const uint8_t *pixels, size_t rows, size_t row_bytes, uint8_t **out_data,
                               uLongf *out_bytes)
{
    uint8_t *raw = NULL;
    size_t bytes = rows * (row_bytes + 1);
    *out_bytes = compressBound(bytes);
    td_status *status = TD_NEW(raw, bytes);
    if (!status)
        status = TD_NEW(*out_data, *out_bytes);
    for (size_t r = 0; !status && r < rows; r++)
        memcpy(raw + r * (row_bytes + 1) + 1, pixels + r * row_bytes, row_bytes);
    if (!status && compress2(*out_data, out_bytes, raw, bytes, 6) != Z_OK)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an image");
    td_free(raw);
    return status;
}

td_status *td_png_encode(const uint8_t *pixels, int64_t height, int64_t width, int32_t channels, uint8_t **out_png,
                         size_t *out_bytes)
{
    enum { GREY = 0, RGB = 2, MOST = 1 << 14 };
    *out_png = NULL;
    if (height < 1 || width < 1 || height > MOST || width > MOST || (channels != 1 && channels != 3))
        return TD_ERROR(TD_INVALID_ARGUMENT, "an image of %lld x %lld x %d: 1 to %d pixels each way, 1 or 3 channels",
                        (long long)height, (long long)width, channels, MOST);
    uint8_t *data = NULL;
    uLongf bytes = 0;
    td_status *status = deflate_rows(pixels, (size_t)height, (size_t)width * (size_t)channels, &data, &bytes);
    td_string png = {0}, header = {0};
    if (!status) {
        td_string_append_bytes(&png, "\x89PNG\r\n\x1a\n", 8);
        append_big_endian(&header, (uint32_t)width);
        append_big_endian(&header, (uint32_t)height);
        td_string_append_bytes(&header, (uint8_t[]){8, channels == 3 ? RGB : GREY, 0, 0, 0}, 5);
        append_chunk(&png, "IHDR", (const uint8_t *)header.text, header.length);
        append_chunk(&png, "IDAT", data, bytes);
        append_chunk(&png, "IEND", NULL, 0);
        png.failed = png.failed || header.failed;
        *out_bytes = png.length;
        status = td_string_finish(&png, (char **)out_png);
    }
    td_string_deinit(&header);
    td_free(data);
    return status;
}
