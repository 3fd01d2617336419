/* What the event files of a run hold, by tag: read as the files grow. See board/board.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"
#include "board/board.h"

/* ---- by tag ------------------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(td_event_kind kind, const char *tag, size_t bytes)
{
    return td_hash_bytes(tag, bytes, (uint64_t)kind);
}

static int64_t slot_of(const td_board_run *run, td_event_kind kind, const char *tag, size_t bytes)
{
    int64_t mask = run->index_size - 1, at = (int64_t)(hash_of(kind, tag, bytes) & (uint64_t)mask);
    for (; run->index[at] >= 0; at = (at + 1) & mask) {
        const td_board_series *series = &run->series[run->index[at]];
        if (series->kind == kind && strlen(series->tag) == bytes && !memcmp(series->tag, tag, bytes))
            break;
    }
    return at;
}

/* Twice as large. */
static td_status *grow_index(td_board_run *run)
{
    int64_t size = run->index_size ? run->index_size * 2 : 64;
    int32_t *index = NULL;
    TD_TRY(TD_NEW(index, size));
    memset(index, -1, (size_t)size * sizeof *index);
    td_free(run->index);
    run->index = index;
    run->index_size = size;
    for (int64_t i = 0; i < run->n_series; i++)
        run->index[slot_of(run, run->series[i].kind, run->series[i].tag, strlen(run->series[i].tag))] = (int32_t)i;
    return NULL;
}

static td_status *add_series(td_board_run *run, td_event_kind kind, const char *tag, size_t bytes,
                             td_board_series **out)
{
    if (run->n_series * 2 >= run->index_size)
        TD_TRY(grow_index(run));
    int64_t slot = slot_of(run, kind, tag, bytes);
    if (run->index[slot] < 0) {
        TD_TRY(td_grow(&run->series, &run->series_capacity, run->n_series, sizeof *run->series));
        td_board_series *series = &run->series[run->n_series];
        *series = (td_board_series){.tag = td_calloc(bytes + 1, 1), .kind = kind};
        if (!series->tag)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a tag of %zu bytes", bytes);
        memcpy(series->tag, tag, bytes);
        run->index[slot] = (int32_t)run->n_series++;
    }
    *out = &run->series[run->index[slot]];
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------ */

typedef struct reading {
    td_board_run *run;
    int32_t file;
} reading;

/* A resumed run goes on from a checkpoint, in another file: what came after that in the file before was never kept, nor is what
 * that file may still get. */
static bool goes_on(td_board_series *series, int64_t step, int32_t file)
{
    if (file < series->last_file)
        return step < series->restart;
    if (file == series->last_file)
        return true;
    while (series->n && series->points[series->n - 1].step >= step)
        series->n--;
    series->last_file = file;
    series->restart = step;
    return true;
}

static td_status *on_event(void *context, const td_event_value *value)
{
    enum { LONGEST_TAG = 4096, MOST_SERIES = 4000000 };
    reading *r = context;
    td_board_series *series = NULL;
    size_t bytes = strnlen(value->tag, value->tag_bytes);
    bytes = bytes < LONGEST_TAG ? bytes : LONGEST_TAG;
    if (r->run->n_series >= MOST_SERIES)
        return NULL;
    TD_TRY(add_series(r->run, value->kind, value->tag, bytes, &series));
    if (!goes_on(series, value->stamp.step, r->file))
        return NULL;
    TD_TRY(td_grow(&series->points, &series->capacity, series->n, sizeof *series->points));
    td_board_point point = {.step = value->stamp.step, .seconds = value->stamp.seconds, .file = r->file};
    point.bytes = (uint32_t)value->payload_bytes;
    if (value->kind == TD_EVENT_SCALAR)
        point.value = value->scalar;
    else
        point.offset = value->offset;
    series->unsorted = series->unsorted || (series->n && series->points[series->n - 1].step > point.step);
    series->points[series->n++] = point;
    return NULL;
}

/* Event files begin with the time of their run's part in their name. */
static void sort_files(td_board_run *run)
{
    for (int64_t i = 1; i < run->n_files; i++)
        for (int64_t k = i; k > 0 && !run->files[k].offset && strcmp(run->files[k - 1].name, run->files[k].name) > 0;
             k--) {
            td_board_file file = run->files[k];
            if (run->files[k - 1].offset)
                break; /* one that is being read keeps its number */
            run->files[k] = run->files[k - 1];
            run->files[k - 1] = file;
        }
}

/* *out_end: there is no more in it now. */
static td_status *read_file(td_board *board, td_board_run *run, int32_t index, bool *out_end)
{
    td_board_file *file = &run->files[index];
    reading r = {run, index};
    int opened = -1;
    int64_t before = file->offset;
    *out_end = true;
    char *path = td_format("%s/%s", run->path, file->name);
    if (!path)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_status *status = td_board_open_file(board->folder, path, &opened);
    if (!status)
        status = td_event_read(file->name, opened, &file->offset, board->left_bytes, on_event, &r, out_end);
    td_free(path);
    if (opened >= 0)
        close(opened);
    board->left_bytes -= file->offset - before;
    *out_end = *out_end || status;
    if (status && td_status_code(status) != TD_OUT_OF_MEMORY) { /* said with the run; the other files are read */
        file->damaged = td_status_code(status) == TD_DATA_ERROR;
        if (!run->problems[TD_BOARD_EVENTS])
            run->problems[TD_BOARD_EVENTS] = td_strdup(td_status_message(status));
        td_status_destroy(status);
        status = NULL;
    }
    return status;
}

/* Of a problem with its files, that which lasts. */
static void forget_passing_problem(td_board_run *run)
{
    for (int64_t i = 0; i < run->n_files; i++)
        if (run->files[i].damaged)
            return;
    td_free(run->problems[TD_BOARD_EVENTS]);
    run->problems[TD_BOARD_EVENTS] = NULL;
}

/* In order: a file is begun when those before it were read to their ends. */
static td_status *read_files(td_board *board, td_board_run *run)
{
    bool end = true;
    forget_passing_problem(run);
    sort_files(run);
    for (int64_t i = 0; end && i < run->n_files; i++) {
        end = run->files[i].damaged || board->left_bytes > 0;
        if (end && !run->files[i].damaged)
            TD_TRY(read_file(board, run, (int32_t)i, &end));
    }
    run->pending = !end;
    return NULL;
}

static int by_step(const void *a, const void *b)
{
    const td_board_point *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

td_status *td_board_run_read(td_board *board, td_board_run *run)
{
    td_status *status = read_files(board, run);
    for (int64_t i = 0; i < run->n_series; i++) { /* what was read is in order even where reading has failed */
        td_board_series *series = &run->series[i];
        if (series->unsorted)
            qsort(series->points, (size_t)series->n, sizeof *series->points, by_step);
        series->unsorted = false;
    }
    return status;
}

/* ---- looking up ------------------------------------------------------------------------------------------------------------- */

td_status *td_board_series_of(const td_board_run *run, const td_board_request *request, td_event_kind kind,
                              const td_board_series **out_series)
{
    const char *tag = td_board_parameter_of(request, "tag"), *id = td_board_parameter_of(request, "id");
    *out_series = NULL;
    if (!tag && !id)
        return TD_ERROR(TD_INVALID_ARGUMENT, "which tag? tag=NAME or id=ID, as /api/v1/tags lists them");
    if (tag && run->index_size) {
        int32_t index = run->index[slot_of(run, kind, tag, strlen(tag))];
        *out_series = index >= 0 ? &run->series[index] : NULL;
    }
    for (int64_t i = 0; !*out_series && id && i < run->n_series; i++) {
        char hash[17];
        if (run->series[i].kind != kind)
            continue;
        td_board_hash_text(run->series[i].tag, hash);
        if (!strcmp(hash, id))
            *out_series = &run->series[i];
    }
    return *out_series
               ? NULL
               : TD_ERROR(TD_NOT_FOUND, "this run has no such %s; /api/v1/tags lists them", td_event_kind_name(kind));
}

td_status *td_board_payload(td_board *board, const td_board_run *run, const td_board_point *point,
                            uint8_t **out_payload)
{
    int file = -1;
    *out_payload = NULL;
    char *path = td_format("%s/%s", run->path, run->files[point->file].name);
    td_status *status =
        path ? td_board_open_file(board->folder, path, &file) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_free(path);
    if (!status)
        status = TD_NEW(*out_payload, (size_t)point->bytes + 1);
    if (!status && pread(file, *out_payload, point->bytes, (off_t)point->offset) != (ssize_t)point->bytes)
        status = TD_ERROR(TD_IO, "%s: changed while it was read", run->files[point->file].name);
    if (file >= 0)
        close(file);
    if (status) {
        td_free(*out_payload);
        *out_payload = NULL;
    }
    return status;
}

void td_board_run_forget(td_board_run *run)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < run->n_series; i++) {
        td_free(run->series[i].tag);
        td_free(run->series[i].points);
    }
    td_free(run->series);
    td_free(run->index);
    run->series = NULL;
    run->index = NULL;
    run->n_series = run->series_capacity = run->index_size = 0;
    for (int64_t i = 0; i < run->n_files; i++) {
        td_board_file file = run->files[i];
        file.offset = 0;
        file.damaged = false;
        if (file.found)
            run->files[kept++] = file;
        else
            td_free(file.name);
    }
    run->n_files = kept;
    td_free(run->problems[TD_BOARD_EVENTS]);
    run->problems[TD_BOARD_EVENTS] = NULL;
}

void td_board_run_deinit(td_board_run *run)
{
    for (int64_t i = 0; i < run->n_files; i++)
        run->files[i].found = false;
    td_board_run_forget(run);
    td_free(run->files);
    json_decref(run->lineage);
    json_decref(run->summary);
    td_free(run->path);
    td_free(run->trace);
    for (int i = 0; i < TD_BOARD_PROBLEMS; i++)
        td_free(run->problems[i]);
    *run = (td_board_run){0};
}
