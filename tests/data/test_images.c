/* IDX files, plain and gzip: what a batch of them holds after each step, how damaged ones are refused; and windows of a text. */
#include "tests/data/files.h"

#include <math.h>
#include <zlib.h>

static td_loader *first_batch(const td_dataset *dataset, td_part part, td_batch *out_batch)
{
    td_loader_options options = td_loader_defaults();
    options.part = part;
    options.batch = 1000;
    options.shuffle = false;
    td_loader *loader = NULL;
    bool end;
    expect_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    expect_ok(source.next(source.self, out_batch, &end));
    return loader;
}

/* ---- images -------------------------------------------------------------------------------------------------------------------- */

/* Three images of 2 x 3 pixels: 0, 1, .. 17. */
static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0,  0,  2,  0,  0,  0,  3,  0,
                                       1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 4};

static td_dataset_options image_options(void)
{
    td_dataset_options options = td_dataset_defaults("idx");
    options.train = write_bytes("train-images-idx3-ubyte", images, sizeof images);
    (void)write_bytes("train-labels-idx1-ubyte", labels, sizeof labels);
    return options;
}

static void test_images_come_as_floats_with_channels_first(void **state)
{
    (void)state;
    td_dataset_options options = image_options();
    td_dataset *dataset = NULL;
    td_batch batch;
    expect_ok(td_dataset_open(&options, &dataset));
    const td_schema *schema = td_dataset_schema(dataset);
    assert_int_equal(schema->train_rows, 3);
    assert_int_equal(schema->test_rows, 0);
    assert_int_equal(td_schema_find(schema, "label")->table_rows, 5);
    td_loader *loader = first_batch(dataset, TD_PART_TRAIN, &batch);
    const td_tensor *image = &batch.fields[0].tensor;
    assert_int_equal(image->dtype, TD_F32);
    assert_int_equal(image->rank, 4);
    assert_memory_equal(image->dims, ((int64_t[]){3, 1, 2, 3}), 4 * sizeof(int64_t));
    for (int i = 0; i < 18; i++)
        assert_true(fabsf(((const float *)image->data)[i] - (float)i / 255) < 1e-7f);
    assert_memory_equal(batch.fields[1].tensor.data, ((int64_t[]){2, 0, 4}), 3 * sizeof(int64_t));
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_colour_images_in_gzip_are_turned_to_channels_first(void **state)
{
    (void)state;
    unsigned char colour[20 + 12] = {0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3};
    for (int i = 0; i < 12; i++)
        colour[20 + i] = (unsigned char)(10 * i);
    const char *path = own_path("c-images-idx4.gz");
    gzFile file = gzopen(path, "wb");
    assert_int_equal(gzwrite(file, colour, sizeof colour), sizeof colour);
    assert_int_equal(gzclose(file), Z_OK);
    (void)write_bytes("c-labels-idx1.gz", "\0\0\10\1\0\0\0\1\7", 9); /* plain, whatever it is called */
    static const td_image_step steps[] = {{.kind = TD_IMAGE_HWC_TO_CHW}};
    td_dataset_options options = td_dataset_defaults("idx");
    options.train = path;
    options.image_steps = steps;
    options.n_image_steps = 1;
    td_dataset *dataset = NULL;
    td_batch batch;
    expect_ok(td_dataset_open(&options, &dataset));
    td_loader *loader = first_batch(dataset, TD_PART_TRAIN, &batch);
    assert_int_equal(batch.fields[0].tensor.dtype, TD_U8);
    assert_memory_equal(batch.fields[0].tensor.data,
                        ((unsigned char[]){0, 30, 60, 90, 10, 40, 70, 100, 20, 50, 80, 110}), 12);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

/* Twice as wide: between pixels a and b lie (3a + b) / 4 and (a + 3b) / 4; at the edges the pixels themselves. */
static void test_resizing_is_bilinear_and_keeps_bytes_whole(void **state)
{
    (void)state;
    static const td_image_step steps[] = {{.kind = TD_IMAGE_RESIZE, .height = 2, .width = 6},
                                          {.kind = TD_IMAGE_HWC_TO_CHW},
                                          {.kind = TD_IMAGE_RESCALE, .factor = 2, .shift = 1},
                                          {.kind = TD_IMAGE_TYPE_CAST, .dtype = TD_F32}};
    static const float first_row[] = {0, 0, 1, 1, 2, 2}; /* 0, 0.25, 0.75, 1.25, 1.75, 2 as whole bytes */
    td_dataset_options options = image_options();
    options.image_steps = steps;
    options.n_image_steps = 4;
    td_dataset *dataset = NULL;
    td_batch batch;
    expect_ok(td_dataset_open(&options, &dataset));
    td_loader *loader = first_batch(dataset, TD_PART_TRAIN, &batch);
    for (int i = 0; i < 6; i++)
        assert_true(((const float *)batch.fields[0].tensor.data)[i] == 2 * first_row[i] + 1);
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_files_that_do_not_hold_what_they_say_are_refused(void **state)
{
    (void)state;
    td_dataset_options options = image_options();
    td_dataset *dataset = NULL;
    (void)write_bytes("train-images-idx3-ubyte", images, sizeof images - 1);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "it ends 1 byte before its header says");
    unsigned char longer[sizeof images + 1];
    memcpy(longer, images, sizeof images);
    longer[sizeof images] = 0;
    (void)write_bytes("train-images-idx3-ubyte", longer, sizeof longer);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "it goes on after the 18 bytes");
    (void)write_bytes("train-images-idx3-ubyte", "\0\0\15\3\0\0\0\0\0\0\0\1\0\0\0\1", 16);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "its elements are of type 13");
    (void)write_bytes("train-images-idx3-ubyte", "PNG", 3);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "it ends 1 byte before");
    (void)write_bytes("train-images-idx3-ubyte", "\0\0\10\3\0\0\0\1\0\0\0\0\0\0\0\1", 16);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "dimension 1 is 0");
    (void)write_bytes("train-images-idx3-ubyte", "\0\0\10\3\0\0\0\1\0\0\0\1\0\0\0\1\0", 17);
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "has 1 image, ");
    options.train = write_bytes("pictures", images, sizeof images);
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "a file of images is named");
    options.train = own_path("none-images-idx3");
    expect_error(td_dataset_open(&options, &dataset), TD_NOT_FOUND, "cannot open: No such file");
}

static void test_steps_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const td_image_step twice[] = {{.kind = TD_IMAGE_HWC_TO_CHW}, {.kind = TD_IMAGE_HWC_TO_CHW}},
                               never[] = {{.kind = TD_IMAGE_RESCALE, .factor = 1}},
                               empty[] = {{.kind = TD_IMAGE_RESIZE, .height = 0, .width = 3}};
    static const struct {
        const td_image_step *steps;
        int32_t n;
        const char *message;
    } bad[] = {{twice, 2, "hwc_to_chw twice"}, {never, 1, "add the step hwc_to_chw"}, {empty, 1, "resized to 0 x 3"}};
    td_dataset_options options = image_options();
    td_dataset *dataset = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.image_steps = bad[i].steps;
        options.n_image_steps = bad[i].n;
        expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, bad[i].message);
    }
}

/* ---- a text -------------------------------------------------------------------------------------------------------------------- */

static td_dataset *open_text(int64_t test_windows)
{
    td_dataset_options options = td_dataset_defaults("text");
    options.train = write_text("text.txt", "abcabdabca"
                                           "bbaabbaabba"); /* 21 characters, the first 10 are for training */
    options.train_share = 0.5;
    options.context = 3;
    options.test_windows = test_windows;
    td_dataset *dataset = NULL;
    expect_ok(td_dataset_open(&options, &dataset));
    return dataset;
}

static void expect_window(const td_batch *batch, int64_t row, const char *text)
{
    const int64_t *ids = (const int64_t *)batch->fields[0].tensor.data + row * 4;
    for (int k = 0; k < 4; k++)
        assert_int_equal(ids[k], text[k] - 'a');
}

static void test_training_windows_begin_at_every_character(void **state)
{
    (void)state;
    td_dataset *dataset = open_text(0);
    td_batch batch;
    const td_schema_field *field = td_schema_find(td_dataset_schema(dataset), "ids");
    assert_int_equal(field->table_rows, 4);
    assert_memory_equal(field->symbols, "abcd", 4);
    td_loader *loader = first_batch(dataset, TD_PART_TRAIN, &batch);
    assert_int_equal(batch.samples, 7);
    expect_window(&batch, 0, "abca");
    expect_window(&batch, 6, "abca");
    expect_window(&batch, 5, "dabc");
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_test_windows_lie_side_by_side_or_evenly(void **state)
{
    (void)state;
    td_batch batch;
    td_dataset *dataset = open_text(0);
    td_loader *loader = first_batch(dataset, TD_PART_TEST, &batch); /* of "bbaabbaabba" */
    assert_int_equal(batch.samples, 3);
    expect_window(&batch, 0, "bbaa");
    expect_window(&batch, 1, "abba");
    expect_window(&batch, 2, "aabb");
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
    dataset = open_text(2);
    loader = first_batch(dataset, TD_PART_TEST, &batch);
    assert_int_equal(batch.samples, 2);
    expect_window(&batch, 0, "bbaa");
    expect_window(&batch, 1, "abba");
    td_loader_destroy(loader);
    td_dataset_destroy(dataset);
}

static void test_texts_shorter_than_a_window_are_refused(void **state)
{
    (void)state;
    td_dataset_options options = td_dataset_defaults("text");
    td_dataset *dataset = NULL;
    options.train = write_text("short.txt", "abc");
    expect_error(td_dataset_open(&options, &dataset), TD_DATA_ERROR, "its training part has 2 characters");
    options.context = 0;
    expect_error(td_dataset_open(&options, &dataset), TD_INVALID_ARGUMENT, "data.context is 0");
    options = td_dataset_defaults("text");
    options.train = own_path("none.txt");
    expect_error(td_dataset_open(&options, &dataset), TD_NOT_FOUND, "cannot open");
}

/* ---- a shuffle buffer ---------------------------------------------------------------------------------------------------------- */

static void test_a_shuffle_buffer_keeps_rows_within_their_run(void **state)
{
    (void)state;
    td_dataset *dataset = open_text(0);
    td_loader_options options = td_loader_defaults();
    options.batch = 7;
    options.shuffle_buffer = 3;
    options.epochs = 20;
    td_loader *loader = NULL;
    bool end, moved = false;
    expect_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    static const char text[] = "abcabdabca";
    for (int epoch = 0; epoch < 20; epoch++) {
        td_batch batch;
        expect_ok(source.next(source.self, &batch, &end));
        int seen[7] = {0};
        for (int row = 0; row < 7; row++) { /* which window of this row's run it is */
            int found = -1;
            for (int start = row / 3 * 3; start < row / 3 * 3 + 3 && start < 7; start++) {
                bool same = !seen[start];
                for (int k = 0; k < 4; k++)
                    same = same && ((const int64_t *)batch.fields[0].tensor.data)[row * 4 + k] == text[start + k] - 'a';
                found = found < 0 && same ? start : found;
            }
            assert_true(found >= 0);
            seen[found] = 1;
            moved = moved || found != row;
        }
        source.release(source.self, &batch);
    }
    assert_true(moved);
    td_loader_destroy(loader);
    options.shuffle_buffer = -1;
    expect_error(td_loader_create(dataset, &options, &loader), TD_INVALID_ARGUMENT, "data.shuffle_buffer is -1");
    td_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_come_as_floats_with_channels_first),
        cmocka_unit_test(test_colour_images_in_gzip_are_turned_to_channels_first),
        cmocka_unit_test(test_resizing_is_bilinear_and_keeps_bytes_whole),
        cmocka_unit_test(test_files_that_do_not_hold_what_they_say_are_refused),
        cmocka_unit_test(test_steps_that_make_no_sense_are_refused),
        cmocka_unit_test(test_training_windows_begin_at_every_character),
        cmocka_unit_test(test_test_windows_lie_side_by_side_or_evenly),
        cmocka_unit_test(test_texts_shorter_than_a_window_are_refused),
        cmocka_unit_test(test_a_shuffle_buffer_keeps_rows_within_their_run),
    };
    return cmocka_run_group_tests(tests, NULL, remove_own_folder);
}
