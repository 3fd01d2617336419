/* The board: what a folder of runs holds, answered as JSON to a page. This header is what its parts share.
 *
 *     td_board *board = NULL;
 *     TD_TRY(td_board_open("runs", &board));
 *     td_board_response response = td_board_answer(board, &request);   // the REST interface of docs/board.md; no network here
 *     td_board_response_deinit(&response);
 *     td_board_close(board);
 *
 * Nothing in the folder is believed: names are looked up among those that were found, never put together from a request; links are
 * not followed, and what is no regular file is not opened; a damaged file spoils its own run only, whose "problem" says what is
 * wrong. A request never writes. Any thread may ask; one is answered at a time. */
#ifndef TANDEM_BOARD_BOARD_H
#define TANDEM_BOARD_BOARD_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/string.h"
#include "profiler/event_file.h"
#include "tandem/status.h"

/* ---- requests and answers ------------------------------------------------------------------------------------------------- */

typedef struct td_board_parameter {
    const char *name, *value;
} td_board_parameter;

typedef struct td_board_request {
    const char *path; /* "/api/v1/runs" */
    const td_board_parameter *parameters;
    int32_t n_parameters;
} td_board_request;

typedef struct td_board_response {
    int status; /* of HTTP */
    const char *type;
    char *body; /* owned, unless fixed */
    size_t bytes;
    bool fixed; /* the body is part of the program */
} td_board_response;

/* NULL where it was not given. */
const char *td_board_parameter_of(const td_board_request *request, const char *name);
/* A number of a request, or the fallback where there is none; clamped. */
double td_board_number(const td_board_request *request, const char *name, double fallback, double least, double most);

/* ---- runs ------------------------------------------------------------------------------------------------------------------ */

typedef struct td_board_point {
    int64_t step;
    double seconds;
    union {
        double value;   /* of a scalar */
        int64_t offset; /* of a payload in its file */
    };
    uint32_t bytes; /* of the payload */
    int32_t file;   /* of the run's event files */
} td_board_point;

typedef struct td_board_series {
    char *tag; /* as it was written: any bytes but zero */
    td_event_kind kind;
    td_board_point *points; /* by step */
    int64_t n, capacity;
    int32_t last_file; /* of the files that it is from, the latest one */
    int64_t restart;   /* the first step of that file */
    bool unsorted;     /* steps did not come in order; while reading */
} td_board_series;

typedef struct td_board_file {
    char *name; /* within the run's folder */
    int64_t offset;
    uint64_t inode;
    bool damaged, found; /* found: by the last look */
} td_board_file;

/* What may be wrong with a run, each said until it is right again. */
typedef enum td_board_problem {
    TD_BOARD_LINEAGE = 0,
    TD_BOARD_SUMMARY,
    TD_BOARD_EVENTS,
    TD_BOARD_PROBLEMS
} td_board_problem;

typedef struct td_board_run {
    char *path;  /* below the folder, "" for itself; as the file system has it */
    char id[17]; /* a hash of it, which requests may name */
    bool found;  /* by the last look */
    bool remade; /* one of its files is another one than before */
    td_board_file *files;
    int64_t n_files, files_capacity;
    td_board_series *series;
    int64_t n_series, series_capacity;
    int32_t *index; /* hash table of series by kind and tag; -1: free */
    int64_t index_size;
    json_t *lineage, *summary;                 /* run.json, summary.json; NULL: none */
    uint64_t lineage_version, summary_version; /* of the files that were read */
    int64_t written_ns;                        /* of the youngest of its files */
    char *trace;                               /* the newest trace, below the run's folder; NULL: none */
    char *problems[TD_BOARD_PROBLEMS];         /* one line each; NULL: none */
    bool pending;                              /* there is more to read in its files */
} td_board_run;

typedef struct td_board_trace td_board_trace;

typedef struct td_board {
    char *directory;
    int folder; /* open */
    td_board_run *runs;
    int64_t n_runs, runs_capacity;
    int64_t looked_ns;
    uint64_t state; /* changes whenever a file of a run does, and while there is more to read */
    uint64_t looks;
    int64_t most_at_once, left_bytes; /* of event files that one request reads: that of all, and of this one */
    bool too_many;
    td_board_trace *trace; /* the last one that was asked for, see board/traces.h */
    pthread_mutex_t mutex;
} td_board;

td_status *td_board_open(const char *directory, td_board **out_board) TD_MUST_USE;
void td_board_close(td_board *board);
td_board_response td_board_answer(td_board *board, const td_board_request *request);
void td_board_response_deinit(td_board_response *response);
/* A number that changes whenever a file of a run does; looks at most once a second. */
uint64_t td_board_state(td_board *board);

/* For handlers, which hold the mutex. */
/* Looks what is in the folder, unless that was done within the last second. */
td_status *td_board_look(td_board *board) TD_MUST_USE;
/* The run that the request's "run" names, by id or path. */
td_status *td_board_run_of(td_board *board, const td_board_request *request, td_board_run **out_run) TD_MUST_USE;
/* Reads what its files have grown by, as far as the request may read: `pending` says that there is more. */
td_status *td_board_run_read(td_board *board, td_board_run *run) TD_MUST_USE;
/* The series that the request's "tag", or "id", names. Its run was read. */
td_status *td_board_series_of(const td_board_run *run, const td_board_request *request, td_event_kind kind,
                              const td_board_series **out_series) TD_MUST_USE;
/* The payload of a point again; td_free it. */
td_status *td_board_payload(td_board *board, const td_board_run *run, const td_board_point *point,
                            uint8_t **out_payload) TD_MUST_USE;
void td_board_run_deinit(td_board_run *run);
/* What was read of its event files: they are read anew, those that are gone not. */
void td_board_run_forget(td_board_run *run);
/* NULL: all is well with it. */
const char *td_board_problem_of(const td_board_run *run);
void td_board_hash_text(const char *text, char out_hash[17]);

/* ---- files: board/files.c --------------------------------------------------------------------------------------------------- */

/* A folder below another, whatever the path holds: no link is followed, and ".." is refused. */
td_status *td_board_open_folder(int folder, const char *path, int *out_folder) TD_MUST_USE;
/* A regular file below a folder, likewise. */
td_status *td_board_open_file(int folder, const char *path, int *out_file) TD_MUST_USE;
/* All of a regular file of at most `most` bytes, and a zero after it: in memory with `more` bytes after it. */
td_status *td_board_read_file(int folder, const char *path, int64_t most, size_t more, char **out_data,
                              size_t *out_bytes) TD_MUST_USE;

/* ---- JSON: board/text.c -------------------------------------------------------------------------------------------------------- */

/* Text in quotes; what is no UTF-8, and control characters, as JSON and a page can have them. */
void td_board_quote(td_string *out, const char *text, size_t bytes);
/* A number, null where it is none. */
void td_board_put_number(td_string *out, double number);
/* td_board_quote's text for jansson. */
json_t *td_board_text_json(const char *text);
/* What jansson holds; it is taken. NULL: there was no memory for it. */
td_status *td_board_put_json(td_string *out, json_t *json) TD_MUST_USE;

/* ---- handlers ------------------------------------------------------------------------------------------------------------------ */

/* Each fills `out` with JSON. Errors become an answer of status 404 (TD_NOT_FOUND), 400 (TD_INVALID_ARGUMENT) or 500. */
#define TD_BOARD_HANDLER(name)                                                                                         \
    td_status *td_board_##name(td_board *board, const td_board_request *request, td_string *out)
TD_BOARD_HANDLER(get_runs) TD_MUST_USE;
TD_BOARD_HANDLER(get_run) TD_MUST_USE;
TD_BOARD_HANDLER(get_tags) TD_MUST_USE;
TD_BOARD_HANDLER(get_scalars) TD_MUST_USE;
TD_BOARD_HANDLER(get_histograms) TD_MUST_USE;
TD_BOARD_HANDLER(get_tensors) TD_MUST_USE;
TD_BOARD_HANDLER(get_images) TD_MUST_USE;
TD_BOARD_HANDLER(get_image) TD_MUST_USE;
TD_BOARD_HANDLER(get_texts) TD_MUST_USE;
TD_BOARD_HANDLER(get_landscape) TD_MUST_USE;
TD_BOARD_HANDLER(get_profile) TD_MUST_USE;
TD_BOARD_HANDLER(get_curves) TD_MUST_USE;
TD_BOARD_HANDLER(get_step) TD_MUST_USE;
TD_BOARD_HANDLER(get_timeline) TD_MUST_USE;
TD_BOARD_HANDLER(get_cluster) TD_MUST_USE;

#endif
