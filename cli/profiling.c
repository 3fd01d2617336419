/* Recording a training run: see profiling.h. */
#include "cli/profiling.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/shell_word.h"
#include "cli/version.h"

static const char *const variable = "TANDEM_PROFILE";
static _Atomic(td_profiler *) asked;
static struct sigaction before;

/* ---- the schedule ------------------------------------------------------------------------------------------------------------ */

static bool read_number(const char **text, int64_t *out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0;
}

bool td_profiling_range(const char *text, int64_t *out_first, int64_t *out_last)
{
    if (!read_number(&text, out_first))
        return false;
    *out_last = *out_first;
    if (*text == '-') {
        text++;
        *out_last = INT64_MAX;
        if (*text && !read_number(&text, out_last))
            return false;
    }
    return *text == '\0' && *out_first >= 1 && *out_first <= *out_last;
}

/* Steps first to last, and the one before to warm up. */
static void record_range(td_profiler_options *options, int64_t first, int64_t last)
{
    options->warm_up = first > 1;
    options->skip = first - 1 - options->warm_up;
    options->wait = 0;
    options->active = last == INT64_MAX ? INT64_MAX / 4 : last - first + 1;
    options->repeat = 1;
}

static td_status *range_of(td_section root, const char *key, int64_t *out_first, int64_t *out_last)
{
    const char *text = td_section_string(root, key);
    if (td_profiling_range(text, out_first, out_last))
        return NULL;
    return TD_SECTION_ERROR(root, key, "%s is \"%s\"; it must be a range from 1 on, such as 10-20, 10 or 10-", key,
                            text);
}

static td_status *check_within(const td_setup *setup, const char *key, int64_t first)
{
    if (!setup->steps || first <= setup->steps)
        return NULL;
    return TD_SECTION_ERROR(setup->root, key, "%s begins at step %" PRId64 ", and the training has %" PRId64, key,
                            first, setup->steps);
}

/* Skip, wait and active count epochs: windows begin and end with them. What warms up is the end of what is left alone before; there is
 * none between windows that follow each other. */
static void count_epochs(td_profiler_options *options, int64_t steps_per_epoch)
{
    const int64_t steps =
        steps_per_epoch < 1000000 ? steps_per_epoch : 1000000; /* of 1e12 epochs at most: no overflow */
    options->skip *= steps;
    options->wait *= steps;
    options->active *= steps;
    int64_t *alone = options->wait ? &options->wait : &options->skip;
    const int64_t most = options->wait || options->repeat == 1 ? *alone : 0;
    options->warm_up = options->warm_up < most ? options->warm_up : most;
    *alone -= options->warm_up;
}

static td_status *read_section(const td_setup *setup, td_profiler_options *options)
{
    td_section root = setup->root;
    int64_t first = 0, last = 0;
    if (td_section_given(root, "profile.steps") && td_section_given(root, "profile.epochs"))
        return TD_SECTION_ERROR(root, "profile.epochs", "profile.steps and profile.epochs exclude each other");
    options->skip = td_section_int(root, "profile.skip");
    options->wait = td_section_int(root, "profile.wait");
    options->warm_up = td_section_int(root, "profile.warm_up");
    options->active = td_section_int(root, "profile.active");
    options->repeat = td_section_int(root, "profile.repeat");
    if (!strcmp(td_section_string(root, "profile.unit"), "epoch"))
        count_epochs(options, setup->steps_per_epoch);
    options->ring_records = (int32_t)td_section_int(root, "profile.ring_records");
    options->start = options->start && td_section_bool(root, "profile.start");
    if (td_section_has(root, "profile.steps")) {
        TD_TRY(range_of(root, "profile.steps", &first, &last));
        TD_TRY(check_within(setup, "profile.steps", first));
        record_range(options, first, last);
    }
    if (td_section_has(root, "profile.epochs")) {
        TD_TRY(range_of(root, "profile.epochs", &first, &last));
        bool open_end = last > INT64_MAX / (setup->steps_per_epoch + 1) - 1;
        first = first > INT64_MAX / (setup->steps_per_epoch + 1) ? INT64_MAX : (first - 1) * setup->steps_per_epoch + 1;
        TD_TRY(check_within(setup, "profile.epochs", first));
        record_range(options, first, open_end ? INT64_MAX : last * setup->steps_per_epoch);
    }
    return NULL;
}

/* Whether the environment asks for a recording, or forbids it. */
static td_status *read_environment(td_profiler_options *options)
{
    const char *text = getenv(variable);
    int64_t first = 0, last = 0;
    if (!text || !*text)
        return NULL;
    if (!strcmp(text, "on") || !strcmp(text, "off")) {
        options->start = !strcmp(text, "on");
        return NULL;
    }
    if (!td_profiling_range(text, &first, &last))
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s is \"%s\"; it must be on, off, or steps such as 10-20", variable,
                        text);
    options->start = true;
    record_range(options, first, last);
    return NULL;
}

static bool section_given(td_section root)
{
    static const char *const keys[] = {"steps", "epochs", "unit", "skip", "wait", "warm_up", "active", "repeat"};
    char key[64];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        (void)snprintf(key, sizeof key, "profile.%s", keys[i]);
        if (td_section_given(root, key))
            return true;
    }
    return false;
}

/* ---- the signal ------------------------------------------------------------------------------------------------------------------- */

static void on_signal(int number)
{
    (void)number;
    td_profiler *profiler = atomic_load(&asked);
    if (profiler)
        td_profiler_request(profiler);
}

static void catch_signal(td_profiler *profiler)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    atomic_store(&asked, profiler);
    (void)sigaction(SIGUSR1, &action, &before);
}

/* ---- as one rank of a job ----------------------------------------------------------------------------------------------------- */

static td_status *join(td_job *job, td_job_recording *place, td_profiler_options *options)
{
    if (td_job_worker(job) == 0)
        place->number = td_profiler_next_number(place->folder);
    TD_TRY(td_job_share_recording(job, place));
    options->number = place->number;
    options->rank = td_job_rank(job);
    options->ranks = td_job_ranks(job);
    options->role = td_job_role(job, options->rank);
    return NULL;
}

static td_status *note(td_profiler *profiler, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    td_status *status =
        text ? td_profiler_note(profiler, text) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a trace");
    free(text); /* jansson's own allocation */
    json_decref(json);
    return status;
}

/* Everybody's clock beside the first worker's, into the first worker's trace (on a further worker of a rank there is none). */
static td_status *note_clocks(td_job *job, td_profiler *profiler, const char *key)
{
    td_job_clock *clocks = NULL;
    const int32_t n = td_job_ranks(job);
    if (td_job_worker(job) != 0)
        return td_job_read_clocks(job, NULL);
    TD_TRY(TD_NEW(clocks, n));
    td_status *status = td_job_read_clocks(job, clocks);
    json_t *list = json_array();
    for (int32_t r = 0; r < n && !status; r++)
        if (r != td_job_rank(job) && !td_job_is_lost(job, r))
            json_array_append_new(list,
                                  json_pack("{s:i, s:I, s:I, s:I}", "rank", r, "mine_ns", (json_int_t)clocks[r].mine_ns,
                                            "theirs_ns", (json_int_t)clocks[r].theirs_ns, "error_ns",
                                            (json_int_t)clocks[r].error_ns));
    json_t *json = json_pack("{s:o}", key, list);
    td_free(clocks);
    if (!status)
        return note(profiler, json);
    json_decref(json);
    return status;
}

/* Why there is another recording, and which ranks it cannot have. */
static td_status *note_recovery(const td_job *job, td_profiler *profiler, const td_profiling_recovery *recovery)
{
    json_t *lost = json_array();
    for (int32_t r = 0; r < td_job_ranks(job); r++)
        if (td_job_is_lost(job, r))
            json_array_append_new(lost, json_integer(r));
    td_profiler_mark_recovery(profiler, recovery->lost_ns);
    return note(profiler, json_pack("{s:{s:s, s:I, s:o}}", "recovery", "loss", recovery->loss ? recovery->loss : "",
                                    "after_step", (json_int_t)recovery->after_step, "lost", lost));
}

/* A rank's further worker records with its first: it takes part in what workers agree about, and no more. */
static td_status *follow(td_job *job)
{
    td_job_recording place = {{0}, 0};
    TD_TRY(td_job_share_recording(job, &place));
    return td_job_read_clocks(job, NULL);
}

td_status *td_profiling_open(const td_setup *setup, const char *run, bool wanted, const td_profiling_recovery *recovery,
                             td_profiler **out_profiler)
{
    td_profiler_options options = td_profiler_defaults();
    *out_profiler = NULL;
    td_job_recording place = {{0}, 0};
    td_job *job = setup->distributed ? setup->distributed->job : NULL;
    if (recovery && recovery->is_further)
        return follow(job);
    options.start = wanted || section_given(setup->root);
    TD_TRY(read_section(setup, &options));
    TD_TRY(read_environment(&options));
    if (run && snprintf(place.folder, sizeof place.folder, "%s/profile", run) >= (int)sizeof place.folder)
        return TD_ERROR(TD_INVALID_ARGUMENT, "%s: a path of more than %zu bytes", run, sizeof place.folder - 9);
    if (job)
        TD_TRY(join(job, &place, &options));
    options.directory = place.folder;
    TD_TRY(td_profiler_create(&options, out_profiler));
    catch_signal(*out_profiler);
    if (recovery)
        TD_TRY(note_recovery(job, *out_profiler, recovery));
    return job ? note_clocks(job, *out_profiler, "clocks_begin") : NULL;
}

/* ---- afterwards ------------------------------------------------------------------------------------------------------------------- */

/* False: there is none, or it has ended. */
static bool end(td_profiler *profiler)
{
    if (!profiler || atomic_exchange(&asked, NULL) != profiler)
        return false;
    (void)sigaction(SIGUSR1, &before, NULL);
    td_profiler_stop(profiler);
    return true;
}

void td_profiling_abandon(td_profiler *profiler)
{
    (void)end(profiler);
}

void td_profiling_finish(td_profiler *profiler, const td_setup *setup, const td_status *error)
{
    td_job *job = setup->distributed ? setup->distributed->job : NULL;
    const bool together = !error || td_status_code(error) == TD_CANCELLED;
    if (!end(profiler)) {
        if (job && together && !profiler) /* a rank's further worker: it takes part */
            td_status_destroy(td_job_read_clocks(job, NULL));
        return;
    }
    td_status *status = job && together ? note_clocks(job, profiler, "clocks_end") : NULL;
    if (!status && td_profiler_trace(profiler) && !td_profiler_error(profiler))
        status = note(profiler, json_pack("{s:s, s:s, s:I}", "version", TANDEM_VERSION, "model", setup->name, "batch",
                                          (json_int_t)setup->batch));
    if (!status && !together && td_profiler_trace(profiler) && !td_profiler_error(profiler))
        status = note(profiler, json_pack("{s:s}", "ended_by", td_status_message(error)));
    if (status)
        td_log(TD_LOG_WARNING, "%s", td_status_message(status));
    td_status_destroy(status);
}

void td_profiling_print(const td_profiler *profiler, const char *run, FILE *stream)
{
    uint64_t records = 0, dropped = 0;
    if (!profiler || !td_profiler_trace(profiler))
        return;
    if (td_profiler_error(profiler)) {
        fprintf(stream, "  the profiler turned itself off: %s\n", td_profiler_error(profiler));
        return;
    }
    td_profiler_counts(profiler, &records, &dropped);
    char *word = td_shell_word_text(run);
    fprintf(stream, "  recorded %s, %" PRIu64 " dropped: tandem profile %s\n", TD_COUNTED(records, "event"), dropped,
            word ? word : run);
    td_free(word);
}
