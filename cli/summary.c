/* summary.json, and the lines after a training: see cli/summary.h. */
#include "cli/summary.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/ledger_view.h"
#include "cli/version.h"

/* ---- facts ---------------------------------------------------------------------------------------------------------------- */

static double per_step(int64_t bytes, int64_t steps)
{
    return steps > 0 ? (double)bytes / (double)steps : 0;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

double td_summary_overlap(const td_session_counters *counters)
{
    return counters->copy_or_host_s > 0 ? 1 - counters->exposed_s / counters->copy_or_host_s : 1;
}

/* Samples of the whole training, resumed parts too: the order of the data is known. */
static int64_t samples_so_far(const td_training *training)
{
    const td_setup *setup = training->setup;
    int64_t rows = setup->dataset ? td_dataset_schema(setup->dataset)->train_rows : 0;
    bool drop = td_section_bool(setup->root, "data.drop_remainder");
    int64_t per_epoch = drop ? setup->batches_per_epoch * setup->batch : rows;
    return training->position.epoch * per_epoch + training->position.batch * setup->batch;
}

/* ---- summary.json ----------------------------------------------------------------------------------------------------------- */

static json_t *device_json(const td_training *training, int32_t index)
{
    td_plan_device_summary planned = td_plan_device(training->plan, index);
    td_device_counters seen = training->devices[index];
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "name", planned.name, "backend", planned.backend,
                     "capacity_bytes", (json_int_t)planned.capacity_bytes, "peak_bytes", (json_int_t)seen.peak_bytes,
                     "planned_peak_bytes", (json_int_t)planned.peak_bytes, "parameter_bytes",
                     (json_int_t)planned.parameter_bytes, "state_bytes", (json_int_t)planned.state_bytes, "busy",
                     share(seen.busy_s, training->counters.seconds));
}

static json_t *devices_json(const td_training *training)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < training->n_devices; i++)
        json_array_append_new(list, device_json(training, i));
    return list;
}

static json_t *early_json(const td_session_counters *counters)
{
    return json_pack("{s:I, s:I, s:f}", "bags", (json_int_t)counters->bags_looked_up, "bags_early",
                     (json_int_t)counters->bags_looked_up_early, "share",
                     share((double)counters->bags_looked_up_early, (double)counters->bags_looked_up));
}

/* What was copied, and what the plan's formula gives at the same extents. */
static json_t *copies_json(const td_session_counters *counters)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "to_device_bytes_per_step",
                     per_step(counters->to_device_bytes, counters->steps), "to_host_bytes_per_step",
                     per_step(counters->to_host_bytes, counters->steps), "planned_to_device_bytes_per_step",
                     per_step(counters->planned_to_device_bytes, counters->steps), "planned_to_host_bytes_per_step",
                     per_step(counters->planned_to_host_bytes, counters->steps));
}

/* null where there was no update yet: JSON has no NaN. */
static json_t *loss_json(const td_training *training)
{
    return isfinite(training->loss) ? json_real((double)training->loss) : json_null();
}

/* null where there is none. */
static json_t *loss_scale_json(const td_training *training)
{
    double scale = td_store_loss_scale(training->store);
    if (scale == 0)
        return json_null();
    return json_pack("{s:f, s:I, s:s?, s:I}", "scale", scale, "overflows",
                     (json_int_t)td_store_overflows(training->store), "last_overflow", training->overflowed,
                     "last_overflow_step", (json_int_t)training->overflowed_step);
}

/* How many pulls were 0, 1, ... windows behind, up to the most that one was. */
static json_t *staleness_json(const td_summary *summary)
{
    json_t *pulls = json_array();
    int32_t most = 0;
    for (int32_t i = 0; i < TD_JOB_STALENESS; i++)
        most = summary->staleness[i] ? i : most;
    for (int32_t i = 0; i <= most; i++)
        json_array_append_new(pulls, json_integer(summary->staleness[i]));
    return pulls;
}

/* Of a worker that keeps rows (ps.cache). */
static td_job_cached cached_of(const td_training *training)
{
    const td_distributed *distributed = training->setup->distributed;
    return distributed && distributed->job ? td_job_count_cached(distributed->job) : (td_job_cached){0};
}

static json_t *cache_json(const td_training *training)
{
    const td_job_cached cached = cached_of(training);
    return json_pack("{s:I, s:I, s:f}", "rows", (json_int_t)cached.rows, "hits", (json_int_t)cached.hits, "share",
                     share((double)cached.hits, (double)cached.rows));
}

static void print_cache(const td_summary *summary, FILE *stream)
{
    const td_job_cached cached = cached_of(summary->training);
    if (cached.rows)
        fprintf(stream, "  rows kept here (ps.cache): %lld of %lld wanted, %.0f %%\n", (long long)cached.hits,
                (long long)cached.rows, 100 * share((double)cached.hits, (double)cached.rows));
}

td_status *td_summary_json(const td_summary *summary, json_t **out_json)
{
    td_training *training = summary->training;
    td_session_counters counters = training->counters;
    td_plan_summary plan = td_plan_summarize(training->plan);
    uint64_t checksum = 0;
    char text[32];
    json_t *ledger = NULL;
    TD_TRY(td_store_checksum(training->store, &checksum));
    TD_TRY(td_ledger_json(training->plan, &ledger));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)checksum);
    json_t *metrics = td_evaluation_json(summary->evaluation);
    if (!isnan(summary->generator_auc))
        json_object_set_new(metrics, "generator_auc", json_real(summary->generator_auc));
    *out_json = json_pack(
        "{s:I, s:I, s:o, s:I, s:o, s:o, s:{s:f, s:f}, s:f, s:f, s:o, s:o, s:{s:i, s:i}, s:f, s:{s:I, s:I, s:I}, s:o, "
        "s:o, s:s, s:I, "
        "s:s}",
        "steps", (json_int_t)training->steps, "skipped_steps",
        (json_int_t)(training->steps - td_store_updates(training->store)), "loss_scale", loss_scale_json(training),
        "samples", (json_int_t)samples_so_far(training), "loss", loss_json(training), "metrics", metrics, "step_ms",
        "median", td_statistics_quantile(&training->statistics, 0.5) * 1e3, "p90",
        td_statistics_quantile(&training->statistics, 0.9) * 1e3, "samples_per_s",
        td_statistics_rate(&training->statistics), "plan_ms", plan.plan_ms, "devices", devices_json(training), "copies",
        copies_json(&counters), "plan", "subgraphs", plan.subgraphs, "cut_edges", plan.cut_edges, "overlap",
        td_summary_overlap(&counters), "speculation", "speculated", (json_int_t)counters.speculated, "missed",
        (json_int_t)counters.missed, "resting", (json_int_t)counters.resting, "early_lookup", early_json(&counters),
        "ledger", ledger, "parameters_checksum", text, "seed",
        (json_int_t)td_section_int(training->setup->root, "train.seed"), "version", TANDEM_VERSION);
    if (*out_json && summary->pulls)
        json_object_set_new(*out_json, "staleness", staleness_json(summary));
    if (*out_json && cached_of(training).rows)
        json_object_set_new(*out_json, "cache", cache_json(training));
    return *out_json ? NULL
                     : TD_ERROR(TD_INTERNAL, "summary.json cannot be built (a number that is none, or no memory)");
}

/* ---- lines ------------------------------------------------------------------------------------------------------------------ */

static void print_skipped(const td_training *training, FILE *stream)
{
    int64_t overflows = td_store_overflows(training->store),
            others = training->steps - td_store_updates(training->store) - overflows;
    if (others)
        fprintf(stream, "  skipped: %s, whose loss or gradients were no finite numbers (train.on_nan)\n",
                TD_COUNTED(others, "step"));
    if (overflows)
        fprintf(stream, "  skipped: %s, whose gradients overflowed", TD_COUNTED(overflows, "step"));
    if (overflows && training->overflowed)
        fprintf(stream, ", last at step %lld, that of %s", (long long)training->overflowed_step, training->overflowed);
    if (overflows)
        fprintf(stream, "; the loss scale is %g now\n", td_store_loss_scale(training->store));
}

static void print_speculation(const td_session_counters *counters, FILE *stream)
{
    if (counters->speculated + counters->resting)
        fprintf(stream, "  clipping: %s updated before the norm was known, %lld of them undone, %lld waited for it\n",
                TD_COUNTED(counters->speculated, "step"), (long long)counters->missed, (long long)counters->resting);
}

/* Finite, so no error; but nobody wants it. The mean too: one odd batch is no divergence. */
static void print_divergence(const td_training *training, FILE *stream)
{
    enum { FAR = 10 };
    const double first = (double)training->first_loss, last = (double)training->loss,
                 recent = td_progress_recent_loss(&training->progress);
    if (first > 0 && last > FAR * first && recent > FAR * first)
        fprintf(stream,
                "  training diverged: the last loss is %.3g times the first (%.4g); try a smaller optimizer[].lr\n",
                last / first, first);
}

static void print_result(const td_summary *summary, FILE *stream)
{
    char clock[32];
    double value;
    fprintf(stream, "done in %s: loss %.4f", td_clock_text(summary->training->seconds, clock),
            (double)summary->training->loss);
    if (td_evaluation_value(summary->evaluation, "auc", &value))
        fprintf(stream, ", auc %.4f", value);
    else if (td_evaluation_value(summary->evaluation, "accuracy", &value))
        fprintf(stream, ", accuracy %.4f", value);
    if (!isnan(summary->generator_auc))
        fprintf(stream, " (the generator's own %.4f)", summary->generator_auc);
    if (td_evaluation_value(summary->evaluation, "auc_seen_users", &value))
        fprintf(stream, " (seen users %.4f)", value);
    if (td_evaluation_value(summary->evaluation, "logloss", &value))
        fprintf(stream, ", log loss %.4f", value);
    else if (td_evaluation_value(summary->evaluation, "val_loss", &value))
        fprintf(stream, ", test loss %.4f", value);
    fputc('\n', stream);
    print_divergence(summary->training, stream);
    print_skipped(summary->training, stream);
    print_speculation(&summary->training->counters, stream);
}

static void print_staleness(const td_summary *summary, FILE *stream)
{
    int64_t all = 0;
    int32_t most = 0;
    for (int32_t i = 0; i < TD_JOB_STALENESS; i++) {
        all += summary->staleness[i];
        most = summary->staleness[i] ? i : most;
    }
    if (!summary->pulls || !most)
        return;
    fputs("  pulls were behind the slowest worker's updates by", stream);
    for (int32_t i = 0; i <= most; i++)
        if (summary->staleness[i])
            fprintf(stream, "%s %d%s: %.1f %%", i ? "," : "", i, i == TD_JOB_STALENESS - 1 ? " or more" : "",
                    100 * (double)summary->staleness[i] / (double)all);
    fputc('\n', stream);
}

static bool has_accelerator(const td_training *training)
{
    for (int32_t i = 0; i < td_plan_summarize(training->plan).devices; i++)
        if (!td_plan_device(training->plan, i).is_host)
            return true;
    return false;
}

static void print_step(const td_summary *summary, FILE *stream)
{
    td_training *training = summary->training;
    td_session_counters counters = training->counters;
    char median[TD_UNIT_TEXT], p90[TD_UNIT_TEXT];
    if (!training->statistics.n)
        return;
    fprintf(stream,
            "  step %s median (p90 %s):", td_format_seconds(median, td_statistics_quantile(&training->statistics, 0.5)),
            td_format_seconds(p90, td_statistics_quantile(&training->statistics, 0.9)));
    for (int32_t i = 0; i < td_plan_summarize(training->plan).devices; i++)
        fprintf(stream, "%s %s busy %.0f %%", i ? "," : "", td_plan_device(training->plan, i).name,
                100 * share(training->devices[i].busy_s, counters.seconds));
    if (has_accelerator(training))
        fprintf(stream, ", copies and host work hidden %.0f %%", 100 * td_summary_overlap(&counters));
    if (counters.bags_looked_up)
        fprintf(stream, ", %.0f %% of lookups early",
                100 * share((double)counters.bags_looked_up_early, (double)counters.bags_looked_up));
    fprintf(stream, ", data wait %.0f %%\n", 100 * share(training->wait_data_s, training->seconds));
}

static void print_memory(const td_summary *summary, FILE *stream)
{
    const td_training *training = summary->training;
    char held[TD_UNIT_TEXT], capacity[TD_UNIT_TEXT], single[TD_UNIT_TEXT];
    const char *before = "  ";
    for (int32_t i = 0; i < td_plan_summarize(training->plan).devices; i++) {
        td_plan_device_summary planned = td_plan_device(training->plan, i);
        if (planned.is_host)
            continue;
        fprintf(stream, "%s%s held %s", before, planned.name,
                td_format_bytes(held, (double)training->devices[i].peak_bytes));
        if (planned.capacity_bytes)
            fprintf(stream, " of %s", td_format_bytes(capacity, (double)planned.capacity_bytes));
        before = ", ";
    }
    if (summary->single_bytes)
        fprintf(stream, "%son %s alone this model needs %s", before[0] == ',' ? "; " : "  ", summary->single_name,
                td_format_bytes(single, (double)summary->single_bytes));
    if (before[0] == ',' || summary->single_bytes)
        fputc('\n', stream);
}

td_status *td_summary_print(const td_summary *summary, FILE *stream)
{
    print_result(summary, stream);
    print_step(summary, stream);
    print_staleness(summary, stream);
    print_memory(summary, stream);
    print_cache(summary, stream);
    TD_TRY(td_ledger_print(summary->training->plan, summary->training->setup->options.offload_optimizer, stream));
    fprintf(stream, "  more: %s/summary.json", summary->run);
    if (summary->training->last_checkpoint)
        fprintf(stream, "; %s", summary->evaluate);
    fputc('\n', stream);
    return NULL;
}
