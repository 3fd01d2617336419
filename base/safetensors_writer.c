/* Writing safetensors files: see base/safetensors.h. The first write settles the layout and puts the header down; from then
 * on every piece of data has its place in the file. */
#include "base/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors_format.h"

typedef struct entry {
    td_safetensors_tensor tensor;
    char *name;
    int64_t declared; /* position in the order of declaration */
    int64_t written;  /* bytes */
} entry;

struct td_safetensors_writer {
    char *path;
    td_file_writer *file;
    entry *entries; /* after the layout: in the order of their data */
    int64_t n_entries, capacity;
    json_t *metadata, *indices; /* name -> index of the entry */
    bool laid_out;
};

td_status *td_safetensors_create(const char *path, td_safetensors_writer **out_writer)
{
    *out_writer = NULL;
    td_safetensors_writer *writer = NULL;
    td_status *status = NULL;
    TD_TRY(TD_NEW(writer, 1));
    writer->path = td_strdup(path);
    writer->metadata = json_object();
    writer->indices = json_object();
    if (!writer->path || !writer->metadata || !writer->indices)
        TD_TRY_OR(status, fail, TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", path));
    TD_TRY_OR(status, fail, td_file_writer_open(path, &writer->file));
    *out_writer = writer;
    return NULL;
fail:
    td_safetensors_discard(writer);
    return status;
}

void td_safetensors_discard(td_safetensors_writer *writer)
{
    if (!writer)
        return;
    td_file_writer_discard(writer->file);
    for (int64_t i = 0; i < writer->n_entries; i++)
        td_free(writer->entries[i].name);
    td_free(writer->entries);
    json_decref(writer->metadata);
    json_decref(writer->indices);
    td_free(writer->path);
    td_free(writer);
}

/* ---- declaring -------------------------------------------------------------------------------------------------------------- */

static td_status *check_open(const td_safetensors_writer *writer, const char *name)
{
    if (writer->laid_out)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: \"%.200s\" comes after the first data; declare everything before",
                        writer->path, name);
    return NULL;
}

static td_status *check_declaration(const td_safetensors_writer *writer, const char *name, td_dtype dtype, int32_t rank,
                                    const int64_t *dims, td_safetensors_tensor *out_tensor)
{
    TD_TRY(check_open(writer, name));
    if (json_object_get(writer->indices, name) || strcmp(name, "__metadata__") == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: tensor \"%.200s\" is declared twice, or the name is reserved",
                        writer->path, name);
    if ((int)dtype < 0 || dtype >= TD_DTYPE_COUNT || rank < 0 || rank > TD_MAX_RANK)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: tensor \"%.200s\": dtype %d with %d dimensions cannot be written",
                        writer->path, name, (int)dtype, rank);
    *out_tensor = (td_safetensors_tensor){.dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++)
        out_tensor->dims[i] = dims[i];
    if (!td_safetensors_size(dtype, rank, dims, &out_tensor->elements, &out_tensor->bytes))
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "%s: tensor \"%.200s\": its shape has a negative dimension or too many elements", writer->path,
                        name);
    return NULL;
}

td_status *td_safetensors_declare(td_safetensors_writer *writer, const char *name, td_dtype dtype, int32_t rank,
                                  const int64_t *dims)
{
    td_safetensors_tensor tensor;
    TD_TRY(check_declaration(writer, name, dtype, rank, dims, &tensor));
    entry *entries = writer->entries;
    TD_TRY(td_grow(&entries, &writer->capacity, writer->n_entries, sizeof *entries));
    writer->entries = entries;
    char *copy = td_strdup(name);
    if (!copy)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", writer->path);
    if (json_object_set_new(writer->indices, copy, json_integer(writer->n_entries)) != 0) {
        td_free(copy);
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: a tensor's name is not valid UTF-8 (or there is no memory)",
                        writer->path);
    }
    tensor.name = copy;
    writer->entries[writer->n_entries] = (entry){.tensor = tensor, .name = copy, .declared = writer->n_entries};
    writer->n_entries++;
    return NULL;
}

td_status *td_safetensors_annotate(td_safetensors_writer *writer, const char *key, const char *text)
{
    TD_TRY(check_open(writer, key));
    if (json_object_set_new(writer->metadata, key, json_string(text)) != 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: metadata is not valid UTF-8 (or there is no memory)", writer->path);
    return NULL;
}

/* ---- the layout --------------------------------------------------------------------------------------------------------------- */

static int wider_first(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int64_t x_bytes = td_safetensors_dtypes[x->tensor.dtype].bytes,
            y_bytes = td_safetensors_dtypes[y->tensor.dtype].bytes;
    if (x_bytes != y_bytes)
        return x_bytes > y_bytes ? -1 : 1;
    return x->declared < y->declared ? -1 : 1;
}

/* One tensor's entry in the header; its data begins at `begin` of the data section. NULL: no memory. */
static json_t *header_entry(const td_safetensors_tensor *t, int64_t begin)
{
    json_t *shape = json_array();
    for (int32_t i = 0; shape && i < t->rank; i++)
        if (json_array_append_new(shape, json_integer(t->dims[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    if (!shape)
        return NULL;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", td_safetensors_dtypes[t->dtype].name, "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

/* Offsets are relative to the data section until the header's length is known. */
static td_status *lay_out(td_safetensors_writer *writer, json_t *header)
{
    int64_t end = 0;
    bool good =
        json_object_size(writer->metadata) == 0 || json_object_set(header, "__metadata__", writer->metadata) == 0;
    for (int64_t i = 0; i < writer->n_entries; i++) {
        entry *each = &writer->entries[i];
        each->tensor.offset = end;
        if (!td_add_checked(end, each->tensor.bytes, &end) || end > INT64_MAX - TD_SAFETENSORS_LONGEST_HEADER - 16)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: the tensors have more than 2^63 bytes together", writer->path);
        good = good && json_object_set_new(header, each->name, header_entry(&each->tensor, each->tensor.offset)) == 0 &&
               json_object_set_new(writer->indices, each->name, json_integer(i)) == 0;
    }
    return good ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for the header", writer->path);
}

/* The length, the header, and blanks so that the data is aligned. */
static td_status *put_header(td_safetensors_writer *writer, const char *text)
{
    uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
    if (padded > TD_SAFETENSORS_LONGEST_HEADER)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: a header of %llu bytes; %d are allowed", writer->path,
                        (unsigned long long)padded, TD_SAFETENSORS_LONGEST_HEADER);
    unsigned char prefix[TD_SAFETENSORS_LENGTH_BYTES];
    for (int i = 0; i < TD_SAFETENSORS_LENGTH_BYTES; i++)
        prefix[i] = (unsigned char)(padded >> (8 * i));
    TD_TRY(td_file_writer_append(writer->file, prefix, sizeof prefix));
    TD_TRY(td_file_writer_append(writer->file, text, length));
    TD_TRY(td_file_writer_append(writer->file, "       ", padded - length));
    for (int64_t i = 0; i < writer->n_entries; i++)
        writer->entries[i].tensor.offset += TD_SAFETENSORS_LENGTH_BYTES + (int64_t)padded;
    return NULL;
}

static td_status *begin_data(td_safetensors_writer *writer)
{
    writer->laid_out = true;
    if (writer->n_entries)
        qsort(writer->entries, (size_t)writer->n_entries, sizeof *writer->entries, wider_first);
    json_t *header = json_object();
    if (!header)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for the header", writer->path);
    td_status *status = lay_out(writer, header);
    char *text = status ? NULL : json_dumps(header, JSON_COMPACT);
    if (!status && !text)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for the header", writer->path);
    if (!status)
        status = put_header(writer, text);
    free(text); /* jansson's */
    json_decref(header);
    return status;
}

/* ---- the data ------------------------------------------------------------------------------------------------------------------ */

td_status *td_safetensors_write(td_safetensors_writer *writer, const char *name, int64_t begin, int64_t bytes,
                                const void *data)
{
    if (!writer->laid_out)
        TD_TRY(begin_data(writer));
    json_t *index = json_object_get(writer->indices, name);
    if (!index)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: tensor \"%.200s\" was not declared", writer->path, name);
    entry *each = &writer->entries[json_integer_value(index)];
    if (begin < 0 || bytes < 0 || bytes > each->tensor.bytes || begin > each->tensor.bytes - bytes)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: tensor \"%.200s\" has %lld bytes; %lld from %lld were written",
                        writer->path, name, (long long)each->tensor.bytes, (long long)bytes, (long long)begin);
    TD_TRY(td_file_writer_write_at(writer->file, each->tensor.offset + begin, data, (size_t)bytes));
    each->written += bytes;
    return NULL;
}

static td_status *check_complete(const td_safetensors_writer *writer)
{
    for (int64_t i = 0; i < writer->n_entries; i++) {
        const entry *each = &writer->entries[i];
        if (each->written != each->tensor.bytes)
            return TD_ERROR(TD_INVALID_ARGUMENT, "%s: tensor \"%.200s\" has %lld bytes, %lld were written",
                            writer->path, each->name, (long long)each->tensor.bytes, (long long)each->written);
    }
    return NULL;
}

td_status *td_safetensors_commit(td_safetensors_writer *writer)
{
    td_status *status = writer->laid_out ? NULL : begin_data(writer);
    if (!status)
        status = check_complete(writer);
    if (!status) {
        status = td_file_writer_commit(writer->file);
        writer->file = NULL;
    }
    td_safetensors_discard(writer);
    return status;
}
