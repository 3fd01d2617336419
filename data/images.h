/* What becomes of an image on its way into a batch: a list of steps (td_image_step), each from one form to the next. */
#ifndef TANDEM_DATA_IMAGES_H
#define TANDEM_DATA_IMAGES_H

#include "tandem/data.h"

/* An image as a step finds or leaves it. */
typedef struct td_image_form {
    int64_t height, width, channels;
    bool channels_first;
    td_dtype dtype; /* u8 or f32 */
} td_image_form;

/* The form after a step, or why it cannot be taken. */
td_status *td_image_step_form(const td_image_step *step, td_image_form *form) TD_MUST_USE;
/* Takes all steps. `from`: bytes [height, width, channels] of the first form; `to`: of the last one's dtype. `work`: two buffers
 * of td_image_work_floats each, one after the other. */
void td_image_transform(const td_image_step *steps, int32_t n, td_image_form form, const uint8_t *from, float *work,
                        void *to);
/* Elements of the largest form on the way. */
int64_t td_image_work_floats(const td_image_step *steps, int32_t n, td_image_form form);

#endif
