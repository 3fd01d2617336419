/* Losses of a case, and what another framework needs to have the same: see td_bench_losses in bench/bench.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/safetensors.h"
#include "bench/engine.h"

enum { NAME = 256, PIECE = 1 << 20 }; /* elements of a parameter in memory at once */

static int64_t elements_of(const td_tensor *tensor)
{
    int64_t n = 1;
    for (int32_t i = 0; i < tensor->rank; i++)
        n *= tensor->dims[i];
    return tensor->kind == TD_RAGGED ? tensor->entries : n;
}

/* ---- parameters --------------------------------------------------------------------------------------------------------------- */

/* Entry `index` of the store, if it is a parameter: its name in the file. */
static td_status *parameter_at(const td_bench_engine *engine, int32_t index, td_tensor *out_tensor,
                               bool *out_is_parameter, char name[NAME])
{
    const char *device = NULL;
    (void)snprintf(name, NAME, "param/%s", td_store_name(engine->store, index));
    return td_store_describe(engine->store, index, out_tensor, out_is_parameter, &device);
}

static td_status *declare_parameters(const td_bench_engine *engine, td_safetensors_writer *writer)
{
    char name[NAME];
    for (int32_t i = 0; i < td_store_count(engine->store); i++) {
        td_tensor tensor;
        bool is_parameter = false;
        TD_TRY(parameter_at(engine, i, &tensor, &is_parameter, name));
        if (is_parameter)
            TD_TRY(td_safetensors_declare(writer, name, tensor.dtype, tensor.rank, tensor.dims));
    }
    return NULL;
}

static td_status *write_parameter(const td_bench_engine *engine, int32_t index, td_safetensors_writer *writer,
                                  void *piece)
{
    td_tensor tensor;
    bool is_parameter = false;
    char name[NAME];
    TD_TRY(parameter_at(engine, index, &tensor, &is_parameter, name));
    int64_t size = (int64_t)td_dtype_bytes(tensor.dtype), n = is_parameter ? elements_of(&tensor) : 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t count = n - at < PIECE ? n - at : PIECE;
        TD_TRY(td_store_read(engine->store, index, at, count, piece));
        TD_TRY(td_safetensors_write(writer, name, at * size, count * size, piece));
    }
    return NULL;
}

static td_status *write_parameters(const td_bench_engine *engine, td_safetensors_writer *writer)
{
    double *piece = NULL; /* the widest dtype */
    td_status *status = TD_NEW(piece, PIECE);
    for (int32_t i = 0; i < td_store_count(engine->store) && !status; i++)
        status = write_parameter(engine, i, writer, piece);
    td_free(piece);
    return status;
}

/* ---- batches ------------------------------------------------------------------------------------------------------------------ */

typedef td_status *(*tensor_action)(td_safetensors_writer *writer, const char *name, td_dtype dtype, int32_t rank,
                                    const int64_t *dims, const void *data);

static td_status *declare(td_safetensors_writer *writer, const char *name, td_dtype dtype, int32_t rank,
                          const int64_t *dims, const void *data)
{
    (void)data;
    return td_safetensors_declare(writer, name, dtype, rank, dims);
}

static td_status *write(td_safetensors_writer *writer, const char *name, td_dtype dtype, int32_t rank,
                        const int64_t *dims, const void *data)
{
    int64_t n = (int64_t)td_dtype_bytes(dtype);
    for (int32_t i = 0; i < rank; i++)
        n *= dims[i];
    return td_safetensors_write(writer, name, 0, n, data);
}

static td_status *each_tensor(const td_bench_engine *engine, td_safetensors_writer *writer, tensor_action action)
{
    char name[NAME];
    for (int32_t b = 0; b < TD_WORKLOAD_BATCHES; b++)
        for (int32_t f = 0; f < engine->work.batches[b].n_fields; f++) {
            const td_field *field = &engine->work.batches[b].fields[f];
            const td_tensor *t = &field->tensor;
            bool ragged = t->kind == TD_RAGGED;
            const int64_t ends = t->dims[0] + 1;
            (void)snprintf(name, sizeof name, "batch.%d/%s", b, field->name);
            TD_TRY(action(writer, name, t->dtype, t->rank, ragged ? &t->entries : t->dims, t->data));
            (void)snprintf(name, sizeof name, "batch.%d/%s/offsets", b, field->name);
            if (ragged)
                TD_TRY(action(writer, name, TD_I64, 1, &ends, t->index));
        }
    return NULL;
}

static td_status *export_case(const td_bench_engine *engine, const char *path)
{
    td_safetensors_writer *writer = NULL;
    TD_TRY(td_safetensors_create(path, &writer));
    td_status *status = declare_parameters(engine, writer);
    if (!status)
        status = each_tensor(engine, writer, declare);
    if (!status)
        status = write_parameters(engine, writer);
    if (!status)
        status = each_tensor(engine, writer, write);
    if (!status)
        return td_safetensors_commit(writer);
    td_safetensors_discard(writer);
    return status;
}

/* ---- losses ------------------------------------------------------------------------------------------------------------------- */

td_status *td_bench_losses(const td_bench_case *which, const td_bench_request *request, const char *path, int32_t n,
                           float *out_losses)
{
    td_bench_engine engine;
    TD_TRY(td_bench_open(which, request, &engine));
    td_status *status = NULL;
    if (engine.work.loss.id < 0 || engine.work.planning)
        status = TD_ERROR(TD_INVALID_ARGUMENT, "bench: %s trains nothing: it has no losses", which->name);
    if (!status && path)
        status = export_case(&engine, path);
    for (int32_t i = 0; i < n && !status; i++) {
        td_step_report report;
        status = td_bench_step(&engine, &report);
        out_losses[i] = report.loss;
    }
    td_bench_close(&engine);
    return status;
}
