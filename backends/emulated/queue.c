/* Queues of the emulated device: see queue.h.
 *
 * Submitting copies the call into the ring: tensors, and the numbers of scalar arguments; attributes belong to the kernel.
 * This file is the dispatcher: the one place where device addresses become host addresses. Copies take the time of the
 * link: a copy, or a list of them, begins when it is submitted (or what it waits for has happened) and the one before it has
 * left the link, and ends, by the clock, latency + bytes / rate later. Nobody can tell before the next event or kernel: only then is the clock
 * waited for, once for all copies before it.
 *
 * A queue whose one submitter waits for its work anyway has no thread: the submitter carries out what it submits, which spares waking
 * one thread for the work and the other for its end.
 *
 * After an error the queue skips what follows, and so do queues that wait for its events, until event_wait has told
 * somebody. */
#include "backends/emulated/queue.h"

#include <string.h>
#include <time.h>

#include "backends/emulated/ring.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/memory.h"
#include "base/record.h"
#include "base/thread.h"

enum {
    RING_UNITS = 1 << 14, /* 1 MiB: some thousands of submissions */
    TENSOR_BYTES = sizeof(td_tensor),
    WAKE_NS = 20000 /* before a deadline, from where on the clock is watched */
};

typedef enum command_kind { COPY_TO_DEVICE, COPY_TO_HOST, RUN_KERNEL, RECORD_EVENT, WAIT_EVENT } command_kind;

/* What a record of the ring begins with. */
typedef struct command {
    command_kind kind;
    unsigned record; /* RECORD_EVENT, WAIT_EVENT: which record of the event */
    int64_t submitted_ns;
    td_event *event;
    td_kernel *kernel;
    int32_t n_ranges; /* COPY_*: then come the ranges, at host addresses by now */
    void *scratch;
    size_t scratch_bytes;
    td_record_tag tag; /* RUN_KERNEL: what the submitting thread works on */
    int32_t n_inputs, n_outputs;
    /* RUN_KERNEL: then come the input and output tensors, then the numbers of scalar arguments, each at 8 bytes. */
} command;

struct td_queue {
    td_device *device;
    td_queue_kind kind;
    td_team *team;
    td_ring ring;
    bool at_once; /* there is no thread: who submits carries out */
    bool bound;   /* that thread to the team's cores */
    pthread_t thread;
    /* Of the thread that carries out. */
    uint32_t failure;        /* the failure that this queue is affected by; 0: none */
    int64_t link_free_ns;    /* when the link has let go of the last copy */
    int64_t waited_until_ns; /* when the last event this queue waited for had happened */
};

/* ---- failures ------------------------------------------------------------------------------------------------------------ */

static void remember_failure(td_queue *queue, td_status *status)
{
    td_emulated_failure *failure = &queue->device->failure;
    pthread_mutex_lock(&queue->device->lock);
    queue->failure = ++failure->id;
    failure->code = td_status_code(status);
    size_t bytes = strlen(td_status_message(status));
    bytes = bytes < sizeof failure->message ? bytes : sizeof failure->message - 1;
    memcpy(failure->message, td_status_message(status), bytes);
    failure->message[bytes] = '\0';
    pthread_mutex_unlock(&queue->device->lock);
    td_status_destroy(status);
}

/* Whether work is to be skipped. */
static bool is_affected(td_queue *queue)
{
    if (queue->failure && atomic_load(&queue->device->failure.reported) >= queue->failure)
        queue->failure = 0;
    return queue->failure != 0;
}

/* ---- carrying out ---------------------------------------------------------------------------------------------------------- */

/* Sleeps for most of it: the system wakes a thread some microseconds late, which a copy of some would feel. */
static void wait_for_link(const td_queue *queue)
{
    const int64_t wake_ns = queue->link_free_ns - WAKE_NS;
    const struct timespec wake = {(time_t)(wake_ns / 1000000000), (long)(wake_ns % 1000000000)};
    while (td_clock_ns() < wake_ns)
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
    while (td_clock_ns() < queue->link_free_ns)
        td_spin_pause();
}

static void carry_out_copy(td_queue *queue, const command *copy)
{
    td_device *device = queue->device;
    const td_copy_range *ranges = (const td_copy_range *)(copy + 1);
    size_t bytes = 0;
    for (int32_t i = 0; i < copy->n_ranges; bytes += ranges[i++].bytes)
        if (ranges[i].bytes)
            memcpy(ranges[i].to, ranges[i].from, ranges[i].bytes);
    if (bytes == 0)
        return;
    int64_t start = copy->submitted_ns > queue->waited_until_ns ? copy->submitted_ns : queue->waited_until_ns;
    if (start < queue->link_free_ns)
        start = queue->link_free_ns;
    double seconds = device->link_latency_s + (double)bytes / device->link_bytes_per_s;
    queue->link_free_ns = start + (int64_t)(seconds * 1e9);
    atomic_fetch_add(copy->kind == COPY_TO_DEVICE ? &device->copied_to_device : &device->copied_to_host, bytes);
}

static void carry_out_kernel(td_queue *queue, const command *run)
{
    const td_tensor *tensors = (const td_tensor *)(run + 1);
    td_kernel_call call = {
        .struct_size = sizeof call,
        .op = run->kernel->op,
        .name = run->kernel->name,
        .attrs = run->kernel->attrs,
        .n_attrs = run->kernel->n_attrs,
        .inputs = tensors,
        .outputs = tensors + run->n_inputs,
        .n_inputs = run->n_inputs,
        .n_outputs = run->n_outputs,
        .scratch = run->scratch,
        .scratch_bytes = run->scratch_bytes,
    };
    uint64_t from = run->tag.set ? td_record_begin() : 0;
    td_status *status = td_cpu_engine_run(run->kernel->prepared, &call, queue->team);
    if (from)
        td_record_write(TD_RECORD_OP, run->tag.id, run->tag.step, run->tag.micro, from, td_ticks(), 0);
    if (status)
        remember_failure(queue, status);
}

static void carry_out_wait(td_queue *queue, const command *wait)
{
    td_event_wait_for(wait->event, wait->record);
    queue->waited_until_ns = td_clock_ns();
    uint32_t failure = atomic_load(&wait->event->failure);
    if (failure > queue->failure)
        queue->failure = failure;
}

static void carry_out(td_queue *queue, const command *next)
{
    switch (next->kind) {
    case COPY_TO_DEVICE:
    case COPY_TO_HOST:
        if (!is_affected(queue))
            carry_out_copy(queue, next);
        break;
    case RUN_KERNEL:
        wait_for_link(queue);
        if (!is_affected(queue))
            carry_out_kernel(queue, next);
        break;
    case RECORD_EVENT:
        wait_for_link(queue);
        td_event_complete(next->event, next->record, is_affected(queue) ? queue->failure : 0);
        break;
    case WAIT_EVENT:
        carry_out_wait(queue, next);
        break;
    }
}

/* To the team's cores; a copy queue has none. */
static void bind_self(td_queue *queue)
{
    td_status *status = td_team_bind_self(queue->team);
    if (status)
        remember_failure(queue, status);
    queue->bound = true;
}

static void *run_queue(void *argument)
{
    td_queue *queue = argument;
    td_record_name_thread("emulated %s", queue->kind == TD_QUEUE_COMPUTE ? "compute" : "copies");
    if (queue->kind != TD_QUEUE_COMPUTE)
        td_thread_run_soon();
    bind_self(queue);
    const command *next = NULL;
    while ((next = td_ring_next(&queue->ring)) != NULL) {
        carry_out(queue, next);
        td_ring_pop(&queue->ring);
    }
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------------------- */

td_status *td_emulated_queue_open(td_device *device, const td_queue_options *options, td_queue **out_queue)
{
    *out_queue = NULL;
    td_queue *queue = td_calloc_aligned(sizeof *queue); /* the ring's counters want cache lines of their own */
    if (!queue)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a queue");
    queue->device = device;
    queue->kind = options->kind;
    queue->at_once = options->flags & TD_QUEUE_SUBMITTER_WAITS;
    td_status *status = NULL;
    int32_t threads = options->threads > 0 ? options->threads : options->n_cores > 0 ? options->n_cores : device->cores;
    if (queue->kind == TD_QUEUE_COMPUTE)
        TD_TRY_OR(status, failed, td_team_create(threads, options->cores, options->n_cores, &queue->team));
    td_team_allow_spinning(queue->team, !(options->flags & TD_QUEUE_SHARES_CORES));
    TD_TRY_OR(status, failed, td_ring_init(&queue->ring, RING_UNITS));
    if (!queue->at_once && td_thread_create(&queue->thread, run_queue, queue) != 0) {
        status = TD_ERROR(TD_OUT_OF_MEMORY, "emulated: the system refuses another thread for a queue");
        goto failed;
    }
    *out_queue = queue;
    return NULL;
failed:
    td_ring_deinit(&queue->ring);
    td_team_destroy(queue->team);
    td_free(queue);
    return status;
}

void td_emulated_queue_close(td_queue *queue)
{
    if (!queue)
        return;
    if (!queue->at_once) {
        td_ring_close(&queue->ring);
        (void)pthread_join(queue->thread, NULL);
    }
    td_ring_deinit(&queue->ring);
    td_team_destroy(queue->team);
    td_free(queue);
}

/* ---- submitting ---------------------------------------------------------------------------------------------------------------- */

/* Where a queue has no thread nothing is published, and each command lies at the ring's beginning. */
static void hand_over(td_queue *queue, const command *begun)
{
    if (!queue->at_once) {
        td_ring_publish(&queue->ring);
        return;
    }
    if (!queue->bound)
        bind_self(queue);
    carry_out(queue, begun);
}

static void submit(td_queue *queue, const command *given)
{
    command *slot = td_ring_begin(&queue->ring, sizeof *slot);
    *slot = *given;
    hand_over(queue, slot);
}

static td_status *wrong_direction(td_queue *queue, td_queue_kind refused)
{
    if (queue->kind == refused)
        return TD_ERROR(TD_INTERNAL, "emulated: a copy was submitted to the queue of the other direction");
    return NULL;
}

/* As many lists as the ring needs: one, unless there are thousands of ranges. */
static void submit_copies(td_queue *queue, command_kind kind, const td_copy_range *ranges, int32_t n)
{
    const int32_t most = (int32_t)((td_ring_most(&queue->ring) - sizeof(command)) / sizeof *ranges);
    for (int32_t first = 0; first < n; first += most) {
        const int32_t now = n - first < most ? n - first : most;
        command *copy = td_ring_begin(&queue->ring, sizeof *copy + (size_t)now * sizeof *ranges);
        *copy = (command){.kind = kind, .submitted_ns = td_clock_ns(), .n_ranges = now};
        td_copy_range *to = (td_copy_range *)(copy + 1);
        for (int32_t i = 0; i < now; i++) {
            to[i] = ranges[first + i];
            if (kind == COPY_TO_DEVICE)
                to[i].to = td_emulated_flip(to[i].to);
            else
                to[i].from = td_emulated_flip(to[i].from);
        }
        hand_over(queue, copy);
    }
}

td_status *td_emulated_copy_to_device(td_queue *queue, void *device_memory, const void *host_memory, size_t bytes)
{
    TD_TRY(wrong_direction(queue, TD_QUEUE_TO_HOST));
    submit_copies(queue, COPY_TO_DEVICE, &(td_copy_range){device_memory, host_memory, bytes}, 1);
    return NULL;
}

td_status *td_emulated_copy_to_host(td_queue *queue, void *host_memory, const void *device_memory, size_t bytes)
{
    TD_TRY(wrong_direction(queue, TD_QUEUE_TO_DEVICE));
    submit_copies(queue, COPY_TO_HOST, &(td_copy_range){host_memory, device_memory, bytes}, 1);
    return NULL;
}

td_status *td_emulated_copy_ranges(td_queue *queue, const td_copy_range *ranges, int32_t n)
{
    if (queue->kind == TD_QUEUE_COMPUTE)
        return TD_ERROR(TD_INTERNAL, "emulated: a list of copies was submitted to a compute queue");
    submit_copies(queue, queue->kind == TD_QUEUE_TO_HOST ? COPY_TO_HOST : COPY_TO_DEVICE, ranges, n);
    return NULL;
}

td_status *td_emulated_record(td_event *event, td_queue *queue)
{
    unsigned record = atomic_fetch_add(&event->recorded, 1) + 1;
    submit(queue, &(command){.kind = RECORD_EVENT, .event = event, .record = record});
    return NULL;
}

td_status *td_emulated_queue_wait(td_queue *queue, td_event *event)
{
    submit(queue, &(command){.kind = WAIT_EVENT, .event = event, .record = atomic_load(&event->recorded)});
    return NULL;
}

/* Bytes of a scalar argument's numbers; 0 for other kinds. */
static size_t scalar_bytes(const td_tensor *tensor)
{
    static const uint8_t dtype_bytes[TD_DTYPE_COUNT] = {4, 2, 2, 4, 8, 1, 1, 8};
    if (tensor->kind != TD_SCALAR)
        return 0;
    size_t bytes = dtype_bytes[tensor->dtype];
    for (int32_t i = 0; i < tensor->rank; i++)
        bytes *= (size_t)tensor->dims[i];
    return bytes;
}

/* What they take in the ring. */
static size_t padded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* `to` gets the tensor with host addresses; scalars are copied to *numbers, which moves on. */
static void place_tensor(td_tensor *to, const td_tensor *from, char **numbers)
{
    *to = *from;
    if (from->kind != TD_SCALAR) {
        to->data = td_emulated_flip(from->data);
        to->index = td_emulated_flip(from->index);
        to->count = td_emulated_flip(from->count);
        return;
    }
    size_t bytes = scalar_bytes(from);
    if (bytes)
        memcpy(*numbers, from->data, bytes);
    to->data = *numbers;
    *numbers += padded(bytes);
}

td_status *td_emulated_kernel_run(td_queue *queue, td_kernel *kernel, const td_kernel_call *call)
{
    if (queue->kind != TD_QUEUE_COMPUTE)
        return TD_ERROR(TD_INTERNAL, "emulated: %s %s was submitted to a copy queue", kernel->op, kernel->name);
    size_t n_tensors = (size_t)call->n_inputs + (size_t)call->n_outputs;
    size_t bytes = sizeof(command) + n_tensors * TENSOR_BYTES;
    for (int32_t i = 0; i < call->n_inputs; i++)
        bytes += padded(scalar_bytes(&call->inputs[i]));
    if (bytes > td_ring_most(&queue->ring))
        return TD_ERROR(TD_UNSUPPORTED, "emulated: %s %s has %zu arguments; the queue takes %zu bytes of them, not %zu",
                        kernel->op, kernel->name, n_tensors, td_ring_most(&queue->ring), bytes);
    command *run = td_ring_begin(&queue->ring, bytes);
    *run = (command){.kind = RUN_KERNEL,
                     .kernel = kernel,
                     .tag = td_record_current,
                     .n_inputs = call->n_inputs,
                     .n_outputs = call->n_outputs,
                     .scratch = td_emulated_flip(call->scratch),
                     .scratch_bytes = call->scratch_bytes};
    td_tensor *tensors = (td_tensor *)(run + 1);
    char *numbers = (char *)(tensors + n_tensors);
    for (int32_t i = 0; i < call->n_inputs; i++)
        place_tensor(&tensors[i], &call->inputs[i], &numbers);
    for (int32_t i = 0; i < call->n_outputs; i++)
        place_tensor(&tensors[call->n_inputs + i], &call->outputs[i], &numbers);
    hand_over(queue, run);
    return NULL;
}
