/* Finding runs below the board's folder, and what of them has changed: see board/board.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "board/board.h"
#include "board/traces.h"

enum { DEEPEST = 5, MOST_RUNS = 10000, MOST_FILES = 4096, MOST_JSON = 64 << 20, LOOK_NS = 1000000000 };

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for the board");
}

/* ---- what a folder holds -------------------------------------------------------------------------------------------------- */

static int64_t time_of(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static uint64_t version_of(const struct stat *info)
{
    uint64_t version = td_hash_number((uint64_t)info->st_ino, (uint64_t)info->st_size);
    return td_hash_number((uint64_t)time_of(info), version) | 1;
}

static bool is_event_file(const char *name)
{
    return !strncmp(name, "events.out.tfevents.", 20);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static td_board_run *find_run(td_board *board, const char *path)
{
    char id[17];
    td_board_hash_text(path, id);
    for (int64_t i = 0; i < board->n_runs; i++)
        if (!strcmp(board->runs[i].id, id) && !strcmp(board->runs[i].path, path))
            return &board->runs[i];
    return NULL;
}

/* NULL, and no error: there are as many runs as a board shows. */
static td_status *add_run(td_board *board, const char *path, td_board_run **out_run)
{
    *out_run = find_run(board, path);
    if (*out_run || board->n_runs >= MOST_RUNS)
        return NULL;
    TD_TRY(td_grow(&board->runs, &board->runs_capacity, board->n_runs, sizeof *board->runs));
    td_board_run *run = &board->runs[board->n_runs];
    *run = (td_board_run){.path = td_strdup(path)};
    if (!run->path)
        return no_memory();
    td_board_hash_text(path, run->id);
    board->n_runs++;
    *out_run = run;
    return NULL;
}

/* A name that stands for another file now, or for one that has become shorter: the run was made anew. */
static bool is_remade(const td_board_file *file, const struct stat *info)
{
    return file->inode != (uint64_t)info->st_ino || info->st_size < file->offset;
}

static td_status *add_file(td_board_run *run, const char *name, const struct stat *info)
{
    for (int64_t i = 0; i < run->n_files; i++) {
        td_board_file *file = &run->files[i];
        if (strcmp(file->name, name) != 0)
            continue;
        run->remade = run->remade || is_remade(file, info);
        file->inode = (uint64_t)info->st_ino;
        file->found = true;
        return NULL;
    }
    if (run->n_files >= MOST_FILES)
        return NULL;
    TD_TRY(td_grow(&run->files, &run->files_capacity, run->n_files, sizeof *run->files));
    int64_t at = run->n_files;
    td_board_file file = {.name = td_strdup(name), .inode = (uint64_t)info->st_ino, .found = true};
    if (!file.name)
        return no_memory();
    run->files[at] = file;
    run->n_files++;
    return NULL;
}

/* What one look at a folder gathers before it is known to be a run. */
typedef struct look {
    td_board *board;
    uint64_t state;
    int32_t visited;
} look;

static td_status *visit(look *l, int folder, const char *path, int depth);

static td_status *visit_below(look *l, int folder, const char *path, const char *name, int depth)
{
    enum { MOST_FOLDERS = 50000 };
    if (depth >= DEEPEST || ++l->visited > MOST_FOLDERS) {
        l->board->too_many = l->board->too_many || l->visited > MOST_FOLDERS;
        return NULL;
    }
    int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return NULL; /* gone meanwhile, or not ours to read */
    char *longer = *path ? td_format("%s/%s", path, name) : td_strdup(name);
    td_status *status = longer ? visit(l, below, longer, depth + 1) : no_memory();
    if (!longer)
        close(below);
    td_free(longer);
    return status;
}

/* A file of a run; a trace counts for the run above its folder profile/. */
static td_status *take_file(look *l, const char *path, const char *name, const struct stat *info)
{
    bool trace = ends_with(name, ".tdt") && !strstr(name, ".rank"), events = is_event_file(name);
    bool json = !strcmp(name, "run.json") || !strcmp(name, "summary.json");
    if (!trace && !events && !json)
        return NULL;
    bool of_run = !strcmp(path, "profile"), inside = of_run || ends_with(path, "/profile");
    const char *inner = inside ? "profile/" : "";
    char *run_path = td_strdup(of_run ? "" : path), *below = td_format("%s%s", trace ? inner : "", name);
    td_board_run *run = NULL;
    if (run_path && inside && !of_run && trace)
        run_path[strlen(run_path) - 8] = '\0';
    td_status *status = run_path && below ? add_run(l->board, run_path, &run) : no_memory();
    l->board->too_many = l->board->too_many || (!status && !run);
    if (run && !status && events)
        status = add_file(run, name, info);
    if (run && !status) {
        bool newer = time_of(info) > run->written_ns;
        run->found = true;
        l->state = td_hash_number(version_of(info), td_hash_string(name, l->state));
        if (trace && (!run->trace || strcmp(below, run->trace) > 0)) { /* their names have a number */
            td_free(run->trace);
            run->trace = below;
            below = NULL;
        }
        run->written_ns = newer ? time_of(info) : run->written_ns;
    }
    td_free(below);
    td_free(run_path);
    return status;
}

/* Takes `folder`. */
static td_status *visit(look *l, int folder, const char *path, int depth)
{
    DIR *entries = fdopendir(folder);
    td_status *status = NULL;
    if (!entries) {
        close(folder);
        return NULL;
    }
    for (struct dirent *entry; !status && (entry = readdir(entries));) {
        struct stat info;
        const char *name = entry->d_name;
        if (name[0] == '.' || fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISDIR(info.st_mode) && strcmp(name, "checkpoints") != 0)
            status = visit_below(l, folder, path, name, depth);
        else if (S_ISREG(info.st_mode) && !strcmp(name, "landscape.json"))
            l->state = td_hash_number(version_of(&info), l->state);
        else if (S_ISREG(info.st_mode))
            status = take_file(l, path, name, &info);
    }
    closedir(entries);
    return status;
}

/* ---- run.json and summary.json ---------------------------------------------------------------------------------------------- */

const char *td_board_problem_of(const td_board_run *run)
{
    for (int i = 0; i < TD_BOARD_PROBLEMS; i++)
        if (run->problems[i])
            return run->problems[i];
    return NULL;
}

static void forget_problem(td_board_run *run, td_board_problem which)
{
    td_free(run->problems[which]);
    run->problems[which] = NULL;
}

/* Again where the file has changed. */
static void load_json(td_board *board, td_board_run *run, const char *name, td_board_problem which, json_t **json,
                      uint64_t *version)
{
    struct stat info;
    int file = -1;
    char *path = td_format("%s/%s", run->path, name), *data = NULL;
    size_t bytes = 0;
    td_status *status = path ? td_board_open_file(board->folder, path, &file) : no_memory();
    if (!status && !fstat(file, &info) && version_of(&info) != *version) {
        json_error_t error = {0};
        json_decref(*json);
        *json = NULL;
        *version = version_of(&info);
        forget_problem(run, which);
        status = td_board_read_file(board->folder, path, MOST_JSON, 0, &data, &bytes);
        *json = status ? NULL : json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
        if (!status && !json_is_object(*json)) {
            json_decref(*json);
            *json = NULL;
            status =
                TD_ERROR(TD_DATA_ERROR, "%s:%d: %s", name, error.line, error.text[0] ? error.text : "no JSON object");
        }
    } else if (status) {
        json_decref(*json);
        *json = NULL;
        *version = 0;
        forget_problem(run, which);
    }
    if (status && td_status_code(status) != TD_NOT_FOUND)
        run->problems[which] = td_strdup(td_status_message(status));
    td_status_destroy(status);
    if (file >= 0)
        close(file);
    td_free(data);
    td_free(path);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const td_board_run *)a)->path, ((const td_board_run *)b)->path);
}

/* Before a look: nothing was found yet. */
static void expect_nothing(td_board *board)
{
    for (int64_t i = 0; i < board->n_runs; i++) {
        td_board_run *run = &board->runs[i];
        run->found = run->remade = false;
        for (int64_t k = 0; k < run->n_files; k++)
            run->files[k].found = false;
        td_free(run->trace);
        run->trace = NULL;
        run->written_ns = 0;
    }
    board->too_many = false;
}

/* What was read of files that are gone, or are others now, is not of this run. */
static void forget_remade(td_board_run *run)
{
    for (int64_t i = 0; i < run->n_files; i++)
        run->remade = run->remade || !run->files[i].found;
    if (run->remade)
        td_board_run_forget(run);
}

/* Runs that are gone. */
static void drop_lost(td_board *board)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < board->n_runs; i++) {
        if (board->runs[i].found)
            board->runs[kept++] = board->runs[i];
        else
            td_board_run_deinit(&board->runs[i]);
    }
    board->n_runs = kept;
}

td_status *td_board_look(td_board *board)
{
    int64_t now = td_clock_ns();
    if (board->looked_ns && now - board->looked_ns < LOOK_NS)
        return NULL;
    look l = {.board = board};
    bool pending = false;
    int folder = fcntl(board->folder, F_DUPFD_CLOEXEC, 0);
    if (folder < 0)
        return td_file_error(board->directory, "open", errno);
    lseek(folder, 0, SEEK_SET); /* the place in the folder is shared by all that are duplicates */
    expect_nothing(board);
    TD_TRY(visit(&l, folder, "", 0));
    drop_lost(board);
    if (board->n_runs) /* qsort wants an address, even of nothing */
        qsort(board->runs, (size_t)board->n_runs, sizeof *board->runs, by_path);
    for (int64_t i = 0; i < board->n_runs; i++) {
        td_board_run *run = &board->runs[i];
        forget_remade(run);
        load_json(board, run, "run.json", TD_BOARD_LINEAGE, &run->lineage, &run->lineage_version);
        load_json(board, run, "summary.json", TD_BOARD_SUMMARY, &run->summary, &run->summary_version);
        pending = pending || run->pending;
    }
    board->looks += pending;
    board->state = td_hash_number((uint64_t)board->n_runs + board->looks, l.state);
    board->looked_ns = td_clock_ns();
    return NULL;
}

td_status *td_board_run_of(td_board *board, const td_board_request *request, td_board_run **out_run)
{
    const char *wanted = td_board_parameter_of(request, "run");
    *out_run = NULL;
    TD_TRY(td_board_look(board));
    if (!wanted)
        return TD_ERROR(TD_INVALID_ARGUMENT, "which run? run=ID, as /api/v1/runs lists them");
    for (int64_t i = 0; i < board->n_runs && !*out_run; i++)
        if (!strcmp(board->runs[i].id, wanted) || !strcmp(board->runs[i].path, wanted))
            *out_run = &board->runs[i];
    return *out_run ? NULL : TD_ERROR(TD_NOT_FOUND, "there is no such run; /api/v1/runs lists them");
}

/* ---- the board ---------------------------------------------------------------------------------------------------------------- */

td_status *td_board_open(const char *directory, td_board **out_board)
{
    td_board *board = NULL;
    *out_board = NULL;
    TD_TRY(TD_NEW(board, 1));
    pthread_mutex_init(&board->mutex, NULL);
    board->most_at_once = 1 << 28;
    board->folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    board->directory = td_strdup(directory);
    td_status *status = NULL;
    if (board->folder < 0)
        status = td_status_help(td_file_error(directory, "open", errno),
                                "name the folder that holds runs; tandem train makes them in runs/");
    else if (!board->directory)
        status = no_memory();
    if (status)
        td_board_close(board);
    else
        *out_board = board;
    return status;
}

void td_board_close(td_board *board)
{
    if (!board)
        return;
    for (int64_t i = 0; i < board->n_runs; i++)
        td_board_run_deinit(&board->runs[i]);
    td_board_trace_destroy(board->trace);
    td_free(board->runs);
    td_free(board->directory);
    if (board->folder >= 0)
        close(board->folder);
    pthread_mutex_destroy(&board->mutex);
    td_free(board);
}

uint64_t td_board_state(td_board *board)
{
    pthread_mutex_lock(&board->mutex);
    td_status_destroy(td_board_look(board)); /* the next request says what is wrong */
    uint64_t state = board->state;
    pthread_mutex_unlock(&board->mutex);
    return state;
}
