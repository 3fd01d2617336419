/* What two recordings do not have in common: see diff.h. By what their plans and steps say; a plan of a job has not the tables that
 * servers hold. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "profiler/diff.h"

enum { MOST_WORKERS = 1 << 20 };

static void note(td_diff *diff, const char *what, bool is_work, const char *before, const char *after)
{
    if (!strcmp(before, after) || diff->n_unlike == TD_MOST_UNLIKE)
        return;
    td_unlike *unlike = &diff->unlike[diff->n_unlike++];
    *unlike = (td_unlike){.what = what, .is_work = is_work};
    td_text_cut(unlike->before, sizeof unlike->before, before);
    td_text_cut(unlike->after, sizeof unlike->after, after);
    td_text_mend(unlike->before);
    td_text_mend(unlike->after);
    diff->same_work = diff->same_work && !is_work;
}

static void note_numbers(td_diff *diff, const char *what, bool is_work, int64_t before, int64_t after)
{
    char text[2][24];
    (void)snprintf(text[0], sizeof text[0], "%" PRId64, before);
    (void)snprintf(text[1], sizeof text[1], "%" PRId64, after);
    note(diff, what, is_work, text[0], text[1]);
}

/* ---- lists of names -------------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    const char *name, *is; /* a parameter and its shape; an op and its device */
} entry;

typedef struct entries {
    entry *items;
    int64_t n;
} entries;

static int by_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->is, y->is);
}

static void sort(entries *list)
{
    if (list->n > 1)
        qsort(list->items, (size_t)list->n, sizeof *list->items, by_name);
}

/* What was trained: parameters where they are at home. */
static td_status *list_parameters(const td_trace_plan *plan, entries *out)
{
    TD_TRY(TD_NEW(out->items, plan->n_values + 1));
    for (int32_t v = 0; v < plan->n_values; v++) {
        const td_trace_value *value = &plan->values[v];
        if (!strcmp(value->class, "parameter") && !strcmp(value->storage, "store") && value->producer < 0)
            out->items[out->n++] = (entry){value->name, value->shape};
    }
    sort(out);
    return NULL;
}

/* The ops of the forward pass, without what planning put there. */
static td_status *list_ops(const td_trace_plan *plan, entries *out)
{
    TD_TRY(TD_NEW(out->items, plan->n_nodes + 1));
    for (int32_t n = 0; n < plan->n_nodes; n++) {
        const td_trace_node *node = &plan->nodes[n];
        if (node->phase == TD_TRACE_FORWARD && !node->inserted && !node->view && node->subgraph >= 0)
            out->items[out->n++] = (entry){node->name, plan->devices[plan->subgraphs[node->subgraph].device].name};
    }
    sort(out);
    return NULL;
}

/* How two lists differ: the first name that only one has, and of names that both have the first that is something else. */
typedef struct difference {
    const entry *only[2], *other[2];
    int64_t n_only, n_other;
} difference;

static difference compare(const entries *a, const entries *b)
{
    difference d = {.n_only = 0};
    for (int64_t i = 0, k = 0; i < a->n || k < b->n;) {
        const entry *x = i < a->n ? &a->items[i] : NULL, *y = k < b->n ? &b->items[k] : NULL;
        const int order = !x ? 1 : !y ? -1 : strcmp(x->name, y->name);
        if (order) {
            d.n_only++;
            if (!d.only[0] && !d.only[1])
                d.only[order > 0] = order > 0 ? y : x;
        } else if (strcmp(x->is, y->is) != 0 && !d.n_other++) {
            d.other[0] = x;
            d.other[1] = y;
        }
        i += order <= 0;
        k += order >= 0;
    }
    return d;
}

static void note_others(td_diff *diff, const char *what, bool is_work, const char *between, const difference *d)
{
    char text[2][128], more[40] = "";
    if (!d->n_other)
        return;
    if (d->n_other > 1)
        (void)snprintf(more, sizeof more, ", and %" PRId64 " more", d->n_other - 1);
    for (int i = 0; i < 2; i++)
        (void)snprintf(text[i], sizeof text[i], "%.60s%s%.24s%s", i ? "" : d->other[i]->name, i ? "" : between,
                       d->other[i]->is, i ? more : "");
    note(diff, what, is_work, text[0], text[1]);
}

static void note_only(td_diff *diff, const char *what, bool is_work, const difference *d)
{
    char text[128];
    if (!d->n_only)
        return;
    (void)snprintf(text, sizeof text, "%.80s", d->only[0] ? d->only[0]->name : d->only[1]->name);
    if (d->n_only > 1)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), " and %" PRId64 " more in one alone",
                       d->n_only - 1);
    note(diff, what, is_work, d->only[0] ? text : "none", d->only[0] ? "none" : text);
}

/* ---- each ------------------------------------------------------------------------------------------------------------------------ */

static const char *model_of(const td_analysis *a)
{
    const char *model = json_string_value(json_object_get(a->view->trace->info, "model"));
    return model ? model : "";
}

static int64_t ranks_of(const td_analysis *a)
{
    const json_int_t ranks = json_integer_value(json_object_get(a->view->trace->info, "ranks"));
    return ranks > 1 ? ranks : 1;
}

/* Of a job: those that train, whose samples are as many as this one's. */
static int64_t workers_of(const td_analysis *a)
{
    int64_t n = 0;
    for (int32_t r = 0; a->ranks && r < a->ranks->job->n; r++)
        n += a->ranks->times[r].intervals > 0;
    return n > 1 ? n : 1;
}

/* Of all workers. The last step of an epoch may have fewer. */
static int64_t samples_of(const td_analysis *a)
{
    int64_t most = 0;
    for (int64_t i = 0; i < a->steps->n_steps; i++)
        most = a->steps->steps[i].samples > most ? a->steps->steps[i].samples : most;
    return most < INT64_MAX / MOST_WORKERS ? most * workers_of(a) : most;
}

static void append(char *text, size_t room, const char *between, const char *more)
{
    const size_t at = strlen(text);
    td_text_cut(text + at, room - at, at ? between : "");
    td_text_cut(text + strlen(text), room - strlen(text), more);
}

static void list_devices(const td_analysis *a, char *text, size_t room)
{
    const td_trace_plan *plan = a->view->plan;
    text[0] = '\0';
    for (int32_t d = 0; d < plan->n_devices; d++) {
        append(text, room, " + ", plan->devices[d].name);
        if (!plan->devices[d].host && strcmp(plan->devices[d].name, plan->devices[d].backend) != 0) {
            append(text, room, " ", "(");
            append(text, room, "", plan->devices[d].backend);
            append(text, room, "", ")");
        }
    }
}

/* The kinds of numbers that gradients and activations are. */
static void list_precisions(const td_analysis *a, char *text, size_t room)
{
    static const char *const kinds[] = {"f32", "bf16", "f16"};
    const td_trace_plan *plan = a->view->plan;
    text[0] = '\0';
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool any = false;
        for (int32_t v = 0; v < plan->n_values && !any; v++)
            any = (!strcmp(plan->values[v].class, "activation") || !strcmp(plan->values[v].class, "gradient")) &&
                  !strcmp(plan->values[v].dtype, kinds[k]);
        if (any)
            append(text, room, " + ", kinds[k]);
    }
}

static td_status *note_parameters(td_diff *diff, const td_analysis *before, const td_analysis *after)
{
    entries lists[2] = {{NULL, 0}, {NULL, 0}};
    td_status *status = list_parameters(before->view->plan, &lists[0]);
    if (!status)
        status = list_parameters(after->view->plan, &lists[1]);
    if (!status) {
        const difference d = compare(&lists[0], &lists[1]);
        note_others(diff, "parameters", true, " ", &d);
        note_only(diff, "parameters", ranks_of(before) == 1 && ranks_of(after) == 1, &d);
    }
    td_free(lists[0].items);
    td_free(lists[1].items);
    return status;
}

static td_status *note_ops(td_diff *diff, const td_analysis *before, const td_analysis *after)
{
    entries lists[2] = {{NULL, 0}, {NULL, 0}};
    td_status *status = list_ops(before->view->plan, &lists[0]);
    if (!status)
        status = list_ops(after->view->plan, &lists[1]);
    if (!status) {
        const difference d = compare(&lists[0], &lists[1]);
        note_only(diff, "graph", false, &d);
        note_others(diff, "placement", false, " on ", &d);
    }
    td_free(lists[0].items);
    td_free(lists[1].items);
    return status;
}

td_status *td_diff_find_unlike(td_diff *diff, const td_analysis *before, const td_analysis *after)
{
    char text[2][128];
    diff->same_work = true;
    if (*model_of(before) && *model_of(after))
        note(diff, "model", true, model_of(before), model_of(after));
    TD_TRY(note_parameters(diff, before, after));
    note_numbers(diff, "samples a step", true, samples_of(before), samples_of(after));
    list_devices(before, text[0], sizeof text[0]);
    list_devices(after, text[1], sizeof text[1]);
    note(diff, "devices", false, text[0], text[1]);
    list_precisions(before, text[0], sizeof text[0]);
    list_precisions(after, text[1], sizeof text[1]);
    note(diff, "precision", false, text[0], text[1]);
    TD_TRY(note_ops(diff, before, after));
    note_numbers(diff, "cores", false, before->view->plan->cores, after->view->plan->cores);
    note_numbers(diff, "ranks", false, ranks_of(before), ranks_of(after));
    return NULL;
}

const char *td_diff_unlike_text(const td_diff *diff, bool work, char *buffer, size_t bytes)
{
    buffer[0] = '\0';
    for (int32_t i = 0; i < diff->n_unlike; i++) {
        const td_unlike *u = &diff->unlike[i];
        char one[320];
        if (u->is_work != work)
            continue;
        (void)snprintf(one, sizeof one, "%s %s, then %s", u->what, u->before, u->after);
        append(buffer, bytes, "; ", one);
    }
    return buffer;
}
