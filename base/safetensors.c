/* Reading safetensors files: see base/safetensors.h. The header is parsed by jansson into a table of tensors, which is then
 * sorted by offset: the data is whole exactly when each range begins where the one before it ends. */
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_error.h"
#include "base/nearest.h"
#include "base/safetensors_format.h"
#include "base/units.h"

struct td_safetensors {
    char *path;
    int file;
    int64_t file_bytes, data_begin;
    json_t *header; /* owns the names */
    td_safetensors_tensor *tensors;
    int64_t n_tensors;
    int64_t *by_name; /* indices of tensors in the order of their names */
};

/* ---- the file ------------------------------------------------------------------------------------------------------------- */

static td_status *read_at(const td_safetensors *file, void *out, int64_t bytes, int64_t offset)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(file->file, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return td_file_error(file->path, "read", errno);
        if (n == 0)
            return TD_ERROR(TD_DATA_ERROR, "%s: became shorter while it was read", file->path);
        done += n;
    }
    return NULL;
}

static td_status *open_file(td_safetensors *file)
{
    file->file = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe it would wait for a writer */
    struct stat info;
    if (file->file < 0 || fstat(file->file, &info) != 0)
        return td_file_error(file->path, "open", errno);
    if (!S_ISREG(info.st_mode))
        return td_file_not_regular(file->path);
    file->file_bytes = info.st_size;
    return NULL;
}

static td_status *parse_header(td_safetensors *file, const char *text, size_t length)
{
    json_error_t error;
    file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!file->header)
        return TD_ERROR(TD_DATA_ERROR, "%s: the header is not valid JSON: %s (byte %d)", file->path, error.text,
                        error.position);
    if (!json_is_object(file->header))
        return TD_ERROR(TD_DATA_ERROR, "%s: the header is not a JSON object", file->path);
    return NULL;
}

static td_status *read_header(td_safetensors *file)
{
    unsigned char prefix[TD_SAFETENSORS_LENGTH_BYTES];
    if (file->file_bytes < TD_SAFETENSORS_LENGTH_BYTES)
        return TD_ERROR(TD_DATA_ERROR, "%s: is too short for a safetensors file: %s", file->path,
                        TD_COUNTED(file->file_bytes, "byte"));
    TD_TRY(read_at(file, prefix, sizeof prefix, 0));
    uint64_t length = 0;
    for (int i = TD_SAFETENSORS_LENGTH_BYTES; i-- > 0;)
        length = length << 8 | prefix[i];
    if (length > TD_SAFETENSORS_LONGEST_HEADER)
        return TD_ERROR(TD_DATA_ERROR,
                        "%s: is not a safetensors file: it claims a header of %llu bytes, %d are allowed", file->path,
                        (unsigned long long)length, TD_SAFETENSORS_LONGEST_HEADER);
    file->data_begin = TD_SAFETENSORS_LENGTH_BYTES + (int64_t)length;
    if (file->data_begin > file->file_bytes)
        return TD_ERROR(TD_DATA_ERROR, "%s: is truncated: the header ends at byte %lld, the file at %lld", file->path,
                        (long long)file->data_begin, (long long)file->file_bytes);
    char *text = NULL;
    TD_TRY(TD_NEW(text, length + 1));
    td_status *status = read_at(file, text, (int64_t)length, TD_SAFETENSORS_LENGTH_BYTES);
    if (!status)
        status = parse_header(file, text, (size_t)length);
    td_free(text);
    return status;
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------------ */

#define TENSOR_ERROR(file, t, format, ...)                                                                             \
    TD_ERROR(TD_DATA_ERROR, "%s: tensor \"%.200s\": " format, (file)->path, (t)->name, __VA_ARGS__)

static td_status *read_dtype(const td_safetensors *file, td_safetensors_tensor *t, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; name && i < TD_DTYPE_COUNT; i++) {
        if (strcmp(name, td_safetensors_dtypes[i].name) != 0)
            continue;
        t->dtype = (td_dtype)i;
        return NULL;
    }
    return TENSOR_ERROR(file, t, "dtype %.20s is not one of F64 F32 F16 BF16 I64 I32 U8 BOOL", name ? name : "(none)");
}

static td_status *read_shape(const td_safetensors *file, td_safetensors_tensor *t, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return TENSOR_ERROR(file, t, "%s", "has no shape");
    if (json_array_size(shape) > TD_MAX_RANK)
        return TENSOR_ERROR(file, t, "has %zu dimensions, %d are supported", json_array_size(shape), TD_MAX_RANK);
    t->rank = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < t->rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        t->dims[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || t->dims[i] < 0)
            return TENSOR_ERROR(file, t, "dimension %d is not a whole number of 0 or more", i);
    }
    if (!td_safetensors_size(t->dtype, t->rank, t->dims, &t->elements, &t->bytes))
        return TENSOR_ERROR(file, t, "%s", "its shape has too many elements");
    return NULL;
}

static td_status *read_range(const td_safetensors *file, td_safetensors_tensor *t, const json_t *entry)
{
    const json_t *range = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(range, 0), *last = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return TENSOR_ERROR(file, t, "%s", "data_offsets must be two whole numbers");
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    int64_t available = file->file_bytes - file->data_begin;
    if (begin < 0 || end < begin)
        return TENSOR_ERROR(file, t, "data_offsets [%lld, %lld] are no range", (long long)begin, (long long)end);
    if (end > available)
        return TENSOR_ERROR(file, t, "its data ends at byte %lld of %lld: the file is truncated", (long long)end,
                            (long long)available);
    if (end - begin != t->bytes)
        return TENSOR_ERROR(file, t, "its shape needs %lld bytes, data_offsets give it %lld", (long long)t->bytes,
                            (long long)(end - begin));
    t->offset = file->data_begin + begin;
    return NULL;
}

static td_status *read_tensor(const td_safetensors *file, td_safetensors_tensor *t, const char *name,
                              const json_t *entry)
{
    t->name = name;
    if (!json_is_object(entry))
        return TENSOR_ERROR(file, t, "%s", "its entry in the header is not an object");
    TD_TRY(read_dtype(file, t, entry));
    TD_TRY(read_shape(file, t, entry));
    return read_range(file, t, entry);
}

/* ---- all tensors ------------------------------------------------------------------------------------------------------------ */

static int by_offset(const void *a, const void *b)
{
    const td_safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) /* an empty one before the one that begins where it stands */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const td_safetensors_tensor *all = tensors;
    return strcmp(all[*(const int64_t *)a].name, all[*(const int64_t *)b].name);
}

static td_status *check_coverage(const td_safetensors *file)
{
    int64_t end = file->data_begin;
    for (int64_t i = 0; i < file->n_tensors; i++) {
        const td_safetensors_tensor *t = &file->tensors[i];
        if (t->offset < end)
            return TENSOR_ERROR(file, t, "its data overlaps that of \"%.200s\"", file->tensors[i - 1].name);
        if (t->offset > end)
            return TENSOR_ERROR(file, t, "%s before its data %s to no tensor", TD_COUNTED(t->offset - end, "byte"),
                                t->offset - end == 1 ? "belongs" : "belong");
        end += t->bytes;
    }
    if (end != file->file_bytes)
        return TD_ERROR(TD_DATA_ERROR, "%s: %s at the end %s to no tensor", file->path,
                        TD_COUNTED(file->file_bytes - end, "byte"), file->file_bytes - end == 1 ? "belongs" : "belong");
    return NULL;
}

static td_status *check_metadata(const td_safetensors *file, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (metadata && !json_is_object(metadata))
        return TD_ERROR(TD_DATA_ERROR, "%s: __metadata__ is not an object", file->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return TD_ERROR(TD_DATA_ERROR, "%s: __metadata__ \"%.200s\" is not a string", file->path, key);
    }
    return NULL;
}

static td_status *read_tensors(td_safetensors *file)
{
    json_t *metadata = json_object_get(file->header, "__metadata__"), *entry;
    TD_TRY(check_metadata(file, metadata));
    TD_TRY(TD_NEW(file->tensors, json_object_size(file->header) + 1));
    TD_TRY(TD_NEW(file->by_name, json_object_size(file->header) + 1));
    const char *name;
    json_object_foreach(file->header, name, entry)
    {
        if (entry == metadata)
            continue;
        TD_TRY(read_tensor(file, &file->tensors[file->n_tensors], name, entry));
        file->n_tensors++;
    }
    qsort(file->tensors, (size_t)file->n_tensors, sizeof *file->tensors, by_offset);
    for (int64_t i = 0; i < file->n_tensors; i++)
        file->by_name[i] = i;
    qsort_r(file->by_name, (size_t)file->n_tensors, sizeof *file->by_name, by_name, file->tensors);
    return check_coverage(file);
}

td_status *td_safetensors_open(const char *path, td_safetensors **out_file)
{
    *out_file = NULL;
    td_safetensors *file = NULL;
    td_status *status = NULL;
    TD_TRY(TD_NEW(file, 1));
    file->file = -1;
    file->path = td_strdup(path);
    if (!file->path)
        TD_TRY_OR(status, fail, TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", path));
    TD_TRY_OR(status, fail, open_file(file));
    TD_TRY_OR(status, fail, read_header(file));
    TD_TRY_OR(status, fail, read_tensors(file));
    *out_file = file;
    return NULL;
fail:
    td_safetensors_close(file);
    return status;
}

void td_safetensors_close(td_safetensors *file)
{
    if (!file)
        return;
    if (file->file >= 0)
        (void)close(file->file);
    json_decref(file->header);
    td_free(file->tensors);
    td_free(file->by_name);
    td_free(file->path);
    td_free(file);
}

/* ---- looking things up ------------------------------------------------------------------------------------------------------- */

int64_t td_safetensors_count(const td_safetensors *file)
{
    return file->n_tensors;
}

const td_safetensors_tensor *td_safetensors_at(const td_safetensors *file, int64_t index)
{
    return &file->tensors[index];
}

const td_safetensors_tensor *td_safetensors_find(const td_safetensors *file, const char *name)
{
    int64_t low = 0, high = file->n_tensors;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const td_safetensors_tensor *t = &file->tensors[file->by_name[middle]];
        int order = strcmp(name, t->name);
        if (order == 0)
            return t;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const char *name_at(const void *context, int32_t index)
{
    const td_safetensors *file = context;
    return file->tensors[index].name;
}

td_status *td_safetensors_require(const td_safetensors *file, const char *name,
                                  const td_safetensors_tensor **out_tensor)
{
    *out_tensor = td_safetensors_find(file, name);
    if (*out_tensor)
        return NULL;
    int32_t n = file->n_tensors < 100000 ? (int32_t)file->n_tensors : 100000; /* enough for a hint */
    const char *nearest = td_nearest(name, n, name_at, file);
    if (!nearest)
        return TD_ERROR(TD_NOT_FOUND, "%s: has no tensor \"%s\"; it is empty", file->path, name);
    return TD_ERROR(TD_NOT_FOUND, "%s: has no tensor \"%s\"; the nearest of its %s is \"%.200s\"", file->path, name,
                    TD_COUNTED(file->n_tensors, "name"), nearest);
}

td_status *td_safetensors_read(const td_safetensors *file, const td_safetensors_tensor *tensor, int64_t begin,
                               int64_t bytes, void *out_data)
{
    if (begin < 0 || bytes < 0 || bytes > tensor->bytes || begin > tensor->bytes - bytes)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: tensor \"%.200s\" has %lld bytes; %lld from %lld were asked for",
                        file->path, tensor->name, (long long)tensor->bytes, (long long)bytes, (long long)begin);
    return read_at(file, out_data, bytes, tensor->offset + begin);
}

const char *td_safetensors_metadata(const td_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}
