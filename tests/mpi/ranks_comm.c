/* Messages between ranks, run by tests/mpi/run under mpirun. Every rank runs this; a rank that finds something wrong says so
 * and ends with 1.
 *
 *     ranks_comm exchange     messages of many lengths, each to each and to itself, lent and not, and requests with their answers
 *     ranks_comm far          the same, as if the ranks were on hosts of their own
 *     ranks_comm add_up       sums by MPI, several under way, between ranks but the last one; messages go on meanwhile
 *     ranks_comm lost RANK FILE     that rank is killed in the middle; the others must name it, in the file
 *     ranks_comm error RANK FILE    that rank ends with an error; the others must give it
 *     ranks_comm short BYTES  rank 1 sends so many where another number is expected, and rank 0 must name it; it waits
 *     ranks_comm late BYTES   the same, asked for when it is there already */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "ps/comm_state.h"
#include "tests/mpi/ranks.h"

enum { ROUNDS = 3, REQUESTS = 20 };

static td_comm *comm;
static td_buffer lent_room, question_room, answer_room;

static const int64_t lengths[] = {0, 1, 100, TD_COMM_INLINE, TD_COMM_INLINE + 1, 100000, 3 * TD_COMM_CHUNK + 17};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static unsigned char byte_at(int32_t from, int32_t to, int64_t number, int64_t i)
{
    return (unsigned char)(from * 31 + to * 7 + number * 13 + i + (i >> 12));
}

/* All at once: each rank sends every length to every rank. Half of the receives are there before the sends; every third is by
 * reference. `lends`: the bytes lie in memory that near ranks read. */
static void exchange_round(int64_t round, bool lends)
{
    char *lent = NULL;
    const int32_t me = td_comm_rank(comm), size = td_comm_size(comm);
    td_parcel *out = td_calloc((size_t)(size * LENGTHS), sizeof *out),
              *in = td_calloc((size_t)(size * LENGTHS), sizeof *in);
    no_error(td_comm_buffer_room(comm, &lent_room, size * (lengths[LENGTHS - 1] + 200000)));
    lent = lent_room.data;
    for (int pass = 0; pass < 3; pass++)
        for (int32_t peer = 0; peer < size; peer++)
            for (int l = 0; l < LENGTHS; l++) {
                const uint64_t number = (uint64_t)(round * LENGTHS + l);
                td_parcel *p = pass == 1 ? &out[peer * LENGTHS + l] : &in[peer * LENGTHS + l];
                if ((pass == 0) != (l % 2 == 0) && pass != 1)
                    continue;
                *p = (td_parcel){.peer = peer, .kind = TD_REPLIES, .number = number, .bytes = lengths[l]};
                p->data = pass == 1 && lends ? lent : td_calloc((size_t)lengths[l] + 1, 1);
                if (pass == 1) {
                    p->buffer = lends ? &lent_room : NULL;
                    lent += lengths[l];
                    p->words[2] = number + 5;
                    for (int64_t i = 0; i < lengths[l]; i++)
                        ((unsigned char *)p->data)[i] = byte_at(me, peer, (int64_t)number, i);
                    td_comm_send(comm, p);
                } else {
                    p->by_reference = (l + peer) % 3 == 0;
                    td_comm_receive(comm, p);
                }
            }
    for (int32_t k = 0; k < size * LENGTHS; k++) {
        const int64_t bytes = lengths[k % LENGTHS];
        void *own = in[k].data;
        no_error(td_comm_wait(comm, &in[k]));
        require(in[k].bytes == bytes && in[k].words[2] == in[k].number + 5, "another length or word");
        for (int64_t i = 0; i < bytes; i++)
            require(((unsigned char *)in[k].data)[i] == byte_at(k / LENGTHS, me, (int64_t)in[k].number, i),
                    "another byte");
        td_comm_release(comm, &in[k]);
        td_free(own);
    }
    for (int32_t k = 0; k < size * LENGTHS; k++) {
        no_error(td_comm_wait(comm, &out[k]));
        if (!lends)
            td_free(out[k].data);
    }
    td_free(in);
    td_free(out);
}

/* Answers each request with its bytes doubled, in place where it may. */
static void *serve(void *unused)
{
    td_request *request = NULL;
    (void)unused;
    for (;;) {
        no_error(td_comm_next_request(comm, &request));
        if (!request)
            return NULL;
        unsigned char own[9000], *doubled = request->answer ? request->answer : own;
        require(!request->answer || request->answer_bytes >= request->bytes, "no room in place");
        for (int64_t i = 0; i < request->bytes; i++)
            doubled[i] = (unsigned char)(2 * ((const unsigned char *)request->data)[i]);
        td_parcel answer = {.peer = request->from,
                            .kind = TD_REPLIES + 1,
                            .number = request->number,
                            .data = own,
                            .bytes = request->bytes,
                            .in_place = request->answer != NULL};
        td_comm_send(comm, &answer);
        no_error(td_comm_wait(comm, &answer));
        td_comm_free_request(comm, request);
    }
}

static void ask(int64_t number)
{
    const int32_t to = (int32_t)((td_comm_rank(comm) + number) % td_comm_size(comm));
    const int64_t bytes = number * 450;
    no_error(td_comm_buffer_room(comm, &question_room, 9000));
    no_error(td_comm_buffer_room(comm, &answer_room, 9000));
    memset(question_room.data, (int)number, 9000);
    memset(answer_room.data, 255, 9000);
    const unsigned char *answer = (const unsigned char *)answer_room.data;
    td_parcel in = {.peer = to,
                    .kind = TD_REPLIES + 1,
                    .number = (uint64_t)number,
                    .data = answer_room.data,
                    .bytes = 9000,
                    .buffer = number % 3 ? &answer_room : NULL};
    td_parcel out = {.peer = to,
                     .kind = TD_REQUESTS,
                     .number = (uint64_t)number,
                     .data = question_room.data,
                     .bytes = bytes,
                     .buffer = number % 2 ? &question_room : NULL,
                     .answer = &in};
    td_comm_receive(comm, &in);
    td_comm_send(comm, &out);
    no_error(td_comm_wait(comm, &out));
    no_error(td_comm_wait(comm, &in));
    require(in.bytes == bytes, "an answer of another length");
    for (int64_t i = 0; i < bytes; i++)
        require(answer[i] == (unsigned char)(2 * number), "another answer");
}

static td_request *next_request(void)
{
    td_request *request = NULL;
    no_error(td_comm_next_request(comm, &request));
    require(request, "no request");
    return request;
}

/* A question to itself is given back by its answer, and only by that: once the answer is there, what it was lent by is another's. */
static void lend_again(void)
{
    const int32_t me = td_comm_rank(comm);
    no_error(td_comm_buffer_room(comm, &question_room, 9000));
    td_parcel in = {.peer = me, .kind = TD_REPLIES + 1, .number = 1000};
    td_parcel first = {.peer = me, .kind = TD_REQUESTS, .number = 1000, .data = question_room.data, .bytes = 9000};
    first.buffer = &question_room;
    td_parcel second = first, answer = in;
    first.answer = &in;
    td_comm_receive(comm, &in);
    td_comm_send(comm, &first);
    td_request *one = next_request();
    td_comm_send(comm, &answer);
    no_error(td_comm_wait(comm, &in));
    no_error(td_comm_wait(comm, &first));
    td_comm_send(comm, &second);
    td_request *two = next_request();
    require(two->lending == one->lending, "another lending");
    td_comm_free_request(comm, one);
    require(td_near_is_lent(comm->near, two->lending), "a request is given back by the one before");
    td_comm_free_request(comm, two);
    no_error(td_comm_wait(comm, &second));
}

/* Nobody goes on before all are here. */
static void meet(uint64_t number)
{
    td_parcel out[64], in[64];
    for (int32_t r = 0; r < td_comm_size(comm); r++) {
        in[r] = (td_parcel){.peer = r, .kind = TD_REPLIES + 2, .number = number};
        out[r] = (td_parcel){.peer = r, .kind = TD_REPLIES + 2, .number = number};
        td_comm_receive(comm, &in[r]);
        td_comm_send(comm, &out[r]);
    }
    for (int32_t r = 0; r < td_comm_size(comm); r++) {
        no_error(td_comm_wait(comm, &in[r]));
        no_error(td_comm_wait(comm, &out[r]));
    }
}

static int exchange(void)
{
    pthread_t server;
    for (int64_t round = 0; round < ROUNDS; round++)
        exchange_round(round, round % 2 == 0);
    lend_again();
    meet(0);
    require(td_thread_create(&server, serve, NULL) == 0, "no thread");
    for (int64_t number = 0; number < REQUESTS; number++)
        ask(number);
    meet(1);
    td_comm_end_requests(comm);
    pthread_join(server, NULL);
    td_comm_buffer_free(comm, &lent_room);
    td_comm_buffer_free(comm, &question_room);
    td_comm_buffer_free(comm, &answer_room);
    require(td_comm_close(comm, NULL, NULL), "MPI was not finalized");
    return 0;
}

enum { NUMBERS = 100003 };

static float number_at(int32_t rank, int which, int64_t i)
{
    return (float)((i * 37 + rank * 101 + which * 13) % 1009 - 500) * (i % 3 ? 1e-3F : 1e3F) / 7;
}

/* That every rank that summed up has these numbers, bit for bit. */
static void compare_with_others(const float *sums, int32_t n_ranks, uint64_t number)
{
    td_parcel in[64], out[64];
    float *theirs = td_calloc((size_t)n_ranks * NUMBERS, sizeof *theirs);
    for (int32_t r = 0; r < n_ranks; r++) {
        out[r] = (td_parcel){.peer = r, .kind = TD_REPLIES + 4, .number = number};
        out[r].data = (void *)(uintptr_t)sums;
        out[r].bytes = NUMBERS * (int64_t)sizeof *sums;
        in[r] = out[r];
        in[r].data = theirs + r * (int64_t)NUMBERS;
        td_comm_receive(comm, &in[r]);
        td_comm_send(comm, &out[r]);
    }
    for (int32_t r = 0; r < n_ranks; r++) {
        no_error(td_comm_wait(comm, &in[r]));
        no_error(td_comm_wait(comm, &out[r]));
        require(!memcmp(in[r].data, sums, NUMBERS * sizeof *sums), "another rank has another sum");
    }
    td_free(theirs);
}

static int add_up(void)
{
    const int32_t me = td_comm_rank(comm), n_ranks = td_comm_size(comm) - 1;
    td_parcel sums[2];
    for (int which = 0; which < 2 && me < n_ranks; which++) {
        float *numbers = td_calloc(NUMBERS, sizeof *numbers);
        for (int64_t i = 0; i < NUMBERS; i++)
            numbers[i] = number_at(me, which, i);
        sums[which] = (td_parcel){.peer = me, .data = numbers, .bytes = NUMBERS * (int64_t)sizeof *numbers};
        if (!which || me) /* rank 0 takes no part in the second one until all have heard of each other */
            td_comm_add_up(comm, &sums[which]);
    }
    meet(1);
    if (!me)
        td_comm_add_up(comm, &sums[1]);
    for (int which = 0; which < 2 && me < n_ranks; which++) {
        float *numbers = sums[which].data;
        no_error(td_comm_wait(comm, &sums[which]));
        for (int64_t i = 0; i < NUMBERS; i++) {
            double sum = 0, size = 0;
            for (int32_t r = 0; r < n_ranks; r++) {
                sum += number_at(r, which, i);
                size += fabs((double)number_at(r, which, i));
            }
            require(fabs(sum - (double)numbers[i]) <= 1e-6 * size, "not the sum");
        }
        compare_with_others(numbers, n_ranks, (uint64_t)which);
        td_free(numbers);
    }
    td_parcel none = {.peer = me};
    td_comm_add_up(comm, &none); /* of no numbers: nobody else need take part */
    no_error(td_comm_wait(comm, &none));
    require(td_comm_close(comm, NULL, NULL), "MPI was not finalized");
    return 0;
}

/* Waits for a message that never comes; what comes in its place goes into a file. */
static int expect_failure(int32_t rank, const char *words, const char *file)
{
    char name[32], sent[16];
    td_parcel in = {.peer = rank, .kind = TD_REPLIES + 3, .number = 9, .data = sent, .bytes = sizeof sent};
    td_comm_receive(comm, &in);
    td_status *status = td_comm_wait(comm, &in);
    require(status != NULL, "no failure");
    snprintf(name, sizeof name, "worker %d", rank);
    if (!strstr(td_status_message(status), name) || !strstr(td_status_message(status), words) ||
        !strstr(td_status_message(status), td_comm_host(comm, rank)) || !strstr(td_status_message(status), "41"))
        require(false, td_status_message(status));
    FILE *heard = fopen(file, "a"); /* Open MPI 5 prints nothing more of any rank once one has ended with an error */
    require(heard && fprintf(heard, "%s\n", td_status_message(status)) > 0 && !fclose(heard),
            "cannot say what was heard");
    td_status_destroy(status);
    require(!td_comm_close(comm, NULL, NULL), "MPI was finalized without the lost rank");
    _exit(0);
}

enum { EXPECTED = 200000 };

/* A message of other than the expected length is refused, and who sent it named. */
static int wrong_length(int64_t bytes, bool is_late)
{
    char *data = td_calloc(2 * EXPECTED, 1);
    char said[128];
    td_parcel p = {.peer = 1, .kind = TD_REPLIES + 3, .number = 5, .data = data, .bytes = EXPECTED, .least = EXPECTED};
    if (td_comm_rank(comm) == 1) {
        p.peer = 0;
        p.bytes = bytes;
        p.least = 0;
        td_comm_send(comm, &p);
        td_status_destroy(td_comm_wait(comm, &p));
        td_parcel never = {.peer = 0, .kind = TD_REPLIES + 3, .number = 6};
        if (is_late)
            meet(2);
        td_comm_receive(comm, &never);
        td_status_destroy(td_comm_wait(comm, &never));
        (void)td_comm_close(comm, NULL, NULL);
        _exit(0);
    }
    if (is_late) /* letters of one rank come in their order */
        meet(2);
    td_comm_receive(comm, &p);
    td_status *status = td_comm_wait(comm, &p);
    snprintf(said, sizeof said, "on %s, step 0) sends %lld bytes where %d are expected", td_comm_host(comm, 1),
             (long long)bytes, EXPECTED);
    require(status && strstr(td_status_message(status), "worker 1 (rank 1 ") && strstr(td_status_message(status), said),
            status ? td_status_message(status) : "another length is taken");
    printf("refused: %s\n", td_status_message(status));
    fflush(stdout);
    td_status_destroy(status);
    td_free(data);
    (void)td_comm_close(comm, NULL, NULL);
    _exit(0);
}

int main(int argc, char **argv)
{
    const bool far = argc == 2 && !strcmp(argv[1], "far");
    const bool adds_up = argc == 2 && !strcmp(argv[1], "add_up");
    const td_comm_options options = {
        .deadline_s = 20, .all_far = far, .adds_up = adds_up, .apart = adds_up, .adds_at_once = NUMBERS / 4};
    td_status *status = td_comm_open(&options, &comm);
    no_error(status);
    for (int32_t r = 0; r < td_comm_size(comm); r++) {
        char name[32];
        snprintf(name, sizeof name, "worker %d", r);
        td_comm_name(comm, r, name);
    }
    for (int32_t r = 0; r < td_comm_size(comm); r++)
        require(td_comm_is_near(comm, r) == (!far && r != td_comm_rank(comm)), "ranks of one host do not share memory");
    if (far || (argc == 2 && !strcmp(argv[1], "exchange")))
        return exchange();
    if (adds_up)
        return add_up();
    const bool is_late = argc == 3 && !strcmp(argv[1], "late");
    if (is_late || (argc == 3 && !strcmp(argv[1], "short")))
        return wrong_length(atoll(argv[2]), is_late);
    require(argc == 4,
            "usage: ranks_comm exchange | far | add_up | lost RANK FILE | error RANK FILE | short BYTES | late BYTES");
    const int32_t rank = atoi(argv[2]);
    td_comm_set_step(comm, 41);
    meet(1);
    if (td_comm_rank(comm) != rank)
        return expect_failure(rank, !strcmp(argv[1], "lost") ? "is lost: its process has ended" : "the disk is full",
                              argv[3]);
    if (!strcmp(argv[1], "lost"))
        raise(SIGKILL);
    td_status *error = TD_ERROR(TD_IO, "the disk is full");
    require(!td_comm_close(comm, error, NULL), "MPI was finalized");
    _exit(3);
}
