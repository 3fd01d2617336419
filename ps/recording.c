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
    td_parcel word = {.peer = rank,
                      .kind = kind,
                      .number = number,
                      .words = {(uint64_t)recording->number},
                      .data = (char *)(uintptr_t)recording->folder,
                      .bytes = (int64_t)strlen(recording->folder)};
    td_comm_send(job->comm, &word);
    return td_comm_wait(job->comm, &word);
}

/* The first worker tells the other workers, and the ranks that only serve, which take it as a request. */
static td_status *tell_all(td_job *job, const td_job_recording *recording)
{
    const uint64_t number = (uint64_t)++job->agreed;
    for (int32_t w = 1; w < job->workers; w++)
        TD_TRY(tell(job, w, TD_TELL_RECORD, number, recording));
    for (int32_t r = job->workers; r < td_comm_size(job->comm); r++)
        TD_TRY(tell(job, r, TD_ASK_RECORD, (uint64_t)++job->asked, recording));
    return NULL;
}

td_status *td_job_share_recording(td_job *job, td_job_recording *recording)
{
    if (job->worker == 0)
        return tell_all(job, recording);
    td_parcel word = {.kind = TD_TELL_RECORD,
                      .number = (uint64_t)++job->agreed,
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
    const bool works = rank < job->workers;
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
    td_parcel question = {.kind = TD_TELL_CLOCK, .number = number};
    td_comm_receive(job->comm, &question);
    TD_TRY(td_comm_wait(job->comm, &question));
    td_parcel answer = {.kind = TD_TELL_CLOCK, .number = number, .words = {(uint64_t)td_clock_ns()}};
    td_comm_send(job->comm, &answer);
    return td_comm_wait(job->comm, &answer);
}

td_status *td_job_read_clocks(td_job *job, td_job_clock *out_clocks)
{
    for (int32_t rank = 1; rank < td_comm_size(job->comm); rank++) {
        td_job_clock best = {.error_ns = INT64_MAX};
        for (int32_t i = 0; i < TRIES; i++) {
            const bool works = rank < job->workers;
            const uint64_t number = (uint64_t)(works ? ++job->agreed : ++job->asked);
            if (job->worker == 0)
                TD_TRY(ping(job, rank, number, &best));
            else if (job->worker == rank)
                TD_TRY(pong(job, number));
        }
        if (out_clocks)
            out_clocks[rank] = best;
    }
    const int64_t now = td_clock_ns();
    if (out_clocks)
        out_clocks[0] = (td_job_clock){.mine_ns = now, .theirs_ns = now};
    return NULL;
}
