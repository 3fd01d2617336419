/* The communication thread: the only one that calls MPI. See comm.h for what it promises and comm_state.h for what it shares.
 *
 * It keeps one list of MPI requests with a slot each that says what the request is part of. A long message has a tag of its
 * own for its chunks, so those of several messages between the same two ranks do not mix. */
#include "ps/comm_state.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#if TANDEM_HAVE_MPI
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <poll.h>
#include <unistd.h>

#include <mpi.h>

enum {
    KIND_HEARTBEAT = 0,
    KIND_GOODBYE, /* words[0]: 0 all is well, 1 the rank ends with the error in its bytes */
    TAG_LETTER = 1,
    TAG_CHUNKS = 2, /* and so many more */
    N_CHUNK_TAGS = 16384,
    POSTED = 16,  /* letters that may arrive before one is looked at */
    LETTERS = 64, /* letters of ours under way */
    BEAT_NS = 250000000,
    SILENCE_NS = 2000000000, /* worth a word */
    YIELDS = 64,             /* looks without a rest after something happened */
    SHORT_REST_NS = 20000,
    LONG_REST_NS = 1000000,
    WORDS_NS = 300000000 /* for telling the others why this rank ends */
};

typedef enum slot_kind { LETTER_IN, LETTER_OUT, CHUNK_IN, CHUNK_OUT } slot_kind;

typedef struct slot {
    slot_kind kind;
    td_letter *letter;
    td_parcel *parcel;   /* NULL: a letter of this thread's own */
    td_arrival *arrival; /* of a CHUNK_IN that nobody waited for when it began */
} slot;

typedef struct engine {
    td_comm *comm;
    MPI_Comm world;
    MPI_Request *requests;
    slot *slots;
    int *indices;
    MPI_Status *statuses;
    int64_t n, capacity;
    td_letter in[POSTED], out[LETTERS];
    td_letter *free_letters[LETTERS];
    int32_t n_free;
    int32_t next_tag;
    td_parcel *waiting, **waiting_end; /* sends that have no letter yet */
    int64_t last_beat_ns, last_look_ns, last_turn_ns;
    int32_t idle;
    int32_t goodbyes; /* of others, all well */
    bool said_goodbye;
    td_status *status;
} engine;

/* ---- requests -------------------------------------------------------------------------------------------------------------- */

static bool grow(engine *e)
{
    if (e->n < e->capacity)
        return true;
    int64_t capacity = e->capacity ? 2 * e->capacity : 64;
    void *requests = td_realloc(e->requests, (size_t)capacity, sizeof *e->requests);
    e->requests = requests ? requests : e->requests;
    void *slots = td_realloc(e->slots, (size_t)capacity, sizeof *e->slots);
    e->slots = slots ? slots : e->slots;
    void *indices = td_realloc(e->indices, (size_t)capacity, sizeof *e->indices);
    e->indices = indices ? indices : e->indices;
    void *statuses = td_realloc(e->statuses, (size_t)capacity, sizeof *e->statuses);
    e->statuses = statuses ? statuses : e->statuses;
    if (!requests || !slots || !indices || !statuses)
        return false;
    e->capacity = capacity;
    return true;
}

static void note(engine *e, td_status *status)
{
    if (e->status)
        td_status_destroy(status);
    else
        e->status = status;
}

static void note_mpi(engine *e, int code, const char *what, int32_t peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    note(e, TD_ERROR(TD_IO, "MPI cannot %s %s (rank %d on %s): %s", what, peer < 0 ? "?" : e->comm->peers[peer].name,
                     peer, peer < 0 ? "?" : e->comm->peers[peer].hello.host, text));
}

static void add(engine *e, MPI_Request request, slot what)
{
    e->requests[e->n] = request;
    e->slots[e->n++] = what;
}

static void post_letter(engine *e, td_letter *letter)
{
    MPI_Request request;
    if (!grow(e)) {
        note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
        return;
    }
    int code = MPI_Irecv(letter, (int)sizeof *letter, MPI_BYTE, MPI_ANY_SOURCE, TAG_LETTER, e->world, &request);
    note_mpi(e, code, "receive from", -1);
    if (code == MPI_SUCCESS)
        add(e, request, (slot){.kind = LETTER_IN, .letter = letter});
}

static void send_letter(engine *e, int32_t peer, td_letter *letter, td_parcel *parcel, int64_t inlined)
{
    MPI_Request request;
    letter->step = atomic_load_explicit(&e->comm->step, memory_order_relaxed);
    if (!grow(e)) {
        note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
        return;
    }
    int code = MPI_Isend(letter, (int)(offsetof(td_letter, inlined) + (size_t)inlined), MPI_BYTE, peer, TAG_LETTER,
                         e->world, &request);
    note_mpi(e, code, "send to", peer);
    if (code == MPI_SUCCESS)
        add(e, request, (slot){.kind = LETTER_OUT, .letter = letter, .parcel = parcel});
}

/* Chunks of a message that may travel now. */
static void pump(engine *e, td_parcel *parcel, td_arrival *arrival)
{
    while (parcel->under_way < TD_COMM_CHUNKS && parcel->begun < parcel->bytes && !e->status) {
        int64_t left = parcel->bytes - parcel->begun;
        int bytes = (int)(left < TD_COMM_CHUNK ? left : TD_COMM_CHUNK);
        char *data = (char *)parcel->data + parcel->begun;
        MPI_Request request;
        if (!grow(e)) {
            note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for messages"));
            return;
        }
        bool incoming = parcel->is_receive;
        int code = incoming ? MPI_Irecv(data, bytes, MPI_BYTE, parcel->peer, parcel->tag, e->world, &request)
                            : MPI_Isend(data, bytes, MPI_BYTE, parcel->peer, parcel->tag, e->world, &request);
        note_mpi(e, code, incoming ? "receive from" : "send to", parcel->peer);
        if (code != MPI_SUCCESS)
            return;
        parcel->begun += bytes;
        parcel->under_way++;
        add(e, request, (slot){incoming ? CHUNK_IN : CHUNK_OUT, NULL, parcel, arrival});
    }
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

static void start_send(engine *e, td_parcel *parcel)
{
    td_letter *letter = e->free_letters[--e->n_free];
    int64_t inlined = parcel->bytes <= TD_COMM_INLINE ? parcel->bytes : 0;
    letter->kind = parcel->kind;
    letter->number = parcel->number;
    letter->bytes = parcel->bytes;
    letter->tag = parcel->tag = TAG_CHUNKS + e->next_tag;
    memcpy(letter->words, parcel->words, sizeof letter->words);
    if (inlined)
        memcpy(letter->inlined, parcel->data, (size_t)inlined);
    parcel->begun = parcel->ended = inlined;
    if (!inlined && parcel->bytes)
        e->next_tag = (e->next_tag + 1) % N_CHUNK_TAGS;
    send_letter(e, parcel->peer, letter, parcel, inlined);
    pump(e, parcel, NULL);
}

/* Takes what was submitted; starts as much as there are letters for. */
static bool start_submitted(engine *e)
{
    td_comm *comm = e->comm;
    bool any = false;
    pthread_mutex_lock(&comm->mutex);
    if (comm->submitted) {
        *e->waiting_end = comm->submitted;
        e->waiting_end = comm->submitted_end;
        comm->submitted = NULL;
        comm->submitted_end = &comm->submitted;
    }
    pthread_mutex_unlock(&comm->mutex);
    while (e->waiting && e->n_free > comm->size && !e->status) { /* the rest is for this thread's own letters */
        td_parcel *parcel = e->waiting;
        e->waiting = parcel->next;
        if (!e->waiting)
            e->waiting_end = &e->waiting;
        start_send(e, parcel);
        any = true;
    }
    return any;
}

/* A letter of this thread's own, without bytes or with a few. */
static void say(engine *e, int32_t peer, uint32_t kind, uint64_t word, const char *text)
{
    if (!e->n_free)
        return;
    td_letter *letter = e->free_letters[--e->n_free];
    int64_t bytes = text ? (int64_t)strlen(text) + 1 : 0;
    *letter = (td_letter){.kind = kind, .bytes = bytes, .words = {word}};
    if (text)
        memcpy(letter->inlined, text, (size_t)bytes);
    send_letter(e, peer, letter, NULL, bytes);
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

static td_arrival *new_arrival(engine *e, int32_t peer, const td_letter *letter)
{
    td_arrival *arrival = td_calloc(1, sizeof *arrival);
    void *data = letter->bytes ? td_realloc(NULL, (size_t)letter->bytes, 1) : NULL;
    if (!arrival || (letter->bytes && !data)) {
        td_free(arrival);
        td_free(data);
        note(e, TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a message of %lld bytes from %s",
                         (long long)letter->bytes, e->comm->peers[peer].name));
        return NULL;
    }
    arrival->parcel = (td_parcel){.peer = peer,
                                  .kind = letter->kind,
                                  .number = letter->number,
                                  .data = data,
                                  .bytes = letter->bytes,
                                  .tag = letter->tag,
                                  .is_receive = true};
    memcpy(arrival->parcel.words, letter->words, sizeof letter->words);
    return arrival;
}

/* Under the mutex: a message begins. Its bytes go straight to who waits for them. */
static void begin_message(engine *e, int32_t peer, const td_letter *letter)
{
    td_comm *comm = e->comm;
    td_arrival *arrival = NULL;
    td_parcel *parcel =
        letter->kind >= TD_REPLIES ? td_comm_take_expected(comm, peer, letter->kind, letter->number) : NULL;
    if (parcel && letter->bytes > parcel->bytes) {
        note(e, TD_ERROR(TD_INTERNAL, "%s sends %lld bytes where %lld are expected", comm->peers[peer].name,
                         (long long)letter->bytes, (long long)parcel->bytes));
        return;
    }
    if (!parcel) {
        arrival = new_arrival(e, peer, letter);
        if (!arrival)
            return;
        parcel = &arrival->parcel;
        td_comm_keep(comm, arrival);
    }
    memcpy(parcel->words, letter->words, sizeof letter->words);
    parcel->bytes = letter->bytes;
    parcel->tag = letter->tag;
    if (letter->bytes > TD_COMM_INLINE) {
        pump(e, parcel, arrival);
        return;
    }
    if (letter->bytes)
        memcpy(parcel->data, letter->inlined, (size_t)letter->bytes);
    parcel->done = true;
    if (arrival)
        td_comm_complete(comm, arrival);
    pthread_cond_broadcast(&comm->changed);
}

static void hear(engine *e, int32_t from, const td_letter *letter)
{
    td_peer *peer = &e->comm->peers[from];
    int64_t now = td_clock_ns();
    if (peer->silent)
        td_log(TD_LOG_WARNING, "%s (rank %d on %s) is back after %.1f s", peer->name, from, peer->hello.host,
               (double)(now - peer->heard_ns) / 1e9);
    peer->silent = false;
    peer->heard_ns = now;
    peer->step = letter->step;
    if (letter->kind == KIND_GOODBYE && letter->words[0] == 0) {
        peer->left = true;
        e->goodbyes++;
    } else if (letter->kind == KIND_GOODBYE) {
        peer->left = true;
        note(e, TD_ERROR(TD_IO, "%s (rank %d on %s) has ended at step %lld: %.*s", peer->name, from, peer->hello.host,
                         (long long)letter->step, (int)letter->bytes, letter->inlined));
    } else if (letter->kind != KIND_HEARTBEAT) {
        begin_message(e, from, letter);
    }
}

/* A chunk, or the letter of a message to be sent, is through. */
static void advance(engine *e, const slot *what, int64_t bytes)
{
    td_parcel *parcel = what->parcel;
    if (what->kind == LETTER_OUT) {
        e->free_letters[e->n_free++] = what->letter;
        if (!parcel)
            return;
        parcel->letter_out = true;
    } else {
        parcel->under_way--;
        parcel->ended += bytes;
        pump(e, parcel, what->arrival);
    }
    bool through = parcel->ended == parcel->bytes && (parcel->is_receive || parcel->letter_out);
    if (!through)
        return;
    parcel->done = true;
    if (what->arrival)
        td_comm_complete(e->comm, what->arrival);
    pthread_cond_broadcast(&e->comm->changed);
}

/* Bytes of a chunk that is through; all that are sent are full but the last. */
static int64_t chunk_bytes(const slot *what, const MPI_Status *status)
{
    int count = 0;
    if (what->kind == LETTER_OUT)
        return 0;
    if (what->kind == CHUNK_IN) {
        MPI_Get_count(status, MPI_BYTE, &count);
        return count;
    }
    int64_t left = what->parcel->bytes - what->parcel->ended;
    return left < TD_COMM_CHUNK ? left : TD_COMM_CHUNK;
}

static void drop_ended(engine *e)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < e->n; i++) {
        if (e->requests[i] == MPI_REQUEST_NULL)
            continue;
        e->requests[kept] = e->requests[i];
        e->slots[kept++] = e->slots[i];
    }
    e->n = kept;
}

static bool look(engine *e)
{
    int n = 0;
    int code = MPI_Testsome((int)e->n, e->requests, &n, e->indices, e->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        note_mpi(e, code, "go on with", -1);
    if (n == MPI_UNDEFINED || n == 0)
        return false;
    /* What follows adds requests at the end; those that ended keep their places until drop_ended. */
    pthread_mutex_lock(&e->comm->mutex);
    for (int i = 0; i < n && !e->status; i++) {
        const slot what = e->slots[e->indices[i]];
        const MPI_Status status = e->statuses[i];
        int32_t peer = what.kind == LETTER_IN ? status.MPI_SOURCE : what.parcel ? what.parcel->peer : -1;
        if (code == MPI_ERR_IN_STATUS)
            note_mpi(e, status.MPI_ERROR, "exchange messages with", peer);
        if (e->status)
            break;
        if (what.kind == LETTER_IN) {
            hear(e, peer, what.letter);
            post_letter(e, what.letter);
        } else {
            advance(e, &what, chunk_bytes(&what, &status));
        }
    }
    pthread_mutex_unlock(&e->comm->mutex);
    drop_ended(e);
    return true;
}

/* ---- the others ------------------------------------------------------------------------------------------------------------ */

static void lose(engine *e, int32_t rank, const char *why)
{
    const td_peer *peer = &e->comm->peers[rank];
    note(e, TD_ERROR(TD_IO, "%s (rank %d on %s) is lost: %s; its last step was %lld", peer->name, rank,
                     peer->hello.host, why, (long long)peer->step));
}

static bool has_ended(const td_peer *peer)
{
    struct pollfd poller = {.fd = peer->process, .events = POLLIN};
    return peer->process >= 0 && poll(&poller, 1, 0) > 0;
}

static void watch(engine *e, int64_t now)
{
    td_comm *comm = e->comm;
    char why[64];
    for (int32_t r = 0; r < comm->size && !e->status; r++) {
        td_peer *peer = &comm->peers[r];
        if (r == comm->rank || peer->left)
            continue;
        double silence = (double)(now - peer->heard_ns) / 1e9;
        (void)snprintf(why, sizeof why, "not heard of for %.0f s", silence);
        if (!peer->ended_ns && has_ended(peer))
            peer->ended_ns = now; /* what it sent last is still to be read */
        if (peer->ended_ns && now - peer->ended_ns > TD_COMM_LOOK_NS)
            lose(e, r, "its process has ended");
        else if (silence > comm->options.deadline_s)
            lose(e, r, why);
        else if (silence * 1e9 > SILENCE_NS && !peer->silent) {
            peer->silent = true;
            td_log(TD_LOG_WARNING, "%s (rank %d on %s) has been silent for %.1f s; waiting up to %.0f s", peer->name, r,
                   peer->hello.host, silence, comm->options.deadline_s);
        }
    }
}

static void beat(engine *e)
{
    td_comm *comm = e->comm;
    int64_t now = td_clock_ns();
    if (now - e->last_turn_ns > SILENCE_NS / 2) /* this process slept: nobody else was silent */
        for (int32_t r = 0; r < comm->size; r++)
            comm->peers[r].heard_ns = now;
    e->last_turn_ns = now;
    if (now - e->last_beat_ns > BEAT_NS) {
        e->last_beat_ns = now;
        for (int32_t r = 0; r < comm->size && !e->status; r++)
            if (r != comm->rank && !e->said_goodbye)
                say(e, r, KIND_HEARTBEAT, 0, NULL);
    }
    if (now - e->last_look_ns > TD_COMM_LOOK_NS) {
        e->last_look_ns = now;
        watch(e, now);
    }
}

/* Between two looks. After something happened only the core is offered to others, then rests grow. */
static void rest(engine *e, bool progressed)
{
    e->idle = progressed ? 0 : e->idle + 1;
    if (e->idle < YIELDS) {
        (void)sched_yield();
        return;
    }
    int64_t ns = SHORT_REST_NS << ((e->idle - YIELDS) / 32 < 6 ? (e->idle - YIELDS) / 32 : 6);
    int64_t at = td_clock_ns() + (ns < LONG_REST_NS ? ns : LONG_REST_NS);
    const struct timespec until = {at / 1000000000, at % 1000000000};
    pthread_mutex_lock(&e->comm->mutex);
    if (!e->comm->submitted && (!e->comm->closing || e->said_goodbye) && !e->comm->failure)
        if (pthread_cond_timedwait(&e->comm->work, &e->comm->mutex, &until) == 0)
            e->idle = 0;
    pthread_mutex_unlock(&e->comm->mutex);
}

/* ---- beginning and end ----------------------------------------------------------------------------------------------------- */

static int64_t pid_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (int64_t)info.st_ino : -1;
}

static int32_t cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(getpid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

static td_status *meet(engine *e)
{
    td_comm *comm = e->comm;
    td_hello mine = {.pid = getpid(),
                     .pid_space = pid_space(),
                     .fingerprint = comm->options.fingerprint,
                     .cores = cores_allowed(),
                     .online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)},
             *all = NULL;
    (void)gethostname(mine.host, sizeof mine.host - 1);
    TD_TRY(TD_NEW(comm->peers, comm->size));
    TD_TRY(TD_NEW(all, comm->size));
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, e->world) != MPI_SUCCESS) {
        td_free(all);
        return TD_ERROR(TD_IO, "the ranks of this job cannot reach each other (MPI_Allgather failed)");
    }
    td_status *status = NULL;
    for (int32_t r = 0; r < comm->size; r++) {
        td_peer *peer = &comm->peers[r];
        *peer = (td_peer){.hello = all[r], .heard_ns = td_clock_ns(), .process = -1};
        (void)snprintf(peer->name, sizeof peer->name, "rank %d", r);
        bool near = strcmp(peer->hello.host, mine.host) == 0 && peer->hello.pid_space == mine.pid_space;
        if (near && r != comm->rank)
            peer->process = (int)syscall(SYS_pidfd_open, (pid_t)peer->hello.pid, 0);
        if (all[r].fingerprint != all[0].fingerprint && !status)
            status = TD_ERROR(TD_INVALID_ARGUMENT,
                              "rank %d (%s) was started with another configuration or version than rank 0 (%s)", r,
                              all[r].host, all[0].host);
    }
    td_free(all);
    return status;
}

static td_status *begin(engine *e)
{
    int provided = 0, rank = 0, size = 1;
    td_comm *comm = e->comm;
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* short rests are short */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return TD_ERROR(TD_IO, "MPI does not start");
    if (provided < MPI_THREAD_FUNNELED)
        return TD_ERROR(TD_UNSUPPORTED, "this MPI knows no threads (MPI_THREAD_FUNNELED)");
    MPI_Comm_dup(MPI_COMM_WORLD, &e->world);
    MPI_Comm_set_errhandler(e->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(e->world, &rank);
    MPI_Comm_size(e->world, &size);
    comm->rank = rank;
    comm->size = size;
    if (size > LETTERS / 2)
        return TD_ERROR(TD_UNSUPPORTED, "a job of %d ranks: at most %d are supported", size, LETTERS / 2);
    TD_TRY(meet(e));
    for (int i = 0; i < LETTERS; i++)
        e->free_letters[e->n_free++] = &e->out[i];
    for (int i = 0; i < POSTED; i++)
        post_letter(e, &e->in[i]);
    e->last_turn_ns = td_clock_ns();
    td_status *status = e->status;
    e->status = NULL;
    return status;
}

/* Tells the others why this rank ends, for as long as it takes but not longer than WORDS_NS. */
static void last_words(engine *e)
{
    td_comm *comm = e->comm;
    td_status_destroy(e->status);
    e->status = NULL;
    int64_t end = td_clock_ns() + WORDS_NS;
    for (int32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && !comm->peers[r].left)
            say(e, r, KIND_GOODBYE, 1, comm->last_words);
    while (td_clock_ns() < end && e->n_free < LETTERS) {
        int n = 0;
        (void)MPI_Testsome((int)e->n, e->requests, &n, e->indices, e->statuses);
        for (int i = 0; n != MPI_UNDEFINED && i < n; i++)
            if (e->slots[e->indices[i]].kind == LETTER_OUT)
                e->n_free++;
        drop_ended(e);
        (void)sched_yield();
    }
}

/* Everybody has said goodbye, and what was on its way has come. */
static bool all_left(engine *e)
{
    td_comm *comm = e->comm;
    pthread_mutex_lock(&comm->mutex);
    bool closing = comm->closing && !comm->submitted;
    pthread_mutex_unlock(&comm->mutex);
    if (!closing || e->waiting)
        return false;
    if (!e->said_goodbye)
        for (int32_t r = 0; r < comm->size; r++)
            if (r != comm->rank)
                say(e, r, KIND_GOODBYE, 0, NULL);
    e->said_goodbye = true;
    return e->goodbyes == comm->size - 1 && e->n == POSTED;
}

static bool is_over(engine *e)
{
    pthread_mutex_lock(&e->comm->mutex);
    if (e->status && !e->comm->failure) {
        td_comm_note_failure(e->comm, e->status);
        e->status = NULL;
    }
    bool over = e->comm->failure || e->comm->abandon;
    pthread_mutex_unlock(&e->comm->mutex);
    return over;
}

static void finish(engine *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        MPI_Cancel(&e->requests[i]);
        MPI_Request_free(&e->requests[i]);
    }
    MPI_Comm_free(&e->world);
    e->comm->finalized = MPI_Finalize() == MPI_SUCCESS;
}

static void run(engine *e)
{
    for (;;) {
        bool progressed = start_submitted(e);
        progressed = look(e) || progressed;
        beat(e);
        if (is_over(e)) {
            if (e->comm->abandon)
                last_words(e);
            return;
        }
        if (all_left(e)) {
            finish(e);
            return;
        }
        rest(e, progressed);
    }
}

static void close_engine(engine *e)
{
    td_free(e->requests);
    td_free(e->slots);
    td_free(e->indices);
    td_free(e->statuses);
    for (int32_t r = 0; e->comm->peers && r < e->comm->size; r++)
        if (e->comm->peers[r].process >= 0)
            close(e->comm->peers[r].process);
    td_status_destroy(e->status);
    td_free(e);
}

void *td_comm_main(void *argument)
{
    td_comm *comm = argument;
    engine *e = NULL;
    td_status *status = TD_NEW(e, 1);
    if (!status) {
        e->comm = comm;
        e->waiting_end = &e->waiting;
        status = begin(e);
    }
    pthread_mutex_lock(&comm->mutex);
    comm->opened = !status;
    comm->stopped = status != NULL;
    comm->failure = status;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    if (!status)
        run(e);
    if (e)
        close_engine(e);
    pthread_mutex_lock(&comm->mutex);
    comm->stopped = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

#else

void *td_comm_main(void *argument)
{
    td_comm *comm = argument;
    pthread_mutex_lock(&comm->mutex);
    comm->failure = td_status_help(TD_ERROR(TD_UNSUPPORTED, "this build has no MPI, so it cannot be a rank of a job"),
                                   "install libopenmpi-dev and openmpi-bin (tools/install-packages), and build again");
    comm->stopped = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

#endif
