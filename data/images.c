/* Steps of an image: see data/images.h. Between steps numbers are floats; where the form says u8 they are whole, from 0 to 255.
 *
 *   resize      bilinear, as OpenCV and Pillow without a filter do: output pixel i reads at (i + 1/2) old / new - 1/2, within
 *               the image; bytes stay bytes, rounded to nearest
 *   rescale     x * factor + shift, f32
 *   hwc_to_chw  channels first
 *   type_cast   f32, or u8: cut off, within 0 to 255 */
#include "data/images.h"

#include <math.h>
#include <string.h>

static int64_t elements_of(const td_image_form *form)
{
    return form->height * form->width * form->channels;
}

td_status *td_image_step_form(const td_image_step *step, td_image_form *form)
{
    const int64_t most_side = 1 << 15;
    switch (step->kind) {
    case TD_IMAGE_RESIZE:
        if (step->height < 1 || step->width < 1 || step->height > most_side || step->width > most_side)
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: an image cannot be resized to %lld x %lld; sides are 1 to %lld",
                            (long long)step->height, (long long)step->width, (long long)most_side);
        form->height = step->height;
        form->width = step->width;
        return NULL;
    case TD_IMAGE_RESCALE:
        if (!isfinite(step->factor) || !isfinite(step->shift))
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: an image cannot be rescaled by %g and %g", step->factor,
                            step->shift);
        form->dtype = TD_F32;
        return NULL;
    case TD_IMAGE_HWC_TO_CHW:
        if (form->channels_first)
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: hwc_to_chw twice; channels are first already");
        form->channels_first = true;
        return NULL;
    case TD_IMAGE_TYPE_CAST:
        if (step->dtype != TD_F32 && step->dtype != TD_U8)
            return TD_ERROR(TD_INVALID_ARGUMENT, "data: an image's numbers are f32 or u8");
        form->dtype = step->dtype;
        return NULL;
    }
    return TD_ERROR(TD_INVALID_ARGUMENT, "data: image step %d is none", (int)step->kind);
}

int64_t td_image_work_floats(const td_image_step *steps, int32_t n, td_image_form form)
{
    int64_t most = elements_of(&form);
    for (int32_t i = 0; i < n; i++) {
        td_status_destroy(td_image_step_form(&steps[i], &form)); /* checked when the data set was opened */
        most = elements_of(&form) > most ? elements_of(&form) : most;
    }
    return most;
}

/* Where an output coordinate reads: between two input ones, and how far along. */
typedef struct between {
    int64_t low, high;
    float share;
} between;

static between between_of(int64_t i, int64_t new_size, int64_t old_size)
{
    const float at = ((float)i + 0.5f) * (float)old_size / (float)new_size - 0.5f;
    const float inside = fminf(fmaxf(at, 0), (float)(old_size - 1));
    between b = {.low = (int64_t)inside};
    b.high = b.low + 1 < old_size ? b.low + 1 : b.low;
    b.share = inside - (float)b.low;
    return b;
}

static int64_t index_of(const td_image_form *form, int64_t i, int64_t j, int64_t channel)
{
    return form->channels_first ? (channel * form->height + i) * form->width + j
                                : (i * form->width + j) * form->channels + channel;
}

static void resize(const td_image_form *from, const td_image_form *to, const float *x, float *y)
{
    for (int64_t i = 0; i < to->height; i++)
        for (int64_t j = 0; j < to->width; j++) {
            const between down = between_of(i, to->height, from->height), along = between_of(j, to->width, from->width);
            for (int64_t c = 0; c < to->channels; c++) {
                const float a = x[index_of(from, down.low, along.low, c)],
                            b = x[index_of(from, down.low, along.high, c)];
                const float d = x[index_of(from, down.high, along.low, c)],
                            e = x[index_of(from, down.high, along.high, c)];
                const float upper = fmaf(along.share, b - a, a), lower = fmaf(along.share, e - d, d);
                const float value = fmaf(down.share, lower - upper, upper);
                y[index_of(to, i, j, c)] = to->dtype == TD_U8 ? rintf(value) : value;
            }
        }
}

static void take_step(const td_image_step *step, const td_image_form *from, const td_image_form *to, const float *x,
                      float *y)
{
    const int64_t n = elements_of(from);
    switch (step->kind) {
    case TD_IMAGE_RESIZE:
        resize(from, to, x, y);
        return;
    case TD_IMAGE_RESCALE:
        for (int64_t i = 0; i < n; i++)
            y[i] = fmaf(x[i], (float)step->factor, (float)step->shift);
        return;
    case TD_IMAGE_HWC_TO_CHW:
        for (int64_t i = 0; i < from->height; i++)
            for (int64_t j = 0; j < from->width; j++)
                for (int64_t c = 0; c < from->channels; c++)
                    y[index_of(to, i, j, c)] = x[index_of(from, i, j, c)];
        return;
    case TD_IMAGE_TYPE_CAST:
        for (int64_t i = 0; i < n; i++)
            y[i] = to->dtype == TD_U8 ? truncf(fminf(fmaxf(x[i], 0), 255)) : x[i];
        return;
    }
}

void td_image_transform(const td_image_step *steps, int32_t n, td_image_form form, const uint8_t *from, float *work,
                        void *to)
{
    const int64_t room = td_image_work_floats(steps, n, form), first = elements_of(&form);
    float *x = work, *y = work + room;
    for (int64_t i = 0; i < first; i++)
        x[i] = from[i];
    for (int32_t i = 0; i < n; i++) {
        const td_image_form before = form;
        td_status_destroy(td_image_step_form(&steps[i], &form));
        take_step(&steps[i], &before, &form, x, y);
        float *other = x;
        x = y;
        y = other;
    }
    const int64_t last = elements_of(&form);
    if (form.dtype == TD_F32)
        memcpy(to, x, (size_t)last * sizeof *x);
    else
        for (int64_t i = 0; i < last; i++)
            ((uint8_t *)to)[i] = (uint8_t)x[i];
}
