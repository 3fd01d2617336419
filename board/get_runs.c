/* The list of runs, one run with its lineage, and what a run has charts of. */
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/memory.h"
#include "board/board.h"

/* ---- one run in the list ---------------------------------------------------------------------------------------------------- */

/* Somebody trains into it: td_run_lock holds its folder. */
static bool is_locked(const td_board *board, const td_board_run *run)
{
    int folder = -1;
    td_status *status = td_board_open_folder(board->folder, run->path, &folder);
    bool locked = !status && flock(folder, LOCK_SH | LOCK_NB) != 0;
    td_status_destroy(status);
    if (folder >= 0)
        close(folder);
    return locked;
}

static const char *state_of(const td_board *board, const td_board_run *run)
{
    if (is_locked(board, run))
        return "running";
    return run->summary ? "ended" : run->lineage ? "stopped" : "unknown";
}

static void copy(json_t *to, const char *name, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);
    if (value)
        json_object_set(to, name, value);
}

/* The last scalar of a tag, for runs that have not ended. */
static void last_scalar(const td_board_run *run, const char *tag, json_t *to, const char *name)
{
    const td_board_series *series = NULL;
    const td_board_parameter parameter = {"tag", tag};
    const td_board_request request = {.parameters = &parameter, .n_parameters = 1};
    td_status *status = td_board_series_of(run, &request, TD_EVENT_SCALAR, &series);
    td_status_destroy(status);
    if (!series || !series->n)
        return;
    const td_board_point *point = &series->points[series->n - 1];
    json_object_set_new(to, name, json_real(point->value)); /* NULL, and left out, where it is no finite number */
    if (!json_object_get(to, "steps"))
        json_object_set_new(to, "steps", json_integer((json_int_t)point->step));
}

static json_t *run_json(const td_board *board, const td_board_run *run)
{
    json_t *json = json_object(), *counts = json_object();
    int64_t n[TD_EVENT_KINDS] = {0};
    for (int64_t i = 0; i < run->n_series; i++)
        n[run->series[i].kind]++;
    for (int kind = 0; kind < TD_EVENT_KINDS; kind++)
        json_object_set_new(counts, td_event_kind_name((td_event_kind)kind), json_integer((json_int_t)n[kind]));
    json_object_set_new(json, "id", json_string(run->id));
    json_object_set_new(json, "name", td_board_text_json(*run->path ? run->path : "."));
    json_object_set_new(json, "state", json_string(state_of(board, run)));
    const char *problem = td_board_problem_of(run);
    json_object_set_new(json, "problem", problem ? td_board_text_json(problem) : json_null());
    json_object_set_new(json, "tags", counts);
    json_object_set_new(json, "trace", json_boolean(run->trace != NULL));
    json_object_set_new(json, "written", json_real((double)run->written_ns / 1e9));
    copy(json, "model", json_object_get(run->lineage, "model"), "name");
    copy(json, "parameters", json_object_get(run->lineage, "model"), "parameters");
    static const char *const lineage[] = {"started", "seed", "version", "settings", "devices"};
    static const char *const summary[] = {
        "steps", "samples", "loss", "metrics", "step_ms", "samples_per_s", "overlap", "copies", "parameters_checksum"};
    for (size_t i = 0; i < sizeof lineage / sizeof *lineage; i++)
        copy(json, lineage[i], run->lineage, lineage[i]);
    for (size_t i = 0; i < sizeof summary / sizeof *summary; i++)
        copy(json, summary[i], run->summary, summary[i]);
    if (!run->summary)
        last_scalar(run, "train/loss", json, "loss");
    return json;
}

/* ---- handlers ------------------------------------------------------------------------------------------------------------------ */

TD_BOARD_HANDLER(get_runs)
{
    (void)request;
    TD_TRY(td_board_look(board));
    json_t *list = json_array();
    td_status *status = NULL;
    for (int64_t i = 0; !status && i < board->n_runs; i++) {
        status = td_board_run_read(board, &board->runs[i]); /* the rest of long ones by later requests */
        if (!status)
            json_array_append_new(list, run_json(board, &board->runs[i]));
    }
    if (status) {
        json_decref(list);
        return status;
    }
    return td_board_put_json(out, json_pack("{s:o, s:o, s:b}", "directory", td_board_text_json(board->directory),
                                            "runs", list, "more", (int)board->too_many));
}

TD_BOARD_HANDLER(get_run)
{
    td_board_run *run = NULL;
    TD_TRY(td_board_run_of(board, request, &run));
    TD_TRY(td_board_run_read(board, run));
    json_t *json = run_json(board, run);
    if (run->lineage)
        json_object_set(json, "lineage", run->lineage);
    if (run->summary)
        json_object_set(json, "summary", run->summary);
    return td_board_put_json(out, json);
}

static bool holds(const char *text, const char *word)
{
    return !word || !*word || strcasestr(text, word) != NULL;
}

static void put_tag(td_string *out, const td_board_series *series, bool first)
{
    char id[17];
    td_board_hash_text(series->tag, id);
    td_string_append(out, first ? "" : ",");
    td_string_append(out, "{\"tag\":");
    td_board_quote(out, series->tag, strlen(series->tag));
    td_string_format(out, ",\"id\":\"%s\",\"n\":%lld,\"first\":%lld,\"last\":%lld}", id, (long long)series->n,
                     series->n ? (long long)series->points[0].step : 0,
                     series->n ? (long long)series->points[series->n - 1].step : 0);
}

TD_BOARD_HANDLER(get_tags)
{
    td_board_run *run = NULL;
    const char *kind = td_board_parameter_of(request, "kind"), *search = td_board_parameter_of(request, "search");
    int64_t most = (int64_t)td_board_number(request, "limit", 500, 1, 10000), total = 0;
    TD_TRY(td_board_run_of(board, request, &run));
    TD_TRY(td_board_run_read(board, run));
    td_string_append(out, "{\"tags\":[");
    for (int64_t i = 0; i < run->n_series; i++) {
        const td_board_series *series = &run->series[i];
        if ((kind && strcmp(kind, td_event_kind_name(series->kind)) != 0) || !holds(series->tag, search))
            continue;
        if (total++ < most)
            put_tag(out, series, total == 1);
    }
    td_string_format(out, "],\"total\":%lld,\"reading\":%s}", (long long)total, run->pending ? "true" : "false");
    return NULL;
}
