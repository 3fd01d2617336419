/* Losses at given weights: see cli/loss_probe.h. The batches are read once and stay out of the loader; each reading is one run of
 * the session over them. */
#include "cli/loss_probe.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/convert.h"
#include "base/memory.h"

enum { PIECE = 1 << 16 };

/* ---- opening -------------------------------------------------------------------------------------------------------------- */

static td_status *list_parameters(td_loss_probe *p)
{
    const int32_t n = td_store_count(p->store);
    TD_TRY(TD_NEW(p->parameters, n + 1));
    for (int32_t i = 0; i < n; i++) {
        td_probe_parameter *parameter = &p->parameters[p->n_parameters];
        bool is_parameter;
        const char *device;
        *parameter = (td_probe_parameter){.name = td_store_name(p->store, i), .entry = i, .first = p->elements, .n = 1};
        TD_TRY(td_store_describe(p->store, i, &parameter->shape, &is_parameter, &device));
        if (!is_parameter || !td_dtype_converts(parameter->shape.dtype))
            continue;
        for (int32_t d = 0; d < parameter->shape.rank; d++)
            parameter->n *= parameter->shape.dims[d];
        parameter->rows = parameter->shape.rank > 1 ? parameter->shape.dims[0] : 1;
        p->elements += parameter->n;
        p->n_parameters++;
    }
    return NULL;
}

static td_status *read_batches(td_loss_probe *p, int64_t samples)
{
    td_loader_options options = td_loader_defaults();
    const int64_t n = (samples + p->setup->batch - 1) / p->setup->batch;
    bool end = false;
    options.batch = (samples + n - 1) / n;
    options.shuffle = false;
    options.depth = (int32_t)n + 4;
    TD_TRY(td_loader_create(p->setup->dataset, &options, &p->loader));
    TD_TRY(TD_NEW(p->batches, n));
    td_source source = td_loader_source(p->loader);
    while (p->n_batches < n && !end) {
        td_batch *batch = &p->batches[p->n_batches];
        TD_TRY(source.next(source.self, batch, &end));
        p->n_batches += !end;
        p->samples += end ? 0 : batch->samples;
    }
    return NULL;
}

static td_status *open_all(td_loss_probe *p, int64_t samples)
{
    TD_TRY(td_plan_evaluate(p->setup->graph, &p->setup->model.loss, 1, &p->setup->options, NULL, &p->plan));
    TD_TRY(td_store_create(p->plan, &p->store));
    TD_TRY(list_parameters(p));
    TD_TRY(read_batches(p, samples));
    TD_TRY(td_session_create(p->plan, p->store, &p->session));
    p->piece = td_calloc(PIECE, sizeof(float));
    return p->piece ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for weights");
}

td_status *td_loss_probe_open(td_setup *setup, int64_t samples, td_loss_probe *out_probe)
{
    *out_probe = (td_loss_probe){.setup = setup};
    td_status *status = open_all(out_probe, samples);
    if (status)
        td_loss_probe_close(out_probe);
    return status;
}

void td_loss_probe_close(td_loss_probe *probe)
{
    td_session_destroy(probe->session);
    td_store_release(probe->store);
    td_plan_release(probe->plan);
    td_loader_destroy(probe->loader); /* its batches too */
    td_free(probe->parameters);
    td_free(probe->batches);
    td_free(probe->piece);
    *probe = (td_loss_probe){0};
}

/* ---- moving --------------------------------------------------------------------------------------------------------------- */

static td_status *write_parameter(td_loss_probe *p, const td_probe_parameter *parameter, const float *centre,
                                  const float *first, double a, const float *second, double b)
{
    float moved[1024];
    const int64_t most = sizeof moved / sizeof *moved;
    const size_t size = td_dtype_bytes(parameter->shape.dtype);
    for (int64_t done = 0; done < parameter->n;) {
        int64_t room = 0;
        while (room + most <= PIECE && done + room < parameter->n) {
            int64_t at = parameter->first + done + room, left = parameter->n - done - room,
                    count = left < most ? left : most;
            for (int64_t i = 0; i < count; i++) {
                double x = (double)centre[at + i];
                x += first ? a * (double)first[at + i] : 0;
                x += second ? b * (double)second[at + i] : 0;
                moved[i] = (float)x;
            }
            (void)td_floats_convert(moved, TD_F32, count, (char *)p->piece + (size_t)room * size,
                                    parameter->shape.dtype);
            room += count;
        }
        TD_TRY(td_store_write(p->store, parameter->entry, done, room, p->piece));
        done += room;
    }
    return NULL;
}

td_status *td_loss_probe_move(td_loss_probe *probe, const float *centre, const float *first, double a,
                              const float *second, double b)
{
    for (int32_t i = 0; i < probe->n_parameters; i++)
        TD_TRY(write_parameter(probe, &probe->parameters[i], centre, first, a, second, b));
    return NULL;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    td_loss_probe *p = self;
    *out_end = p->next == p->n_batches;
    if (!*out_end)
        *out_batch = p->batches[p->next++];
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    td_loss_probe *p = self;
    p->next -= batch->unused;
}

static bool on_step(void *context, const td_step_report *report)
{
    td_loss_probe *p = context;
    p->loss_sum +=
        report->skipped ? (double)NAN : (double)*(const float *)report->outputs[0].data * (double)report->samples;
    return true;
}

td_status *td_loss_probe_read(td_loss_probe *probe, double *out_loss)
{
    td_source source = {probe, next, release};
    probe->next = 0;
    probe->loss_sum = 0;
    td_status *status = td_session_run(probe->session, &source, 0, on_step, probe);
    *out_loss = probe->loss_sum / (double)probe->samples;
    if (td_status_code(status) == TD_NOT_FINITE) {
        td_status_destroy(status);
        status = NULL;
        *out_loss = (double)NAN;
    }
    if (!status && probe->work)
        td_work_step(probe->work, td_clock_ns());
    return status;
}
