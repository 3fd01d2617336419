/* Images in IDX files, as MNIST comes: data.train is the images' file, its labels are beside it, named alike with "images-idx3"
 * as "labels-idx1" (images-idx4 for colour, [N, height, width, channels]). Bytes stay as read; each batch takes its images
 * through the steps of data/images.h, in whichever worker makes it. */
#include "data/reader.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "data/fill.h"
#include "data/idx.h"
#include "data/images.h"

enum { IMAGE, LABEL }; /* fields */

/* One part's files. */
typedef struct image_part {
    td_idx images, labels;
} image_part;

typedef struct image_data {
    image_part parts[2]; /* td_part */
    td_image_form form;  /* as read */
    td_image_step *steps;
    int32_t n_steps;
    int64_t work_floats, out_bytes; /* of one image */
} image_data;

static void destroy(void *generator)
{
    image_data *data = generator;
    for (int part = 0; data && part < 2; part++) {
        td_idx_deinit(&data->parts[part].images);
        td_idx_deinit(&data->parts[part].labels);
    }
    if (data)
        td_free(data->steps);
    td_free(data);
}

static td_status *check(const td_dataset_options *options)
{
    if (!options->train)
        return TD_ERROR(TD_INVALID_ARGUMENT, "data: format idx needs a file of images (data.train)");
    return NULL;
}

/* "a/train-images-idx3-ubyte.gz" -> "a/train-labels-idx1-ubyte.gz". */
static td_status *labels_path(const char *images, char **out_path)
{
    static const char from[] = "images-idx", to[] = "labels-idx1";
    const char *at = NULL;
    for (const char *next = strstr(images, from); next; next = strstr(next + 1, from))
        at = next;
    *out_path = NULL;
    if (!at || !at[sizeof from - 1])
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "data: \"%s\": a file of images is named ..images-idx3.., its labels beside it ..labels-idx1..",
                        images);
    *out_path = td_format("%.*s%s%s", (int)(at - images), images, to, at + sizeof from);
    return *out_path ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
}

static td_status *read_part(const char *path, int64_t most, image_part *part)
{
    char *labels = NULL;
    TD_TRY(labels_path(path, &labels));
    td_status *status = td_idx_read(path, 3, 4, most, &part->images);
    if (!status)
        status = td_idx_read(labels, 1, 1, most, &part->labels);
    if (!status && part->images.dims[0] != part->labels.dims[0])
        status = TD_ERROR(TD_DATA_ERROR, "%s has %s, %s %s", path, TD_COUNTED(part->images.dims[0], "image"), labels,
                          TD_COUNTED(part->labels.dims[0], "label"));
    td_free(labels);
    return status;
}

static td_image_form form_of(const td_idx *images)
{
    return (td_image_form){.height = images->dims[1],
                           .width = images->dims[2],
                           .channels = images->rank == 4 ? images->dims[3] : 1,
                           .dtype = TD_U8};
}

static td_status *read_parts(const td_dataset_options *options, image_data *data)
{
    TD_TRY(read_part(options->train, options->most_rows, &data->parts[TD_PART_TRAIN]));
    data->form = form_of(&data->parts[TD_PART_TRAIN].images);
    if (!options->test)
        return NULL;
    TD_TRY(read_part(options->test, options->most_rows, &data->parts[TD_PART_TEST]));
    const td_image_form test = form_of(&data->parts[TD_PART_TEST].images);
    if (test.height != data->form.height || test.width != data->form.width || test.channels != data->form.channels)
        return TD_ERROR(TD_DATA_ERROR, "%s has images of %lld x %lld, %s of %lld x %lld", options->train,
                        (long long)data->form.height, (long long)data->form.width, options->test,
                        (long long)test.height, (long long)test.width);
    return NULL;
}

/* The steps asked for, or: bytes over 255, channels first. */
static td_status *copy_steps(const td_dataset_options *options, image_data *data)
{
    static const td_image_step usual[] = {{.kind = TD_IMAGE_RESCALE, .factor = 1.0 / 255},
                                          {.kind = TD_IMAGE_HWC_TO_CHW}};
    const td_image_step *from = options->n_image_steps ? options->image_steps : usual;
    data->n_steps = options->n_image_steps ? options->n_image_steps : 2;
    TD_TRY(TD_NEW(data->steps, data->n_steps));
    memcpy(data->steps, from, (size_t)data->n_steps * sizeof *from);
    return NULL;
}

static td_status *fill(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                       const int32_t *which, td_tensor *tensors)
{
    const image_data *data = dataset->generator;
    float *work = NULL;
    TD_TRY(TD_NEW(work, 2 * data->work_floats));
    for (int64_t i = 0; i < n; i++) {
        const bool train = rows[i] < dataset->schema.train_rows;
        const image_part *part = &data->parts[train ? TD_PART_TRAIN : TD_PART_TEST];
        const int64_t row = train ? rows[i] : rows[i] - dataset->schema.train_rows;
        for (int32_t f = 0; f < n_fields; f++)
            if (which[f] == IMAGE)
                td_image_transform(data->steps, data->n_steps, data->form,
                                   part->images.data + row * part->images.item_bytes, work,
                                   (char *)tensors[f].data + i * data->out_bytes);
            else
                ((int64_t *)tensors[f].data)[i] = part->labels.data[row];
    }
    for (int32_t f = 0; f < n_fields; f++)
        td_fill_dims(&dataset->fields[which[f]], n, &tensors[f]);
    td_free(work);
    return NULL;
}

/* Classes are counted from 0 to the largest label of both parts. */
static int64_t count_classes(const image_data *data)
{
    int64_t classes = 1;
    for (int part = 0; part < 2; part++)
        for (int64_t i = 0; i < data->parts[part].labels.dims[0]; i++)
            classes = data->parts[part].labels.data[i] >= classes ? data->parts[part].labels.data[i] + 1 : classes;
    return classes;
}

static td_status *add_fields(td_dataset *dataset, image_data *data)
{
    td_image_form form = data->form;
    for (int32_t i = 0; i < data->n_steps; i++)
        TD_TRY(td_image_step_form(&data->steps[i], &form));
    if (!form.channels_first)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "data: images must end with their channels first; add the step hwc_to_chw");
    data->work_floats = td_image_work_floats(data->steps, data->n_steps, data->form);
    const int64_t pixels = form.height * form.width * form.channels;
    data->out_bytes = pixels * (form.dtype == TD_F32 ? (int64_t)sizeof(float) : 1);
    TD_TRY(td_dataset_add_field(dataset, (td_field_form){.name = "image",
                                                         .rank = 4,
                                                         .width = pixels,
                                                         .dims = {form.channels, form.height, form.width},
                                                         .dtype = form.dtype,
                                                         .first_column = -1}));
    TD_TRY(td_dataset_add_field(
        dataset,
        (td_field_form){
            .name = "label", .role = TD_FIELD_LABEL, .rank = 1, .width = 1, .dtype = TD_I64, .first_column = -1}));
    dataset->fields[LABEL].table_rows = count_classes(data);
    return NULL;
}

static td_status *describe(const td_dataset_options *options, td_dataset *dataset)
{
    image_data *data = NULL;
    TD_TRY(TD_NEW(data, 1));
    dataset->generator = data;
    dataset->generator_destroy = destroy;
    dataset->fill = fill;
    dataset->counts.positive_rows = -1;
    TD_TRY(copy_steps(options, data));
    TD_TRY(read_parts(options, data));
    dataset->schema.train_rows = data->parts[TD_PART_TRAIN].labels.dims[0];
    dataset->schema.test_rows = data->parts[TD_PART_TEST].labels.dims[0];
    return add_fields(dataset, data);
}

const td_reader td_reader_idx = {
    .name = "idx",
    .summary = "images and their classes in IDX files, as MNIST comes",
    .check = check,
    .describe = describe,
};
