/* Safetensors files: what is written is read; anything malformed is refused with a clear message; mutated files never crash. */
#include "tests/base/check.h"

#include <stdbool.h>
#include <unistd.h>

#include "base/file.h"
#include "base/safetensors.h"
#include "tests/base/folder.h"

/* ---- round trips ---------------------------------------------------------------------------------------------------------- */

static td_status *write_three(const char *path)
{
    td_safetensors_writer *writer = NULL;
    td_status *status = NULL;
    const float weight[6] = {1, 2, 3, 4, 5, 6};
    const uint8_t mask[3] = {1, 0, 1};
    const int64_t step = 42;
    TD_TRY(td_safetensors_create(path, &writer));
    TD_TRY_OR(status, fail, td_safetensors_declare(writer, "mask \u00e9\"", TD_BOOL, 1, (int64_t[]){3}));
    TD_TRY_OR(status, fail, td_safetensors_declare(writer, "weight", TD_F32, 2, (int64_t[]){2, 3}));
    TD_TRY_OR(status, fail, td_safetensors_declare(writer, "empty", TD_F16, 2, (int64_t[]){0, 5}));
    TD_TRY_OR(status, fail, td_safetensors_declare(writer, "step", TD_I64, 0, NULL));
    TD_TRY_OR(status, fail, td_safetensors_annotate(writer, "format", "pt"));
    TD_TRY_OR(status, fail, td_safetensors_write(writer, "weight", 8, 16, weight + 2)); /* in pieces, not in order */
    TD_TRY_OR(status, fail, td_safetensors_write(writer, "step", 0, 8, &step));
    TD_TRY_OR(status, fail, td_safetensors_write(writer, "weight", 0, 8, weight));
    TD_TRY_OR(status, fail, td_safetensors_write(writer, "mask \u00e9\"", 0, 3, mask));
    return td_safetensors_commit(writer);
fail:
    td_safetensors_discard(writer);
    return status;
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    folder f = make_folder();
    const char *path = in_folder(&f, "x.safetensors");
    assert_ok(write_three(path));
    td_safetensors *file = NULL;
    assert_ok(td_safetensors_open(path, &file));
    assert_int_equal(td_safetensors_count(file), 4);
    const td_safetensors_tensor *t = NULL;
    assert_ok(td_safetensors_require(file, "weight", &t));
    assert_int_equal(t->dtype, TD_F32);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->elements, 6);
    float weight[6];
    assert_ok(td_safetensors_read(file, t, 0, t->bytes, weight));
    for (int i = 0; i < 6; i++)
        assert_true(weight[i] == (float)(i + 1));
    assert_ok(td_safetensors_read(file, t, 16, 4, weight));
    assert_true(weight[0] == 5);
    t = td_safetensors_find(file, "step");
    int64_t step = 0;
    assert_ok(td_safetensors_read(file, t, 0, 8, &step));
    assert_int_equal(step, 42);
    assert_int_equal(t->rank, 0);
    t = td_safetensors_find(file, "empty");
    assert_int_equal(t->bytes, 0);
    t = td_safetensors_find(file, "mask \u00e9\"");
    uint8_t mask[3] = {9, 9, 9};
    assert_ok(td_safetensors_read(file, t, 0, 3, mask));
    assert_memory_equal(mask, ((const uint8_t[]){1, 0, 1}), 3);
    assert_string_equal(td_safetensors_metadata(file, "format"), "pt");
    assert_null(td_safetensors_metadata(file, "other"));
    for (int64_t i = 0; i < 4; i++) { /* aligned for readers that map the file */
        t = td_safetensors_at(file, i);
        assert_int_equal(t->offset % (t->elements ? t->bytes / t->elements : 1), 0);
    }
    td_safetensors_close(file);
    remove_folder(&f);
}

static void test_a_file_without_tensors(void **state)
{
    (void)state;
    folder f = make_folder();
    td_safetensors_writer *writer = NULL;
    td_safetensors *file = NULL;
    assert_ok(td_safetensors_create(in_folder(&f, "x"), &writer));
    assert_ok(td_safetensors_commit(writer));
    assert_ok(td_safetensors_open(in_folder(&f, "x"), &file));
    assert_int_equal(td_safetensors_count(file), 0);
    assert_null(td_safetensors_find(file, "a"));
    const td_safetensors_tensor *t = NULL;
    assert_error(td_safetensors_require(file, "a", &t), TD_NOT_FOUND, "has no tensor \"a\"; it is empty");
    td_safetensors_close(file);
    td_safetensors_close(NULL);
    remove_folder(&f);
}

static void test_misuse_of_the_writer_is_refused(void **state)
{
    (void)state;
    folder f = make_folder();
    td_safetensors_writer *w = NULL;
    const int64_t two = 2, negative = -1;
    const int64_t huge[2] = {(int64_t)1 << 40, (int64_t)1 << 40};
    assert_ok(td_safetensors_create(in_folder(&f, "x"), &w));
    assert_ok(td_safetensors_declare(w, "a", TD_F32, 1, &two));
    assert_error(td_safetensors_declare(w, "a", TD_F32, 1, &two), TD_INVALID_ARGUMENT, "\"a\" is declared twice");
    assert_error(td_safetensors_declare(w, "__metadata__", TD_F32, 1, &two), TD_INVALID_ARGUMENT, "reserved");
    assert_error(td_safetensors_declare(w, "b", TD_F32, 1, &negative), TD_INVALID_ARGUMENT, "negative dimension");
    assert_error(td_safetensors_declare(w, "b", TD_F32, 2, huge), TD_INVALID_ARGUMENT, "too many elements");
    assert_error(td_safetensors_declare(w, "b", TD_DTYPE_COUNT, 1, &two), TD_INVALID_ARGUMENT, "cannot be written");
    assert_error(td_safetensors_declare(w, "b", TD_F32, TD_MAX_RANK + 1, huge), TD_INVALID_ARGUMENT,
                 "cannot be written");
    assert_error(td_safetensors_declare(w, "\xff", TD_F32, 1, &two), TD_INVALID_ARGUMENT, "UTF-8");
    assert_error(td_safetensors_annotate(w, "k", "\xff"), TD_INVALID_ARGUMENT, "UTF-8");
    float x[2] = {0};
    assert_error(td_safetensors_write(w, "c", 0, 4, x), TD_INVALID_ARGUMENT, "\"c\" was not declared");
    assert_error(td_safetensors_write(w, "a", 4, 8, x), TD_INVALID_ARGUMENT, "has 8 bytes; 8 from 4 were written");
    assert_error(td_safetensors_write(w, "a", -1, 1, x), TD_INVALID_ARGUMENT, "from -1");
    assert_error(td_safetensors_declare(w, "d", TD_F32, 1, &two), TD_INVALID_ARGUMENT, "after the first data");
    assert_ok(td_safetensors_write(w, "a", 0, 4, x));
    assert_error(td_safetensors_commit(w), TD_INVALID_ARGUMENT, "\"a\" has 8 bytes, 4 were written");
    assert_int_equal(count_in_folder(&f), 0); /* and nothing is left of it */
    td_safetensors_discard(NULL);
    remove_folder(&f);
}

/* ---- malformed files ------------------------------------------------------------------------------------------------------ */

/* Writes length, header and `data_bytes` zeros, and opens it. */
static td_status *open_raw(folder *f, uint64_t length, const char *header, size_t header_bytes, size_t data_bytes,
                           td_safetensors **out_file)
{
    static char raw[1 << 16];
    assert_true(8 + header_bytes + data_bytes <= sizeof raw);
    memset(raw, 0, sizeof raw);
    for (int i = 0; i < 8; i++)
        raw[i] = (char)(length >> (8 * i));
    memcpy(raw + 8, header, header_bytes);
    FILE *file = fopen(in_folder(f, "raw"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(raw, 1, 8 + header_bytes + data_bytes, file), 8 + header_bytes + data_bytes);
    fclose(file);
    return td_safetensors_open(in_folder(f, "raw"), out_file);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_malformed_headers_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *reason;
    } cases[] = {
        {"", 0, "not valid JSON"},
        {"[1]", 0, "the header is not a JSON object"},
        {"{\"a\":" T("F32", "[1]", "[0,4]"), 4, "not valid JSON"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "duplicate object key"},
        {"{\"a\":3}", 0, "\"a\": its entry in the header is not an object"},
        {"{\"a\":" T("F8", "[1]", "[0,1]") "}", 1, "\"a\": dtype F8 is not one of"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype (none)"},
        {"{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype (none)"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "has no shape"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, "dimension 0 is not a whole number of 0 or more"},
        {"{\"a\":" T("F32", "[1,1.5]", "[0,4]") "}", 4, "dimension 1 is not"},
        {"{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", 4, "dimension 0 is not"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1]", "[0,4]") "}", 4, "has 7 dimensions, 6 are supported"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,4]") "}", 4, "too many elements"},
        {"{\"a\":" T("F64", "[2305843009213693952]", "[0,4]") "}", 4, "too many elements"},
        {"{\"a\":" T("F32", "[99999999999999999999]", "[0,4]") "}", 4, "not valid JSON: too big integer"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "data_offsets must be two whole numbers"},
        {"{\"a\":" T("F32", "[1]", "[0,4,8]") "}", 4, "data_offsets must be two"},
        {"{\"a\":" T("F32", "[1]", "{}") "}", 4, "data_offsets must be two"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets must be two"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "[-4, 0] are no range"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "[4, 0] are no range"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 4, "ends at byte 8 of 4: the file is truncated"},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", 4, "its shape needs 8 bytes, data_offsets give it 4"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 4, "overlaps that of"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[1]", "[4,8]") "}", 8,
         "\"b\": its data overlaps that of \"a\""},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "4 bytes before its data belong to no tensor"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 5, "1 byte at the end belongs to no tensor"},
        {"{}", 1, "1 byte at the end belongs to no tensor"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ \"a\" is not a string"},
        {"{\"a\\u0000b\":" T("F32", "[1]", "[0,4]") "}", 4, "not valid JSON"},
        {"{\"\xff\":" T("F32", "[1]", "[0,4]") "}", 4, "not valid JSON"},
    };
    folder f = make_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_safetensors *file = NULL;
        size_t length = strlen(cases[i].header);
        assert_error(open_raw(&f, length, cases[i].header, length, cases[i].data_bytes, &file), TD_DATA_ERROR,
                     cases[i].reason);
        assert_null(file);
    }
    remove_folder(&f);
}

static void test_wrong_lengths_are_refused(void **state)
{
    (void)state;
    folder f = make_folder();
    td_safetensors *file = NULL;
    assert_error(open_raw(&f, 3, "{}", 2, 0, &file), TD_DATA_ERROR,
                 "is truncated: the header ends at byte 11, the file at 10");
    assert_error(open_raw(&f, UINT64_MAX, "{}", 2, 0, &file), TD_DATA_ERROR,
                 "claims a header of 18446744073709551615 bytes");
    assert_error(open_raw(&f, 100000001, "{}", 2, 0, &file), TD_DATA_ERROR, "100000000 are allowed");
    assert_ok(td_file_write(in_folder(&f, "short"), "abc", 3));
    assert_error(td_safetensors_open(in_folder(&f, "short"), &file), TD_DATA_ERROR,
                 "too short for a safetensors file: 3 bytes");
    assert_error(td_safetensors_open(in_folder(&f, "none"), &file), TD_NOT_FOUND, "none: cannot open");
    assert_error(td_safetensors_open(f.path, &file), TD_INVALID_ARGUMENT, "is not a regular file");
    remove_folder(&f);
}

static void test_what_is_unusual_but_right_is_read(void **state)
{
    (void)state;
    folder f = make_folder();
    td_safetensors *file = NULL;
    const char header[] = "{\"b\":" T("BF16", "[]", "[4,6]") ", \"z\":" T("I32", "[0]", "[4,4]") ",\"a\":" T(
        "U8", "[2,2]", "[0,4]") ",\"__metadata__\":{}}       ";
    assert_ok(open_raw(&f, sizeof header - 1, header, sizeof header - 1, 6, &file));
    assert_int_equal(td_safetensors_count(file), 3);
    assert_string_equal(td_safetensors_at(file, 0)->name, "a"); /* in the order of the data */
    assert_string_equal(td_safetensors_at(file, 1)->name, "z");
    assert_string_equal(td_safetensors_at(file, 2)->name, "b");
    const td_safetensors_tensor *t = NULL;
    assert_error(td_safetensors_require(file, "zz", &t), TD_NOT_FOUND,
                 "has no tensor \"zz\"; the nearest of its 3 names is \"z\"");
    char byte;
    t = td_safetensors_find(file, "a");
    assert_error(td_safetensors_read(file, t, 3, 2, &byte), TD_INVALID_ARGUMENT,
                 "has 4 bytes; 2 from 3 were asked for");
    assert_error(td_safetensors_read(file, t, -1, 1, &byte), TD_INVALID_ARGUMENT, "from -1");
    td_safetensors_close(file);
    remove_folder(&f);
}

static void test_a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    folder f = make_folder();
    assert_ok(write_three(in_folder(&f, "x")));
    td_safetensors *file = NULL;
    assert_ok(td_safetensors_open(in_folder(&f, "x"), &file));
    assert_int_equal(truncate(in_folder(&f, "x"), 100), 0);
    float weight[6];
    assert_error(td_safetensors_read(file, td_safetensors_find(file, "weight"), 0, 24, weight), TD_DATA_ERROR,
                 "became shorter");
    td_safetensors_close(file);
    remove_folder(&f);
}

/* ---- failures ---------------------------------------------------------------------------------------------------------------- */

static void test_every_failing_write_leaves_nothing(void **state)
{
    (void)state;
    folder f = make_folder();
    const char *path = in_folder(&f, "x");
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        td_file_fail_after(n);
        td_status *status = write_three(path);
        bool failed = td_file_failed();
        td_file_fail_after(0);
        if (!failed) {
            assert_ok(status);
            break;
        }
        failures++;
        assert_error(status, TD_IO, "No space left");
        td_safetensors *file = NULL;
        if (td_file_exists(path)) { /* only syncing the directory failed: then it is whole */
            assert_ok(td_safetensors_open(path, &file));
            td_safetensors_close(file);
            assert_int_equal(remove(path), 0);
        }
        assert_int_equal(count_in_folder(&f), 0);
    }
    assert_true(failures >= 11);
    remove_folder(&f);
}

typedef struct job {
    const char *path;
    td_safetensors *file;
} job;

static td_status *write_and_open(void *context)
{
    job *j = context;
    TD_TRY(write_three(j->path));
    return td_safetensors_open(j->path, &j->file);
}
static void close_it(void *context)
{
    td_safetensors_close(((job *)context)->file);
}

static void test_survives_allocation_failures(void **state)
{
    (void)state;
    folder f = make_folder();
    job j = {.path = in_folder(&f, "x")};
    assert_true(assert_survives_allocation_failures(write_and_open, close_it, &j) >= 12);
    remove_folder(&f);
}

/* ---- mutated files ------------------------------------------------------------------------------------------------------------ */

static uint64_t random_state;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static const char *const pieces[] = {
    "\"",  "{",    "}",       "[",         "]",       ",",    ":",           "-1", "0", "4", "18446744073709551615",
    "1e9", "null", "\"F32\"", "\"shape\"", "\\u0000", "\xff", "__metadata__"};

/* Changes a few places of a valid header: bytes, pieces of syntax, removals, repetitions. */
static size_t mutate(char *text, size_t length, size_t room)
{
    for (uint64_t edits = 1 + random_number() % 4; edits > 0; edits--) {
        size_t at = random_number() % (length + 1);
        const char *piece = pieces[random_number() % (sizeof pieces / sizeof *pieces)];
        size_t size = strlen(piece), cut = random_number() % 12;
        switch (random_number() % 4) {
        case 0:
            if (at < length)
                text[at] = (char)random_number();
            break;
        case 1:
            if (length + size > room)
                break;
            memmove(text + at + size, text + at, length - at);
            memcpy(text + at, piece, size);
            length += size;
            break;
        case 2:
            cut = cut < length - at ? cut : length - at;
            memmove(text + at, text + at + cut, length - at - cut);
            length -= cut;
            break;
        default:
            if (at < length && text[at] >= '0' && text[at] <= '9')
                text[at] = (char)('0' + random_number() % 10);
        }
    }
    return length;
}

static void read_everything(const td_safetensors *file)
{
    char data[64];
    for (int64_t i = 0; i < td_safetensors_count(file); i++) {
        const td_safetensors_tensor *t = td_safetensors_at(file, i);
        assert_ptr_equal(td_safetensors_find(file, t->name), t);
        assert_true(t->bytes <= (int64_t)sizeof data); /* there is no more data than that */
        assert_ok(td_safetensors_read(file, t, 0, t->bytes, data));
    }
}

static void test_mutated_files_never_crash(void **state)
{
    (void)state;
    folder f = make_folder();
    static const char valid[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a.weight\":" T(
        "F32", "[2,3]", "[0,24]") ",\"b\":" T("I64", "[2]", "[24,40]") ",\"c\":" T("BOOL", "[3]", "[40,43]") "}";
    int opened = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        random_state = seed * 0x9E3779B97F4A7C15u;
        char text[1024];
        memcpy(text, valid, sizeof valid - 1);
        size_t length = mutate(text, sizeof valid - 1, sizeof text);
        uint64_t claimed = random_number() % 20 ? length : random_number() >> random_number() % 64;
        td_safetensors *file = NULL;
        td_status *status = open_raw(&f, claimed, text, length, 43, &file);
        if (status) {
            assert_true(td_status_code(status) == TD_DATA_ERROR && strstr(td_status_message(status), "/raw: "));
            td_status_destroy(status);
            refused++;
            continue;
        }
        read_everything(file);
        td_safetensors_close(file);
        opened++;
    }
    assert_true(opened > 10 && refused > 2000); /* both sides were tried */
    remove_folder(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_a_file_without_tensors),
        cmocka_unit_test(test_misuse_of_the_writer_is_refused),
        cmocka_unit_test(test_malformed_headers_are_refused_with_the_reason),
        cmocka_unit_test(test_wrong_lengths_are_refused),
        cmocka_unit_test(test_what_is_unusual_but_right_is_read),
        cmocka_unit_test(test_a_file_that_shrinks_is_an_error),
        cmocka_unit_test(test_every_failing_write_leaves_nothing),
        cmocka_unit_test(test_survives_allocation_failures),
        cmocka_unit_test(test_mutated_files_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
