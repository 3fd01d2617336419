/* td_store_import: parameters from a safetensors file of another program, a piece of a few MiB at a time. All of the file is held
 * against the store before the first number changes, and every tensor at fault is named. */
#include <string.h>

#include "base/convert.h"
#include "base/glob.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/string.h"
#include "base/units.h"
#include "runtime/checkpoint.h"
#include "runtime/weight_names.h"

enum { PIECE_BYTES = 4 << 20, MOST_NAMED = 10 };

/* What an entry of the store gets. */
typedef struct assignment {
    td_source_tensor source; /* tensor NULL: it stays as it is */
    bool transpose;
} assignment;

typedef struct importing {
    td_store *store;
    const td_weights *weights;
    td_safetensors *file;
    assignment *entries; /* as the store's */
    bool *used;          /* of each tensor of the file */
    td_string faults;    /* a line each */
    int64_t n_faults;
} importing;

/* ---- checking ------------------------------------------------------------------------------------------------------------------- */

static void begin_fault(importing *im)
{
    if (im->n_faults++ < MOST_NAMED)
        td_string_append(&im->faults, "\n");
}

static bool names_fault(const importing *im)
{
    return im->n_faults <= MOST_NAMED;
}

static const char *name_at(const void *context, int32_t index)
{
    return td_safetensors_at(context, index)->name;
}

static void note_missing(importing *im, const char *parameter, const char *name)
{
    enum { MOST_COMPARED = 100000 };
    int64_t n = td_safetensors_count(im->file);
    begin_fault(im);
    if (!names_fault(im))
        return;
    const char *nearest = td_nearest(name, (int32_t)(n < MOST_COMPARED ? n : MOST_COMPARED), name_at, im->file);
    td_string_format(&im->faults, "missing: \"%s\" for parameter \"%s\"; the nearest of %s is \"%.200s\"", name,
                     parameter, TD_COUNTED(n, "name"), nearest ? nearest : "");
}

static bool shape_agrees(const td_safetensors_tensor *tensor, const td_tensor *wanted, bool transpose)
{
    if (tensor->rank != wanted->rank || (transpose && tensor->rank != 2))
        return false;
    for (int32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[transpose ? 1 - i : i] != wanted->dims[i])
            return false;
    return true;
}

static void note_type(importing *im, const td_store_entry *entry, const assignment *a, const char *what)
{
    const td_safetensors_tensor *tensor = a->source.tensor;
    char *found = td_source_type_text(tensor->dtype, tensor->rank, tensor->dims);
    char *wanted = td_source_type_text(entry->tensor.dtype, entry->tensor.rank, entry->tensor.dims);
    begin_fault(im);
    if (names_fault(im))
        td_string_format(&im->faults, "%s: \"%s\" is %s%s, parameter \"%s\" is %s", what, tensor->name,
                         found ? found : "?", a->transpose ? " before transposing" : "", entry->name,
                         wanted ? wanted : "?");
    td_free(found);
    td_free(wanted);
}

/* A NaN that training meets later would be laid at the door of an update. */
static td_status *check_numbers(const td_source_tensor *source)
{
    TD_TRY(td_source_check(source));
    return td_source_check_finite(source);
}

static td_status *assign(importing *im, int32_t index)
{
    const td_store_entry *entry = &im->store->entries[index];
    assignment *a = &im->entries[index];
    char *name = NULL;
    TD_TRY(td_weight_name_of(im->weights, entry->name, &name, &a->transpose));
    const td_safetensors_tensor *tensor = name ? td_safetensors_find(im->file, name) : NULL;
    if (name && !tensor)
        note_missing(im, entry->name, name);
    td_free(name);
    if (!tensor)
        return NULL;
    a->source = (td_source_tensor){im->file, tensor, entry->tensor.dtype};
    im->used[tensor - td_safetensors_at(im->file, 0)] = true; /* tensors lie side by side */
    if (!td_dtype_converts(tensor->dtype) || !td_dtype_converts(entry->tensor.dtype))
        note_type(im, entry, a, "no float");
    else if (!shape_agrees(tensor, &entry->tensor, a->transpose))
        note_type(im, entry, a, "another shape");
    else
        return td_status_prefix(check_numbers(&a->source), "%s", im->weights->file);
    return NULL;
}

static void note_extra(importing *im)
{
    for (int64_t i = 0; i < td_safetensors_count(im->file); i++) {
        const char *name = td_safetensors_at(im->file, i)->name;
        if (im->used[i] || td_weight_is_ignored(im->weights, name))
            continue;
        begin_fault(im);
        if (names_fault(im))
            td_string_format(&im->faults, "extra: no parameter gets \"%.200s\" (model.weights.ignore may name it)",
                             name);
    }
}

static td_status *refuse(importing *im)
{
    char *lines = NULL;
    if (im->n_faults > MOST_NAMED)
        td_string_format(&im->faults, "\nand %lld more", (long long)im->n_faults - MOST_NAMED);
    TD_TRY(td_string_finish(&im->faults, &lines));
    td_status *status = TD_ERROR(TD_INVALID_ARGUMENT, "%s does not fit the model: %s", im->weights->file,
                                 TD_COUNTED(im->n_faults, "tensor"));
    for (char *line = lines + 1, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        status = td_status_help(status, "%s", line);
    }
    td_free(lines);
    return status;
}

/* NULL: it is no parameter. */
static const char *parameter_at(const void *context, int32_t index)
{
    const td_store_entry *entry = &((const td_store *)context)->entries[index];
    return entry->is_parameter ? entry->name : NULL;
}

static bool matches_parameter(const td_store *store, const char *pattern)
{
    for (int32_t i = 0; i < store->n_entries; i++)
        if (parameter_at(store, i) && td_glob_match(pattern, store->entries[i].name))
            return true;
    return false;
}

/* A pattern without a parameter is a name that is spelled wrong: the parameter meant would be read from the file. */
static td_status *check_kept(const importing *im)
{
    char meant[TD_MEANT];
    for (int32_t k = 0; k < im->weights->n_keep; k++) {
        const char *pattern = im->weights->keep[k];
        if (!matches_parameter(im->store, pattern))
            return TD_ERROR(
                TD_INVALID_ARGUMENT, "model.weights.keep: \"%s\" matches no parameter%s", pattern,
                td_meant(meant, pattern, td_nearest(pattern, im->store->n_entries, parameter_at, im->store)));
    }
    return NULL;
}

static td_status *check_all(importing *im)
{
    TD_TRY(check_kept(im));
    for (int32_t i = 0; i < im->store->n_entries; i++)
        if (im->store->entries[i].is_parameter)
            TD_TRY(assign(im, i));
    note_extra(im);
    return im->n_faults ? refuse(im) : NULL;
}

/* ---- taking --------------------------------------------------------------------------------------------------------------------- */

static td_status *take_as_it_is(const importing *im, int32_t index, char *piece)
{
    const td_source_tensor *source = &im->entries[index].source;
    int64_t n = source->tensor->elements, most = PIECE_BYTES / (int64_t)td_dtype_bytes(source->dtype);
    TD_TRY(td_store_whole_rows(&im->store->entries[index], &most));
    for (int64_t first = 0; first < n; first += most) {
        int64_t count = n - first < most ? n - first : most;
        TD_TRY(td_source_read(source, first, count, piece));
        TD_TRY(td_store_write(im->store, index, first, count, piece));
    }
    return NULL;
}

/* Rows [first, first + n) of the parameter are columns of the file's matrix: read a stretch per row of it, and scatter. */
static td_status *take_columns(const importing *im, int32_t index, int64_t first, int64_t n, char *piece, char *stretch)
{
    const td_source_tensor *source = &im->entries[index].source;
    const int64_t rows = source->tensor->dims[0], columns = source->tensor->dims[1];
    const size_t size = td_dtype_bytes(source->dtype);
    for (int64_t row = 0; row < rows; row++) {
        TD_TRY(td_source_read(source, row * columns + first, n, stretch));
        for (int64_t i = 0; i < n; i++)
            memcpy(piece + (size_t)(i * rows + row) * size, stretch + (size_t)i * size, size);
    }
    return td_store_write(im->store, index, first * rows, n * rows, piece);
}

static td_status *take_transposed(const importing *im, int32_t index)
{
    const td_source_tensor *source = &im->entries[index].source;
    const int64_t rows = source->tensor->dims[0], columns = source->tensor->dims[1];
    const int64_t size = (int64_t)td_dtype_bytes(source->dtype), row_bytes = rows * size > 0 ? rows * size : 1;
    const int64_t most = PIECE_BYTES / row_bytes > 0 ? PIECE_BYTES / row_bytes : 1;
    char *piece = td_calloc((size_t)most, (size_t)row_bytes), *stretch = td_calloc((size_t)most, (size_t)size);
    td_status *status = piece && stretch ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for weights");
    for (int64_t first = 0; first < columns && !status; first += most)
        status = take_columns(im, index, first, columns - first < most ? columns - first : most, piece, stretch);
    td_free(piece);
    td_free(stretch);
    return status;
}

static td_status *take_all(const importing *im)
{
    char *piece = td_calloc(1, PIECE_BYTES);
    td_status *status = piece ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for weights");
    for (int32_t i = 0; i < im->store->n_entries && !status; i++)
        if (im->entries[i].source.tensor)
            status = im->entries[i].transpose ? take_transposed(im, i) : take_as_it_is(im, i, piece);
    td_free(piece);
    return status;
}

td_status *td_store_import(td_store *store, const td_weights *weights)
{
    importing im = {.store = store, .weights = weights};
    td_status *status = NULL;
    TD_TRY(td_weight_names_check(weights));
    TD_TRY(td_safetensors_open(weights->file, &im.file));
    TD_TRY_OR(status, done, TD_NEW(im.entries, store->n_entries + 1));
    TD_TRY_OR(status, done, TD_NEW(im.used, td_safetensors_count(im.file) + 1));
    TD_TRY_OR(status, done, check_all(&im));
    status = take_all(&im);
done:
    td_string_deinit(&im.faults);
    td_safetensors_close(im.file);
    td_free(im.entries);
    td_free(im.used);
    return status;
}
