/* Opening a workload on the engine, and its steps: see bench/engine.h. */
#include "bench/engine.h"

#include <stdio.h>

#include "base/cores.h"

static td_status *count_threads(const td_bench_request *request, int32_t *out_threads)
{
    td_core_set allowed;
    TD_TRY(td_cores_allowed(&allowed));
    *out_threads = request->threads ? request->threads : td_core_set_count(&allowed);
    return NULL;
}

/* The plan; of a case that is not about planning, also all that runs it. */
static td_status *open_session(td_bench_engine *engine)
{
    td_workload *work = &engine->work;
    char device[32];
    (void)snprintf(device, sizeof device, "cpu:cores=%d", engine->threads);
    td_add_device(&work->options, "cpu", device);
    if (work->planning)
        td_group(&work->options, "*", td_sgd(0.1));
    if (work->loss.id >= 0)
        TD_TRY(td_plan_train(work->graph, work->loss, &work->options, &engine->plan));
    else
        TD_TRY(td_plan_evaluate(work->graph, &work->output, 1, &work->options, NULL, &engine->plan));
    if (work->planning)
        return NULL;
    TD_TRY(td_store_create(engine->plan, &engine->store));
    return td_session_create(engine->plan, engine->store, &engine->session);
}

td_status *td_bench_open(const td_bench_case *which, const td_bench_request *request, td_bench_engine *out_engine)
{
    *out_engine = (td_bench_engine){0};
    TD_TRY(count_threads(request, &out_engine->threads));
    td_status *status = td_workload_init(&out_engine->work);
    if (!status)
        status = which->build(which, request, &out_engine->work);
    if (!status)
        status = open_session(out_engine);
    if (status)
        td_bench_close(out_engine);
    return status;
}

void td_bench_close(td_bench_engine *engine)
{
    td_session_destroy(engine->session);
    td_store_release(engine->store);
    td_plan_release(engine->plan);
    td_workload_deinit(&engine->work);
    *engine = (td_bench_engine){0};
}

/* With options of its own, for those that were used know their plans. */
static td_status *plan_again(td_bench_engine *engine, td_step_report *out_report)
{
    *out_report = (td_step_report){0};
    td_plan_release(engine->plan);
    engine->plan = NULL;
    td_train_options_deinit(&engine->work.options);
    return open_session(engine);
}

td_status *td_bench_step(td_bench_engine *engine, td_step_report *out_report)
{
    const td_workload *work = &engine->work;
    if (work->planning)
        return plan_again(engine, out_report);
    double factor = 0.5 + 1e-3 * (double)engine->steps++;
    if (work->scalar)
        TD_TRY(td_session_set_scalar(engine->session, work->scalar, &factor, 1));
    if (work->options.accumulate > 1) /* the same window each time: the batches are made ready once */
        return td_session_step_window(engine->session, work->batches, work->options.accumulate, out_report);
    return td_session_step(engine->session, &work->batches[engine->steps % TD_WORKLOAD_BATCHES], out_report);
}
