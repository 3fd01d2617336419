/* Losses at which not all that live can go on, run by tests/mpi/run under mpirun. Every rank runs this; a rank that finds something
 * wrong says so and ends with 1.
 *
 *     ranks_split split N    ranks below N and the others do not reach each other any more; prints which ranks go on
 *     ranks_split late R     the last rank is killed, and rank R, though it lives, does not come to go on without it
 *     ranks_split held       a rank is lost in the middle of a message and comes back when the memory of it was freed; what it had begun to send
 *                            itself finds its room, which is used again */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "ps/bucket.h"
#include "ps/comm_state.h"
#include "tests/mpi/ranks.h"

enum { LONG_BYTES = 3 * TD_COMM_CHUNK, UNASKED_BYTES = 16 * TD_COMM_CHUNK, SUMMED = 3000 };

static td_comm *comm;
static atomic_ullong cut_off;

/* Sends each rank of [first, end) a word and gets its. */
static void meet(int32_t first, int32_t end, uint64_t number, uint64_t word, uint64_t *out_words)
{
    td_parcel out[TD_COMM_RANKS], in[TD_COMM_RANKS];
    for (int32_t r = first; r < end; r++) {
        in[r] = out[r] = (td_parcel){.peer = r, .kind = TD_REPLIES, .number = number, .words = {word}};
        td_comm_receive(comm, &in[r]);
        td_comm_send(comm, &out[r]);
    }
    for (int32_t r = first; r < end; r++) {
        no_error(td_comm_wait(comm, &in[r]));
        no_error(td_comm_wait(comm, &out[r]));
        out_words[r] = in[r].words[0];
    }
}

/* Waits for a message that never comes, until a loss is the reason. */
static void wait_for_loss(int32_t peer)
{
    td_parcel in = {.peer = peer, .kind = TD_REPLIES, .number = 1000};
    td_comm_receive(comm, &in);
    td_status *status = td_comm_wait(comm, &in);
    require(status && strstr(td_status_message(status), "is lost"), "no loss");
    td_status_destroy(status);
    require(td_comm_may_recover(comm), "a loss that all end with");
}

static void leave(const char *word)
{
    printf("rank %d: %s\n", td_comm_rank(comm), word);
    fflush(stdout);
    _exit(0);
}

static void split(int32_t below)
{
    const int32_t me = td_comm_rank(comm), size = td_comm_size(comm);
    const bool low = me < below;
    const int32_t first = low ? 0 : below, end = low ? below : size;
    uint64_t words[TD_COMM_RANKS];
    bool done = false;
    const uint64_t all = (UINT64_C(1) << size) - 1, under = (UINT64_C(1) << below) - 1;
    meet(0, size, 1, 0, words);
    atomic_store(&cut_off, low ? all & ~under : under);
    wait_for_loss(low ? below : 0);
    td_status *status = td_comm_recover(comm, &done);
    if (status) {
        require(strstr(td_status_message(status), "out of reach and may go on by themselves") != NULL,
                td_status_message(status));
        td_status_destroy(status);
        leave("ends");
    }
    for (int32_t r = 0; r < size; r++)
        require(td_comm_is_lost(comm, r) == (r < first || r >= end), "others are lost than those out of reach");
    meet(first, end, 2, 0, words);
    leave("goes on");
}

static void late(int32_t who)
{
    const int32_t me = td_comm_rank(comm), last = td_comm_size(comm) - 1;
    char words_said[64];
    uint64_t words[TD_COMM_RANKS];
    bool done = false;
    meet(0, last + 1, 1, 0, words);
    if (me == last)
        raise(SIGKILL);
    wait_for_loss(last);
    while (me == who && td_comm_may_recover(comm))
        (void)sched_yield();
    td_status *status = me == who ? td_comm_failure(comm) : td_comm_recover(comm, &done);
    snprintf(words_said, sizeof words_said, "worker %d (rank %d on ", who, who);
    require(status && strstr(td_status_message(status), words_said) &&
                strstr(td_status_message(status), "has not come for 1 s to go on"),
            td_status_message(status));
    td_status_destroy(status);
    (void)td_comm_close(comm, NULL, NULL);
    printf("rank %d: ends\n", me);
    fflush(stdout);
    _exit(0);
}

/* Of a bucket's memory MPI has a piece still, of what another worker sends: the bucket is freed, the memory is not. */
static void free_bucket(void)
{
    static int32_t worker_ranks[] = {0, 1, 2}, replica_worker[] = {0, 1, 2};
    td_job job = {.comm = comm, .workers = 3, .replicas = 3};
    float numbers[SUMMED] = {0};
    const td_tensor gradient = {.kind = TD_DENSE, .dtype = TD_F32, .rank = 1, .dims = {SUMMED}, .data = numbers};
    const td_remote_bucket of = {.index = 1, .n = 1};
    td_bucket *bucket = NULL;
    job.worker_ranks = worker_ranks;
    job.replica_worker = replica_worker;
    job.remote.own = 1;
    no_error(TD_NEW(bucket, 1));
    no_error(td_bucket_make_room(&job, bucket, &gradient, &of, 1));
    float *sums = bucket->sums;
    pthread_mutex_lock(&comm->mutex);
    require(td_comm_hold(comm, sums, sizeof numbers), "out of memory");
    pthread_mutex_unlock(&comm->mutex);
    const int64_t before = comm->n_retired_memory;
    td_bucket_free(bucket, comm);
    require(comm->n_retired_memory == before + 1, "what MPI may touch is freed");
    memset(sums, 1, sizeof numbers);
}

/* Rank 1 sends what nobody has asked for, is made to stand still in the middle of it, and goes on. */
static void send_unasked(void)
{
    char *unasked = td_calloc(UNASKED_BYTES, 1), *data = td_calloc(LONG_BYTES, 1);
    td_parcel out = {.peer = 0, .kind = TD_REPLIES, .number = 9, .data = unasked, .bytes = UNASKED_BYTES};
    td_parcel in = {.peer = 0, .kind = TD_REPLIES, .number = 7, .data = data, .bytes = LONG_BYTES};
    td_comm_send(comm, &out);
    td_comm_receive(comm, &in);
    td_status_destroy(td_comm_wait(comm, &out)); /* whether they come or not */
    td_status_destroy(td_comm_wait(comm, &in));
    (void)td_comm_close(comm, NULL, NULL);
    _exit(0);
}

static void stop_in_the_middle(pid_t sender)
{
    bool begun = false;
    while (!begun) {
        pthread_mutex_lock(&comm->mutex);
        begun = *td_comm_find_arrival(comm, 1, TD_REPLIES, 9) != NULL;
        pthread_mutex_unlock(&comm->mutex);
        (void)sched_yield();
    }
    kill(sender, SIGSTOP);
}

/* The room of what came unasked is there for other messages. */
static bool has_room_back(void)
{
    bool has = false;
    pthread_mutex_lock(&comm->mutex);
    for (const td_arrival *idle = comm->idle; idle; idle = idle->next)
        has = has || idle->room_bytes >= UNASKED_BYTES;
    pthread_mutex_unlock(&comm->mutex);
    return has;
}

/* A send to a rank that stands still begins, and its memory is freed with the loss; when the rank goes on it takes what was sent, and
 * the rest of what it had begun to send comes into memory that is used again. */
static void held(void)
{
    const int32_t me = td_comm_rank(comm);
    uint64_t pids[TD_COMM_RANKS], words[TD_COMM_RANKS];
    td_buffer room = {0};
    bool done = false;
    meet(0, td_comm_size(comm), 1, (uint64_t)getpid(), pids);
    if (me == 1)
        send_unasked();
    if (me == 0) {
        stop_in_the_middle((pid_t)pids[1]);
        no_error(td_comm_buffer_room(comm, &room, LONG_BYTES));
        memset(room.data, 1, LONG_BYTES);
        td_parcel out = {
            .peer = 1, .kind = TD_REPLIES, .number = 7, .data = room.data, .bytes = LONG_BYTES, .buffer = &room};
        td_comm_send(comm, &out);
        atomic_store(&cut_off, 2); /* nobody waits for its silence */
        td_status *status = td_comm_wait(comm, &out);
        require(status != NULL, "a rank that stands still has taken a message");
        td_status_destroy(status);
        require(td_comm_may_recover(comm), "a loss that all end with");
        td_comm_buffer_free(comm, &room);
        require(!room.data, "a buffer that is freed is there");
    } else {
        wait_for_loss(1);
    }
    atomic_store(&cut_off, 0); /* it may hear that it is lost */
    no_error(td_comm_recover(comm, &done));
    free_bucket();
    bool lives = true;
    for (uint64_t number = 2; lives; number++) {
        if (me == 0 && number == 2)
            kill((pid_t)pids[1], SIGCONT);
        const bool seen = kill((pid_t)pids[1], 0) == 0;
        meet(2 - me, 3 - me, number, seen, words);
        lives = seen && words[2 - me]; /* what both know: they leave in the same round */
    }
    require(me != 0 || has_room_back(), "the room of a message that a loss cut short is lost");
    leave("goes on");
}

int main(int argc, char **argv)
{
    require(argc >= 2, "usage: ranks_split split N | late R | held");
    const bool is_late = !strcmp(argv[1], "late");
    const td_comm_options options = {.deadline_s = is_late ? 3 : 0,
                                     .patience_s = is_late ? 1 : 0,
                                     .notice_s = 0.5,
                                     .recover = true,
                                     .all_far = !is_late,
                                     .cut_off = &cut_off};
    no_error(td_comm_open(&options, &comm));
    for (int32_t r = 0; r < td_comm_size(comm); r++) {
        char name[32];
        snprintf(name, sizeof name, "worker %d", r);
        td_comm_name(comm, r, name);
    }
    if (!strcmp(argv[1], "held"))
        held();
    if (is_late)
        late(argc > 2 ? atoi(argv[2]) : 0);
    split(argc > 2 ? atoi(argv[2]) : 1);
    return 1;
}
