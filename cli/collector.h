/* What a training leaves for charts: an event file in the run's folder with scalars, histograms, tensors, images, the configuration
 * and the graph, as the section summary of the configuration says. It never changes a result and never stops a training: where a
 * file cannot be written, it says so once and collects nothing further. */
#ifndef TANDEM_CLI_COLLECTOR_H
#define TANDEM_CLI_COLLECTOR_H

#include "cli/setup.h"
#include "profiler/event_file.h"
#include "tandem/session.h"

typedef struct td_collector {
    const td_setup *setup;
    td_event_writer *writer; /* NULL: nothing is collected */
    int64_t scalars, every;  /* steps between; 0: none */
    bool parameters, tensors, images, texts;
    const td_plan *plan;
    int64_t flushed_ns;
} td_collector;

/* Makes outputs of what summary.activations names; before planning. */
void td_collector_mark(const td_setup *setup);
/* Opens the file (none where nothing is asked for) and writes configuration and graph. */
void td_collector_open(td_collector *collector, const td_setup *setup, const td_plan *plan, const char *run);
/* Of a step: scalars, images, texts, gradients and activations. */
void td_collector_step(td_collector *collector, const td_step_report *report);
/* The next step after which no other may be in flight, so that td_collector_store can look: a step after `step`, INT64_MAX: none. */
int64_t td_collector_next_stop(const td_collector *collector, int64_t step);
/* Parameters, between runs of the session, where this step is one to do so. */
void td_collector_store(td_collector *collector, const td_store *store);
/* One number of the whole run, such as a metric of the test part. */
void td_collector_scalar(td_collector *collector, int64_t step, const char *tag, double value);
void td_collector_close(td_collector *collector);

/* The plan, as td_plan_json has it, as the bytes of a GraphDef: one node per op, input and parameter, with its inputs and device. */
struct json_t;
td_status *td_graph_def(const struct json_t *plan, char **out_bytes, size_t *out_n) TD_MUST_USE;

#endif
