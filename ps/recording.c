/* What the ranks of a job do together so that their recordings make one: the first worker says where the files go, and reads
 * everybody's clock beside its own. See tandem/job.h.
 *
 * A clock is read by ping-pong. The answer's time lies somewhere between the question and its return, so the middle is wrong by
 * half of the time between them at most; of several tries the shortest counts. */
#include <string.h>

#include "base/clock.h"
#include "ps/job_state.h"

enum { TRIES = 16 };

/* ---- where the files go ---------------------------------------------------------------------------------------------------------- */

static td_status *tell(td_job *job, int32_t rank, uint32_t kind, uint64_t number, const td_job_recording *recording)
{
    char text[sizeof recording->folder + TD_COMM_NAME] = ""; /* who only serves is told what it is called, too */
    const size_t folder = strlen(recording->folder);
    const char *role = kind == TD_ASK_RECORD ? job->members->roles[rank] : "";
    memcpy(text, recording->folder, folder);
    memcpy(text + folder + 1, role, strlen(role));
    td_parcel word = {.peer = rank,
                      .kind = kind,
                      .number = number,
                      .words = {(uint64_t)recording->number},
                      .data = text,
                      .bytes = (int64_t)(folder + (*role ? 1 + strlen(role) : 0))};
    td_comm_send(job->comm, &word);
    return td_comm_wait(job->comm, &word);
}

/* The lowest worker that a rank runs; -1: it runs none. */
static int32_t first_worker_of(const td_job *job, int32_t rank)
{
    for (int32_t w = 0; w < job->workers; w++)
        if (job->worker_ranks[w] == rank)
            return w;
    return -1;
}

/* The first worker tells the other workers, and the ranks that only serve, which take it as a request. */
static td_status *tell_all(td_job *job, const td_job_recording *recording)
{
    const int64_t n = ++job->agreed;
    for (int32_t w = 1; w < job->workers; w++)
        TD_TRY(tell(job, job->worker_ranks[w], TD_TELL_RECORD, td_job_number(job, n, 0, w), recording));
    for (int32_t r = 0; r < td_comm_size(job->comm); r++)
        if (first_worker_of(job, r) < 0 && !td_comm_is_lost(job->comm, r))
            TD_TRY(tell(job, r, TD_ASK_RECORD, td_job_next_question(job), recording));
    return NULL;
}

td_status *td_job_share_recording(td_job *job, td_job_recording *recording)
{
    if (job->worker == 0)
        return tell_all(job, recording);
    td_parcel word = {.peer = job->worker_ranks[0],
                      .kind = TD_TELL_RECORD,
                      .number = td_job_number(job, ++job->agreed, 0, job->worker),
                      .data = recording->folder,
                      .bytes = sizeof recording->folder - 1};
    memset(recording->folder, 0, sizeof recording->folder);
    td_comm_receive(job->comm, &word);
    TD_TRY(td_comm_wait(job->comm, &word));
    recording->folder[word.bytes] = '\0';
    recording->number = (int32_t)word.words[0];
    return NULL;
}

/* ---- clocks ---------------------------------------------------------------------------------------------------------------------- */

/* One try; better than *best where it took less time. */
static td_status *ping(td_job *job, int32_t rank, uint64_t number, td_job_clock *best)
{
    const bool works = first_worker_of(job, rank) >= 0;
    td_parcel question = {.peer = rank, .kind = works ? TD_TELL_CLOCK : TD_ASK_CLOCK, .number = number};
    td_parcel answer = {.peer = rank, .kind = works ? TD_TELL_CLOCK : td_reply_of(TD_ASK_CLOCK), .number = number};
    td_comm_receive(job->comm, &answer);
    const int64_t before = td_clock_ns();
    td_comm_send(job->comm, &question);
    TD_TRY(td_comm_wait(job->comm, &answer));
    const int64_t took = td_clock_ns() - before;
    TD_TRY(td_comm_wait(job->comm, &question));
    if (took / 2 < best->error_ns)
        *best = (td_job_clock){
            .mine_ns = before + took / 2, .theirs_ns = (int64_t)answer.words[0], .error_ns = took / 2 + 1};
    return NULL;
}

static td_status *pong(td_job *job, uint64_t number)
{
    td_parcel question = {.peer = job->worker_ranks[0], .kind = TD_TELL_CLOCK, .number = number};
    td_comm_receive(job->comm, &question);
    TD_TRY(td_comm_wait(job->comm, &question));
    td_parcel answer = {
        .peer = job->worker_ranks[0], .kind = TD_TELL_CLOCK, .number = number, .words = {(uint64_t)td_clock_ns()}};
    td_comm_send(job->comm, &answer);
    return td_comm_wait(job->comm, &answer);
}

/* One rank's clock beside the first worker's: on that and on the rank's first worker. Elsewhere it only counts. */
static td_status *read_clock(td_job *job, int32_t rank, td_job_clock *out)
{
    const int32_t other = first_worker_of(job, rank);
    *out = (td_job_clock){.error_ns = INT64_MAX};
    for (int32_t i = 0; i < TRIES; i++) {
        const uint64_t number = other >= 0 ? td_job_number(job, ++job->agreed, 0, other) : td_job_next_question(job);
        if (job->worker == 0)
            TD_TRY(ping(job, rank, number, out));
        else if (job->worker == other)
            TD_TRY(pong(job, number));
    }
    return NULL;
}

td_status *td_job_read_clocks(td_job *job, td_job_clock *out_clocks)
{
    for (int32_t rank = 0; rank < td_comm_size(job->comm); rank++) {
        td_job_clock clock = {0};
        if (rank == job->worker_ranks[0])
            clock.mine_ns = clock.theirs_ns = td_clock_ns();
        else if (!td_comm_is_lost(job->comm, rank))
            TD_TRY(read_clock(job, rank, &clock));
        if (out_clocks)
            out_clocks[rank] = clock;
    }
    return NULL;
}
