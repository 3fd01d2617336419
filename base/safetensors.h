/* Named tensors in a file, as huggingface/safetensors lays them out: 8 bytes with the length of a JSON header, the header
 * (name -> dtype, shape, byte range), then all data without gaps. F64 F32 F16 BF16 I64 I32 U8 BOOL.
 *
 *     td_safetensors *file = NULL;
 *     TD_TRY(td_safetensors_open("init.safetensors", &file));
 *     for (int64_t i = 0; i < td_safetensors_count(file); i++) {
 *         const td_safetensors_tensor *t = td_safetensors_at(file, i);
 *         TD_TRY_OR(status, done, td_safetensors_read(file, t, 0, t->bytes, room_for(t)));
 *     }
 *
 * Opening reads and checks the whole header: ranges that overlap, leave gaps or do not fit their shapes, duplicate names, a
 * file that is shorter or longer than it says. Data is read on demand and never interpreted. Errors start with the file's
 * name and are TD_DATA_ERROR where the file is at fault. Numbers are little-endian, as on every machine this runs on. */
#ifndef TANDEM_BASE_SAFETENSORS_H
#define TANDEM_BASE_SAFETENSORS_H

#include <stdint.h>

#include "tandem/backend.h"
#include "tandem/status.h"

typedef struct td_safetensors_tensor {
    const char *name; /* lives as long as the file is open */
    td_dtype dtype;
    int32_t rank;
    int64_t dims[TD_MAX_RANK]; /* row-major */
    int64_t elements, bytes;
    int64_t offset; /* of the first byte, in the file */
} td_safetensors_tensor;

/* ---- reading: any number of threads may read from one open file ----------------------------------------------------------- */

typedef struct td_safetensors td_safetensors;

td_status *td_safetensors_open(const char *path, td_safetensors **out_file) TD_MUST_USE;
void td_safetensors_close(td_safetensors *file);
int64_t td_safetensors_count(const td_safetensors *file);
/* In the order of their data. */
const td_safetensors_tensor *td_safetensors_at(const td_safetensors *file, int64_t index);
/* NULL where there is none. */
const td_safetensors_tensor *td_safetensors_find(const td_safetensors *file, const char *name);
/* An error where there is none: TD_NOT_FOUND, with the nearest name. */
td_status *td_safetensors_require(const td_safetensors *file, const char *name,
                                  const td_safetensors_tensor **out_tensor) TD_MUST_USE;
/* Bytes [begin, begin + bytes) of a tensor's data. */
td_status *td_safetensors_read(const td_safetensors *file, const td_safetensors_tensor *tensor, int64_t begin,
                               int64_t bytes, void *out_data) TD_MUST_USE;
/* A text of the header's "__metadata__"; NULL where there is none. */
const char *td_safetensors_metadata(const td_safetensors *file, const char *key);

/* ---- writing: one thread at a time ------------------------------------------------------------------------------------------
 *
 *     TD_TRY(td_safetensors_create(path, &writer));
 *     TD_TRY_OR(status, fail, td_safetensors_declare(writer, "w", TD_F32, 2, dims));   // all tensors first
 *     TD_TRY_OR(status, fail, td_safetensors_write(writer, "w", 0, bytes, data));      // then data, in any order and pieces
 *     return td_safetensors_commit(writer);
 * fail:
 *     td_safetensors_discard(writer);
 *
 * The file appears under its name when it is complete (base/file.h). Nothing of the data is held in memory. Tensors lie in the
 * order of their declaration, wider dtypes first, so that each is aligned for readers that map the file. */

typedef struct td_safetensors_writer td_safetensors_writer;

td_status *td_safetensors_create(const char *path, td_safetensors_writer **out_writer) TD_MUST_USE;
/* Before the first write. Names are UTF-8 and differ. */
td_status *td_safetensors_declare(td_safetensors_writer *writer, const char *name, td_dtype dtype, int32_t rank,
                                  const int64_t *dims) TD_MUST_USE;
/* A text in the header's "__metadata__"; before the first write. */
td_status *td_safetensors_annotate(td_safetensors_writer *writer, const char *key, const char *text) TD_MUST_USE;
/* Bytes [begin, begin + bytes) of a declared tensor. Each byte is to be written once. */
td_status *td_safetensors_write(td_safetensors_writer *writer, const char *name, int64_t begin, int64_t bytes,
                                const void *data) TD_MUST_USE;
/* Takes the writer, also when it fails. It is an error if a tensor was not written whole. */
td_status *td_safetensors_commit(td_safetensors_writer *writer) TD_MUST_USE;
/* NULL is fine. */
void td_safetensors_discard(td_safetensors_writer *writer);

#endif
