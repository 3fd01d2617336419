/* CSV files whose first columns are those of MindSpore's profiler, in its units; more columns of ours follow. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "profiler/export.h"
#include "profiler/sink.h"

#define US(ns) (1e-3 * (double)(ns))
#define MS(ns) (1e-6 * (double)(ns))

/* Computing: some device computed. Communication: copies, pulls, pushes and sums over ranks, each summed. Free: no lane worked. */
static td_status *write_steps(const td_analysis *a, const char *folder)
{
    td_sink *out = NULL;
    TD_TRY(td_sink_open_in(folder, "step_trace_time.csv", &out));
    td_sink_text(
        out, "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
             "Communication(Not Overlapped and Exclude Receive),Preparing,Interval,Data Wait,Forward,Backward,Update,"
             "To Device,To Host,Pull,Push,AllReduce,Tail\n");
    for (int64_t i = 0; i < a->steps->n_steps; i++) {
        const td_step_times *s = &a->steps->steps[i];
        int64_t computing = s->forward_ns + s->backward_ns + s->update_ns;
        int64_t communication = s->to_device_ns + s->to_host_ns + s->pull_ns + s->push_ns + s->all_reduce_ns;
        int64_t exposed = s->path_ns[TD_CAUSE_COPY] < communication ? s->path_ns[TD_CAUSE_COPY] : communication;
        int64_t idle = s->path_ns[TD_CAUSE_WAKE_UP] + s->path_ns[TD_CAUSE_HOST] + s->path_ns[TD_CAUSE_UNKNOWN];
        td_sink_format(out, "%lld,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,0,%.3f,%.3f", (long long)s->step, US(computing),
                       US(exposed), US(communication - exposed), US(communication),
                       US(idle + s->path_ns[TD_CAUSE_DATA]), US(s->interval_ns), US(exposed),
                       US(s->path_ns[TD_CAUSE_DATA]));
        td_sink_format(out, ",%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", US(s->interval_ns),
                       US(s->data_wait_ns), US(s->forward_ns), US(s->backward_ns), US(s->update_ns),
                       US(s->to_device_ns), US(s->to_host_ns), US(s->pull_ns), US(s->push_ns), US(s->all_reduce_ns),
                       US(s->tail_ns));
    }
    return td_sink_close(out);
}

static td_status *write_ops(const td_analysis *a, const char *folder)
{
    const td_trace_plan *plan = a->view->plan;
    td_sink *out = NULL;
    TD_TRY(td_sink_open_in(folder, "op_detail_info.csv", &out));
    td_sink_text(out, "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),"
                      "total_proportion,subgraph,pid,inputs,outputs,attributes,inserted\n");
    for (int64_t i = 0; i < a->ops->ops.n; i++) {
        const td_op_row *row = &a->ops->ops.rows[i];
        const td_trace_node *node = &plan->nodes[row->node];
        const char *slash = strrchr(row->name, '/');
        char shapes[2][1024];
        td_sink_csv(out, row->device);
        td_sink_text(out, ",");
        td_sink_csv(out, row->op);
        td_sink_text(out, ",");
        td_sink_csv(out, slash ? slash + 1 : row->name);
        td_sink_text(out, ",");
        td_sink_csv(out, row->name);
        td_sink_format(out, ",%lld,%.6f,%.6f,%.6f,", (long long)row->count, MS(row->self_ns),
                       MS(row->self_ns) / (double)row->count,
                       (double)row->self_ns / (double)(a->ops->self_ns + !a->ops->self_ns));
        td_sink_csv(out, plan->subgraphs[node->subgraph].name);
        td_sink_format(out, ",%lld,", (long long)json_integer_value(json_object_get(a->view->trace->info, "process")));
        td_sink_csv(out, td_op_shapes(plan, node->inputs, node->n_inputs, shapes[0], sizeof shapes[0]));
        td_sink_text(out, ",");
        td_sink_csv(out, td_op_shapes(plan, node->outputs, node->n_outputs, shapes[1], sizeof shapes[1]));
        td_sink_text(out, ",");
        td_sink_csv(out, node->attributes);
        td_sink_text(out, node->inserted ? ",1\n" : ",0\n");
    }
    return td_sink_close(out);
}

static td_status *write_types(const td_analysis *a, const char *folder)
{
    td_sink *out = NULL;
    TD_TRY(td_sink_open_in(folder, "op_type_info.csv", &out));
    td_sink_text(out, "op_type,type_occurrences,execution_frequency(per-step),total_compute_time,avg_time(ms),percent,"
                      "device\n");
    for (int64_t i = 0; i < a->ops->types.n; i++) {
        const td_op_row *row = &a->ops->types.rows[i];
        td_sink_csv(out, row->name);
        td_sink_format(out, ",%lld,%.3f,%.6f,%.6f,%.6f,", (long long)row->count,
                       (double)row->count / (double)a->ops->steps, MS(row->self_ns),
                       MS(row->self_ns) / (double)row->count,
                       (double)row->self_ns / (double)(a->ops->self_ns + !a->ops->self_ns));
        td_sink_csv(out, row->device);
        td_sink_text(out, "\n");
    }
    return td_sink_close(out);
}

static td_status *write_ranks(const td_ranks *ranks, const char *folder)
{
    td_sink *out = NULL;
    TD_TRY(td_sink_open_in(folder, "rank_info.csv", &out));
    td_sink_text(out, "rank,role,host,steps,step_time(ms),pull(ms),push(ms),all_reduce(ms),pull(bytes),push(bytes),"
                      "all_reduce(bytes),late(ms),times_last,answer(ms),update(ms),clock_error(us),windows_behind,"
                      "most_windows_behind\n");
    for (int32_t i = 0; i < ranks->job->n; i++) {
        const td_rank_trace *r = &ranks->job->ranks[i];
        const td_rank_times *t = &ranks->times[i];
        double steps = t->steps ? (double)t->steps : 1, behind = 0;
        int32_t most = 0;
        (void)td_rank_behind(t, &behind, &most);
        td_sink_format(out, "%d,", r->rank);
        td_sink_csv(out, r->role);
        td_sink_text(out, ",");
        td_sink_csv(out, r->host);
        td_sink_format(out, ",%lld,%.6f,%.6f,%.6f,%.6f,%.0f,%.0f,%.0f,%.6f,%lld,%.6f,%.6f,%.3f,%.3f,%d\n",
                       (long long)t->steps, t->intervals ? MS(t->step_ns) / (double)t->intervals : 0,
                       MS(t->pull.ns) / steps, MS(t->push.ns) / steps, MS(t->sum.ns) / steps,
                       (double)t->pull.bytes / steps, (double)t->push.bytes / steps, (double)t->sum.bytes / steps,
                       t->met ? MS(t->late_ns) / (double)t->met : 0, (long long)t->times_last, MS(t->answer.ns) / steps,
                       MS(t->apply.ns) / steps, US(r->error_ns), behind, most);
    }
    return td_sink_close(out);
}

td_status *td_export_csv(const td_analysis *analysis, const char *folder)
{
    TD_TRY(td_directory_create(folder));
    TD_TRY(write_steps(analysis, folder));
    TD_TRY(write_ops(analysis, folder));
    if (analysis->ranks)
        TD_TRY(write_ranks(analysis->ranks, folder));
    TD_TRY(td_export_csv_curves(analysis, folder, 0));
    return write_types(analysis, folder);
}
