/* td_plan_measure_rates: what copies and memory give on this machine, by moving some MiB back and forth. For predictions that a person
 * reads; nothing that is planned depends on it. */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/team.h"
#include "partition/plan.h"

enum { COPY_BYTES = 4 << 20, PIECE_BYTES = 1 << 20, MEMORY_PIECES = 64, TIMES = 3 };

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

typedef struct copying {
    const td_plan_site *site;
    td_queue *queue;
    td_event *event;
    void *device, *host;
    size_t bytes;
} copying;

static td_status *copy_once(const copying *c, td_queue_kind kind)
{
    const td_backend_api *api = c->site->api;
    TD_TRY(kind == TD_QUEUE_TO_DEVICE ? api->copy_to_device(c->queue, c->device, c->host, c->bytes)
                                      : api->copy_to_host(c->queue, c->host, c->device, c->bytes));
    TD_TRY(api->event_record(c->event, c->queue));
    return api->event_wait(c->event);
}

/* The best of a few times: what disturbs a copy only makes it longer. */
static td_status *measure_direction(copying *c, td_queue_kind kind, double *out_rate)
{
    const td_backend_api *api = c->site->api;
    td_queue_options options = {.struct_size = sizeof options, .kind = kind};
    TD_TRY(api->queue_open(c->site->device, &options, &c->queue));
    td_status *status = api->event_create(c->site->device, &c->event);
    for (int i = 0; i < TIMES && !status; i++) {
        int64_t begin = td_clock_ns();
        status = copy_once(c, kind);
        double rate = (double)c->bytes / (1e-9 * (double)(td_clock_ns() - begin + 1));
        *out_rate = rate > *out_rate ? rate : *out_rate;
    }
    if (c->event)
        api->event_destroy(c->event);
    c->event = NULL;
    api->queue_close(c->queue);
    return status;
}

/* A device that is nearly full is measured with what is left of it. */
static size_t copy_bytes(const td_plan_site *site)
{
    uint64_t now = 0, peak = 0, capacity = site->properties.memory_bytes;
    if (site->api->memory_in_use)
        site->api->memory_in_use(site->device, &now, &peak);
    uint64_t left = capacity > now ? capacity - now : 0;
    return capacity && left < COPY_BYTES ? (size_t)left & ~(size_t)(TD_ALIGNMENT - 1) : COPY_BYTES;
}

static td_status *measure_copies(const td_plan_site *site, td_measured_rates *out)
{
    copying c = {.site = site, .bytes = copy_bytes(site)};
    if (!c.bytes)
        return NULL;
    c.host = td_calloc(1, c.bytes);
    if (!c.host)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory to measure copies");
    td_status *status = site->api->allocate(site->device, c.bytes, &c.device);
    if (!status) {
        status = measure_direction(&c, TD_QUEUE_TO_DEVICE, &out->to_device);
        if (!status)
            status = measure_direction(&c, TD_QUEUE_TO_HOST, &out->to_host);
        site->api->release(site->device, c.device);
    }
    td_free(c.host);
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

typedef struct streaming {
    char *to;
    const char *from;
} streaming;

static void stream_piece(void *context, int64_t piece, int32_t thread)
{
    (void)thread;
    const streaming *s = context;
    memcpy(s->to + piece * PIECE_BYTES, s->from + piece * PIECE_BYTES, PIECE_BYTES);
}

static td_status *measure_memory(const td_plan_site *site, td_measured_rates *out)
{
    td_team *team = NULL;
    streaming s = {0};
    td_status *status = site->properties.cores > 1 ? td_team_create(site->properties.cores, NULL, 0, &team) : NULL;
    char *memory = td_calloc(2 * MEMORY_PIECES, PIECE_BYTES);
    if (!status && !memory)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory to measure memory");
    for (int i = 0; i < TIMES && !status; i++) { /* the first time also makes the pages */
        s = (streaming){memory + (size_t)MEMORY_PIECES * PIECE_BYTES, memory};
        int64_t begin = td_clock_ns();
        td_team_run_dynamic(team, MEMORY_PIECES, stream_piece, &s);
        double rate = 2.0 * MEMORY_PIECES * PIECE_BYTES / (1e-9 * (double)(td_clock_ns() - begin + 1));
        out->memory = rate > out->memory ? rate : out->memory;
    }
    td_free(memory);
    td_team_destroy(team);
    return status;
}

td_status *td_plan_measure_rates(const td_plan *plan, int32_t device, td_measured_rates *out_rates)
{
    const td_plan_site *site = &plan->sites[device];
    *out_rates = (td_measured_rates){0};
    td_status *status = site->is_host ? measure_memory(site, out_rates) : measure_copies(site, out_rates);
    return td_status_prefix(status, "measuring %s", site->name);
}
