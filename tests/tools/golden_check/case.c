/* Reads a golden case from its folder. See case.h. */
#include "tests/tools/golden_check/case.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { MOST_STEPS = 100000 };

/* ---- JSON ------------------------------------------------------------------------------------------------------------------- */

td_status *golden_json_load(const char *path, json_t **out_root)
{
    json_error_t error;
    *out_root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    return *out_root ? NULL : TD_ERROR(TD_DATA_ERROR, "%s:%d:%d: %s", path, error.line, error.column, error.text);
}

td_status *golden_json_get(const json_t *object, const char *key, json_type type, json_t **out_value)
{
    static const char *const names[] = {"object", "array", "string", "number", "number", "boolean", "boolean", "null"};
    *out_value = json_object_get(object, key);
    if (*out_value && (json_typeof(*out_value) == type || (type == JSON_REAL && json_is_number(*out_value))))
        return NULL;
    return TD_ERROR(TD_DATA_ERROR, "expected.json: there is no %s \"%s\" where one should be", names[type], key);
}

td_status *golden_json_number(const json_t *object, const char *key, double *out_number)
{
    json_t *value;
    TD_TRY(golden_json_get(object, key, JSON_REAL, &value));
    *out_number = json_number_value(value);
    return NULL;
}

/* ---- batches ------------------------------------------------------------------------------------------------------------------ */

/* A tensor's data in memory that the case owns; *out has its dtype and dims. */
static td_status *read_tensor(golden_case *c, const td_safetensors *file, const char *name, td_tensor *out)
{
    const td_safetensors_tensor *t;
    TD_TRY(td_safetensors_require(file, name, &t));
    TD_TRY(td_grow(&c->memory, &c->memory_capacity, c->n_memory, sizeof *c->memory));
    void *data = td_calloc_aligned((size_t)t->bytes + 1);
    if (!data)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for %s", name);
    c->memory[c->n_memory++] = data;
    *out = (td_tensor){.kind = TD_DENSE, .dtype = t->dtype, .rank = t->rank, .data = data};
    memcpy(out->dims, t->dims, sizeof out->dims);
    return td_safetensors_read(file, t, 0, t->bytes, data);
}

/* The name of the offsets that belong to ids, if this is how ids are called. */
static bool offsets_name(const char *ids, char *out, size_t bytes)
{
    if (strncmp(ids, "ids_", 4) != 0)
        return false;
    (void)snprintf(out, bytes, "offsets_%s", ids + 4);
    return true;
}

static td_status *read_field(golden_case *c, const td_safetensors *file, int32_t step, const char *name, td_field *out)
{
    char full[256], offsets[192];
    td_tensor index;
    (void)snprintf(full, sizeof full, "step%d.%s", step, name);
    TD_TRY(read_tensor(c, file, full, &out->tensor));
    out->name = name;
    if (!offsets_name(name, offsets, sizeof offsets))
        return NULL;
    (void)snprintf(full, sizeof full, "step%d.%s", step, offsets);
    if (!td_safetensors_find(file, full))
        return NULL;
    TD_TRY(read_tensor(c, file, full, &index));
    if (index.dtype != TD_I64 || index.rank != 1 || index.dims[0] < 1 || out->tensor.rank != 1)
        return TD_ERROR(TD_DATA_ERROR, "%s: offsets must be I64 of bags + 1, ids of rank 1", full);
    out->tensor.kind = TD_RAGGED;
    out->tensor.entries = out->tensor.dims[0];
    out->tensor.dims[0] = index.dims[0] - 1;
    out->tensor.index = index.data;
    return NULL;
}

/* Inputs by name; offsets come with their ids. */
static td_status *list_fields(golden_case *c)
{
    json_t *inputs, *description;
    const char *name;
    TD_TRY(golden_json_get(c->expected, "inputs", JSON_OBJECT, &inputs));
    TD_TRY(TD_NEW(c->names, json_object_size(inputs) + 1));
    json_object_foreach(inputs, name, description)
    {
        if (strncmp(name, "offsets_", 8) == 0)
            continue;
        c->names[c->n_fields] = td_strdup(name);
        if (!c->names[c->n_fields++])
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for input names");
    }
    return c->n_fields ? NULL : TD_ERROR(TD_DATA_ERROR, "expected.json: there are no inputs");
}

static int64_t rows_of(const golden_case *c, const td_field *whole, int32_t step)
{
    return whole[(int64_t)step * c->n_fields].tensor.dims[0];
}

/* Rows [begin, end) of a field, in the same memory. */
static td_status *part_of(const td_field *whole, int64_t begin, int64_t end, td_field *out)
{
    int64_t row_bytes = (int64_t)td_dtype_bytes(whole->tensor.dtype);
    *out = *whole;
    if (begin == 0 && end == whole->tensor.dims[0])
        return NULL;
    if (whole->tensor.kind == TD_RAGGED)
        return TD_ERROR(TD_UNSUPPORTED, "micro-batches of ragged \"%s\" are not cut here", whole->name);
    for (int32_t i = 1; i < whole->tensor.rank; i++)
        row_bytes *= whole->tensor.dims[i];
    out->tensor.dims[0] = end - begin;
    out->tensor.data = (char *)whole->tensor.data + begin * row_bytes;
    return NULL;
}

/* Batch `b`: rows from `begin` on of a step. */
static td_status *cut_batch(golden_case *c, const td_field *whole, int32_t step, int64_t begin, int64_t micro,
                            int32_t b)
{
    td_field *fields = c->fields + (int64_t)b * c->n_fields;
    int64_t rows = rows_of(c, whole, step), end = begin + micro < rows ? begin + micro : rows;
    for (int32_t f = 0; f < c->n_fields; f++)
        TD_TRY(part_of(&whole[(int64_t)step * c->n_fields + f], begin, end, &fields[f]));
    c->batches[b] = (td_batch){.samples = end - begin, .index = b, .n_fields = c->n_fields, .fields = fields};
    return NULL;
}

/* Each step's rows in batches of micro_batch, where the case says so. */
static td_status *cut_batches(golden_case *c, const td_field *whole)
{
    const json_t *given = json_object_get(c->expected, "micro_batch");
    const int64_t micro = json_integer_value(given);
    if (given && (micro < 1 || micro > INT32_MAX))
        return TD_ERROR(TD_DATA_ERROR, "expected.json: micro_batch must be a number of rows from 1 on");
    TD_TRY(TD_NEW(c->first, c->n_steps + 1));
    c->micro_batches = 1;
    for (int32_t s = 0; s < c->n_steps; s++) {
        int64_t rows = rows_of(c, whole, s), n = micro > 0 && rows > 0 ? (rows + micro - 1) / micro : 1;
        c->first[s + 1] = c->first[s] + (int32_t)n;
        c->micro_batches = n > c->micro_batches ? (int32_t)n : c->micro_batches;
    }
    c->n_batches = c->first[c->n_steps];
    TD_TRY(TD_NEW(c->batches, c->n_batches + 1));
    TD_TRY(TD_NEW(c->fields, (int64_t)c->n_batches * c->n_fields + 1));
    for (int32_t s = 0; s < c->n_steps; s++)
        for (int32_t b = c->first[s]; b < c->first[s + 1]; b++)
            TD_TRY(cut_batch(c, whole, s, (b - c->first[s]) * micro, micro > 0 ? micro : rows_of(c, whole, s), b));
    return NULL;
}

static td_status *read_steps(golden_case *c, const char *path, td_field *whole)
{
    td_safetensors *file = NULL;
    td_status *status = td_safetensors_open(path, &file);
    for (int32_t s = 0; s < c->n_steps && !status; s++)
        for (int32_t f = 0; f < c->n_fields && !status; f++)
            status = read_field(c, file, s, c->names[f], &whole[(int64_t)s * c->n_fields + f]);
    td_safetensors_close(file);
    return status;
}

static td_status *read_batches(golden_case *c, const char *path)
{
    td_field *whole = NULL;
    double steps = 0;
    TD_TRY(golden_json_number(c->expected, "steps", &steps));
    if (!(steps >= 1 && steps <= MOST_STEPS))
        return TD_ERROR(TD_DATA_ERROR, "expected.json: steps is %g; it must be from 1 to %d", steps, MOST_STEPS);
    c->n_steps = (int32_t)steps;
    TD_TRY(list_fields(c));
    TD_TRY(TD_NEW(whole, (int64_t)c->n_steps * c->n_fields + 1));
    td_status *status = read_steps(c, path, whole);
    if (!status)
        status = cut_batches(c, whole);
    td_free(whole);
    return status;
}

/* ---- the case ------------------------------------------------------------------------------------------------------------------ */

static td_status *open_files(golden_case *c, const char *folder)
{
    char *path = td_format("%s/expected.json", folder);
    td_status *status = path ? golden_json_load(path, &c->expected) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory");
    td_free(path);
    path = td_format("%s/init.safetensors", folder);
    if (!status)
        status = path ? td_safetensors_open(path, &c->initial) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory");
    td_free(path);
    path = td_format("%s/batches.safetensors", folder);
    if (!status)
        status = path ? read_batches(c, path) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory");
    td_free(path);
    return status;
}

td_status *golden_case_open(golden_case *c, const char *folder, const char *name)
{
    *c = (golden_case){.name = name};
    return open_files(c, folder);
}

void golden_case_close(golden_case *c)
{
    for (int64_t i = 0; i < c->n_memory; i++)
        td_free(c->memory[i]);
    for (int32_t f = 0; c->names && f < c->n_fields; f++)
        td_free(c->names[f]);
    td_free(c->memory);
    td_free(c->names);
    td_free(c->fields);
    td_free(c->batches);
    td_free(c->first);
    td_safetensors_close(c->initial);
    json_decref(c->expected);
    *c = (golden_case){0};
}

td_status *golden_case_input(const golden_case *c, td_graph *graph, const char *name, td_value *out_value)
{
    int32_t f = 0;
    while (f < c->n_fields && strcmp(c->names[f], name) != 0)
        f++;
    if (f == c->n_fields)
        return TD_ERROR(TD_DATA_ERROR, "expected.json: the model needs an input \"%s\"", name);
    const td_tensor *first = &c->fields[f].tensor;
    int64_t rows = 0, entries = 0;
    for (int32_t b = 0; b < c->n_batches; b++) {
        const td_tensor *t = &c->fields[(int64_t)b * c->n_fields + f].tensor;
        rows = t->dims[0] > rows ? t->dims[0] : rows;
        entries = t->entries > entries ? t->entries : entries;
    }
    td_dim batch = td_extent(graph, "B", rows);
    if (first->kind == TD_RAGGED) {
        *out_value = td_input_ragged(graph, name, first->dtype, batch, td_extent(graph, name, entries));
        return NULL;
    }
    td_shape shape = {.rank = first->rank};
    for (int32_t i = 0; i < first->rank; i++)
        shape.dims[i] = i == 0 ? batch : td_dim_constant(first->dims[i]);
    *out_value = td_input(graph, name, first->dtype, shape);
    return NULL;
}

int64_t golden_case_dim(const golden_case *c, const char *parameter, int32_t axis)
{
    const td_safetensors_tensor *t = td_safetensors_find(c->initial, parameter);
    return t && axis < t->rank ? t->dims[axis] : 0;
}

/* ---- optimizers ------------------------------------------------------------------------------------------------------------------ */

static double *setting(td_optimizer *o, const char *key)
{
    const struct {
        const char *key;
        double *setting;
    } known[] = {{"lr", &o->lr},
                 {"momentum", &o->momentum},
                 {"eps", &o->epsilon},
                 {"weight_decay", &o->weight_decay},
                 {"alpha", &o->alpha},
                 {"l1", &o->l1},
                 {"l2", &o->l2},
                 {"lr_power", &o->lr_power},
                 {"initial_accumulator", &o->initial_accumulator},
                 {"initial_accumulator_value", &o->initial_accumulator}}; /* as torch.optim.Adagrad has it */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].key, key) == 0)
            return known[i].setting;
    return NULL;
}

static double given(double value)
{
    return value != 0 ? value : TD_ZERO;
}

td_status *golden_optimizer(const char *rule, const json_t *settings, td_optimizer *out_optimizer)
{
    const char *key;
    json_t *value;
    *out_optimizer = (td_optimizer){.name = rule};
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        if (strcmp(key, "type") == 0 || strcmp(key, "parameters") == 0 || json_is_false(value))
            continue;
        double *into = setting(out_optimizer, key);
        if (into && json_is_number(value))
            *into = given(json_number_value(value));
        else if (strcmp(key, "nesterov") == 0 && json_is_true(value))
            out_optimizer->nesterov = true;
        else if (strcmp(key, "betas") == 0 && json_array_size(value) == 2) {
            out_optimizer->beta1 = given(json_number_value(json_array_get(value, 0)));
            out_optimizer->beta2 = given(json_number_value(json_array_get(value, 1)));
        } else
            return TD_ERROR(TD_DATA_ERROR, "setting \"%s\" of optimizer %s is not known here", key, rule);
    }
    return NULL;
}
