/* Workloads: memory, batches, random ids. See bench/workload.h. */
#include "bench/workload.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/memory.h"

td_status *td_workload_init(td_workload *workload)
{
    memset(workload, 0, sizeof *workload);
    workload->options = td_train_defaults();
    workload->loss = workload->output = TD_NO_VALUE;
    workload->warm_up = 3;
    workload->runs = 15;
    TD_TRY(TD_NEW(workload->fields, TD_WORKLOAD_BATCHES * TD_WORKLOAD_MOST_FIELDS));
    for (int32_t i = 0; i < TD_WORKLOAD_BATCHES; i++) {
        workload->batches[i].index = i;
        workload->batches[i].fields = workload->fields + (int64_t)i * TD_WORKLOAD_MOST_FIELDS;
    }
    return td_graph_create(&workload->graph);
}

void td_workload_deinit(td_workload *workload)
{
    td_graph_destroy(workload->graph);
    td_train_options_deinit(&workload->options);
    for (int64_t i = 0; i < workload->n_owned; i++)
        td_free(workload->owned[i]);
    td_free(workload->owned);
    td_free(workload->fields);
    td_status_destroy(workload->error);
    memset(workload, 0, sizeof *workload);
}

/* ---- memory, fields --------------------------------------------------------------------------------------------------------- */

/* Keeps `memory`, which it owns from now on. */
static void *keep(td_workload *workload, void *memory, size_t bytes)
{
    if (!memory && !workload->error)
        workload->error = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %zu bytes of a benchmark's data", bytes);
    td_status *status = td_grow(&workload->owned, &workload->owned_capacity, workload->n_owned, sizeof(void *));
    if (status) {
        td_free(memory);
        td_status_destroy(workload->error);
        workload->error = status;
        return NULL;
    }
    workload->owned[workload->n_owned++] = memory;
    return memory;
}

void *td_workload_memory(td_workload *workload, size_t bytes)
{
    return workload->error ? NULL : keep(workload, td_calloc_aligned(bytes ? bytes : 1), bytes);
}

const char *td_workload_text(td_workload *workload, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = workload->error ? NULL : td_vformat(format, arguments);
    va_end(arguments);
    text = workload->error ? NULL : keep(workload, text, 0);
    return text ? text : "";
}

static void add_field(td_workload *workload, int32_t index, const char *name, const td_tensor *tensor)
{
    td_batch *batch = &workload->batches[index];
    if (workload->error)
        return;
    if (batch->n_fields == TD_WORKLOAD_MOST_FIELDS) {
        workload->error = TD_ERROR(TD_INVALID_ARGUMENT, "a benchmark's batch has at most %d inputs; \"%s\" is one more",
                                   TD_WORKLOAD_MOST_FIELDS, name);
        return;
    }
    td_field *fields = workload->fields + (int64_t)index * TD_WORKLOAD_MOST_FIELDS;
    fields[batch->n_fields++] = (td_field){.name = name, .tensor = *tensor};
}

void td_workload_dense(td_workload *workload, int32_t index, const char *name, td_dtype dtype, int32_t rank,
                       const int64_t *dims, void *data)
{
    td_tensor tensor = {.kind = TD_DENSE, .dtype = dtype, .rank = rank, .data = data};
    memcpy(tensor.dims, dims, (size_t)rank * sizeof *dims);
    add_field(workload, index, name, &tensor);
}

void td_workload_ragged(td_workload *workload, int32_t index, const char *name, int64_t bags, int64_t *ids,
                        int64_t *offsets)
{
    td_tensor tensor = {.kind = TD_RAGGED, .dtype = TD_I64, .rank = 1, .dims = {bags}, .data = ids, .index = offsets};
    tensor.entries = workload->error ? 0 : offsets[bags];
    add_field(workload, index, name, &tensor);
}

void td_workload_fact(td_workload *workload, const char *name, double value)
{
    if (workload->n_facts < TD_BENCH_MOST_FACTS)
        workload->facts[workload->n_facts++] = (td_bench_fact){name, value};
}

td_status *td_workload_check(td_workload *workload)
{
    td_status *status = workload->error;
    workload->error = NULL;
    return status ? status : td_graph_check(workload->graph);
}

td_status *td_bench_has_not(const td_bench_case *which, const char *option, double given)
{
    if (given == 0)
        return NULL;
    return TD_ERROR(TD_INVALID_ARGUMENT, "bench: %s has no %s to change", which->name, option);
}

/* ---- random numbers ------------------------------------------------------------------------------------------------------------ */

/* SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). */
double td_bench_uniform(td_bench_random *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void td_bench_zipf(td_bench_random *random, int64_t rows, double alpha, int64_t count, int64_t *out_ids)
{
    const double power = 1 - alpha, span = pow((double)rows, power) - 1, log_rows = log((double)rows);
    for (int64_t i = 0; i < count; i++) {
        double u = td_bench_uniform(random);
        double x = fabs(power) < 1e-9 ? exp(u * log_rows) : pow(1 + u * span, 1 / power);
        int64_t id = (int64_t)x - 1;
        id = id < 0 ? 0 : id >= rows ? rows - 1 : id;
        out_ids[i] = (int64_t)((uint64_t)id * 2654435761u % (uint64_t)rows);
    }
}

td_status *td_bench_distinct(const int64_t *ids, int64_t count, int64_t rows, int64_t *out_distinct)
{
    uint64_t *seen = NULL;
    TD_TRY(TD_NEW(seen, (rows + 63) / 64));
    int64_t distinct = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bit = (uint64_t)1 << (ids[i] % 64), *word = &seen[ids[i] / 64];
        distinct += !(*word & bit);
        *word |= bit;
    }
    td_free(seen);
    *out_distinct = distinct;
    return NULL;
}
