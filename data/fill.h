/* From parsed rows to the tensors of a batch: td_dataset.fill of every format that stores its rows. */
#ifndef TANDEM_DATA_FILL_H
#define TANDEM_DATA_FILL_H

#include "data/dataset.h"

td_status *td_fill_rows(const td_dataset *dataset, const int64_t *rows, int64_t n, int32_t n_fields,
                        const int32_t *which, td_tensor *tensors) TD_MUST_USE;
/* Sets a dense tensor's dims for n rows of a field. */
void td_fill_dims(const td_schema_field *field, int64_t n, td_tensor *tensor);

#endif
