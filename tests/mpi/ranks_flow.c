/* What strains the flow of messages between ranks, run by tests/mpi/run under mpirun. Every rank runs this; a rank that finds
 * something wrong says so and ends with 1.
 *
 *     ranks_flow chunks     messages of up to a thousand chunks, each to each at once, more than may be under way
 *     ranks_flow queues     thousands of requests submitted at once, many times more than there are letters, to one rank
 *     ranks_flow large      one message above 2 GiB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "ps/comm.h"
#include "tests/mpi/ranks.h"

enum { SMALL_CHUNK = 1000, ASKED = 1500, MOST_BYTES = 6000 };

static td_comm *comm;

static unsigned char byte_at(int32_t from, int32_t to, int64_t i)
{
    return (unsigned char)(from * 31 + to * 7 + i + i / 251);
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------------ */

static const int64_t lengths[] = {TD_COMM_INLINE, TD_COMM_INLINE + 1,    4 * SMALL_CHUNK, 5 * SMALL_CHUNK + 1,
                                  100000,         1000 * SMALL_CHUNK - 1};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void fill(td_parcel *p, int32_t from, int32_t to)
{
    for (int64_t i = 0; i < p->bytes; i++)
        ((unsigned char *)p->data)[i] = byte_at(from, to, i);
}

static void check(const td_parcel *p, int64_t bytes, int32_t from, int32_t to)
{
    require(p->bytes == bytes, "another length");
    for (int64_t i = 0; i < bytes; i++)
        require(((unsigned char *)p->data)[i] == byte_at(from, to, i), "another byte");
}

static void chunks(void)
{
    const int32_t me = td_comm_rank(comm), size = td_comm_size(comm), n = size * LENGTHS;
    td_parcel *out = td_calloc((size_t)n, sizeof *out), *in = td_calloc((size_t)n, sizeof *in);
    require(out && in, "out of memory");
    for (int32_t k = 0; k < n; k++) {
        out[k] = (td_parcel){.peer = k / LENGTHS, .kind = TD_REPLIES, .number = (uint64_t)k % LENGTHS};
        out[k].bytes = lengths[k % LENGTHS];
        in[k] = out[k];
        out[k].data = td_calloc((size_t)out[k].bytes, 1);
        in[k].data = td_calloc((size_t)in[k].bytes, 1);
        require(out[k].data && in[k].data, "out of memory");
        fill(&out[k], me, out[k].peer);
        if (k % 2)
            td_comm_receive(comm, &in[k]);
        td_comm_send(comm, &out[k]);
    }
    for (int32_t k = 0; k < n; k += 2)
        td_comm_receive(comm, &in[k]);
    for (int32_t k = 0; k < n; k++) {
        no_error(td_comm_wait(comm, &in[k]));
        no_error(td_comm_wait(comm, &out[k]));
        check(&in[k], lengths[k % LENGTHS], in[k].peer, me);
        td_free(in[k].data);
        td_free(out[k].data);
    }
    td_free(in);
    td_free(out);
}

/* ---- queues ------------------------------------------------------------------------------------------------------------------ */

static int64_t bytes_of(int64_t number)
{
    return number % 7 ? number % 100 : MOST_BYTES - number % 100;
}

/* Answers each request with its length, one after the other. */
static void answer_all(int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        td_request *request = NULL;
        no_error(td_comm_next_request(comm, &request));
        require(request && request->bytes == bytes_of((int64_t)request->number), "another request");
        for (int64_t k = 0; k < request->bytes; k++)
            require(((unsigned char *)request->data)[k] == byte_at(request->from, 0, k), "another byte of a request");
        td_parcel answer = {.peer = request->from,
                            .kind = TD_REPLIES + 1,
                            .number = request->number,
                            .words = {(uint64_t)request->bytes}};
        td_comm_send(comm, &answer);
        no_error(td_comm_wait(comm, &answer));
        td_comm_free_request(comm, request);
    }
}

static void ask_all(void)
{
    static unsigned char bytes[MOST_BYTES];
    const int32_t me = td_comm_rank(comm);
    td_parcel *out = td_calloc(ASKED, sizeof *out), *in = td_calloc(ASKED, sizeof *in);
    require(out && in, "out of memory");
    for (int64_t i = 0; i < MOST_BYTES; i++)
        bytes[i] = byte_at(me, 0, i);
    for (int64_t i = 0; i < ASKED; i++) {
        in[i] = (td_parcel){.kind = TD_REPLIES + 1, .number = (uint64_t)i};
        out[i] = (td_parcel){.kind = TD_REQUESTS, .number = (uint64_t)i, .data = bytes, .bytes = bytes_of(i)};
        td_comm_receive(comm, &in[i]);
        td_comm_send(comm, &out[i]);
    }
    for (int64_t i = 0; i < ASKED; i++) {
        no_error(td_comm_wait(comm, &out[i]));
        no_error(td_comm_wait(comm, &in[i]));
        require((int64_t)in[i].words[0] == bytes_of(i), "another answer");
    }
    td_free(in);
    td_free(out);
}

static void queues(void)
{
    if (td_comm_rank(comm) == 0)
        answer_all((int64_t)ASKED * (td_comm_size(comm) - 1));
    else
        ask_all();
}

/* ---- large ------------------------------------------------------------------------------------------------------------------- */

static void large(void)
{
    const int64_t bytes = (INT64_C(1) << 31) + 5;
    const int32_t me = td_comm_rank(comm);
    td_parcel p = {.peer = 1 - me, .kind = TD_REPLIES, .number = 1, .bytes = bytes};
    unsigned char *data = td_calloc((size_t)bytes, 1);
    require(data, "out of memory");
    p.data = data;
    for (int64_t i = 0; i < bytes && me == 0; i += 4093)
        data[i] = byte_at(0, 1, i);
    if (me == 0)
        td_comm_send(comm, &p);
    else
        td_comm_receive(comm, &p);
    no_error(td_comm_wait(comm, &p));
    require(p.bytes == bytes, "another length");
    for (int64_t i = 0; i < bytes && me == 1; i += 4093)
        require(data[i] == byte_at(0, 1, i), "another byte");
    td_free(data);
}

int main(int argc, char **argv)
{
    require(argc == 2, "usage: ranks_flow chunks | queues | large");
    td_comm_options options = {.deadline_s = 20, .all_far = true};
    if (!strcmp(argv[1], "chunks"))
        options.chunk_bytes = SMALL_CHUNK;
    no_error(td_comm_open(&options, &comm));
    if (!strcmp(argv[1], "chunks"))
        chunks();
    else if (!strcmp(argv[1], "queues"))
        queues();
    else
        large();
    require(td_comm_close(comm, NULL, NULL), "MPI was not finalized");
    return 0;
}
