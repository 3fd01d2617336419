/* Event files: their bytes, what the reader makes of them, and of what is cut off or damaged. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <dirent.h>
#include <zlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "profiler/event_file.h"

static char folder[64];

static int enter(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/tandem_events_XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    return mkdtemp(folder) ? 0 : 1;
}

static int leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void ok(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

/* The only file of the folder, which is removed. */
static char *take_file(size_t *out_bytes)
{
    DIR *entries = opendir(folder);
    char *data = NULL;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char *path = td_format("%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') {
            assert_null(data);
            ok(td_file_read(path, &data, out_bytes));
            unlink(path);
        }
        td_free(path);
    }
    closedir(entries);
    assert_non_null(data);
    return data;
}

static void test_checksums_are_those_of_the_format(void **state)
{
    (void)state;
    uint32_t crc = 0xe3069283; /* RFC 3720's check value of CRC-32C */
    assert_int_equal(td_masked_crc32c("123456789", 9), (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
}

/* Made once and parsed by TensorBoard: the header event of time 2, and loss 0.5 at step 3. */
static void test_bytes_of_a_small_file(void **state)
{
    (void)state;
    static const uint8_t golden[] = {0x18, 0,   0,   0,   0,   0,   0,   0,   0xa3, 0x7f, 0x4b, 0x22,
                                     0x09, 0,   0,   0,   0,   0,   0,   0,   0x40, 0x1a, 0x0d, 'b',
                                     'r',  'a', 'i', 'n', '.', 'E', 'v', 'e', 'n',  't',  ':',  '2'};
    td_event_writer *writer = NULL;
    ok(td_event_writer_open(folder, 2, &writer));
    const char *tag = "loss";
    double loss = 0.5;
    ok(td_event_scalars(writer, (td_event_stamp){4, 3}, &tag, &loss, 1));
    ok(td_event_writer_flush(writer));
    td_event_writer_close(writer);
    size_t bytes = 0;
    char *data = take_file(&bytes);
    assert_memory_equal(data, golden, sizeof golden);
    static const uint8_t event[] = {0x09, 0,    0,    0, 0,   0,   0,   0x10, 0x40, 0x10, 3, 0x2a, 0x0d,
                                    0x0a, 0x0b, 0x0a, 4, 'l', 'o', 's', 's',  0x15, 0,    0, 0,    0x3f};
    const size_t second = sizeof golden + 4;
    assert_int_equal(bytes, second + 12 + sizeof event + 4);
    assert_int_equal(data[second], sizeof event);
    assert_memory_equal(data + second + 12, event, sizeof event);
    td_free(data);
}

/* ---- there and back ------------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int n[TD_EVENT_KINDS];
    double last;
    td_histogram histogram;
    float tensor[6];
    int64_t dims[2];
    char text[32];
    uint8_t png[8];
    int64_t offset;
} seen;

static td_status *look(void *context, const td_event_value *value)
{
    seen *s = context;
    s->n[value->kind]++;
    if (value->kind == TD_EVENT_SCALAR)
        s->last = value->scalar;
    if (value->kind == TD_EVENT_HISTOGRAM)
        ok(td_event_parse_histogram(value->payload, value->payload_bytes, &s->histogram));
    if (value->kind == TD_EVENT_TENSOR) {
        td_event_tensor_view tensor;
        ok(td_event_parse_tensor(value->payload, value->payload_bytes, &tensor));
        assert_int_equal(tensor.rank, 2);
        memcpy(s->dims, tensor.dims, sizeof s->dims);
        memcpy(s->tensor, tensor.data, sizeof s->tensor);
        s->offset = value->offset;
    }
    if (value->kind == TD_EVENT_TEXT) {
        const char *text;
        size_t n;
        ok(td_event_parse_text(value->payload, value->payload_bytes, &text, &n));
        snprintf(s->text, sizeof s->text, "%.*s", (int)n, text);
    }
    if (value->kind == TD_EVENT_IMAGE) {
        td_event_image_view image;
        ok(td_event_parse_image(value->payload, value->payload_bytes, &image));
        assert_int_equal(image.height, 2);
        assert_int_equal(image.width, 3);
        memcpy(s->png, image.file, sizeof s->png);
    }
    return NULL;
}

/* All kinds of values, twice. */
static char *write_all(size_t *out_bytes)
{
    static const float numbers[6] = {-1, 0, 1, 2, NAN, 3};
    static const uint8_t pixels[6] = {0, 50, 100, 150, 200, 250};
    td_event_writer *writer = NULL;
    td_histogram histogram;
    td_histogram_of(numbers, 6, &histogram);
    ok(td_event_writer_open(folder, 1000, &writer));
    for (int64_t step = 1; step <= 2; step++) {
        td_event_stamp stamp = {1000 + (double)step, step};
        const char *tags[2] = {"a", "b"};
        double values[2] = {(double)step, (double)step * 10};
        ok(td_event_scalars(writer, stamp, tags, values, 2));
        ok(td_event_histogram(writer, stamp, "h", &histogram));
        ok(td_event_tensor(writer, stamp, "t", numbers, (int64_t[]){2, 3}, 2));
        ok(td_event_image(writer, stamp, "i", pixels, 2, 3, 1));
        ok(td_event_text(writer, stamp, "x", "**bold**"));
        ok(td_event_graph(writer, stamp, "", 0));
    }
    ok(td_event_writer_flush(writer));
    td_event_writer_close(writer);
    return take_file(out_bytes);
}

static int file_with(const char *data, size_t bytes)
{
    int file = open(folder, O_TMPFILE | O_RDWR, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, data, bytes), bytes);
    return file;
}

static void test_every_kind_of_value_is_read_again(void **state)
{
    (void)state;
    size_t bytes = 0;
    char *data = write_all(&bytes);
    int file = file_with(data, bytes);
    seen s = {0};
    int64_t offset = 0;
    bool end = false;
    ok(td_event_read("f", file, &offset, INT64_MAX, look, &s, &end));
    assert_true(end);
    assert_int_equal(offset, bytes);
    assert_int_equal(s.n[TD_EVENT_SCALAR], 4);
    for (int kind = TD_EVENT_HISTOGRAM; kind < TD_EVENT_KINDS; kind++)
        assert_int_equal(s.n[kind], 2);
    assert_true(s.last == 20);
    assert_int_equal(s.histogram.n, 5);
    assert_true(s.histogram.least == -1 && s.histogram.greatest == 3 && s.histogram.sum == 5);
    assert_true(s.dims[0] == 2 && s.dims[1] == 3 && s.tensor[5] == 3 && isnan(s.tensor[4]));
    assert_string_equal(s.text, "**bold**");
    assert_memory_equal(s.png, "\x89PNG\r\n\x1a\n", 8);
    uint8_t again[32];
    assert_int_equal(pread(file, again, sizeof again, s.offset), sizeof again); /* where the last tensor lies */
    assert_int_equal(again[0], 0x08);
    close(file);
    td_free(data);
}

static void test_a_file_that_still_grows_is_read_as_far_as_it_goes(void **state)
{
    (void)state;
    size_t bytes = 0;
    char *data = write_all(&bytes);
    seen whole = {0};
    int64_t offset = 0;
    bool end;
    int all = file_with(data, bytes);
    ok(td_event_read("f", all, &offset, INT64_MAX, look, &whole, &end));
    close(all);
    for (size_t cut = 0; cut < bytes; cut++) {
        int file = file_with(data, cut);
        seen s = {0};
        offset = 0;
        ok(td_event_read("f", file, &offset, INT64_MAX, look, &s, &end));
        assert_true(end && offset <= (int64_t)cut);
        assert_int_equal(pwrite(file, data + cut, bytes - cut, (off_t)cut), bytes - cut);
        ok(td_event_read("f", file, &offset, INT64_MAX, look, &s, &end));
        assert_int_equal(offset, bytes);
        assert_memory_equal(s.n, whole.n, sizeof s.n);
        close(file);
    }
    td_free(data);
}

static void test_damage_is_an_error_with_its_place(void **state)
{
    (void)state;
    size_t bytes = 0;
    char *data = write_all(&bytes);
    for (size_t at = 0; at < bytes; at++) {
        data[at] ^= 0x20;
        int file = file_with(data, bytes);
        seen s = {0};
        int64_t offset = 0;
        bool end;
        td_status *status = td_event_read("f", file, &offset, INT64_MAX, look, &s, &end);
        assert_int_equal(td_status_code(status), TD_DATA_ERROR);
        assert_non_null(strstr(td_status_message(status), "f: at byte "));
        assert_true(offset <= (int64_t)at);
        td_status_destroy(status);
        close(file);
        data[at] ^= 0x20;
    }
    td_free(data);
}

static void test_histograms_count_every_finite_number_once(void **state)
{
    (void)state;
    float numbers[1000];
    for (int i = 0; i < 1000; i++)
        numbers[i] = i % 100 == 7 ? INFINITY : (float)(i * 37 % 1000) / 10;
    td_histogram h;
    td_histogram_of(numbers, 1000, &h);
    assert_int_equal(h.n, 990);
    assert_int_equal(h.n_not_finite, 10);
    assert_int_equal(h.n_buckets, TD_HISTOGRAM_BUCKETS);
    double sum = 0;
    for (int i = 0; i < h.n_buckets; i++) {
        double below = i ? h.limits[i - 1] : -INFINITY, count = 0;
        for (int k = 0; k < 1000; k++)
            count += isfinite(numbers[k]) && (double)numbers[k] > below && (double)numbers[k] <= h.limits[i];
        assert_true(count == h.counts[i]);
        sum += count;
    }
    assert_true(sum == 990);
    td_histogram_of(numbers, 0, &h);
    assert_int_equal(h.n_buckets, 0);
    numbers[0] = 4;
    td_histogram_of(numbers, 1, &h);
    assert_true(h.n_buckets == 1 && h.counts[0] == 1 && h.limits[0] == 4);
}

static void test_a_png_holds_its_pixels(void **state)
{
    (void)state;
    static const uint8_t pixels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    uint8_t *png = NULL, raw[14];
    size_t bytes = 0;
    ok(td_png_encode(pixels, 2, 2, 3, &png, &bytes));
    assert_memory_equal(png + 12, "IHDR\0\0\0\2\0\0\0\2\x08\2\0\0\0", 17);
    assert_memory_equal(png + 37, "IDAT", 4);
    uLongf n = sizeof raw;
    assert_int_equal(uncompress(raw, &n, png + 41, (uLong)png[36]), Z_OK);
    assert_int_equal(n, 14);
    assert_true(raw[0] == 0 && raw[1] == 1 && raw[6] == 6 && raw[7] == 0 && raw[13] == 12);
    td_free(png);
    td_status *status = td_png_encode(pixels, 2, 2, 2, &png, &bytes);
    assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    td_status_destroy(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksums_are_those_of_the_format),
        cmocka_unit_test(test_bytes_of_a_small_file),
        cmocka_unit_test(test_every_kind_of_value_is_read_again),
        cmocka_unit_test(test_a_file_that_still_grows_is_read_as_far_as_it_goes),
        cmocka_unit_test(test_damage_is_an_error_with_its_place),
        cmocka_unit_test(test_histograms_count_every_finite_number_once),
        cmocka_unit_test(test_a_png_holds_its_pixels),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
