/* Ranks of a job as JSON: part of the report, see report.h. */
#include <stdlib.h>

#include "base/memory.h"
#include "profiler/report.h"

#define MS(ns) (1e-6 * (double)(ns))

/* A step's, of sums over `steps`. */
static void put_work(json_t *to, const char *ms, const char *bytes, const td_rank_work *work, double steps)
{
    if (ms)
        json_object_set_new(to, ms, json_real(MS(work->ns) / steps));
    if (bytes)
        json_object_set_new(to, bytes, json_real((double)work->bytes / steps));
}

/* What a rank told of its ids: only what is known, in the types that it must have. */
static json_t *keys_json(const td_trace *trace)
{
    enum { MOST = 256, MOST_HOT = 64 };
    json_t *out = json_array();
    const json_t *list = trace ? json_object_get(trace->info, "keys") : NULL, *item, *pair;
    size_t i, k;
    json_array_foreach(list, i, item)
    {
        const char *tables = json_string_value(json_object_get(item, "tables"));
        json_int_t ids = json_integer_value(json_object_get(item, "ids"));
        json_int_t distinct = json_integer_value(json_object_get(item, "distinct"));
        json_int_t sampled = json_integer_value(json_object_get(item, "sampled"));
        json_t *hot = json_array();
        json_array_foreach(json_object_get(item, "hot"), k, pair) if (k < MOST_HOT) json_array_append_new(
            hot, json_pack("{s:I, s:f}", "id", json_integer_value(json_array_get(pair, 0)), "share",
                           sampled > 0 ? (double)json_integer_value(json_array_get(pair, 1)) / (double)sampled : 0));
        if (i < MOST)
            json_array_append_new(out, json_pack("{s:s, s:I, s:I, s:f, s:o}", "tables", tables ? tables : "", "ids",
                                                 ids, "distinct", distinct, "ids_per_row",
                                                 distinct > 0 ? (double)ids / (double)distinct : 0, "hot", hot));
        else
            json_decref(hot);
    }
    return out;
}

/* Answers to pulls by how many windows they were behind: up to the most that any was. */
static json_t *staleness_json(const td_rank_times *t)
{
    json_t *list = json_array();
    double mean;
    int32_t most;
    const int64_t n = td_rank_behind(t, &mean, &most);
    for (int32_t i = 0; n && i <= most; i++)
        json_array_append_new(list, json_integer((json_int_t)t->behind[i]));
    return list;
}

static json_t *rank_json(const td_ranks *ranks, int32_t index)
{
    const td_rank_trace *r = &ranks->job->ranks[index];
    const td_rank_times *t = &ranks->times[index];
    double steps = t->steps ? (double)t->steps : 1, met = t->met ? (double)t->met : 1;
    json_t *json = json_pack(
        "{s:i, s:s, s:s, s:s, s:b, s:I, s:I, s:s, s:f, s:f, s:I, s:I, s:f}", "rank", r->rank, "role", r->role, "host",
        r->host, "problem", r->problem, "cut", r->trace ? (int)r->trace->cut : 0, "records",
        (json_int_t)(r->trace ? r->trace->n_events : 0), "dropped", (json_int_t)(r->trace ? r->trace->dropped : 0),
        "aligned", td_job_aligned_name(r->aligned), "clock_offset_ms", 1e-6 * r->offset_ns, "clock_drift_ppm",
        1e6 * r->drift, "clock_error_ns", (json_int_t)r->error_ns, "steps", (json_int_t)t->steps, "step_ms",
        t->intervals ? MS(t->step_ns) / (double)t->intervals : 0);
    put_work(json, "pull_ms", "pull_bytes", &t->pull, steps);
    put_work(json, "push_ms", "push_bytes", &t->push, steps);
    put_work(json, "sum_ms", "sum_bytes", &t->sum, steps);
    put_work(json, "answer_ms", "answer_bytes", &t->answer, steps);
    put_work(json, "apply_ms", "apply_bytes", &t->apply, steps);
    json_t *late = json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "met", (json_int_t)t->met, "times_last",
                             (json_int_t)t->times_last, "late_ms", MS(t->late_ns) / met, "late_median_ms",
                             MS(t->late_median_ns), "late_most_ms", MS(t->late_most_ns), "held_up_ms",
                             MS(t->held_up_ns) / met, "held_up_median_ms", MS(t->held_up_median_ns));
    json_object_update(json, late);
    json_decref(late);
    json_object_set_new(json, "staleness", staleness_json(t));
    json_object_set_new(json, "keys", keys_json(r->shares ? NULL : r->trace));
    json_object_set_new(json, "trained", json_boolean(td_rank_trained(r)));
    if (r->worker >= 0)
        json_object_set_new(json, "worker", json_integer(r->worker));
    return json;
}

typedef struct arrival {
    int64_t ns;
    int32_t place; /* among the job's */
} arrival;

static int by_time(const void *a, const void *b)
{
    const arrival *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? -1 : 1) : x->place - y->place;
}

/* Who arrived at a step's sum, in order, and how late each was. */
static json_t *sum_json(const td_ranks *ranks, int64_t step, arrival *room)
{
    const int64_t *arrivals = &ranks->arrivals_ns[step * ranks->job->n];
    json_t *order = json_array(), *places = json_array(), *late = json_array();
    int32_t n = 0;
    for (int32_t r = 0; r < ranks->job->n; r++)
        if (arrivals[r] != INT64_MIN)
            room[n++] = (arrival){arrivals[r], r};
    if (n > 1)
        qsort(room, (size_t)n, sizeof *room, by_time);
    for (int32_t i = 0; i < n; i++) {
        json_array_append_new(order, json_integer(ranks->job->ranks[room[i].place].rank));
        json_array_append_new(places, json_integer(room[i].place));
        json_array_append_new(late, json_real(1e-6 * ((double)room[i].ns - (double)room[0].ns)));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "step", (json_int_t)(ranks->first_step + step), "order", order, "places",
                     places, "late_ms", late);
}

td_status *td_ranks_json(const td_ranks *ranks, json_t **out_json)
{
    enum { MOST_SUMS = 10000 };
    arrival *room = NULL;
    *out_json = NULL;
    TD_TRY(TD_NEW(room, ranks->job->n + 1));
    json_t *list = json_array(), *sums = json_array();
    for (int32_t r = 0; r < ranks->job->n; r++)
        json_array_append_new(list, rank_json(ranks, r));
    for (int64_t s = 0; s < ranks->n_steps && s < MOST_SUMS; s++)
        json_array_append_new(sums, sum_json(ranks, s, room));
    td_free(room);
    *out_json = json_pack("{s:I, s:I, s:o, s:o}", "first_step", (json_int_t)ranks->first_step, "steps",
                          (json_int_t)ranks->n_steps, "ranks", list, "sums", sums);
    return *out_json ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a report");
}
