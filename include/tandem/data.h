/* Batches and where they come from.
 *
 * A source hands out batches of named host tensors; the session asks for the next one while steps run, which is what makes
 * look-ahead possible. A batch stays valid until it is released, so no copy is made of it.
 *
 *     td_batch batch;
 *     bool end = false;
 *     TD_TRY(source.next(source.self, &batch, &end));
 *     ... batch.fields[i].tensor ...
 *     source.release(source.self, &batch);
 *
 * `next` and `release` are called from one thread at a time, but perhaps not always the same one; several batches may be
 * out at once (at most three). */
#ifndef TANDEM_DATA_H
#define TANDEM_DATA_H

#include "tandem/backend.h"
#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One input of the graph: its name there, and a host tensor at actual extents (dense or ragged). */
typedef struct td_field {
    const char *name;
    td_tensor tensor;
} td_field;

typedef struct td_batch {
    int64_t samples; /* rows of this batch; the last one of an epoch may be short */
    int64_t epoch;   /* from 0 */
    int64_t index;   /* of the batch within the epoch, from 0 */
    int32_t n_fields;
    const td_field *fields;
    void *owner; /* the source's own */
} td_batch;

typedef struct td_source {
    void *self;
    /* The next batch; *out_end = true, and no batch, when there is none left. */
    td_status *(*next)(void *self, td_batch *out_batch, bool *out_end);
    void (*release)(void *self, td_batch *batch);
} td_source;

#ifdef __cplusplus
}
#endif
#endif
