/* tandem landscape: draws the loss around a run's training from the weights that it has kept, for the board. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/landscape.h"
#include "cli/shell_word.h"
#include "cli/snapshots.h"
#include "cli/summary.h"
#include "cli/terminal.h"

/* ---- the run -------------------------------------------------------------------------------------------------------------- */

static td_status *load_config(const td_arguments *arguments, td_config **out_config)
{
    td_status *status = td_lineage_configuration(arguments->words[0], out_config);
    if (status)
        return td_status_help(status, "name the folder of a run: tandem landscape runs/lenet-0001");
    return td_arguments_settle(arguments, *out_config);
}

/* ---- one landscape -------------------------------------------------------------------------------------------------------- */

static td_status *add_path(td_loss_probe *probe, const td_plane *plane, td_safetensors *const *files,
                           const int64_t *steps, const int64_t *units, json_t *landscape)
{
    json_t *path = json_array();
    td_status *status = NULL;
    for (int32_t i = 0; !status && i < plane->n; i++) {
        double loss;
        td_plane point = {0};
        status = td_plane_around(probe, files[i], 0, &point);
        if (!status)
            status = td_loss_probe_move(probe, point.centre, NULL, 0, NULL, 0);
        if (!status)
            status = td_loss_probe_read(probe, &loss);
        if (!status)
            json_array_append_new(path, json_pack("{s:I, s:I, s:f, s:f, s:o}", "step", (json_int_t)steps[i], "at",
                                                  (json_int_t)units[i], "x", plane->x[i], "y", plane->y[i], "loss",
                                                  loss == loss ? json_real(loss) : json_null()));
        td_plane_deinit(&point);
    }
    json_object_set_new(landscape, "path", path);
    return status;
}

static td_status *draw_interval(td_loss_probe *probe, const char *run, int32_t interval, int32_t size, json_t *list)
{
    int64_t *steps = NULL, *units = NULL;
    int32_t n = 0;
    td_safetensors **files = NULL;
    td_plane plane = {0};
    json_t *landscape = NULL;
    uint64_t seed = (uint64_t)td_section_int(probe->setup->root, "train.seed");
    td_status *status = td_snapshots_interval(probe->setup, interval, &steps, &units, &n);
    if (!status)
        status = TD_NEW(files, n);
    for (int32_t i = 0; !status && i < n; i++)
        status = td_snapshot_open(run, steps[i], &files[i]);
    if (!status)
        status = td_plane_of_path(probe, files, n, seed, &plane);
    if (!status)
        status = td_landscape_draw(probe, &plane, size, &landscape);
    if (!status) {
        json_object_set_new(landscape, "kind", json_string("train"));
        json_array_append(list, landscape);
        status = add_path(probe, &plane, files, steps, units, landscape);
    }
    json_decref(landscape);
    td_plane_deinit(&plane);
    for (int32_t i = 0; files && i < n; i++)
        td_safetensors_close(files[i]);
    td_free(files);
    td_free(steps);
    td_free(units);
    return status;
}

/* The last step of which there are weights: the end of training. */
static int64_t last_step(const char *run)
{
    char *path = td_format("%s/summary.json", run);
    json_t *json = path ? json_load_file(path, 0, NULL) : NULL;
    int64_t step = (int64_t)json_integer_value(json_object_get(json, "steps"));
    json_decref(json);
    td_free(path);
    return step;
}

static td_status *draw_result(td_loss_probe *probe, const char *run, int32_t size, json_t *list)
{
    td_safetensors *file = NULL;
    td_plane plane = {0};
    json_t *landscape = NULL;
    int64_t step = last_step(run);
    td_status *status = td_snapshot_open(run, step, &file);
    if (!status)
        status = td_plane_around(probe, file, (uint64_t)td_section_int(probe->setup->root, "train.seed"), &plane);
    if (!status)
        status = td_landscape_draw(probe, &plane, size, &landscape);
    if (!status) {
        json_object_set_new(landscape, "kind", json_string("result"));
        json_object_set_new(landscape, "step", json_integer((json_int_t)step));
        json_array_append(list, landscape);
    }
    json_decref(landscape);
    td_plane_deinit(&plane);
    td_safetensors_close(file);
    return status;
}

/* ---- all of them ---------------------------------------------------------------------------------------------------------- */

/* An option's number, or the configuration's. */
static td_status *count_of(const td_arguments *arguments, td_section root, const char *option, const char *key,
                           int64_t *out)
{
    const td_config_key *limits = td_config_key_find(key);
    double number = 0;
    TD_TRY(td_argument_number(arguments, option, (td_number_range){limits->least, limits->most, true},
                              (double)td_section_int(root, key), &number));
    *out = (int64_t)number;
    return NULL;
}

static int32_t intervals_of(td_section root)
{
    return td_section_bool(root, "landscape.create_landscape.train") ? td_section_count(root, "landscape.intervals")
                                                                     : 0;
}

/* Before anything is planned: what a job trained may not even have a plan in one process. */
static td_status *check_kept(const char *run, td_section root)
{
    if (!strcmp(td_section_string(root, "offload.embedding"), "ps"))
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "%s: no weights were kept for a landscape, as a job under mpirun keeps none", run);
    if (intervals_of(root) || td_snapshots_want_result(root))
        return NULL;
    return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "%s: no weights were kept for a landscape", run),
                          "train in one process with landscape.intervals, such as [[1, 2, 3]], or "
                          "landscape.create_landscape.result: on");
}

/* A loss for each point of a picture, and of a training's path. */
static td_status *count_points(const td_loss_probe *probe, int32_t size, int64_t *out_points)
{
    const int32_t intervals = intervals_of(probe->setup->root);
    *out_points = (intervals + td_snapshots_want_result(probe->setup->root)) * (int64_t)size * size;
    for (int32_t i = 0; i < intervals; i++) {
        int64_t *steps = NULL, *units = NULL;
        int32_t n = 0;
        TD_TRY(td_snapshots_interval(probe->setup, i, &steps, &units, &n));
        *out_points += n;
        td_free(steps);
        td_free(units);
    }
    return NULL;
}

static td_status *draw_each(const char *run, td_loss_probe *probe, int32_t size, json_t *list)
{
    td_section root = probe->setup->root;
    for (int32_t i = 0; i < intervals_of(root); i++)
        TD_TRY(draw_interval(probe, run, i, size, list));
    return td_snapshots_want_result(root) ? draw_result(probe, run, size, list) : NULL;
}

static td_status *draw_all(const td_arguments *arguments, td_loss_probe *probe, int32_t size, json_t *list)
{
    FILE *stream = td_argument_flag(arguments, "--json") ? NULL : arguments->out;
    td_work_progress work = {
        .stream = stream, .terminal = stream && td_stream_is_terminal(stream), .what = "landscape", .unit = "points"};
    TD_TRY(count_points(probe, size, &work.all));
    td_work_start(&work, td_clock_ns());
    probe->work = &work;
    td_status *status = draw_each(arguments->words[0], probe, size, list);
    probe->work = NULL;
    td_work_end(&work);
    return status;
}

static td_status *save(const td_arguments *arguments, json_t *json)
{
    const char *run = arguments->words[0];
    const size_t n = json_array_size(json_object_get(json, "landscapes"));
    TD_TRY(td_json_write(json_incref(json), run, "landscape/landscape.json"));
    if (td_argument_flag(arguments, "--json"))
        return td_json_print(json_incref(json), arguments->out);
    char *word = td_shell_word_text(run);
    fprintf(arguments->out, "%s/landscape/landscape.json: %s   more: tandem board %s\n", run,
            TD_COUNTED(n, "landscape"), word ? word : run);
    td_free(word);
    return NULL;
}

static td_status *draw(const td_arguments *arguments, td_setup *setup)
{
    td_loss_probe probe = {0};
    int64_t size = 0, samples = 0;
    json_t *list = json_array(), *json = NULL;
    td_status *status =
        setup->dataset
            ? NULL
            : TD_SECTION_ERROR(setup->root, "graph", "a landscape needs data: a section data with format and train");
    if (!status)
        status = check_kept(arguments->words[0], setup->root);
    if (!status)
        status = count_of(arguments, setup->root, "--size", "landscape.landscape_size", &size);
    if (!status)
        status = count_of(arguments, setup->root, "--samples", "landscape.num_samples", &samples);
    if (!status)
        status = td_loss_probe_open(setup, samples, &probe);
    if (!status)
        status = draw_all(arguments, &probe, (int32_t)size, list);
    if (!status)
        json = json_pack("{s:i, s:s, s:s, s:I, s:I, s:O}", "version", 1, "model", setup->name, "unit",
                         td_section_string(setup->root, "landscape.unit"), "size", (json_int_t)size, "samples",
                         (json_int_t)probe.samples, "landscapes", list);
    if (!status)
        status = json ? save(arguments, json) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a landscape");
    json_decref(json);
    json_decref(list);
    td_loss_probe_close(&probe);
    return status;
}

static td_status *run(const td_arguments *arguments)
{
    td_config *config = NULL;
    td_setup setup;
    td_status *status = load_config(arguments, &config);
    if (!status)
        status = td_setup_open(config, &setup);
    if (!status) {
        status = draw(arguments, &setup);
        td_setup_close(&setup);
    }
    td_config_destroy(config);
    return status;
}

static const td_command_option options[] = {
    {"--size", "N", "points along each side of the picture, instead of landscape.landscape_size"},
    {"--samples", "N", "samples that a loss is the mean of, instead of landscape.num_samples"},
    TD_OPTION_SET,
    TD_OPTION_JSON,
    {NULL, NULL, NULL},
};

static const char *const notes[] = {
    "The run has kept weights as its section landscape said; each point of a picture is one forward pass over the "
    "samples.",
    "The pictures are written to RUN/landscape/landscape.json, which tandem board shows.",
    NULL,
};

const td_command td_command_landscape = {
    .name = "landscape",
    .summary = "draws the loss around a run's training",
    .usage = "RUN [--size N] [--samples N] [--set KEY=VALUE]... [--json]",
    .least = 1,
    .most = 1,
    .first = "the run",
    .options = options,
    .notes = notes,
    .run = run,
};
