/* tandem bench CONFIG --against DEVICE: the same steps on the configuration's plan and on a single device, interleaved block
 * by block so that both see the same machine; then side by side.
 *
 * Beside them stands the critical path of the cut step, from times of single ops. Those come from runs on one device each, never
 * from the cut run: every second block of the single side has its ops timed (and does not count for its step time); for each
 * other device that the plan uses there is a witness, a run with everything on that device and the same cores. */
#include "cli/bench_against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/bench_path.h"
#include "cli/distributed.h"
#include "cli/json.h"
#include "cli/setup.h"
#include "cli/statistics.h"
#include "cli/summary.h"
#include "cli/table.h"
#include "tandem/session.h"

enum { BLOCK = 5, WARM_UP = 3, USUAL_STEPS = 40, MOST_WITNESSES = 8, MOST_TIMED_BLOCKS = 1024 };

/* One of the runs. */
typedef struct side {
    const char *title;
    td_train_options *options;
    td_plan *plan;
    td_store *store;
    td_session *session;
    td_loader *loader;
    td_dealt_source dealt; /* of whole windows, where they must be known before they begin */
    td_step_statistics statistics;
    int64_t steps; /* of all blocks, the warm-up too */
    float loss;
    uint64_t checksum;
    bool times_ops; /* now: its steps do not count */
    td_status *error;
} side;

/* Everything on a device that only the cut run uses too. */
typedef struct witness {
    side side;
    td_train_options options;
    char *device;
} witness;

typedef struct comparison {
    td_setup *setup;
    side sides[2];
    char *single;
    bool lifted;
    td_train_options single_options;
    witness witnesses[MOST_WITNESSES];
    int32_t n_witnesses;
    td_measured_ops ops[1 + MOST_WITNESSES]; /* of the single side, then of each witness */
    td_bench_path path;                      /* of the cut step */
} comparison;

static bool on_step(void *context, const td_step_report *report)
{
    side *s = context;
    bool warm = s->steps++ < WARM_UP || s->times_ops;
    s->loss = report->loss;
    s->error =
        warm ? NULL : td_statistics_add(&s->statistics, TD_STATISTICS_LEFT_OUT, report->samples, report->seconds);
    return !s->error;
}

static td_status *run_block(side *s, int64_t steps)
{
    td_source source = s->dealt.plan ? td_dealt_source_of(&s->dealt) : td_loader_source(s->loader);
    TD_TRY(td_session_run(s->session, &source, steps, on_step, s));
    return s->error;
}

static td_status *open_side(comparison *c, side *s)
{
    td_loader_options options = td_loader_defaults();
    options.batch = c->setup->batch;
    options.epochs = 0; /* without end */
    options.seed = (uint64_t)td_section_int(c->setup->root, "train.seed");
    options.shuffle = td_section_bool(c->setup->root, "data.shuffle");
    options.drop_remainder = true;
    TD_TRY(td_plan_train(c->setup->graph, c->setup->model.loss, s->options, &s->plan));
    TD_TRY(td_store_create(s->plan, &s->store));
    TD_TRY(td_session_create(s->plan, s->store, &s->session));
    const int64_t window = td_distributed_window(NULL, s->options);
    if (window == 1)
        return td_loader_create(c->setup->dataset, &options, &s->loader);
    options.depth = (int32_t)(3 * window) + options.depth;
    TD_TRY(td_loader_create(c->setup->dataset, &options, &s->loader));
    s->dealt = (td_dealt_source){.inner = td_loader_source(s->loader), .plan = s->plan};
    return NULL;
}

static void close_side(side *s)
{
    td_session_destroy(s->session);
    td_store_release(s->store);
    td_dealt_source_deinit(&s->dealt);
    td_plan_release(s->plan);
    td_loader_destroy(s->loader);
    td_statistics_deinit(&s->statistics);
}

/* ---- the critical path ------------------------------------------------------------------------------------------------------------ */

/* A witness for a device, with the devices and cores of the single side but the other default. */
static td_status *open_witness(comparison *c, const char *device)
{
    if (c->n_witnesses == MOST_WITNESSES)
        return TD_ERROR(TD_UNSUPPORTED, "bench compares at most %d devices", MOST_WITNESSES);
    witness *w = &c->witnesses[c->n_witnesses++];
    bool lifted = false, host = !strcmp(device, "cpu");
    w->options = td_train_defaults();
    TD_TRY(td_setup_single(c->setup->root, c->setup->steps, host ? NULL : device, &w->options, &w->device, &lifted));
    td_free(w->device);
    w->device = td_strdup(device);
    if (!w->device)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name");
    td_default_device(&w->options, device);
    w->side = (side){.title = w->device, .options = &w->options};
    return open_side(c, &w->side);
}

static td_status *open_witnesses(comparison *c)
{
    for (int32_t i = 0; i < td_session_devices(c->sides[0].session); i++) {
        td_device_counters device = td_session_device(c->sides[0].session, i);
        if (strcmp(device.name, c->single) != 0 && td_plan_device(c->sides[0].plan, i).busy_s > 0)
            TD_TRY(open_witness(c, device.name));
    }
    return NULL;
}

static void close_witnesses(comparison *c)
{
    for (int32_t i = 0; i < c->n_witnesses; i++) {
        close_side(&c->witnesses[i].side);
        td_train_options_deinit(&c->witnesses[i].options);
        td_free(c->witnesses[i].device);
    }
}

static td_status *open_times(comparison *c, int64_t steps)
{
    const int64_t timed = 1 + steps / (2 * BLOCK);
    const int32_t blocks = (int32_t)(timed < MOST_TIMED_BLOCKS ? timed : MOST_TIMED_BLOCKS);
    TD_TRY(td_measured_ops_init(&c->ops[0], c->sides[1].session, c->sides[1].plan, c->single, blocks));
    for (int32_t i = 0; i < c->n_witnesses; i++)
        TD_TRY(td_measured_ops_init(&c->ops[1 + i], c->witnesses[i].side.session, c->witnesses[i].side.plan,
                                    c->witnesses[i].device, blocks));
    return NULL;
}

static td_status *find_path(comparison *c)
{
    bool timed = true;
    const td_session_counters counters = td_session_read_counters(c->sides[0].session);
    for (int32_t i = 0; i <= c->n_witnesses; i++)
        timed = td_measured_ops_settle(&c->ops[i]) && timed;
    return timed ? td_bench_critical_path(c->sides[0].plan, &counters, c->ops, 1 + c->n_witnesses, &c->path) : NULL;
}

/* ---- the run ---------------------------------------------------------------------------------------------------------------------- */

/* One block of each side, then of the witnesses. In every second one the single side has its ops timed. */
static td_status *run_blocks(comparison *c, int64_t index, int64_t steps)
{
    side *single = &c->sides[1];
    single->times_ops = index % 2 == 1;
    td_session_time_ops(single->session, single->times_ops);
    for (int i = 0; i < 2; i++)
        TD_TRY(run_block(&c->sides[i], steps));
    if (!single->times_ops)
        return NULL;
    for (int32_t i = 0; i < c->n_witnesses; i++)
        TD_TRY(run_block(&c->witnesses[i].side, steps));
    for (int32_t i = 0; i <= c->n_witnesses; i++)
        TD_TRY(td_measured_ops_add_block(&c->ops[i]));
    return NULL;
}

/* First steps find nothing in memory: no op is timed in them. */
static td_status *warm_up(comparison *c)
{
    for (int i = 0; i < 2; i++)
        TD_TRY(run_block(&c->sides[i], WARM_UP));
    for (int32_t i = 0; i < c->n_witnesses; i++) {
        TD_TRY(run_block(&c->witnesses[i].side, WARM_UP));
        td_session_time_ops(c->witnesses[i].side.session, true);
    }
    return NULL;
}

static td_status *run_both(comparison *c, int64_t steps)
{
    for (int i = 0; i < 2; i++)
        TD_TRY(open_side(c, &c->sides[i]));
    TD_TRY(open_witnesses(c));
    TD_TRY(open_times(c, steps));
    TD_TRY(warm_up(c));
    for (int64_t done = 0; done < steps; done += BLOCK)
        TD_TRY(run_blocks(c, done / BLOCK, steps - done < BLOCK ? steps - done : BLOCK));
    for (int i = 0; i < 2; i++)
        TD_TRY(td_store_checksum(c->sides[i].store, &c->sides[i].checksum));
    return find_path(c);
}

/* ---- results ------------------------------------------------------------------------------------------------------------------- */

static double copied_per_step(const side *s)
{
    td_session_counters counters = td_session_read_counters(s->session);
    return counters.steps ? (double)(counters.to_device_bytes + counters.to_host_bytes) / (double)counters.steps : 0;
}

static uint64_t peak_of(const side *s, const char *device)
{
    for (int32_t i = 0; i < td_session_devices(s->session); i++)
        if (!strcmp(td_session_device(s->session, i).name, device))
            return td_session_device(s->session, i).peak_bytes;
    return 0;
}

static json_t *side_json(side *s)
{
    json_t *devices = json_array();
    for (int32_t i = 0; i < td_session_devices(s->session); i++) {
        td_device_counters device = td_session_device(s->session, i);
        json_array_append_new(devices, json_pack("{s:s, s:I, s:I}", "name", device.name, "capacity_bytes",
                                                 (json_int_t)device.capacity_bytes, "peak_bytes",
                                                 (json_int_t)device.peak_bytes));
    }
    char checksum[32];
    snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)s->checksum);
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:s}", "what", s->title, "step_ms",
                     td_statistics_quantile(&s->statistics, 0.5) * 1e3, "q1_ms",
                     td_statistics_quantile(&s->statistics, 0.25) * 1e3, "q3_ms",
                     td_statistics_quantile(&s->statistics, 0.75) * 1e3, "samples_per_s",
                     td_statistics_rate(&s->statistics), "copied_bytes_per_step", copied_per_step(s), "loss",
                     (double)s->loss, "devices", devices, "parameters_checksum", checksum);
}

static double overlap_reached(const comparison *c)
{
    const td_session_counters counters = td_session_read_counters(c->sides[0].session);
    return td_summary_overlap(&counters);
}

static void print_overlap(const comparison *c, FILE *out)
{
    const double reached = overlap_reached(c), allowed = td_bench_overlap_allowed(&c->path);
    if (c->path.seconds <= 0 || c->path.others_s <= 0)
        return;
    fprintf(out,
            "\n  copies and host work hidden behind the accelerators: %.1f %%, where the critical path allows %.1f %%",
            100 * reached, 100 * allowed);
    if (allowed > 0)
        fprintf(out, " (%.0f %% of it)", 100 * reached / allowed);
}

static td_status *print_json(comparison *c, FILE *out)
{
    json_t *path = c->path.seconds > 0 ? json_real(1e3 * c->path.seconds) : json_null();
    json_t *allowed = c->path.seconds > 0 ? json_real(td_bench_overlap_allowed(&c->path)) : json_null();
    return td_json_print(
        json_pack("{s:s, s:I, s:s, s:b, s:b, s:o, s:i, s:f, s:o, s:o, s:o}", "model", c->setup->name, "steps",
                  (json_int_t)c->sides[0].statistics.n, "single_device", c->single, "memory_limit_lifted",
                  (int)c->lifted, "same_parameters", c->sides[0].checksum == c->sides[1].checksum, "critical_path_ms",
                  path, "critical_path_estimated_ops", (int)c->path.estimated, "overlap", overlap_reached(c),
                  "overlap_allowed", allowed, "plan", side_json(&c->sides[0]), "single", side_json(&c->sides[1])),
        out);
}

static void add_memory_rows(comparison *c, td_table *table)
{
    for (int32_t i = 0; i < td_session_devices(c->sides[0].session); i++) {
        td_device_counters device = td_session_device(c->sides[0].session, i);
        char name[96], memory[2][TD_UNIT_TEXT];
        for (int s = 0; s < 2; s++) {
            uint64_t peak = peak_of(&c->sides[s], device.name);
            if (peak)
                td_format_bytes(memory[s], (double)peak);
            else
                snprintf(memory[s], sizeof memory[s], "-");
        }
        snprintf(name, sizeof name, "peak on %s", device.name);
        td_table_row(table, name, memory[0], memory[1]);
    }
}

static td_status *print_table(comparison *c, FILE *out)
{
    char time[3][2][TD_UNIT_TEXT], rate[2][TD_UNIT_TEXT], copied[2][TD_UNIT_TEXT], loss[2][32];
    static const double shares[] = {0.5, 0.25, 0.75};
    for (int s = 0; s < 2; s++) {
        for (int q = 0; q < 3; q++)
            td_format_seconds(time[q][s], td_statistics_quantile(&c->sides[s].statistics, shares[q]));
        td_format_count(rate[s], td_statistics_rate(&c->sides[s].statistics));
        td_format_traffic(copied[s], copied_per_step(&c->sides[s]));
        snprintf(loss[s], sizeof loss[s], "%.6f", (double)c->sides[s].loss);
    }
    td_table table;
    td_table_init(&table, 3);
    td_table_row(&table, "", c->sides[0].title, c->sides[1].title);
    td_table_row(&table, "step, median", time[0][0], time[0][1]);
    td_table_row(&table, "step, quarters", time[1][0], time[1][1]);
    td_table_row(&table, "", time[2][0], time[2][1]);
    td_table_row(&table, "samples/s", rate[0], rate[1]);
    td_table_row(&table, "copied a step", copied[0], copied[1]);
    add_memory_rows(c, &table);
    td_table_row(&table, "last loss", loss[0], loss[1]);
    fprintf(out, "%s, batch %lld, %s each, interleaved\n\n", c->setup->name, (long long)c->setup->batch,
            TD_COUNTED(c->sides[0].statistics.n, "step"));
    TD_TRY(td_table_print(&table, "  ", out));
    if (c->path.seconds > 0)
        fprintf(out,
                "\n  critical path of the cut step, from times of its ops on one device each: %s; the step takes %.2f "
                "of it",
                td_format_seconds(time[0][0], c->path.seconds),
                td_statistics_quantile(&c->sides[0].statistics, 0.5) / c->path.seconds);
    if (c->path.seconds > 0 && c->path.estimated)
        fprintf(out, "; estimated, for they did not run there in this shape: %s", TD_COUNTED(c->path.estimated, "op"));
    print_overlap(c, out);
    fprintf(out, "\n  parameters after the last step are %s\n",
            c->sides[0].checksum == c->sides[1].checksum ? "the same, bit for bit" : "not the same");
    return NULL;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------------ */

static td_status *compare(const td_arguments *arguments, comparison *c, int64_t steps)
{
    const char *against = td_argument(arguments, "--against");
    bool single = !strcmp(against, "single");
    TD_TRY(td_setup_single(c->setup->root, c->setup->steps, single ? NULL : against, &c->single_options, &c->single,
                           &c->lifted));
    char title[160];
    snprintf(title, sizeof title, "all on %.60s%s", c->single, c->lifted ? " (memory limit lifted)" : "");
    c->sides[0] = (side){.title = "as configured", .options = &c->setup->options};
    c->sides[1] = (side){.title = title, .options = &c->single_options};
    td_status *status = run_both(c, steps);
    if (!status)
        status = td_argument_flag(arguments, "--json") ? print_json(c, arguments->out) : print_table(c, arguments->out);
    for (int i = 0; i < 2; i++)
        close_side(&c->sides[i]);
    close_witnesses(c);
    for (int32_t i = 0; i <= MOST_WITNESSES; i++)
        td_measured_ops_deinit(&c->ops[i]);
    td_train_options_deinit(&c->single_options);
    td_free(c->single);
    return status;
}

td_status *td_bench_against(const td_arguments *arguments)
{
    double steps = 0;
    if (!td_argument(arguments, "--against"))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "bench: --against is missing"),
                              "usage: tandem bench CONFIG --against single");
    TD_TRY(td_argument_number(arguments, "--steps", (td_number_range){1, 1000000, true}, USUAL_STEPS, &steps));
    td_config *config = NULL;
    td_setup setup;
    TD_TRY(td_arguments_config(arguments, &config));
    td_status *status = td_setup_open(config, &setup);
    if (!status) {
        comparison c = {.setup = &setup};
        status = setup.dataset
                     ? compare(arguments, &c, (int64_t)steps)
                     : TD_SECTION_ERROR(setup.root, "graph", "bench needs data: a section data with format and train");
        td_setup_close(&setup);
    }
    td_config_destroy(config);
    return status;
}
